//! `lockline man`: the manual page, made from the same definitions as the command line.

use clap::CommandFactory;

use crate::cli::{Cli, ManArgs};
use crate::exit::{Failure, code};
use crate::output::{data, visible};

pub(crate) fn man(args: &ManArgs) -> Result<u8, Failure> {
    let mut whole = Cli::command();
    whole.build();
    let page = match &args.command {
        None => whole,
        Some(word) => {
            let names: Vec<String> =
                whole.get_subcommands().map(|command| command.get_name().to_owned()).collect();
            whole.find_subcommand(word).cloned().ok_or_else(|| {
                Failure::usage(format!("there is no command '{}'", visible(word)))
                    .hint(format!("there are pages for {}", names.join(", ")))
            })?
        }
    };
    let mut roff = Vec::new();
    clap_mangen::Man::new(page).render(&mut roff)?;
    data(&String::from_utf8_lossy(&roff))?;
    Ok(code::OK)
}
