//! A session: how it is made, and how statements are sent over it.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::net::TcpStream;

use super::auth::{Method, encrypted, terminated};
use super::channel::{Channel, Stream};
use super::fields::{Fields, error_of, put_bytes};
use super::row::{Column, Row};
use super::{Failure, Result, Value, tls};
use crate::drivers::mysql::config::{MysqlConfig, Tls};

/// What this client asks for if the server can do it: found rows are counted, not only those that an update has changed; long flags;
/// transactions; answers of any length. Not the newest: results end with a packet of their own, which every
/// server can do.
const WANTED: u32 = 0x2 | 0x4 | 0x2000 | 0x20_0000;
/// What it must be able to do: the newer form of the protocol, with logins by name; a database to begin with;
/// several statements in one text, and several results.
const NEEDED: u32 = 0x8 | 0x200 | 0x8000 | 0x1_0000 | 0x2_0000 | 0x4_0000 | 0x8_0000;
const TLS: u32 = 0x800;
/// utf8mb4.
const CHARSET: u8 = 45;
/// Another result comes behind this one.
const MORE: u64 = 0x8;
/// How many statements are kept prepared. Views of many lines have a text for every number of lines.
const MOST_STATEMENTS: usize = 64;

/// A session.
#[derive(Debug)]
pub(in crate::drivers::mysql) struct Connection {
    channel: Channel,
    /// Statements by their text: the server's number for each, and how many values it takes.
    statements: HashMap<String, (u32, usize)>,
}

/// What the results of a statement say, all of them together.
#[derive(Debug, Default)]
pub(in crate::drivers::mysql) struct Done {
    pub(in crate::drivers::mysql) rows: Vec<Row>,
    /// How many rows were found to be changed, by the last of them.
    pub(in crate::drivers::mysql) changed: u64,
    /// The number that the last of them made.
    pub(in crate::drivers::mysql) made: u64,
}

/// What a server says first.
struct Greeting {
    abilities: u32,
    nonce: Vec<u8>,
    method: Vec<u8>,
}

impl Connection {
    /// Connects and logs in.
    pub(in crate::drivers::mysql) async fn open(config: &MysqlConfig) -> Result<Connection> {
        let mut channel = Channel::new(dial(config).await?);
        let greeting = Greeting::read(&channel.receive().await?)?;
        let mut abilities = NEEDED | WANTED & greeting.abilities;
        // What comes over a socket of this host cannot be read by others.
        let mut is_protected = config.socket.is_some();
        if config.tls != Tls::Off && config.socket.is_none() {
            if greeting.abilities & TLS == 0 {
                return Err(Failure::NoTls);
            }
            abilities |= TLS;
            channel.send(&introduction(abilities)).await?;
            let (stream, number) = channel.into_stream()?;
            channel = Channel::going_on(tls::protect(stream, &config.tls, &config.host).await?, number);
            is_protected = true;
        }
        let mut connection = Connection { channel, statements: HashMap::new() };
        connection.log_in(config, greeting, abilities, is_protected).await?;
        Ok(connection)
    }

    async fn log_in(
        &mut self,
        config: &MysqlConfig,
        greeting: Greeting,
        abilities: u32,
        is_protected: bool,
    ) -> Result<()> {
        let password = config.login.password.as_deref().unwrap_or_default();
        let mut nonce = greeting.nonce;
        // The server's own; a user may have another, which it will say. One that it would send the password by is left for then.
        let offered = Method::of(&greeting.method).unwrap_or(Method::Native);
        let mut method = if offered == Method::Clear { Method::Native } else { offered };
        let mut packet = introduction(abilities);
        packet.extend_from_slice(config.login.user.as_bytes());
        packet.push(0);
        put_bytes(&mut packet, &method.answer(password, &nonce, is_protected)?);
        packet.extend_from_slice(config.login.database.as_bytes());
        packet.push(0);
        packet.extend_from_slice(method.name());
        packet.push(0);
        self.channel.send(&packet).await?;
        loop {
            let answer = self.channel.receive().await?;
            match answer.as_slice() {
                [0x00, ..] => return Ok(()),
                [0xff, error @ ..] => return Err(error_of(Fields(error))),
                [0xfe, other @ ..] if !other.is_empty() => {
                    let mut fields = Fields(other);
                    method = Method::of(fields.until_zero())?;
                    nonce = fields.until_zero().to_vec();
                    self.channel.send(&method.answer(password, &nonce, is_protected)?).await?;
                }
                // It remembers the password.
                [0x01, 0x03] if method == Method::CachingSha2 => {}
                [0x01, 0x04] if method == Method::CachingSha2 && is_protected => {
                    self.channel.send(&terminated(password)).await?;
                }
                // It has forgotten it, and gets it in a way that only it can read: first its public key is asked for.
                [0x01, 0x04] if method == Method::CachingSha2 => self.channel.send(&[2]).await?,
                [0x01, key @ ..] if matches!(method, Method::CachingSha2 | Method::Sha256) => {
                    self.channel.send(&encrypted(password, &nonce, key)?).await?;
                }
                _ => return Err(Failure::Protocol("a login that makes no sense")),
            }
        }
    }

