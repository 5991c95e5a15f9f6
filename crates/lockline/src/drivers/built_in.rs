//! Which engines are in this build, and what it takes to have the others.

use crate::url::canonical;

/// An engine, by the feature that builds it in.
struct Engine {
    feature: &'static str,
    is_built: bool,
    schemes: &'static [&'static str],
}

const ENGINES: [Engine; 8] = [
    Engine { feature: "sqlite", is_built: cfg!(feature = "sqlite"), schemes: &["sqlite"] },
    Engine {
        feature: "redis",
        is_built: cfg!(feature = "redis"),
        schemes: &[
            "redis",
            "redis+unix",
            "rediss",
            "redis-sentinel",
            "rediss-sentinel",
            "redis-cluster",
            "rediss-cluster",
            "redlock",
        ],
    },
    Engine { feature: "postgres", is_built: cfg!(feature = "postgres"), schemes: &["postgres"] },
    Engine { feature: "mysql", is_built: cfg!(feature = "mysql"), schemes: &["mysql"] },
    Engine { feature: "zookeeper", is_built: cfg!(feature = "zookeeper"), schemes: &["zookeeper"] },
    Engine { feature: "zookeeper-tls", is_built: cfg!(feature = "zookeeper-tls"), schemes: &["zookeepers"] },
    Engine { feature: "etcd", is_built: cfg!(feature = "etcd"), schemes: &["etcd"] },
    Engine { feature: "etcd-tls", is_built: cfg!(feature = "etcd-tls"), schemes: &["etcds"] },
];

/// The engines in this build, each by the name of the feature that put it there; `memory`, which always is there, first.
pub fn built_in() -> Vec<&'static str> {
    let built = ENGINES.iter().filter(|engine| engine.is_built).map(|engine| engine.feature);
    std::iter::once("memory").chain(built).collect()
}

/// The feature that this build lacks for addresses with this scheme; `None` if it has it, or if there is no such scheme.
pub fn missing_feature(scheme: &str) -> Option<&'static str> {
    let scheme = canonical(scheme);
    let engine = ENGINES.iter().find(|engine| engine.schemes.contains(&scheme.as_str()))?;
    (!engine.is_built).then_some(engine.feature)
}

/// What a program's manifest says to have an engine.
pub(crate) fn manifest_line(feature: &str) -> String {
    let version = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
    format!("lockline = {{ version = \"{version}\", features = [\"{feature}\"] }}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_built_in_or_its_feature_is_named() {
        assert_eq!(built_in().first(), Some(&"memory"));
        for engine in &ENGINES {
            assert_eq!(built_in().contains(&engine.feature), engine.is_built);
            for scheme in engine.schemes {
                assert_eq!(missing_feature(scheme), (!engine.is_built).then_some(engine.feature), "{scheme}");
            }
        }
        for other in ["valkey-cluster", "VALKEYS", "postgresql", "mariadb"] {
            assert_eq!(missing_feature(other), missing_feature(&canonical(other)), "{other}");
        }
        let mut known: Vec<_> = ENGINES.iter().flat_map(|engine| engine.schemes).chain(&["memory"]).collect();
        let mut named: Vec<_> = crate::url::SCHEMES.iter().collect();
        known.sort_unstable();
        named.sort_unstable();
        assert_eq!(known, named, "every scheme belongs to an engine");
        assert_eq!(missing_feature("memory"), None);
        assert_eq!(missing_feature("redsi"), None);
        assert_eq!(manifest_line("redis"), "lockline = { version = \"0.1\", features = [\"redis\"] }");
    }

    #[tokio::test]
    async fn an_address_without_its_driver_says_the_line_to_write() {
        for engine in ENGINES.iter().filter(|engine| !engine.is_built) {
            for scheme in engine.schemes {
                let url = format!("{scheme}://u:c4nary@127.0.0.1:1");
                let error = crate::Locks::connect(&url).await.expect_err(scheme);
                let hint = error.hint_text().unwrap_or_default();
                assert!(hint.contains(&manifest_line(engine.feature)), "{scheme}: {error}: {hint}");
                assert!(!format!("{error}{hint}").contains("c4nary"));
            }
        }
    }
}
