//! The fields of a packet. Every length is checked: what a server sends is not to be believed.

use super::{Failure, Result};

/// What has not been read of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (field, rest) =
            self.0.split_at_checked(length).ok_or(Failure::Protocol("a packet is too short"))?;
        self.0 = rest;
        Ok(field)
    }

    /// A little-endian number of this many bytes, at most 8.
    pub(super) fn number(&mut self, bytes: usize) -> Result<u64> {
        let field = self.take(bytes)?;
        Ok(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// A number that says how long it is; `None` is the NULL of a text row.
    pub(super) fn length(&mut self) -> Result<Option<u64>> {
        Ok(Some(match self.byte()? {
            0xfb => return Ok(None),
            0xfc => self.number(2)?,
            0xfd => self.number(3)?,
            0xfe => self.number(8)?,
            0xff => return Err(Failure::Protocol("a length makes no sense")),
            short => short.into(),
        }))
    }

    /// Bytes that say how many they are; `None` is the NULL of a text row.
    pub(super) fn bytes(&mut self) -> Result<Option<&'a [u8]>> {
        let Some(length) = self.length()? else { return Ok(None) };
        let length = usize::try_from(length).map_err(|_| Failure::Protocol("a length makes no sense"))?;
        self.take(length).map(Some)
    }

    /// Up to a zero, or to the end.
    pub(super) fn until_zero(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        let (field, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or_default();
        field
    }
}

/// Writes bytes behind their length.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = bytes.len() as u64;
    let little = length.to_le_bytes();
    match length {
        0..=250 => out.push(little[0]),
        251..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&little[..2]);
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend_from_slice(&little[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&little);
        }
    }
    out.extend_from_slice(bytes);
}

/// The error that a packet tells, behind its first byte.
pub(super) fn error_of(mut fields: Fields<'_>) -> Failure {
    let Ok(number) = fields.number(2) else { return Failure::Protocol("an error without a number") };
    // `#` and a state of five letters, except from a server that refuses before it knows the client.
    let text = match fields.0 {
        [b'#', _, _, _, _, _, text @ ..] => text,
        text => text,
    };
    let number = u16::try_from(number).unwrap_or_default();
    Failure::Server { number, text: String::from_utf8_lossy(text).into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            let mut out = Vec::new();
            put_bytes(&mut out, &bytes);
            let mut fields = Fields(&out);
            prop_assert_eq!(fields.bytes().unwrap(), Some(&bytes[..]));
            prop_assert!(fields.0.is_empty());
        }

        #[test]
        fn garbage_is_refused_or_read_but_never_beyond_its_end(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut fields = Fields(&bytes);
            while !fields.0.is_empty() && fields.bytes().is_ok() {}
            let mut fields = Fields(&bytes);
            while !fields.0.is_empty() {
                fields.until_zero();
            }
            error_of(Fields(&bytes));
        }
    }

    #[test]
    fn long_texts_and_errors() {
        for length in [250, 251, 0xffff, 0x1_0000] {
            let (bytes, mut out) = (vec![7; length], Vec::new());
            put_bytes(&mut out, &bytes);
            assert_eq!(Fields(&out).bytes().unwrap(), Some(&bytes[..]));
        }
        let failure = error_of(Fields(b"\x10\x04#08004Too many connections"));
        assert_eq!(failure.number(), Some(1040));
        assert_eq!(failure.to_string(), "1040: Too many connections");
        assert_eq!(error_of(Fields(b"\x10\x04Too many")).to_string(), "1040: Too many");
    }
}
