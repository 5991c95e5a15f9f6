//! Releases of engines that people run, and how to have each without installing it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};

use super::suite::Suite;
use super::toolchain::{Toolchain, is_of};
use super::{apt, cache};
use crate::{shell, workspace};

/// One release of one product.
#[derive(Debug)]
pub(crate) struct Release {
    /// As the cells of the matrix begin.
    pub(crate) name: &'static str,
    /// How its versions begin.
    version: &'static str,
    /// Which program tells the version.
    program: &'static str,
    origin: Origin,
}

/// Who has it, for a machine that does not.
#[derive(Debug)]
enum Origin {
    /// These packages of one of these suites of the machine's own distribution: of the first that has the release. The
    /// first package's version counts.
    Suites(&'static [&'static str], &'static [&'static str]),
    /// This version, from Maven.
    Maven(&'static str),
}

const OLD: &[&str] = &["bookworm", "bookworm-backports"];
const NEWEST: &[&str] = &["sid"];
const NEW: &[&str] = &["trixie", "sid"];

pub(super) static REDIS_7: Release =
    Release::packaged("redis-7.0", "7.0", "redis-server", &["redis-server", "redis-tools"], OLD);
pub(super) static REDIS_8: Release =
    Release::packaged("redis-8", "8", "redis-server", &["redis-server", "redis-tools"], &["sid", "trixie"]);
pub(super) static VALKEY_8: Release = Release::packaged(
    "valkey-8",
    "8",
    "valkey-server",
    &["valkey-server", "valkey-tools"],
    &["trixie", "bookworm-backports"],
);
pub(super) static VALKEY_9: Release =
    Release::packaged("valkey-9", "9", "valkey-server", &["valkey-server", "valkey-tools"], NEWEST);
pub(super) static POSTGRES_15: Release =
    Release::packaged("postgres-15", "15", "postgres", &["postgresql-15", "postgresql-client-15"], OLD);
pub(super) static POSTGRES_17: Release =
    Release::packaged("postgres-17", "17", "postgres", &["postgresql-17", "postgresql-client-17"], NEW);
pub(super) static POSTGRES_18: Release =
    Release::packaged("postgres-18", "18", "postgres", &["postgresql-18", "postgresql-client-18"], NEWEST);
// A pooler needs a server, and has the one of its own time.
pub(super) static PGBOUNCER_1_18: Release = Release::packaged(
    "pgbouncer-1.18",
    "1.18",
    "pgbouncer",
    &["pgbouncer", "postgresql-15", "postgresql-client-15"],
    OLD,
);
pub(super) static PGBOUNCER_1_26: Release = Release::packaged(
    "pgbouncer-1.26",
    "1.26",
    "pgbouncer",
    &["pgbouncer", "postgresql-18", "postgresql-client-18"],
    NEWEST,
);
pub(super) static MARIADB_10: Release = Release::packaged(
    "mariadb-10.11",
    "10.11",
    "mariadbd",
    &["mariadb-server-core", "mariadb-client-core"],
    OLD,
);
pub(super) static MARIADB_11: Release = Release::packaged(
    "mariadb-11.8",
    "11.8",
    "mariadbd",
    &["mariadb-server-core", "mariadb-client-core"],
    NEW,
);
pub(super) static MYSQL_9: Release =
    Release::packaged("mysql-9", "9", "mysqld", &["mysql-server-core"], NEWEST);
pub(super) static ETCD_3_4: Release =
    Release::packaged("etcd-3.4", "3.4", "etcd", &["etcd-server", "etcd-client"], OLD);
pub(super) static ETCD_3_5: Release =
    Release::packaged("etcd-3.5", "3.5", "etcd", &["etcd-server", "etcd-client"], &["sid", "trixie"]);
pub(super) static ZOOKEEPER_3_8: Release = Release::from_maven("zookeeper-3.8", "3.8", "3.8.4");
pub(super) static ZOOKEEPER_3_9: Release = Release::from_maven("zookeeper-3.9", "3.9", "3.9.3");

