//! etcd: a name space for each test.

use std::sync::Arc;

use lockline::EngineUrl;
use lockline::driver::Driver;
use lockline::drivers::etcd::{Etcd, EtcdConfig};

use super::{Engine, server_of, with_option};

/// A name space of its own on the etcd server, or the three of them, of this run.
///
/// # Panics
/// If this run does not include it, or its address makes no sense.
pub fn etcd(which: &'static str) -> Engine {
    let server = server_of(which);
    let space = format!("test-{:016x}/", fastrand::u64(..));
    let url = with_option(&server, &format!("space={space}"));
    let config = EngineUrl::parse(&url).and_then(EtcdConfig::from_url).expect("the address makes sense");
    let open = move |bells| {
        let config = config.clone();
        async move { Ok(Arc::new(Etcd::connect(config, bells).await?) as Arc<dyn Driver>) }
    };
    let keys = Arc::new(EtcdKeys { server, space });
    let to_forget = keys.clone();
    Engine::new(which, url, open)
        .forgets(move || to_forget.delete().expect("the keys are deleted"))
        .keeps(CleanedEtcd(keys))
}

/// All keys of one name space.
struct EtcdKeys {
    server: String,
    space: String,
}

impl EtcdKeys {
    /// Deletes them, all at once, as an operator would.
    fn delete(&self) -> std::io::Result<()> {
        let hosts = self.server.trim_start_matches("etcd://").split('?').next().unwrap_or_default();
        let done = std::process::Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", hosts, "del", "--prefix", &self.space])
            .output()?;
        if done.status.success() { Ok(()) } else { Err(std::io::Error::other(format!("{done:?}"))) }
    }
}

/// Leaves the server as it was found; one that is gone needs no cleaning.
struct CleanedEtcd(Arc<EtcdKeys>);

impl Drop for CleanedEtcd {
    fn drop(&mut self) {
        let _ = self.0.delete();
    }
}
