//! The commands, one file each.

mod completions;
mod evict;
mod ls;
mod man;
mod run;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod schema;
mod show;
mod watch;

use std::process::ExitCode;

use crate::cli::Command;
use crate::exit::finish;

pub(crate) fn dispatch(command: Command) -> ExitCode {
    match command {
        Command::Run(args) => run::run(args),
        Command::Ls(args) => finish(ls::ls(args)),
        Command::Show(args) => finish(show::show(args)),
        Command::Watch(args) => finish(watch::watch(args)),
        Command::Evict(args) => finish(evict::evict(args)),
        #[cfg(any(feature = "postgres", feature = "mysql"))]
        Command::Schema(args) => finish(schema::schema(&args)),
        Command::Completions(args) => finish(completions::completions(&args)),
        Command::Man(args) => finish(man::man(&args)),
    }
}
