//! The page about tested versions, and the sentences about them on other pages, made from a run of the matrix.

use std::fmt::Write;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::counts::Target;
use crate::{shell, workspace};

pub(super) const PAGE: &str = "docs/engines/versions.md";

/// Pages with a sentence between marks: `<!-- versions: redis valkey -->` and `<!-- /versions -->`.
const OTHERS: [&str; 6] = [
    "README.md",
    "docs/engines/redis.md",
    "docs/engines/postgres.md",
    "docs/engines/mysql.md",
    "docs/engines/etcd.md",
    "docs/engines/zookeeper.md",
];

/// Products as their cells begin, and as people write them.
const PRODUCTS: [(&str, &str); 8] = [
    ("redis", "Redis"),
    ("valkey", "Valkey"),
    ("postgres", "PostgreSQL"),
    ("pgbouncer", "PgBouncer"),
    ("mariadb", "MariaDB"),
    ("mysql", "MySQL"),
    ("etcd", "etcd"),
    ("zookeeper", "ZooKeeper"),
];

/// Writes them all, or none: pages of two runs would contradict each other.
pub(super) fn write(targets: &[Target]) -> Result<()> {
    let root = workspace::root();
    let mut pages = vec![(root.join(PAGE), page(targets, &when()?)?)];
    for other in OTHERS {
        let path = root.join(other);
        let text = std::fs::read_to_string(&path).with_context(|| other.to_owned())?;
        let link = if other.starts_with("docs/engines/") { "versions.md" } else { PAGE };
        let text = with_sentences(&text, link, targets).with_context(|| other.to_owned())?;
        pages.push((path, text));
    }
    for (path, text) in pages {
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    shell::say(&format!("{PAGE} is written, and the sentences on {}", OTHERS.join(", ")));
    Ok(())
}

/// The day, and the commit with a word about what it lacks.
fn when() -> Result<String> {
    let git = |words: &[&str]| shell::output(Command::new("git").current_dir(workspace::root()).args(words));
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--", "crates", "xtask", "Cargo.toml", "Cargo.lock"])?;
    let changed = if changed.is_empty() { "" } else { " with changes that were not committed yet" };
    let day = shell::output(Command::new("date").args(["-u", "+%Y-%m-%d"]))?;
    Ok(format!("on {}, of commit {}{changed}", day.trim(), commit.trim()))
}

fn page(targets: &[Target], when: &str) -> Result<String> {
    let mut text = format!(
        "# Versions that are tested\n\n\
         Written by `cargo xtask test --matrix` {when}: the whole conformance suite on each server, by the version that the\n\
         server says it has. A behaviour that failed is counted as failed; nothing was run twice. What a server cannot be asked to do, such\n\
         as to forget its data, is counted as left out.\n\n\
         `cargo xtask test --matrix NAME` runs one of them. `cargo xtask test` includes MySQL, the newest PostgreSQL and the newest\n\
         Valkey in every run, and the others by turns within a week.\n\n\
         | name | version | passed | failed | left out |\n|---|---|---|---|---|\n"
    );
    for target in targets {
        let (product, name) = named(target)?;
        let version = match (&target.not_had, target.finished) {
            (Some(_), _) => "could not be had".to_owned(),
            (None, false) if target.version.is_empty() => "did not start".to_owned(),
            (None, false) => format!("{product} {}: did not finish", target.version),
            (None, true) => format!("{product} {}", target.version),
        };
        let Target { passed, failed, ignored, .. } = target;
        writeln!(text, "| `{name}` | {version} | {passed} | {failed} | {ignored} |")?;
    }
    Ok(text)
}

/// The product that a target was run on, and the name of its cell.
fn named(target: &Target) -> Result<(&'static str, &'static str)> {
    let cell = target.server.context("a run without a server")?;
    let is_of = |product: &str| cell.strip_prefix(product).is_some_and(|rest| rest.starts_with('-'));
    let product = PRODUCTS.iter().find(|(product, _)| is_of(product));
    Ok((product.with_context(|| format!("{cell} is of no known product"))?.1, cell))
}

/// The versions of one product that were tested, oldest first: those on which everything passed.
fn versions(targets: &[Target], product: &str) -> Vec<String> {
    let good =
        targets.iter().filter(|target| target.finished && target.failed == 0 && target.not_had.is_none());
    let of =
        good.filter(|target| named(target).is_ok_and(|(_, cell)| cell.starts_with(&format!("{product}-"))));
    // A pooler names its server's version, too.
    let mut all: Vec<String> =
        of.map(|target| target.version.split(',').next().unwrap_or_default().to_owned()).collect();
    let numbers =
        |version: &String| version.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>();
    all.sort_by_key(numbers);
    all.dedup();
    all
}

/// A text with the sentences between its marks written anew.
fn with_sentences(text: &str, link: &str, targets: &[Target]) -> Result<String> {
    const END: &str = "<!-- /versions -->";
    let (mut done, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("<!-- versions:") {
        let (products, after) = after.split_once("-->").context("a mark does not end")?;
        let (_, after) = after.split_once(END).with_context(|| format!("there is no {END}"))?;
        let mut parts = Vec::new();
        for product in products.split_whitespace() {
            let name = PRODUCTS.iter().find(|(known, _)| *known == product);
            let (_, name) = name.with_context(|| format!("nobody knows the product {product}"))?;
            let versions = versions(targets, product);
            if !versions.is_empty() {
                parts.push(format!("{name} {}", joined(&versions)));
            }
        }
        let sentence = match parts.as_slice() {
            // Not an error: the page of all versions says what failed, and must not be lost.
            [] => format!("No version passed everything in the last run ([all versions]({link}))."),
            parts => format!("Tested on {} ([all versions]({link})).", joined(parts)),
        };
        write!(done, "{before}<!-- versions:{products}-->\n{sentence}\n{END}")?;
        rest = after;
    }
    ensure!(!done.is_empty(), "there are no marks for versions");
    done.push_str(rest);
    Ok(done)
}

fn joined(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(server: &'static str, version: &str, failed: u64) -> Target {
        let (server, version) = (Some(server), version.to_owned());
        Target { server, version, passed: 132 - failed, failed, finished: true, ..Target::default() }
    }

    #[test]
    fn sentences_name_what_passed() {
        let targets = [
            target("redis-8", "8.0.6", 0),
            target("redis-7.0-cluster", "7.0.15", 0),
            target("redis-7.0", "7.0.15", 0),
            target("valkey-9", "9.1.2", 1),
            target("valkey-8", "8.1.1", 0),
            target("pgbouncer-1.26", "1.26.1, PostgreSQL 18.6", 0),
        ];
        let text = "a\n<!-- versions: redis valkey pgbouncer -->\nold\n<!-- /versions -->\nb\n";
        let expected = "a\n<!-- versions: redis valkey pgbouncer -->\nTested on Redis 7.0.15 and 8.0.6, Valkey 8.1.1 and PgBouncer \
                        1.26.1 ([all versions](versions.md)).\n<!-- /versions -->\nb\n";
        assert_eq!(with_sentences(text, "versions.md", &targets).unwrap(), expected);
        assert!(with_sentences("no marks", "", &targets).is_err());
        assert!(page(&targets, "today").unwrap().contains("| `valkey-9` | Valkey 9.1.2 | 131 | 1 | 0 |"));
        let none = with_sentences("<!-- versions: mysql -->\n<!-- /versions -->", "", &targets).unwrap();
        assert!(none.contains("No version passed everything"), "{none}");
    }

    #[test]
    fn a_server_that_is_not_there_has_no_version() {
        let gone = |target: Target| Target { version: String::new(), finished: false, passed: 0, ..target };
        let not_had = Target { not_had: Some("nobody has it".to_owned()), ..gone(target("mysql-9", "", 0)) };
        let targets = [not_had, gone(target("etcd-3.5", "", 0))];
        let page = page(&targets, "today").unwrap();
        assert!(page.contains("| `mysql-9` | could not be had | 0 |"), "{page}");
        assert!(page.contains("| `etcd-3.5` | did not start | 0 |"), "{page}");
    }

    #[test]
    fn every_page_has_its_marks() {
        for page in OTHERS {
            let text = std::fs::read_to_string(workspace::root().join(page)).unwrap();
            assert!(text.contains("<!-- versions:") && text.contains("<!-- /versions -->"), "{page}");
        }
    }
}