    /// Sends statements as they are, separated by `;`.
    pub(in crate::drivers::mysql) async fn query(&mut self, text: &str) -> Result<Done> {
        self.channel.begin();
        self.channel.send(&[&[0x03], text.as_bytes()].concat()).await?;
        self.results(Row::from_text).await
    }

    /// Sends one statement with its values, which the server prepares once.
    pub(in crate::drivers::mysql) async fn run(&mut self, text: &str, values: &[Value]) -> Result<Done> {
        let answered = self.run_prepared(text, values).await;
        // It has forgotten what it prepared, or what that is about was changed: nothing was done.
        if matches!(answered.as_ref().map_err(Failure::number), Err(Some(1243 | 1615))) {
            self.statements.remove(text);
            return self.run_prepared(text, values).await;
        }
        answered
    }

    async fn run_prepared(&mut self, text: &str, values: &[Value]) -> Result<Done> {
        let (number, wanted) = match self.statements.get(text) {
            Some(known) => *known,
            None => self.prepare(text).await?,
        };
        if wanted != values.len() {
            return Err(Failure::Protocol("a statement takes another number of values"));
        }
        self.channel.begin();
        self.channel.send(&execution(number, values)).await?;
        self.results(Row::from_binary).await
    }

    async fn prepare(&mut self, text: &str) -> Result<(u32, usize)> {
        if self.statements.len() >= MOST_STATEMENTS {
            for (_, (number, _)) in self.statements.drain() {
                self.channel.begin();
                // It is not answered.
                self.channel.put(&[&[0x19][..], &number.to_le_bytes()].concat());
            }
        }
        self.channel.begin();
        self.channel.send(&[&[0x16], text.as_bytes()].concat()).await?;
        let answer = self.channel.receive().await?;
        let mut fields = Fields(&answer);
        match fields.byte()? {
            0x00 => {}
            0xff => return Err(error_of(fields)),
            _ => return Err(Failure::Protocol("a statement was not prepared")),
        }
        let number = u32::try_from(fields.number(4)?).unwrap_or_default();
        let (columns, values) = (fields.number(2)?, fields.number(2)?);
        for some in [values, columns] {
            // Each, and the end of them.
            for _ in 0..if some == 0 { 0 } else { some + 1 } {
                self.channel.receive().await?;
            }
        }
        let known = (number, usize::try_from(values).unwrap_or_default());
        self.statements.insert(text.to_owned(), known);
        Ok(known)
    }

    /// Reads all results of what was sent.
    async fn results(&mut self, row: fn(&Arc<[Column]>, &[u8]) -> Result<Row>) -> Result<Done> {
        let mut done = Done::default();
        loop {
            let first = self.channel.receive().await?;
            let mut fields = Fields(&first);
            let state = match first.first() {
                Some(0x00) => {
                    fields.byte()?;
                    done.changed = fields.length()?.unwrap_or_default();
                    done.made = fields.length()?.unwrap_or_default();
                    fields.number(2)?
                }
                Some(0xff) => return Err(error_of(Fields(&first[1..]))),
                // It asks for a file of this host.
                Some(0xfb) | None => return Err(Failure::Protocol("a result that makes no sense")),
                Some(_) => {
                    let columns = fields.length()?.unwrap_or_default();
                    self.rows(columns, row, &mut done.rows).await?
                }
            };
            if state & MORE == 0 {
                return Ok(done);
            }
        }
    }

