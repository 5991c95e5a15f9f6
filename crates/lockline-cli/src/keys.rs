//! The keyboard while a screen is shown: single keys, not echoed, and the terminal as it was afterwards.

use std::io::{IsTerminal, Read};

use nix::sys::signal::{Signal, raise};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::child::by_signal;
use crate::exit::{Failure, code};

/// A terminal that gives single keys for as long as this lives.
#[derive(Debug)]
struct Keys {
    before: Termios,
}

impl Keys {
    /// `None` if standard input is no terminal.
    fn listen() -> Option<Keys> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return None;
        }
        let keys = Keys { before: tcgetattr(&stdin).ok()? };
        keys.take();
        Some(keys)
    }

    fn take(&self) {
        let mut single = self.before.clone();
        // Signals stay on their keys.
        single.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
        let _ = tcsetattr(std::io::stdin(), SetArg::TCSANOW, &single);
    }

    fn give_back(&self) {
        let _ = tcsetattr(std::io::stdin(), SetArg::TCSADRAIN, &self.before);
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Shows something until `q` is pressed, a signal comes, or it fails. Leaves the terminal as it was found.
pub(crate) async fn until_quit(show: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let Some(keys) = Keys::listen() else { return show.await };
    let heard = |kind| signal(kind).map_err(|e| Failure::system("signals cannot be heard", e));
    let (mut interrupt, mut terminate) = (heard(SignalKind::interrupt())?, heard(SignalKind::terminate())?);
    let (mut hang_up, mut stop) =
        (heard(SignalKind::hangup())?, heard(SignalKind::from_raw(Signal::SIGTSTP as i32))?);
    let (mut pressed, mut has_keys) = (read_keys(), true);
    tokio::pin!(show);
    loop {
        let ended = tokio::select! {
            shown = &mut show => return shown,
            key = pressed.recv(), if has_keys => match key {
                Some(b'q' | b'Q') => return Ok(code::OK),
                // Whoever closed the keyboard may still look.
                key => {
                    has_keys = key.is_some();
                    continue;
                }
            },
            _ = interrupt.recv() => Signal::SIGINT,
            _ = terminate.recv() => Signal::SIGTERM,
            _ = hang_up.recv() => Signal::SIGHUP,
            _ = stop.recv() => {
                keys.give_back();
                // The one that cannot be caught: this process stops here, and goes on when it is continued.
                let _ = raise(Signal::SIGSTOP);
                keys.take();
                continue;
            }
        };
        return Ok(by_signal(ended as i32));
    }
}

/// The keys, read on a thread of its own, which ends with the process.
fn read_keys() -> mpsc::UnboundedReceiver<u8> {
    let (tell, pressed) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut key = [0];
        while matches!(std::io::stdin().read(&mut key), Ok(1)) && tell.send(key[0]).is_ok() {}
    });
    pressed
}
