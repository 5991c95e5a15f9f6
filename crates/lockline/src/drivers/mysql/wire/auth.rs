//! Logins: what a password is turned into, by the name of the server's method.

use aws_lc_rs::digest::{self, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use aws_lc_rs::rsa::{OAEP_SHA1_MGF1SHA1, OaepPublicEncryptingKey, PublicEncryptingKey};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;

use super::{Failure, Result};

/// How a server lets users in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// MariaDB's usual one.
    Native,
    /// MySQL's usual one.
    CachingSha2,
    Sha256,
    /// The password as it is: for directories and PAM, and never without protection.
    Clear,
}

impl Method {
    pub(super) fn of(name: &[u8]) -> Result<Method> {
        Ok(match name {
            b"mysql_native_password" => Method::Native,
            b"caching_sha2_password" => Method::CachingSha2,
            b"sha256_password" => Method::Sha256,
            b"mysql_clear_password" => Method::Clear,
            other => {
                let name = String::from_utf8_lossy(other);
                return Err(Failure::Login(format!("the server asks for a login by {name:?}")));
            }
        })
    }

    pub(super) fn name(self) -> &'static [u8] {
        match self {
            Method::Native => b"mysql_native_password",
            Method::CachingSha2 => b"caching_sha2_password",
            Method::Sha256 => b"sha256_password",
            Method::Clear => b"mysql_clear_password",
        }
    }

    /// The first answer to a server that sent `nonce`. `protected`: nobody else can read the connection.
    pub(super) fn answer(self, password: &str, nonce: &[u8], protected: bool) -> Result<Vec<u8>> {
        let hash = |algorithm: &'static digest::Algorithm, parts: &[&[u8]]| {
            let mut context = digest::Context::new(algorithm);
            parts.iter().for_each(|part| context.update(part));
            context.finish().as_ref().to_vec()
        };
        if password.is_empty() {
            return Ok(if matches!(self, Method::Sha256 | Method::Clear) { vec![0] } else { Vec::new() });
        }
        match self {
            Method::Native => {
                let once = hash(&SHA1_FOR_LEGACY_USE_ONLY, &[password.as_bytes()]);
                let twice = hash(&SHA1_FOR_LEGACY_USE_ONLY, &[&once]);
                Ok(xor(once, &hash(&SHA1_FOR_LEGACY_USE_ONLY, &[nonce, &twice])))
            }
            Method::CachingSha2 => {
                let once = hash(&SHA256, &[password.as_bytes()]);
                let twice = hash(&SHA256, &[&once]);
                Ok(xor(once, &hash(&SHA256, &[&twice, nonce])))
            }
            Method::Sha256 | Method::Clear if protected => Ok(terminated(password)),
            // Asks for the server's public key.
            Method::Sha256 => Ok(vec![1]),
            Method::Clear => {
                Err(Failure::Login("the server asks for the password in the clear, without TLS".to_owned()))
            }
        }
    }
}

/// As the server reads it on a protected connection.
pub(super) fn terminated(password: &str) -> Vec<u8> {
    [password.as_bytes(), &[0]].concat()
}

/// The password, for nobody but who has the private half of this key (PEM).
pub(super) fn encrypted(password: &str, nonce: &[u8], key: &[u8]) -> Result<Vec<u8>> {
    let unusable = |_| Failure::Login("the server's public key cannot be used".to_owned());
    let key = SubjectPublicKeyInfoDer::from_pem_slice(key)
        .map_err(|_| Failure::Login("the server sent no public key".to_owned()))?;
    let key = PublicEncryptingKey::from_der(key.as_ref())
        .map_err(|_| Failure::Login("the server's public key cannot be used".to_owned()))?;
    let key = OaepPublicEncryptingKey::new(key).map_err(unusable)?;
    let mut out = vec![0; key.ciphertext_size()];
    let secret = xor(terminated(password), nonce);
    let length = key
        .encrypt(&OAEP_SHA1_MGF1SHA1, &secret, &mut out, None)
        .map_err(|_| Failure::Login("the password is too long for the server's public key".to_owned()))?
        .len();
    out.truncate(length);
    Ok(out)
}

fn xor(mut bytes: Vec<u8>, with: &[u8]) -> Vec<u8> {
    bytes.iter_mut().zip(with.iter().cycle()).for_each(|(byte, with)| *byte ^= with);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the server does it: it knows the hash of the hash, and finds the hash in what was sent.
    #[test]
    fn a_server_can_check_what_is_sent() {
        let nonce = b"abcdefghijklmnopqrst";
        let sent = Method::CachingSha2.answer("secret", nonce, false).unwrap();
        let once = digest::digest(&SHA256, b"secret");
        let twice = digest::digest(&SHA256, once.as_ref());
        let pad = digest::digest(&SHA256, &[twice.as_ref(), nonce].concat());
        assert_eq!(xor(sent, pad.as_ref()), once.as_ref());
        assert!(Method::Clear.answer("secret", nonce, false).is_err());
        assert!(Method::of(b"client_ed25519").is_err());
        assert!(encrypted("secret", nonce, b"no key").is_err());
    }
}
