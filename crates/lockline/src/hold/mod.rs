//! Waiting, renewing, losing: written once, for every engine.

pub(crate) mod bells;
pub(crate) mod validity;
