//! What was built in: the engines that this program can talk to.

use std::sync::OnceLock;

use lockline::drivers::{built_in, missing_feature};

use crate::exit::Failure;

/// The text of `--version`.
pub(crate) fn version() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| format!("{}\nengines: {}", env!("CARGO_PKG_VERSION"), built_in().join(", ")))
}

/// What `--help` ends with: `text`, and the engines.
pub(crate) fn help(text: &str) -> String {
    format!("{text}\n\nEngines in this build: {}.", built_in().join(", "))
}

/// Refuses an address whose driver is not in this build, with the line that builds it in.
pub(crate) fn check(url: &str) -> Result<(), Failure> {
    // Only its scheme is repeated: all else may be a secret.
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    let Some(feature) = missing_feature(scheme) else { return Ok(()) };
    Err(Failure::usage(format!("this build of lockline has no driver for {scheme:?}")).hint(format!(
        "cargo install lockline-cli --features {feature} builds one that has it; this one has {}",
        built_in().join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_driver_is_told_with_the_line_that_adds_it() {
        for (scheme, feature) in [("redis", "redis"), ("postgresql", "postgres"), ("etcds", "etcd-tls")] {
            match check(&format!("{scheme}://u:c4nary@h")) {
                Ok(()) => assert!(built_in().contains(&feature)),
                Err(failure) => {
                    let line = format!("cargo install lockline-cli --features {feature} ");
                    assert!(failure.text().contains(&line), "{}", failure.text());
                    assert!(!failure.text().contains("c4nary"));
                    assert!(!built_in().contains(&feature));
                }
            }
        }
        assert!(check("memory:").is_ok() && check("nonsense").is_ok());
        assert!(version().contains("\nengines: memory"));
    }
}
