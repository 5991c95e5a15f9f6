//! ZooKeeper: a path for each test.

use std::sync::Arc;

use lockline::EngineUrl;
use lockline::driver::Driver;
use lockline::drivers::zookeeper::{Zookeeper, ZookeeperConfig};

use super::{Engine, on_a_thread, server_of};

/// A path of its own on a ZooKeeper ensemble of this run, by the name that the run gives it.
///
/// # Panics
/// If this run does not include it, or its address makes no sense.
pub fn zookeeper(server: &'static str) -> Engine {
    let hosts = server_of(server);
    let base = format!("/test-{:016x}", fastrand::u64(..));
    let url = format!("{hosts}{base}");
    let config = EngineUrl::parse(&url).and_then(ZookeeperConfig::from_url).expect("the address makes sense");
    let open = move |bells| {
        let config = config.clone();
        async move { Ok(Arc::new(Zookeeper::connect(config, bells).await?) as Arc<dyn Driver>) }
    };
    let forget = move || {
        let (hosts, base) = (hosts.clone(), base.clone());
        on_a_thread(async move { delete_claims(hosts.trim_start_matches("zookeeper://"), base).await })
            .expect("the claims are deleted");
    };
    Engine::new("zookeeper", url, open).forgets(forget)
}

/// Deletes every ephemeral znode below this one.
async fn delete_claims(hosts: &str, base: String) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let client = zookeeper_client::Client::connect(hosts).await?;
    client.sync("/").await?;
    let mut ahead = vec![base];
    while let Some(path) = ahead.pop() {
        match client.check_stat(&path).await? {
            Some(stat) if stat.ephemeral_owner != 0 => drop(client.delete(&path, None).await),
            Some(_) => {
                ahead.extend(client.list_children(&path).await?.iter().map(|child| format!("{path}/{child}")))
            }
            None => {}
        }
    }
    Ok(())
}
