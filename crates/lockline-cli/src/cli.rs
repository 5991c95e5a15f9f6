//! What can be written on the command line: definitions only.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::parse::{Permits, duration, exit_code, grace, lease, max_hold, owner, seconds};

/// Run a command under a lock, and see who holds what.
#[derive(Debug, Parser)]
#[command(name = "lockline", version, long_version = crate::built::version(), disable_help_subcommand = true)]
#[command(after_help = crate::built::help(ENGINES))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const ENGINES: &str = "\
Which engine: --on URL, or --on @FILE with the address in a file; else LOCKLINE_URL; else the file that LOCKLINE_URL_FILE
names; else `url = \"…\"` in ~/.config/lockline/config.toml or /etc/lockline/config.toml (LOCKLINE_CONFIG names another).
Without any of them, locks live in a SQLite file of this user on this machine:
$XDG_STATE_HOME/lockline/locks.db, or ~/.local/state/lockline/locks.db.";

const RUN_HELP: &str = "\
Flags stand before NAME or between NAME and `--`. Durations look like 500ms, 10s or 5m.

Environment:
  LOCKLINE_URL    the engine, as for --on; unlike --on, `ps` does not show its password to other users
  LOCKLINE_URL_FILE, LOCKLINE_CONFIG   files that name the engine: see lockline --help
  NO_COLOR        no colours
The command gets LOCKLINE_NAME, LOCKLINE_TOKEN (the fencing token; empty if the engine has none), LOCKLINE_OWNER, and
LOCKLINE_HOLDS, by which a lockline inside it knows that it would wait for itself. If LOCKLINE_URL has a password, the
command gets the address without it, unless --pass-url is given.

The command and all it starts are one process group, which is stopped before anybody else can have the lock: when the
lock is lost, when it was not renewed for three quarters of its lease, and when lockline itself is killed, stopped or
hangs, for which a second small process, the guardian, is there. The group is asked with SIGTERM, and killed after
--grace or when the lease ends, whichever is first. Two kinds of processes escape: those of another user (run lockline
as that user instead), and those that leave the group (setsid, daemons).
A process of the group that is still there when the command has ended, such as a background job of a script, is waited
for and keeps the lock: see --children.