    /// Reads one result; answers how it ends.
    async fn rows(
        &mut self,
        columns: u64,
        row: fn(&Arc<[Column]>, &[u8]) -> Result<Row>,
        rows: &mut Vec<Row>,
    ) -> Result<u64> {
        let mut known = Vec::new();
        for _ in 0..columns {
            known.push(Column::read(&self.channel.receive().await?)?);
        }
        let known: Arc<[Column]> = known.into();
        self.channel.receive().await?;
        loop {
            let packet = self.channel.receive().await?;
            match packet.as_slice() {
                // The end: warnings, and the state.
                [0xfe, end @ ..] if end.len() < 8 => {
                    return Fields(end.get(2..).unwrap_or_default()).number(2);
                }
                [0xff, error @ ..] => return Err(error_of(Fields(error))),
                packet => rows.push(row(&known, packet)?),
            }
        }
    }
}

impl Greeting {
    fn read(packet: &[u8]) -> Result<Greeting> {
        let mut fields = Fields(packet);
        match fields.byte()? {
            10 => {}
            0xff => return Err(error_of(fields)),
            _ => return Err(Failure::Protocol("this is no MySQL server")),
        }
        fields.until_zero();
        fields.number(4)?;
        let mut nonce = fields.take(8)?.to_vec();
        fields.byte()?;
        let low = fields.number(2)?;
        fields.take(3)?;
        let high = fields.number(2)?;
        let abilities = u32::try_from(low | high << 16).unwrap_or_default();
        if abilities & NEEDED != NEEDED {
            return Err(Failure::Protocol("this server is too old"));
        }
        let length = usize::from(fields.byte()?);
        fields.take(10)?;
        // Twelve bytes and a zero, or as long as it says.
        let rest = fields.take(length.saturating_sub(8).max(13))?;
        nonce.extend_from_slice(rest.strip_suffix(&[0]).unwrap_or(rest));
        Ok(Greeting { abilities, nonce, method: fields.until_zero().to_vec() })
    }
}

/// What every login begins with, and what alone is said before TLS.
fn introduction(abilities: u32) -> Vec<u8> {
    let mut packet = abilities.to_le_bytes().to_vec();
    // The longest packet that it may send; the character set; nothing.
    packet.extend_from_slice(&0x0100_0000_u32.to_le_bytes());
    packet.push(CHARSET);
    packet.extend_from_slice(&[0; 23]);
    packet
}

fn execution(number: u32, values: &[Value]) -> Vec<u8> {
    let mut packet = vec![0x17];
    packet.extend_from_slice(&number.to_le_bytes());
    packet.extend_from_slice(&[0, 1, 0, 0, 0]);
    if values.is_empty() {
        return packet;
    }
    let mut nulls = vec![0_u8; values.len().div_ceil(8)];
    let (mut kinds, mut data) = (Vec::new(), Vec::new());
    for (nth, value) in values.iter().enumerate() {
        kinds.extend_from_slice(match value {
            Value::Bits(_) | Value::Bytes(_) => &[0xfc, 0],
            Value::Text(_) => &[0xfd, 0],
            Value::Int(_) => &[0x08, 0],
            Value::Null => &[0x06, 0],
        });
        match value {
            Value::Bits(bits) => put_bytes(&mut data, &bits.to_be_bytes()),
            Value::Bytes(bytes) => put_bytes(&mut data, bytes),
            Value::Text(text) => put_bytes(&mut data, text.as_bytes()),
            Value::Int(number) => data.extend_from_slice(&number.to_le_bytes()),
            Value::Null => nulls[nth / 8] |= 1 << (nth % 8),
        }
    }
    packet.extend(nulls);
    // Their kinds are said each time.
    packet.push(1);
    packet.extend(kinds);
    packet.extend(data);
    packet
}

async fn dial(config: &MysqlConfig) -> Result<Box<dyn Stream>> {
    if let Some(path) = &config.socket {
        #[cfg(unix)]
        return Ok(Box::new(tokio::net::UnixStream::connect(path).await?));
        #[cfg(not(unix))]
        return Err(Failure::Login(format!("this system has no sockets such as {}", path.display())));
    }
    let stream = TcpStream::connect((config.host.as_str(), config.port)).await?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_greeting_of_garbage_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = Greeting::read(&bytes);
            let _ = Greeting::read(&[&[10], &bytes[..]].concat());
        }
    }

    #[test]
    fn a_server_that_is_full_says_so_before_anything_else() {
        let failure = Greeting::read(b"\xff\x10\x04#08004Too many connections").err().unwrap();
        assert_eq!(failure.number(), Some(1040));
    }
}
