//! What the driver needs from the operating system: the bell's address, whether a process lives, what is mounted, which
//! boot this is. One file for each system, with the same functions.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) use linux::*;

// Its functions are tested on Linux as well: most of them are not about macOS but about a system without Linux's own.
#[cfg(any(target_vendor = "apple", test))]
#[cfg_attr(not(target_vendor = "apple"), allow(dead_code))]
mod macos;
#[cfg(target_vendor = "apple")]
pub(super) use macos::*;
