//! Reading the command line, and saying in one line what is wrong with it.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use crate::cli::Cli;
use crate::exit::{Failure, code, finish};
use crate::output::data;

/// The command line, or the exit code after what there was to say has been said.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Cli, ExitCode> {
    Cli::try_parse_from(&words).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            finish(data(&error.render().to_string()).map(|()| code::OK).map_err(Failure::from))
        }
        _ if asked_for_silence(&words) => code::USAGE.into(),
        _ => finish(Err(explain(&error, &words))),
    })
}

/// `run -q` says nothing of its own, also when the rest of the line cannot be understood.
fn asked_for_silence(words: &[OsString]) -> bool {
    let mut flags = words.iter().skip(1).take_while(|word| *word != "--");
    flags.next().is_some_and(|command| command == "run")
        && flags.any(|word| word == "-q" || word == "--quiet")
}

fn explain(error: &clap::Error, words: &[OsString]) -> Failure {
    let running = words.get(1).is_some_and(|word| word == "run");
    let has_command = words.iter().any(|word| word == "--");
    match error.kind() {
        ErrorKind::InvalidSubcommand => unknown_command(error),
        ErrorKind::MissingSubcommand => Failure::usage("no command is given")
            .hint("lockline run NAME -- COMMAND runs a command under a lock; see lockline --help"),
        ErrorKind::UnknownArgument if running && !has_command => {
            retold(error, words).hint("the command stands after `--`: lockline run NAME -- COMMAND")
        }
        _ => retold(error, words),
    }
}

fn unknown_command(error: &clap::Error) -> Failure {
    let word = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => redacted(word),
        _ => String::new(),
    };
    let known = Cli::command();
    let names = known.get_subcommands().map(clap::Command::get_name);
    // What differs in more than half of its letters was not meant.
    let distance = |name: &&str| strsim::osa_distance(name, &word);
    let near = |name: &&str| distance(name) * 2 <= name.len().max(word.len());
    let nearest = names.filter(near).min_by_key(distance);
    let meant = nearest.map(|name| format!("; did you mean '{name}'?")).unwrap_or_default();
    Failure::usage(format!("there is no command '{word}'{meant}")).hint("lockline --help lists the commands")
}

/// What clap says, in one line: its first paragraph; its tips become the hint.
fn retold(error: &clap::Error, words: &[OsString]) -> Failure {
    let text = redacted(&error.render().to_string());
    let paragraph: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let message = paragraph.join(" ");
    let failure = Failure::usage(message.strip_prefix("error: ").unwrap_or(&message));
    match text.lines().find_map(|line| line.trim().strip_prefix("tip: ")) {
        Some(tip) => failure.hint(tip),
        None => failure.hint(help_of(words)),
    }
}

/// Where the right way is written. A word that is no command is not repeated.
fn help_of(words: &[OsString]) -> String {
    let known = Cli::command();
    let mut names = known.get_subcommands().map(clap::Command::get_name);
    match names.find(|name| words.get(1).is_some_and(|word| word == name)) {
        Some(name) => format!("lockline {name} --help lists what can be said"),
        None => "lockline --help lists the commands".to_owned(),
    }
}

/// An address in the wrong place may carry a password: only its scheme is repeated.
fn redacted(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        safe.push_str(before);
        safe.push('…');
        let end = after.find(|c: char| c.is_whitespace() || c == '\'').unwrap_or(after.len());
        rest = &after[end..];
    }
    safe.push_str(rest);
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(words: &str) -> Failure {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        explain(&Cli::try_parse_from(&words).unwrap_err(), &words)
    }

    #[test]
    fn definitions_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn names_the_nearest_command() {
        assert_eq!(failure("lockline rnu").message, "there is no command 'rnu'; did you mean 'run'?");
        assert!(failure("lockline evcit x").message.contains("'evict'"));
        assert!(failure("lockline list").message.contains("did you mean"));
        assert_eq!(failure("lockline frobnicate").message, "there is no command 'frobnicate'");
    }

    #[test]
    fn every_mistake_is_one_line() {
        for words in [
            "lockline",
            "lockline run",
            "lockline run x",
            "lockline run x true",
            "lockline run --lease 1ms x -- true",
            "lockline run -E 256 x -- true",
            "lockline run --permits 5/4 x -- true",
            "lockline run -w -1 x -- true",
            "lockline run -n --wait 1s x -- true",
            "lockline run --shard x -- true",
            "lockline evict x",
            "lockline evict x --token y",
            "lockline completions fsh",
            "lockline run -qv x -- true",
        ] {
            let text = failure(words).text();
            assert!(text.starts_with("lockline: "), "{words}: {text}");
            let lines: Vec<&str> = text.lines().collect();
            assert!(lines.len() == 2 && lines[1].starts_with("hint: "), "{words}: {text}");
        }
    }

    #[test]
    fn never_repeats_an_address() {
        for words in [
            "lockline redis://u:c4nary@h",
            "lockline run x redis://u:c4nary@h -- true",
            "lockline run --onn redis://u:c4nary@h x -- true",
            "lockline run --onn=redis://u:c4nary@h x -- true",
            "lockline run -E redis://u:c4nary@h x -- true",
            "lockline ls a redis://u:c4nary@h",
        ] {
            let failure = failure(words);
            assert!(!failure.text().contains("c4nary"), "{words}: {}", failure.text());
        }
    }
}
