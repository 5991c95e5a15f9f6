//! Passwords in addresses: they are not handed on to the command, nor shown to everybody by `ps`.

use lockline::EngineUrl;

/// The variable that names the engine.
pub(crate) const URL: &str = "LOCKLINE_URL";
/// Set for the command when its address is not the whole one.
pub(crate) const WITHHELD: &str = "LOCKLINE_PASSWORD_WITHHELD";
/// An address that no engine answers to: better than none, with which another `lockline` would use this host's file.
const NOWHERE: &str = "withheld:";

pub(crate) const SHOWN: &str = "the password after --on is shown by ps to every user of this machine";
pub(crate) const SHOWN_HINT: &str = "put the address into LOCKLINE_URL, or into a file: --on @FILE";
const WITHHELD_HINT: &str = "the lockline run around this one kept the password of LOCKLINE_URL to itself: \
    give that one --pass-url, or this one an address of its own";

/// The address a command gets instead of one with a secret; `None` if it may have what there is.
pub(crate) fn withheld() -> Option<String> {
    std::env::var(URL).ok().filter(|url| !url.is_empty()).and_then(|url| without_secret(&url))
}

/// What to tell somebody who cannot get to an engine, if its password was kept from it.
pub(crate) fn hint() -> Option<&'static str> {
    std::env::var_os(WITHHELD).is_some().then_some(WITHHELD_HINT)
}

/// Whether an option's value is a secret.
fn is_secret(key: &str) -> bool {
    ["password", "passwd", "secret", "token"].iter().any(|word| key.to_ascii_lowercase().contains(word))
}

/// The address without what must not be seen; `None` if there is nothing secret in it.
pub(crate) fn without_secret(url: &str) -> Option<String> {
    // What cannot be understood may be secret in any part.
    let Ok(parsed) = EngineUrl::parse(url) else { return Some(NOWHERE.to_owned()) };
    let (address, query) = url.split_once('?').map_or((url, None), |(address, query)| (address, Some(query)));
    let (open, hidden): (Vec<&str>, Vec<&str>) = query
        .unwrap_or_default()
        .split('&')
        .partition(|pair| !is_secret(pair.split('=').next().unwrap_or("")));
    if parsed.password().is_none() && hidden.is_empty() && !query.is_some_and(|query| query.contains('@')) {
        return None;
    }
    // A `?` in a password that was not escaped: where the secret ends cannot be told.
    if query.is_some_and(|query| query.contains('@')) {
        return Some(NOWHERE.to_owned());
    }
    let (scheme, rest) = address.split_once("//")?;
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let user = login.split(':').next().unwrap_or("");
    let at = if user.is_empty() { "" } else { "@" };
    let query = if open.join("&").is_empty() { String::new() } else { format!("?{}", open.join("&")) };
    Some(format!("{scheme}//{user}{at}{hosts}{path}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_and_nothing_else() {
        for (whole, open) in [
            ("redis://u:c4nary@h:1,i:2/0?lease=5s", "redis://u@h:1,i:2/0?lease=5s"),
            ("redis://:c4nary@h", "redis://h"),
            ("mysql://u:c4n%40ary@h/db", "mysql://u@h/db"),
            ("redis-sentinel://h/m?sentinel_password=c4nary&lease=5s", "redis-sentinel://h/m?lease=5s"),
            ("redis://h?password=c4nary", "redis://h"),
            ("redis://u:p?c4nary@h", NOWHERE),
            ("c4nary", NOWHERE),
        ] {
            assert_eq!(without_secret(whole).as_deref(), Some(open), "{whole}");
        }
        for open in ["sqlite:", "sqlite:/a/b?prefix=x", "redis://u@h/0", "memory:", "etcd://h:1,i:2?space=a"]
        {
            assert_eq!(without_secret(open), None, "{open}");
        }
    }
}
