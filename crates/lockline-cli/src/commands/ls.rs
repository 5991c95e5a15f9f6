//! `lockline ls`: the locks that somebody holds or waits for.

use crate::cli::LsArgs;
use crate::engine::{Engine, on_runtime};
use crate::exit::{Failure, code};
use crate::json::{Line, Lines, Shut};
use crate::output::{Paint, data, json, say};
use crate::table;

pub(crate) fn ls(args: LsArgs) -> Result<u8, Failure> {
    let engine = Engine::of(args.engine.on)?;
    on_runtime(async {
        let Some(locks) = engine.open_to_look().await? else {
            if args.json {
                json(&Lines { engine: engine.shown(), locks: Vec::new(), shut: None })?;
            }
            return Ok(code::OK);
        };
        let (lines, fencing, shut) =
            (locks.view(&args.prefix).await?, locks.guarantees().fencing, locks.shut());
        if args.json {
            let engine = &*locks.info().address;
            let locks = lines.iter().map(|line| Line::of(line, fencing)).collect();
            json(&Lines { engine, locks, shut: shut.as_ref().map(Shut::of) })?;
        } else {
            if let Some(shut) = shut {
                say(&format!("lockline: {}\n", shut.about(locks.info().driver)));
            }
            data(&table::locks(&lines, Paint::for_stdout()))?;
        }
        Ok(code::OK)
    })
}
