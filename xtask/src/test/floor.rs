//! How many tests there must be: a run that quietly tests less than it did must not pass.

use anyhow::{Result, ensure};

use super::counts::Target;
use super::{LIBRARY, conformance, layouts};
use crate::engines::{self, Engine};

/// The behaviours of the conformance suite on a server. Raise it with the suite.
const CONFORMANCE: u64 = 130;

/// The same on tables that other programs share, for the two layouts of an SQL server together.
const LAYOUTS: u64 = 105;

/// The drivers' own tests, by the engine that they need. A few less than there are.
const DRIVERS: [(&str, &str, u64); 6] = [
    ("redis", "drivers::redis::", 90),
    ("redlock", "drivers::redlock::", 30),
    ("zookeeper", "drivers::zookeeper::", 35),
    ("postgres", "drivers::postgres::", 24),
    ("mysql", "drivers::mysql::", 20),
    ("sqlite", "drivers::sqlite::", 45),
];

/// Fails if an engine that was started had fewer tests than it must have.
pub(super) fn check(targets: &[Target], engines: &[&Engine]) -> Result<()> {
    let least = |name: &str, count: u64, least: u64| {
        ensure!(count >= least, "{name}: {count} tests passed, and there are at least {least}");
        Ok(())
    };
    let passed =
        |name: &str| targets.iter().find(|target| target.name == name).map_or(0, |target| target.passed);
    for engine in engines.iter().filter(|engine| engine.feature.is_some()) {
        let program = conformance(engine);
        least(&program, passed(&program), CONFORMANCE)?;
    }
    for engine in engines.iter().filter(|engine| ["postgres", "mysql"].contains(&engine.name)) {
        let program = layouts(engine.name);
        least(&program, passed(&program), LAYOUTS)?;
    }
    for (engine, module, count) in DRIVERS {
        let library = targets.iter().find(|target| target.name == LIBRARY);
        if engines.iter().any(|started| started.name == engine) {
            least(module, library.map_or(0, |library| library.passed_in(module)), count)?;
        }
    }
    // Each program that had a server of its own: conformance, or a driver's tests.
    for target in targets.iter().filter(|target| target.server.is_some() && target.not_had.is_none()) {
        let driver = DRIVERS.iter().find(|(_, module, _)| target.name.contains(module.trim_end_matches(':')));
        let cell = engines::cells(&[])?.into_iter().find(|cell| Some(cell.name) == target.server);
        let is_of = |program: String| target.name.starts_with(&program);
        let count = match cell {
            Some(cell) if is_of(conformance(cell)) => CONFORMANCE,
            Some(cell) if is_of(layouts(cell.like)) => LAYOUTS,
            _ => driver.map_or(1, |(.., count)| *count),
        };
        least(&target.name, target.passed, count)?;
    }
    Ok(())
}
