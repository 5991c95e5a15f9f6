//! Floors and ours, measured in the same run.
//!
//! A figure alone says little on a shared machine, so every row is a ratio to a *floor*: the least that the work could
//! cost on this engine, taken in the same run by the same workers. What each row means: `docs/benchmarks.md`.
//!
//! | file | what it does |
//! |---|---|
//! | `row` | one measured row, as it is printed |
//! | `engine` | how to open each engine and what its floor is: a new engine is an arm here |
//! | `counting` | a driver that counts the verbs sent to the driver it wraps |
//! | `floors`, `servers` | the least that an engine could cost |
//! | `workers` | many workers taking turns, and the checks on them |
//! | `single`, `crowd`, `renewal`, `processes`, `command` | the rows |
//! | `report` | tables, for people and for the documents |
//! | `allocator`, `stats`, `awake` | allocations, percentiles, cores that do not sleep |

pub mod allocator;
pub mod awake;
pub mod command;
pub mod counting;
pub mod crowd;
pub mod engine;
pub mod floors;
pub mod processes;
pub mod renewal;
pub mod report;
pub mod row;
pub mod servers;
pub mod single;
pub mod stats;
pub mod storm;
pub mod workers;
