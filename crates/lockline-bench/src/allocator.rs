//! Counts allocations while asked to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

static COUNTING: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, with a counter that costs one read of a flag while it is off: rows that are timed are not
/// slowed down by threads that fight over a counter.
#[derive(Debug)]
pub struct CountingAllocator;

// The trait is unsafe by nature; every call is passed on to the system's allocator unchanged.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTING.load(Relaxed) {
            COUNT.fetch_add(1, Relaxed);
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if COUNTING.load(Relaxed) {
            COUNT.fetch_add(1, Relaxed);
        }
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

/// How many allocations the whole process made while the work ran. 0 in a program without [`CountingAllocator`].
pub async fn allocations<T>(work: impl Future<Output = T>) -> (T, u64) {
    let before = COUNT.load(Relaxed);
    COUNTING.store(true, Relaxed);
    let output = work.await;
    COUNTING.store(false, Relaxed);
    (output, COUNT.load(Relaxed) - before)
}
