//! The name of a lock.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};

/// A lock's name: any UTF-8 of 1 to 512 bytes without NUL. A name is data, never part of a path or a statement.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// Checks a name.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is empty, longer than 512 bytes, or contains NUL.
    pub fn new(text: impl AsRef<str>) -> Result<Name, Error> {
        Name::prefixed("", text.as_ref())
    }

    /// Checks a name that stands in a name space: `prefix` and `text` together.
    pub(crate) fn prefixed(prefix: &str, text: &str) -> Result<Name, Error> {
        let whole = prefix.len() + text.len();
        let problem = if text.is_empty() {
            Some("a lock's name is empty; give it at least one character".to_owned())
        } else if whole > Name::MAX_BYTES {
            Some(format!(
                "a lock's name is {whole} bytes long; the most is {} (hash longer ones)",
                Name::MAX_BYTES
            ))
        } else if text.contains('\0') {
            Some("a lock's name contains a NUL character, which no engine can store safely".to_owned())
        } else {
            None
        };
        match problem {
            Some(message) => Err(Error::new(ErrorKind::Invalid, "name", message)
                .hint("a name is any text of 1 to 512 bytes, such as orders/42")),
            None if prefix.is_empty() => Ok(Name(text.into())),
            None => Ok(Name(format!("{prefix}{text}").into())),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_names_are_refused_or_kept() {
        let long = "ü".repeat(256);
        crate::hostile::texts(&["orders/42", "a b\n{ü}", "../x", &long], |text| match Name::new(text) {
            Ok(name) => {
                assert_eq!(name.as_str(), text);
                assert!((1..=Name::MAX_BYTES).contains(&text.len()) && !text.contains('\0'));
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid),
        });
    }
}
