//! Who holds it: the label that others see when none is given.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const BYTES_MAX: usize = 128;

/// Programs that run another one: the flags of theirs that take a word, and how many more words they take.
const WRAPPERS: [(&str, &str, usize); 13] = [
    ("nice", "n", 0),
    ("ionice", "cnpPu", 0),
    ("env", "uC", 0),
    ("sudo", "ugphCDRTU", 0),
    ("timeout", "sk", 1),
    ("time", "fo", 0),
    ("setsid", "", 0),
    ("nohup", "", 0),
    ("stdbuf", "ioe", 0),
    ("exec", "a", 0),
    ("cargo", "", 0),
    ("npm", "", 0),
    ("make", "Cf", 0),
];

const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];

/// The user, and the first two words of what is run: `alice: report daily`. Wrappers tell nobody who holds a lock.
pub(crate) fn of(command: &[OsString]) -> String {
    let words: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut label = format!("{}: {}", user(), what(&words));
    let end = (0..=BYTES_MAX.min(label.len())).rev().find(|end| label.is_char_boundary(*end));
    label.truncate(end.unwrap_or(0));
    label
}

fn what(words: &[String]) -> String {
    let first = words.first().map_or("", |word| base(word));
    let mut words = words.to_vec();
    // Each round takes at least one word away.
    while let Some(inner) = unwrapped(&words) {
        words = inner;
    }
    let mut told = words.iter();
    let program = told.next().map_or(first, |word| base(word));
    match told.next().filter(|word| is_telling(word)).map(|word| base(word)) {
        Some(second) => format!("{program} {second}"),
        None if program.is_empty() => "lockline".to_owned(),
        None => program.to_owned(),
    }
}

/// What a wrapper runs; `None` if these words are no wrapper, or it runs nothing.
fn unwrapped(words: &[String]) -> Option<Vec<String>> {
    let (word, rest) = words.split_first()?;
    let program = base(word);
    let inner = if is_assignment(word) {
        rest.to_vec()
    } else if SHELLS.contains(&program) {
        of_shell(rest)
    } else if ["cd", "set", "export", "umask"].contains(&program) {
        // `set -e; cd DIR && …`, in a script.
        rest.iter().skip_while(|word| !matches!(word.as_str(), "&&" | ";")).skip(1).cloned().collect()
    } else {
        let (_, with_word, more) = WRAPPERS.iter().find(|(name, ..)| *name == program)?;
        after_flags(rest, with_word, *more)
    };
    inner.first().is_some_and(|word| !word.is_empty()).then_some(inner)
}

/// What stands behind a wrapper's flags.
fn after_flags(words: &[String], with_word: &str, more: usize) -> Vec<String> {
    let mut rest = words;
    while let Some((flag, after)) = rest.split_first().filter(|(word, _)| word.starts_with('-')) {
        rest = after;
        let mut letters = flag.chars().skip(1);
        let takes_word =
            letters.next().is_some_and(|letter| with_word.contains(letter)) && letters.next().is_none();
        if takes_word {
            rest = rest.get(1..).unwrap_or_default();
        }
    }
    rest.iter().skip(more).cloned().collect()
}

/// The script of `sh -c`, or the file of `sh FILE`.
fn of_shell(words: &[String]) -> Vec<String> {
    let mut rest = words;
    while let Some((flag, after)) = rest.split_first().filter(|(word, _)| word.starts_with('-')) {
        rest = after;
        if !flag.starts_with("--") && flag.contains('c') {
            let script = rest.first().map_or("", String::as_str);
            return script.replace(';', " ; ").split_whitespace().map(str::to_owned).collect();
        }
    }
    rest.to_vec()
}

fn base(word: &str) -> &str {
    Path::new(word).file_name().and_then(|name| name.to_str()).unwrap_or(word)
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// A second word that may be shown: flags, addresses and assignments may carry secrets, and everybody sees the label.
fn is_telling(word: &str) -> bool {
    base(word).chars().next().is_some_and(char::is_alphanumeric) && !word.contains(['@', '=', ':', '$', '`'])
}

/// This process's user, as the machine calls it.
fn user() -> String {
    // The owner of a process's entry there; who has none goes by the environment.
    let uid = std::fs::metadata("/proc/self").ok().map(|entry| entry.uid());
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = |key| std::env::var(key).ok().filter(|name| !name.is_empty());
    let known =
        uid.and_then(|uid| name_of(&users, uid)).or_else(|| named("LOGNAME")).or_else(|| named("USER"));
    known.unwrap_or_else(|| uid.map_or_else(|| "somebody".to_owned(), |uid| format!("uid {uid}")))
}

fn name_of(users: &str, uid: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid.to_string()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_are_no_names() {
        for (command, told) in [
            ("./report daily --fast", "report daily"),
            ("/usr/bin/python3 /opt/jobs/clean.py", "python3 clean.py"),
            ("bash", "bash"),
            ("bash backup.sh", "backup.sh"),
            ("nice -n 10 ./report", "report"),
            ("nice -n10 ionice -c 3 rsync -a x", "rsync"),
            ("sudo -u bob env -i A=1 PATH=/bin timeout -k 5 30s ./report", "report"),
            ("time setsid make -C /src deploy", "deploy"),
            ("cargo test", "test"),
            ("npm run build", "run build"),
            ("make", "make"),
            ("env", "env"),
            ("mysql -psecret", "mysql"),
            ("curl https://u:secret@h/x", "curl"),
            ("curl u:secret@h", "curl"),
            ("psql password=secret", "psql"),
        ] {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(what(&words), told, "{command}");
        }
        for (script, told) in [
            ("./backup full", "backup full"),
            ("cd /srv; exec nice ./backup full", "backup full"),
            ("cd /srv && PGPASSWORD=secret psql", "psql"),
            ("set -e; export A=1; ./report", "report"),
            ("", "sh"),
        ] {
            let words = ["sh", "-ec", script].map(str::to_owned);
            assert_eq!(what(&words), told, "{script}");
        }
    }

    #[test]
    fn users_have_names() {
        let users = "root:x:0:0:root:/root:/bin/bash\nalice:x:1000:1000::/home/alice:/bin/sh\n";
        assert_eq!(name_of(users, 1000).as_deref(), Some("alice"));
        assert_eq!(name_of(users, 7), None);
        assert!(of(&["./report".into()]).ends_with(": report"));
    }
}
