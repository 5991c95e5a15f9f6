//! Which server is the primary now: what the Sentinels say.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;

use super::address::Address;
use super::config::RedisConfig;
use super::dial;
use super::error::explain;
use crate::error::{Error, ErrorKind, Result};

/// How long one Sentinel may take. All are asked at once.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The primary, as a Sentinel knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Primary {
    pub(super) server: Address,
    /// How many replicas it has, those that are down included.
    pub(super) replicas: u32,
    /// Rises with every failover.
    epoch: u64,
}

/// Asks all of them, and believes the one that knows of the latest failover: one that was cut off from the others, along
/// with the old primary, would still name that.
pub(super) async fn find(
    config: &RedisConfig,
    sentinels: &[Address],
    service: &str,
    shown: &Arc<str>,
) -> Result<Primary> {
    let mut asked = JoinSet::new();
    for sentinel in sentinels {
        let (config, sentinel, service, shown) =
            (config.clone(), sentinel.clone(), service.to_owned(), shown.clone());
        asked.spawn(async move { ask(&config, &sentinel, &service, &shown).await });
    }
    let mut latest: Option<Primary> = None;
    let mut failed = None;
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok(Ok(primary)) if latest.as_ref().is_none_or(|known| known.epoch < primary.epoch) => {
                latest = Some(primary);
            }
            Ok(Ok(_)) | Err(_) => {}
            Ok(Err(error)) => {
                tracing::debug!(%error, "a Sentinel did not help");
                // Of several reasons one that somebody has to see to is worth more than a Sentinel that is down.
                if failed.as_ref().is_none_or(|known: &Error| known.kind().is_transient()) {
                    failed = Some(error);
                }
            }
        }
    }
    latest.ok_or_else(|| {
        failed
            .unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "connect", "no Sentinel answers").at(shown))
    })
}

async fn ask(config: &RedisConfig, sentinel: &Address, service: &str, shown: &Arc<str>) -> Result<Primary> {
    let asking = async {
        let mut connection = dial::sentinel(config, sentinel, ANSWER_WITHIN, shown).await?;
        let answer: redis::RedisResult<HashMap<String, Value>> =
            redis::cmd("SENTINEL").arg("MASTER").arg(service).query_async(&mut connection).await;
        match answer {
            Ok(answer) => primary(&answer),
            Err(e) if e.to_string().contains("No such master") => {
                let message = format!("the Sentinels watch no primary called {service:?}");
                Err(Error::new(ErrorKind::Invalid, "connect", message)
                    .hint("redis-sentinel://host,host/NAME ends with the name in `sentinel monitor NAME …`")
                    .at(shown))
            }
            Err(e) => Err(explain("connect", shown, &e, false)),
        }
    };
    tokio::time::timeout(ANSWER_WITHIN, asking).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unavailable, "connect", "a Sentinel is silent").at(shown))
    })
}

fn primary(answer: &HashMap<String, Value>) -> Result<Primary> {
    let text = |key: &str| match answer.get(key) {
        Some(Value::BulkString(bytes)) => std::str::from_utf8(bytes).ok(),
        Some(Value::SimpleString(text)) => Some(text.as_str()),
        _ => None,
    };
    let read = || {
        Some(Primary {
            server: Address::Tcp(text("ip")?.to_owned(), text("port")?.parse().ok()?),
            replicas: text("num-slaves")?.parse().ok()?,
            epoch: text("config-epoch")?.parse().ok()?,
        })
    };
    read().ok_or_else(|| Error::new(ErrorKind::Unavailable, "connect", "a Sentinel's answer makes no sense"))
}

#[cfg(test)]
mod tests {
    use super::super::answers::any_value;
    use super::*;

    #[test]
    fn what_a_sentinel_says() {
        let says = |pairs: &[(&str, &str)]| {
            let pair = |&(key, value): &(&str, &str)| (key.to_owned(), Value::BulkString(value.into()));
            primary(&pairs.iter().map(pair).collect())
        };
        let all = [("ip", "::1"), ("port", "7"), ("num-slaves", "2"), ("config-epoch", "9")];
        let known = says(&all).unwrap();
        assert_eq!((known.server, known.replicas, known.epoch), (Address::Tcp("::1".into(), 7), 2, 9));
        assert!(says(&all[..3]).is_err());
    }

    #[test]
    fn broken_answers_are_refused_or_understood() {
        crate::hostile::cases_of(|| {
            let keys = ["ip", "port", "num-slaves", "config-epoch"];
            let answer = keys.map(|key| (key.to_owned(), any_value(1))).into_iter().collect();
            if let Ok(Primary { server, .. }) = primary(&answer) {
                assert!(matches!(server, Address::Tcp(..)));
            }
        });
    }
}