Exit codes:
  the command's own; 128+n if signal n ended it, or ended the waiting
  64   usage: a bad flag, name, lease or address
  69   the engine is unreachable, full, without a quorum or with too few replicas, or grants nothing yet after a restart
  75   not acquired in time, or evicted while waiting (-E changes it)
  77   denied by the engine
  78   the engine, or its file, is set up in a way no lock can be trusted to
  79   lost while the command was running, or about to be (maximum hold included); the command was stopped
  126  the command could not be executed
  127  the command was not found";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command under a lock
    Run(RunArgs),
    /// List the locks that somebody holds or waits for
    Ls(LsArgs),
    /// Show one lock: its holders and waiters, in line order
    Show(ShowArgs),
    /// Follow the locks live; on a terminal q leaves
    Watch(LsArgs),
    /// Show a claim out of its line
    Evict(EvictArgs),
    /// Print the SQL that makes an engine's tables, for operators of applications that may not create them
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    Schema(SchemaArgs),
    /// Print the completions for a shell
    Completions(CompletionsArgs),
    /// Print the manual page, of the whole or of one command
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct EngineArgs {
    /// The engine: sqlite:/path/to/file, redis://host, …; @FILE reads it from a file [env: LOCKLINE_URL]
    #[arg(long = "on", value_name = "URL")]
    pub(crate) on: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "lockline run [FLAGS] NAME [FLAGS] -- COMMAND [ARG]…",
    after_help = RUN_HELP
)]
pub(crate) struct RunArgs {
    /// The lock's name: any text of 1 to 512 bytes
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// How long to wait for the lock [default: for as long as it takes]
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with_all = ["seconds", "no_wait"])]
    pub(crate) wait: Option<Duration>,

    /// The same in seconds, as flock(1) has it; fractions allowed, 0 is the same as -n
    #[arg(short = 'w', value_name = "SECS", value_parser = seconds, conflicts_with = "no_wait", allow_negative_numbers = true)]
    pub(crate) seconds: Option<Duration>,

    /// Do not wait: give up at once if the lock is busy
    #[arg(short = 'n', long)]
    pub(crate) no_wait: bool,

    /// Share the lock with other shared holders
    #[arg(short, long, overrides_with = "exclusive")]
    pub(crate) shared: bool,

    /// Hold the lock alone [default]
    #[arg(short = 'x', long, overrides_with = "shared")]
    pub(crate) exclusive: bool,

    /// Take K of N permits, as of a semaphore
    #[arg(long, value_name = "K/N", conflicts_with_all = ["shared", "exclusive"])]
    pub(crate) permits: Option<Permits>,

    /// How soon others go on after this host crashed: 100ms to 24h, renewed all the time [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = lease)]
    pub(crate) lease: Option<Duration>,

    /// Stop the command after it has held the lock this long [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = max_hold)]
    pub(crate) max_hold: Option<Duration>,

    /// When the lock is lost: how long the command may take to end before it is killed, at most until the lease ends
    #[arg(long, value_name = "DURATION", value_parser = grace, default_value = "5s")]
    pub(crate) grace: Duration,

    /// What to do with processes of the command's group that are still there when the command has ended
    #[arg(long, value_name = "WHAT", default_value = "wait")]
    pub(crate) children: Children,

    /// The exit code for "not acquired" instead of 75
    #[arg(short = 'E', long = "conflict-exit-code", value_name = "CODE", value_parser = exit_code, allow_negative_numbers = true)]
    pub(crate) exit_code: Option<u8>,

    /// The label others see for this claim [default: the user and the command's first two words]
    #[arg(long, value_name = "LABEL", value_parser = owner)]
    pub(crate) owner: Option<String>,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,

    /// Let the command have the password in LOCKLINE_URL, for a lockline inside it
    #[arg(long)]
    pub(crate) pass_url: bool,

    /// Say what there is to say as JSON, one object per line, on stderr
    #[arg(long)]
    pub(crate) json: bool,

    /// Say nothing
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Say when it waits, when it got the lock, and the token
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// What becomes of the command's group after the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Children {
    /// Keep the lock until they have ended, as flock(1) does; a signal ends them and the waiting
    Wait,
    /// Ask them to end, kill them after the grace, then release the lock
    Stop,
    /// Release the lock at once; they go on without it
    Leave,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Only locks whose names start with this
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The lock's name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 evicted, 1 no such claim; otherwise as for `lockline run --help`.")]
pub(crate) struct EvictArgs {
    /// The lock's name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// The ticket of the claim to show out, as `lockline show NAME` prints it; a holder's is its token
    #[arg(long, value_name = "T")]
    pub(crate) token: u64,

    /// Let the next one in at once instead of when the lease ends: until the old holder notices, only the token protects
    #[arg(long)]
    pub(crate) now: bool,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    #[command(subcommand)]
    pub(crate) engine: SchemaEngine,
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
#[derive(Debug, Subcommand)]
pub(crate) enum SchemaEngine {
    /// For PostgreSQL: pipe it into psql
    #[cfg(feature = "postgres")]
    Postgres {
        /// The schema, as in the address
        #[arg(long, value_name = "NAME", default_value = "lockline", value_parser = schema_name)]
        schema: String,
        /// A table that other programs lock in, too, instead of Lockline's own: address option layout=
        #[arg(long, value_name = "NAME", conflicts_with = "schema")]
        layout: Option<SharedLayout>,
    },
    /// For MariaDB and MySQL: pipe it into mariadb or mysql, with the database named there
    #[cfg(feature = "mysql")]
    Mysql {
        /// A table that other programs lock in, too, instead of Lockline's own: address option layout=
        #[arg(long, value_name = "NAME")]
        layout: Option<SharedLayout>,
    },
}

/// A table that other programs lock in, too.
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SharedLayout {
    /// One row per lock with its owner, when it expires, and the ids of its holds
    Table,
    /// Java's ShedLock
    Shedlock,
}

#[cfg(feature = "postgres")]
fn schema_name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let fits = (1..=40).contains(&text.len()) && text.bytes().all(plain);
    if fits { Ok(text.to_owned()) } else { Err("a schema is 1 to 40 letters, digits and _".to_owned()) }
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The command whose page it is [default: the overview]
    #[arg(value_name = "COMMAND", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) command: Option<String>,
}
