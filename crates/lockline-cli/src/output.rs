//! The only place that writes: data to standard output, talk to standard error, and nothing that drives a terminal.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

/// Writes data to standard output.
pub(crate) fn data(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes one JSON value and a newline to standard output.
pub(crate) fn json(value: &impl serde::Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string(value)?;
    text.push('\n');
    data(&text)
}

/// Talks to whoever is listening on standard error. Nobody listening is no failure.
pub(crate) fn say(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Whether standard error is a terminal that can redraw a line.
pub(crate) fn talks_to_terminal() -> bool {
    io::stderr().is_terminal() && can_redraw()
}

/// Whether standard output is a terminal that can redraw the screen.
pub(crate) fn shows_on_terminal() -> bool {
    io::stdout().is_terminal() && can_redraw()
}

fn can_redraw() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Text in bold, or as it is when standard output is no terminal or `NO_COLOR` is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint(bool);

impl Paint {
    pub(crate) fn for_stdout() -> Paint {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Paint(!unwanted && shows_on_terminal())
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    fn wrap(self, style: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{style}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// A text that came from somebody else, fit for a terminal: what could move the cursor or turn the line around is
/// escaped.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(drives_terminal) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if drives_terminal(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    Cow::Owned(safe)
}

/// The same for a message that must be one line.
pub(crate) fn one_line(text: &str) -> String {
    visible(text.trim()).into_owned()
}

fn drives_terminal(c: char) -> bool {
    // Besides control characters: line separators, and the marks that reverse the direction of what follows.
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The first `columns` characters, with a sign that something is missing.
pub(crate) fn shortened(text: &str, columns: usize) -> Cow<'_, str> {
    if text.chars().count() <= columns {
        return Cow::Borrowed(text);
    }
    let mut short: String = text.chars().take(columns.saturating_sub(1)).collect();
    short.push('…');
    Cow::Owned(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_cannot_drive_a_terminal() {
        assert_eq!(visible("plain name/42 ünïcödé"), "plain name/42 ünïcödé");
        assert_eq!(visible("\u{1b}[2Jgone\r\n"), "\\u{1b}[2Jgone\\r\\n");
        assert_eq!(visible("\u{9b}31m\u{202e}"), "\\u{9b}31m\\u{202e}");
    }

    #[test]
    fn long_text_is_shortened() {
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("abcdef", 4), "abc…");
    }
}
