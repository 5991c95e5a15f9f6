//! Chance, decided by a seed: everything random on a thread that simulates, ids of claims included.

use std::cell::Cell;

thread_local!(static STATE: Cell<Option<u64>> = const { Cell::new(None) });

/// Runs `body` with everything random decided by this seed.
pub(crate) fn seeded<T>(seed: u64, body: impl FnOnce() -> T) -> T {
    let before = STATE.replace(Some(seed));
    let result = body();
    STATE.set(before);
    result
}

/// The next number (splitmix64); `None` where nothing is simulated.
fn next() -> Option<u64> {
    let state = STATE.get()?.wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(Some(state));
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Some(mixed ^ (mixed >> 31))
}

/// The bits of a claim's id, where claims are simulated.
pub(crate) fn id() -> Option<u128> {
    Some(u128::from(next()?) << 64 | u128::from(next()?))
}

/// From 0 up to, but not including, `limit`.
pub(crate) fn below(limit: u64) -> u64 {
    next().expect("only a simulation takes chances") % limit.max(1)
}

/// Whether something happens that happens so often in a thousand times.
pub(crate) fn strikes(per_mille: u64) -> bool {
    below(1000) < per_mille
}
