//! `lockline completions`: what a shell needs to complete our words.

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs};
use crate::exit::{Failure, code};
use crate::output::data;

pub(crate) fn completions(args: &CompletionsArgs) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lockline", &mut script);
    data(&String::from_utf8_lossy(&script))?;
    Ok(code::OK)
}
