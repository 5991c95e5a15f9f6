//! Processes, faults, histories and checkers.
