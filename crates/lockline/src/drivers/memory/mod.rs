#![doc = include_str!("GUIDE.md")]

mod verbs;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, Weak};

use crate::driver::{Bells, DriverInfo};
use crate::line::{ClaimId, Line, Ticket};
use crate::name::Name;
use crate::sync::locked;
use crate::time::Clock;

/// An engine in this process. Clones are the same engine.
#[derive(Clone, Default)]
pub struct Memory {
    space: Arc<Mutex<Space>>,
    clock: Clock,
}

/// All lines of one engine.
#[derive(Default)]
struct Space {
    lines: HashMap<Name, Shelf>,
    /// Tickets of lines that are gone: a new line of the same name must go on after them.
    last_ticket: Ticket,
}

/// A line, and where the bells of its claims hang.
struct Shelf {
    line: Line,
    bells: HashMap<ClaimId, Bells>,
}

impl Memory {
    /// The engine of this name: the same for everybody in the process who names it. The empty name is a fresh engine.
    pub fn named(name: &str) -> Memory {
        static NAMED: LazyLock<Mutex<HashMap<String, Weak<Mutex<Space>>>>> = LazyLock::new(Mutex::default);
        if name.is_empty() {
            return Memory::default();
        }
        let mut named = locked(&NAMED);
        if let Some(space) = named.get(name).and_then(Weak::upgrade) {
            return Memory { space, clock: Clock::default() };
        }
        let fresh = Memory::default();
        named.insert(name.to_owned(), Arc::downgrade(&fresh.space));
        fresh
    }

    #[cfg(test)]
    pub(crate) fn on(clock: Clock) -> Memory {
        Memory { space: Arc::default(), clock }
    }

    /// Forgets everything, tickets included, as an engine does that lost its memory. For tests.
    pub fn forget(&self) {
        *locked(&self.space) = Space::default();
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("lines", &locked(&self.space).lines.len()).finish()
    }
}

/// One client's way to a [`Memory`].
#[derive(Debug)]
pub struct MemoryDriver {
    memory: Memory,
    bells: Bells,
    info: DriverInfo,
}

impl MemoryDriver {
    /// A driver that rings the given bells.
    pub fn new(memory: Memory, bells: Bells) -> MemoryDriver {
        let info = DriverInfo { driver: "memory", address: "memory:".into() };
        MemoryDriver { memory, bells, info }
    }
}
