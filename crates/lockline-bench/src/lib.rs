//! Floors and ours.
