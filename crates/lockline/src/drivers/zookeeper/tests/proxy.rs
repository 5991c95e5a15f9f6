//! A way to a server that loses what the server says.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Listens on a port of its own, for as long as the process lives.
pub(super) struct Proxy {
    pub(super) port: u16,
    switches: Arc<Switches>,
}

#[derive(Default)]
struct Switches {
    /// The next answer is lost, and the connection with it.
    lose_answer: AtomicBool,
    lost: AtomicUsize,
}

impl Proxy {
    pub(super) fn to(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let switches = Arc::new(Switches::default());
        let theirs = switches.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || pass_on(from, to, |_| true));
                let switches = theirs.clone();
                std::thread::spawn(move || {
                    pass_on(server, client, |bytes| {
                        // A ping's answer is 20 bytes long; what is to be lost is the answer to something that was done.
                        let loses = bytes.len() > 20 && switches.lose_answer.swap(false, Ordering::SeqCst);
                        switches.lost.fetch_add(usize::from(loses), Ordering::SeqCst);
                        !loses
                    });
                });
            }
        });
        Proxy { port, switches }
    }

    /// Loses the next answer of the server, and cuts the connection.
    pub(super) fn lose_an_answer(&self) {
        self.switches.lose_answer.store(true, Ordering::SeqCst);
    }

    pub(super) fn lost(&self) -> usize {
        self.switches.lost.load(Ordering::SeqCst)
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, mut lets_pass: impl FnMut(&[u8]) -> bool) {
    let mut buffer = [0; 65536];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if !lets_pass(&buffer[..count]) || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
