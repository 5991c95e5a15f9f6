//! Just enough HTTP to ask a service on this machine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// How long any answer may take: longer than a service lets a request wait for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Answer {
    /// What a successful one says.
    pub(super) fn json(&self) -> Result<Value> {
        ensure!(self.status == 200, "the service answered {}: {}", self.status, self.body.trim_end());
        serde_json::from_str(&self.body).with_context(|| format!("not JSON: {}", self.body))
    }
}

/// A request that may have been done or not: it was sent, and there was no whole answer.
#[derive(Debug)]
pub(super) struct Unknown;

/// Connects; `None` if nobody listens, so that nothing can have been done.
pub(super) fn connect(address: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    Some(stream)
}

pub(super) fn send(stream: &mut TcpStream, method: &str, path: &str, body: &str) -> Result<(), Unknown> {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).map_err(|_| Unknown)
}

/// Reads the answer to the only request of a connection.
pub(super) fn receive(stream: &mut TcpStream) -> Result<Answer, Unknown> {
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(|_| Unknown)?;
    parse(&text).ok_or(Unknown)
}

/// `None` if a part of it is missing: whoever was killed while it answered has answered nothing.
fn parse(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    (body.len() == length).then(|| Answer { status, body: body.to_owned() })
}

/// One request and its answer.
pub(super) fn ask(address: SocketAddr, method: &str, path: &str) -> Result<Answer> {
    let mut stream = connect(address).with_context(|| format!("nobody listens on {address}"))?;
    let answer = send(&mut stream, method, path, "").and_then(|()| receive(&mut stream));
    answer.map_err(|Unknown| anyhow::anyhow!("{method} {path} was not answered"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_an_answer_is_none() {
        let whole = "HTTP/1.1 409 Conflict\r\nContent-Length: 4\r\n\r\nbusy";
        assert_eq!(parse(whole).unwrap().status, 409);
        assert_eq!(parse(whole).unwrap().body, "busy");
        for end in 0..whole.len() {
            assert!(parse(&whole[..end]).is_none(), "{end}");
        }
    }
}
