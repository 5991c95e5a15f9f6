//! Packets on a stream: what belongs together comes in pieces of at most 16 MB, each with its length and its number.

use std::fmt;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{Failure, Result};

/// A piece that is as long as this is followed by another.
const PIECE: usize = 0xff_ffff;
/// No answer of ours is longer: a server that says so is not the one that it should be.
const LONGEST: usize = 64 << 20;

/// A stream to the server: TCP, a Unix socket, or TLS over TCP.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

pub(super) struct Channel {
    stream: Box<dyn Stream>,
    /// What the next piece is numbered, whoever sends it.
    number: u8,
    /// What came and was not read yet.
    received: Vec<u8>,
    /// What was written and not sent yet.
    written: Vec<u8>,
}

impl Channel {
    pub(super) fn new(stream: Box<dyn Stream>) -> Channel {
        Channel { stream, number: 0, received: Vec::new(), written: Vec::new() }
    }

    /// The same exchange goes on over another stream.
    pub(super) fn into_stream(self) -> Result<(Box<dyn Stream>, u8)> {
        // Sent before TLS, but to be read behind it: somebody in between has put it there.
        if !self.received.is_empty() {
            return Err(Failure::Protocol("it did not wait for TLS"));
        }
        Ok((self.stream, self.number))
    }

    pub(super) fn going_on(stream: Box<dyn Stream>, number: u8) -> Channel {
        Channel { number, ..Channel::new(stream) }
    }

    /// A new exchange begins.
    pub(super) fn begin(&mut self) {
        self.number = 0;
    }

    /// Sends a packet.
    pub(super) async fn send(&mut self, packet: &[u8]) -> Result<()> {
        self.put(packet);
        self.flush().await
    }

    /// Writes a packet, to be sent with what comes next.
    pub(super) fn put(&mut self, packet: &[u8]) {
        let mut rest = packet;
        loop {
            let (piece, more) = rest.split_at(rest.len().min(PIECE));
            let length = (piece.len() as u32).to_le_bytes();
            self.written.extend_from_slice(&[length[0], length[1], length[2], self.number]);
            self.written.extend_from_slice(piece);
            self.number = self.number.wrapping_add(1);
            rest = more;
            if piece.len() < PIECE {
                return;
            }
        }
    }

    async fn flush(&mut self) -> Result<()> {
        let sent = self.stream.write_all(&self.written).await;
        self.written.clear();
        sent?;
        self.stream.flush().await?;
        Ok(())
    }

    /// The next packet.
    pub(super) async fn receive(&mut self) -> Result<Vec<u8>> {
        let mut packet = Vec::new();
        loop {
            self.fill(4).await?;
            let length = usize::from(self.received[0])
                | usize::from(self.received[1]) << 8
                | usize::from(self.received[2]) << 16;
            if self.received[3] != self.number {
                return Err(Failure::Protocol("a packet is out of order"));
            }
            if packet.len() + length > LONGEST {
                return Err(Failure::Protocol("a packet is too long"));
            }
            self.number = self.number.wrapping_add(1);
            self.fill(4 + length).await?;
            packet.extend_from_slice(&self.received[4..4 + length]);
            self.received.drain(..4 + length);
            if length < PIECE {
                return Ok(packet);
            }
        }
    }

    async fn fill(&mut self, bytes: usize) -> Result<()> {
        while self.received.len() < bytes {
            self.received.reserve(4096);
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(Failure::Io(std::io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn packets_of_any_length_come_whole() {
        let (one, other) = tokio::io::duplex(1 << 20);
        let (mut one, mut other) = (Channel::new(Box::new(one)), Channel::new(Box::new(other)));
        for length in [0, 1, 5000, PIECE - 1, PIECE, PIECE + 1] {
            let packet = vec![7; length];
            let sent = packet.clone();
            let sending = async {
                one.begin();
                one.send(&sent).await.unwrap();
            };
            let ((), received) = tokio::join!(sending, async {
                other.begin();
                other.receive().await.unwrap()
            });
            assert!(received == packet, "{length}");
        }
    }

    #[tokio::test]
    async fn what_is_out_of_order_or_too_long_is_refused() {
        for bad in [&[1, 0, 0, 9, 7][..], &[1, 0, 0]] {
            let (mut one, other) = tokio::io::duplex(100);
            one.write_all(bad).await.unwrap();
            drop(one);
            assert!(Channel::new(Box::new(other)).receive().await.is_err());
        }
    }
}
