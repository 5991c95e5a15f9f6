//! Names as paths. `orders/42` is the znode `orders/42` below the base, so that programs in other languages find it; what
//! ZooKeeper does not take, or what could be mistaken for something else, is written with `%` escapes.

use std::fmt::Write;

use super::node::Node;

/// The znode of a line: the folder in which its claims stand.
pub(super) fn of_line(base: &str, name: &str) -> String {
    let mut path = base.to_owned();
    for (index, segment) in name.split('/').enumerate() {
        path.push('/');
        // At the root this is ZooKeeper's own.
        push_segment(&mut path, segment, base.is_empty() && index == 0 && segment == "zookeeper");
    }
    path
}

/// The name of the line whose znode this is, below the base; `None` if no name is written like this.
pub(super) fn name_of(below: &str) -> Option<String> {
    let mut name = String::with_capacity(below.len());
    for (index, segment) in below.split('/').enumerate() {
        if index > 0 {
            name.push('/');
        }
        let plain = segment_of(segment)?;
        // Every name is written in one way: what is written in another is not ours, and must not be shown as if it were.
        let written = |first_too: bool| {
            let mut written = String::new();
            push_segment(&mut written, &plain, first_too);
            written == segment
        };
        if !(written(false) || index == 0 && plain == "zookeeper" && written(true)) {
            return None;
        }
        name.push_str(&plain);
    }
    Some(name)
}

/// The folder in which every line stands whose name begins with this text.
pub(super) fn of_prefix(base: &str, prefix: &str) -> String {
    match prefix.rsplit_once('/') {
        Some((whole, _)) => of_line(base, whole),
        None => base.to_owned(),
    }
}

fn push_segment(path: &mut String, segment: &str, first_too: bool) {
    if segment.is_empty() {
        // An escape of nothing: every other `%` is followed by two digits.
        path.push('%');
        return;
    }
    let dots = segment == "." || segment == "..";
    // A name may end like a claim; its znode must not be taken for one.
    let last = Node::parse(segment).map(|_| segment.len() - 1);
    for (at, letter) in segment.char_indices() {
        if is_plain(letter) && !dots && Some(at) != last && !(first_too && at == 0) {
            path.push(letter);
            continue;
        }
        for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
            // A String takes everything.
            let _ = write!(path, "%{byte:02X}");
        }
    }
}

/// What ZooKeeper takes in a path: it counts in UTF-16, and so refuses everything beyond the first plane.
fn is_plain(letter: char) -> bool {
    matches!(letter, ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{f900}'..='\u{ffef}') && letter != '%'
}

fn segment_of(segment: &str) -> Option<String> {
    if segment == "%" {
        return Some(String::new());
    }
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_plain_paths() {
        assert_eq!(of_line("/locks", "orders/42"), "/locks/orders/42");
        assert_eq!(of_line("/locks", "é 名"), "/locks/é 名");
    }

    #[test]
    fn what_zookeeper_does_not_take_is_escaped() {
        let name = |name: &str| of_line("/l", name);
        assert_eq!(name("a//b/"), "/l/a/%/b/%");
        assert_eq!(name("../."), "/l/%2E%2E/%2E");
        assert_eq!(name("100%"), "/l/100%25");
        assert_eq!(name("🔒\n"), "/l/%F0%9F%94%92%0A");
        assert_eq!(of_line("", "zookeeper/x"), "/%7Aookeeper/x");
    }

    #[test]
    fn a_name_is_not_mistaken_for_a_claim() {
        for mark in ["lock-", "__READ__", "__WRIT__", "__lock__", "__rlock__"] {
            let name = format!("x{mark}0000000007");
            let path = of_line("/l", &name);
            assert!(Node::parse(path.rsplit('/').next().unwrap()).is_none(), "{path}");
            assert_eq!(name_of(path.strip_prefix("/l/").unwrap()).as_deref(), Some(name.as_str()));
        }
    }

    proptest::proptest! {
        #[test]
        fn every_name_comes_back(name in "[^\0]{1,60}") {
            let path = of_line("/l", &name);
            proptest::prop_assert_eq!(name_of(path.strip_prefix("/l/").unwrap()), Some(name));
        }
    }

    #[test]
    fn a_broken_path_is_no_lines_or_the_one_that_its_name_has() {
        for other in ["%41", "%2e%2E", "%+f", "%0a", "a%", "%%", "%2"] {
            assert_eq!(name_of(other), None, "{other}");
        }
        crate::hostile::texts(&["orders/42", "a/%/b/%", "%2E%2E/%2E", "100%25", "%7Aookeeper/x"], |below| {
            if let Some(name) = name_of(below) {
                let path = of_line("/l", &name);
                let at_root = of_line("", &name);
                assert!(path[3..] == *below || at_root[1..] == *below, "{below}: {name}");
            }
        });
    }
}
