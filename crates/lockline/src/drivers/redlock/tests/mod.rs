//! The protocol by simulation, the scripts against the pure node, and quorums whose nodes are killed, paused and wiped.

mod simulation;
