//! `lockline show`: one lock, in line order.

use lockline::Name;
use lockline::driver::Fencing;
use lockline::line::LineView;

use crate::cli::ShowArgs;
use crate::engine::{Engine, on_runtime};
use crate::exit::{Failure, code};
use crate::json::{Line, LineOn};
use crate::output::{Paint, data, json};
use crate::table;

pub(crate) fn show(args: ShowArgs) -> Result<u8, Failure> {
    let engine = Engine::of(args.engine.on)?;
    engine.check(&args.name)?;
    on_runtime(async {
        let (line, fencing, driver) = match engine.open_to_look().await? {
            Some(locks) => (locks.show(&args.name).await?, locks.guarantees().fencing, locks.info().driver),
            None => (LineView::free(Name::new(&args.name)?), Fencing::None, ""),
        };
        if args.json {
            json(&LineOn { line: Line::of(&line, fencing), engine: engine.shown() })?;
        } else {
            data(&table::claims(&line, driver, Paint::for_stdout()))?;
        }
        Ok(code::OK)
    })
}
