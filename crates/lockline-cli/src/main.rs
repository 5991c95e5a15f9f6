//! The `lockline` command.
fn main() {}
