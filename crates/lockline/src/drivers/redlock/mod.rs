//! tmp
#[cfg(test)]
mod ballot;
#[cfg(test)]
mod tally;
#[cfg(test)]
mod tickets;
#[cfg(test)]
mod tests;