impl Release {
    const fn packaged(
        name: &'static str,
        version: &'static str,
        program: &'static str,
        packages: &'static [&'static str],
        suites: &'static [&'static str],
    ) -> Release {
        Release { name, version, program, origin: Origin::Suites(packages, suites) }
    }

    const fn from_maven(name: &'static str, version: &'static str, exactly: &'static str) -> Release {
        Release { name, version, program: "", origin: Origin::Maven(exactly) }
    }

    /// Its programs: the machine's own if they are of this release, else from the cache, else fetched.
    pub(super) fn toolchain(&self) -> Result<Toolchain> {
        if let Some(own) = self.of_the_machine() {
            return Ok(own);
        }
        let fetched = match self.origin {
            Origin::Suites(packages, suites) => self.packages_of(packages, suites),
            Origin::Maven(version) => maven(version),
        };
        let root = fetched.with_context(|| format!("{} cannot be had", self.name))?;
        Ok(Toolchain::at(&root, self.version, self.program))
    }

    /// The machine's own programs, if they are of this release.
    pub(super) fn of_the_machine(&self) -> Option<Toolchain> {
        let own = Toolchain::at(Path::new("/"), self.version, self.program);
        let version = match self.origin {
            Origin::Suites(..) => own.version_of(self.program)?,
            Origin::Maven(_) => super::zookeeper::packaged_version()?,
        };
        is_of(self.version, &version).then_some(own)
    }

    fn packages_of(&self, packages: &[&str], suites: &[&str]) -> Result<PathBuf> {
        let folder = cache::folder()?.join(self.name);
        std::fs::create_dir_all(&folder)?;
        // One at a time: another run may be fetching the same.
        let _lock = cache::lock(&folder)?;
        let newest = cache::newest(&folder);
        if let Some(root) = newest.as_deref().filter(|root| cache::age(root) < FRESH) {
            return Ok(root.to_owned());
        }
        match self.fetched(packages, suites, &folder) {
            Ok(root) => Ok(root),
            Err(error) => match newest {
                // What is there is good, only not the newest.
                Some(root) => {
                    shell::say(&format!("{}: cannot look for a newer one: {error:#}", self.name));
                    Ok(root)
                }
                None => Err(error),
            },
        }
    }

    /// Fetches the version that the first suite has which has this release, unless it is there.
    fn fetched(&self, packages: &[&str], suites: &[&str], folder: &Path) -> Result<PathBuf> {
        let mut others = Vec::new();
        for suite in suites {
            let suite = Suite::open(suite)?;
            let Some(version) = suite.version_of(packages.first().context("no package")?)? else {
                others.push(format!("{} does not have it", suite.name));
                continue;
            };
            // A Debian version may begin with an epoch.
            let upstream = version.split_once(':').map_or(version.as_str(), |(_, rest)| rest);
            if !is_of(self.version, upstream) {
                others.push(format!("{} has {version}", suite.name));
                continue;
            }
            let root = folder.join(upstream.replace(['/', '+', '~'], "_"));
            if !root.is_dir() {
                let start = SystemTime::now();
                suite.unpack(packages, &root)?;
                let seconds = start.elapsed().unwrap_or_default().as_secs();
                shell::say(&format!("{}: fetched {version} from {} in {seconds} s", self.name, suite.name));
            }
            cache::used(&root)?;
            cache::forget_older(folder, &root);
            return Ok(root);
        }
        bail!("no suite of this machine's distribution has {}: {}", packages.join(", "), others.join("; "))
    }
}

/// How long nobody asks whether there is a newer one.
const FRESH: Duration = Duration::from_secs(7 * 24 * 3600);

/// ZooKeeper's jars. Newer packages of the distribution do not start on the Java that older ones have.
fn maven(version: &str) -> Result<PathBuf> {
    let folder = cache::folder()?.join("zookeeper");
    std::fs::create_dir_all(&folder)?;
    let _lock = cache::lock(&folder)?;
    let jars = folder.join(version);
    if jars.is_dir() {
        return Ok(jars);
    }
    if !apt::has("mvn") {
        apt::install(&["maven"])?;
    }
    let new = cache::unfinished(&jars)?;
    let mut fetch = Command::new("mvn");
    fetch.args(["--quiet", "--batch-mode", "dependency:copy-dependencies", "--file"]);
    fetch.arg(workspace::root().join("xtask/engines/zookeeper/pom.xml"));
    fetch.arg(format!("-Dzookeeper.version={version}")).arg(format!("-DoutputDirectory={}", new.display()));
    shell::run(fetch.stdout(std::io::stderr()))?;
    ensure!(
        new.join(format!("zookeeper-{version}.jar")).is_file(),
        "Maven brought no zookeeper-{version}.jar"
    );
    cache::finish(&new, &jars)?;
    Ok(jars)
}
