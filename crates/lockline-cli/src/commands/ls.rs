//! `lockline ls`: the locks that somebody holds or waits for.

use lockline::driver::Fencing;

use crate::cli::LsArgs;
use crate::engine::{Engine, on_runtime};
use crate::exit::{Failure, code};
use crate::json::{Line, Lines};
use crate::output::{Paint, data, json};
use crate::table;

pub(crate) fn ls(args: LsArgs) -> Result<u8, Failure> {
    let engine = Engine::of(args.engine.on)?;
    on_runtime(async {
        let (lines, fencing) = match engine.open_to_look().await? {
            Some(locks) => (locks.view(&args.prefix).await?, locks.guarantees().fencing),
            None => (Vec::new(), Fencing::None),
        };
        if args.json {
            json(&Lines { locks: lines.iter().map(|line| Line::of(line, fencing)).collect() })?;
        } else {
            data(&table::locks(&lines, Paint::for_stdout()))?;
        }
        Ok(code::OK)
    })
}
