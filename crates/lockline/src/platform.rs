//! What differs between operating systems, for everything but SQLite, whose own is in its driver's folder.

use std::time::Duration;

/// Time since some moment, on a clock that goes on counting while the machine sleeps.
///
/// On Linux that is `CLOCK_BOOTTIME`, counted from the start of the kernel. `CLOCK_MONOTONIC` is the right one on macOS, whose
/// manual says that it goes on during sleep (it is `CLOCK_UPTIME_RAW`, which `std` reads, that stands still).
#[cfg(unix)]
pub(crate) fn since_boot() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(clock);
    // Neither is ever negative on these clocks.
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Windows: `Instant` is `QueryPerformanceCounter` there, whose documentation says that it counts standby and hibernation.
/// It has no origin that processes share, and needs none: only SQLite compares clocks of processes, and it is not on Windows.
#[cfg(not(unix))]
pub(crate) fn since_boot() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static FIRST: OnceLock<Instant> = OnceLock::new();
    // Not zero, which is the origin of the clock, and earlier than everything.
    Duration::from_secs(1) + FIRST.get_or_init(Instant::now).elapsed()
}

/// Random bytes from the operating system: safe after a fork, and in copies of a virtual machine, unlike what is kept in
/// the process.
pub(crate) fn random_bytes() -> [u8; 16] {
    let mut bytes = [0u8; 16];
    // Only an ancient kernel without the call can say this, and then nothing here is safe.
    getrandom::fill(&mut bytes).unwrap_or_else(|e| panic!("the operating system gave no random bytes: {e}"));
    bytes
}

/// What this machine is called, for people.
#[cfg(unix)]
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Windows sets this variable for every process.
#[cfg(not(unix))]
pub(crate) fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unnamed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_counts_on_and_chance_differs() {
        let before = since_boot();
        std::thread::sleep(Duration::from_millis(2));
        let passed = since_boot().checked_sub(before).unwrap();
        assert!(passed >= Duration::from_millis(2) && passed < Duration::from_secs(60), "{passed:?}");
        assert_ne!(random_bytes(), random_bytes());
        assert!(!host_name().is_empty());
    }
}
