//! Tables that other programs lock in, too: one row per lock. The verbs are `drivers/foreign`; here is what the SQL servers have in
//! common of the store: which table and columns, how a claim is written into them, and how a row is read.
//!
//! A row holds a lock until a time that it says, by the clock of the server. Nothing of ours keeps a transaction open while a lock is
//! held, and nothing waits inside the server for somebody else's: sessions are shared, and nothing that one lock waits for may delay
//! the renewal or release of another.

mod columns;
mod format;
mod layout;
mod row;
mod store;

pub(in crate::drivers) use columns::{Column, Columns};
pub(in crate::drivers) use format::SharedFormat;
pub(in crate::drivers) use layout::Kind;
pub use layout::Layout;
pub(in crate::drivers) use row::{Row, hex};
pub(in crate::drivers) use store::{Rows, SharedTable, Take};
