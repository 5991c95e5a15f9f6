//! Messages from the server: releases of locks that somebody here waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{PushInfo, PushKind};

use super::RedisFormat;
use crate::driver::Bells;
use crate::drivers::foreign::Waiters;
use crate::drivers::redis::answers::text;
use crate::name::Name;

/// Hears what the server pushes: releases of locks that somebody here waits for.
pub(super) struct Ear {
    format: &'static dyn RedisFormat,
    space: String,
    waiters: Arc<Waiters>,
    bells: Bells,
    /// The connection was lost, and messages with it.
    gap: AtomicBool,
}

impl Ear {
    pub(super) fn new(
        format: &'static dyn RedisFormat,
        space: &str,
        waiters: &Arc<Waiters>,
        bells: &Bells,
    ) -> Ear {
        let (waiters, bells) = (waiters.clone(), bells.clone());
        Ear { format, space: space.to_owned(), waiters, bells, gap: AtomicBool::new(false) }
    }

    /// Runs in the connection's task, and nothing here blocks.
    pub(super) fn hear(&self, push: &PushInfo) {
        match push.kind {
            PushKind::Message => {
                let Some(channel) = push.data.first().and_then(text) else { return };
                for key in self.format.announced_on(channel) {
                    let name = key.strip_prefix(self.space.as_str()).and_then(|name| Name::new(name).ok());
                    // Like each of their clients, we wake one of ours: the lock has room for one.
                    if let Some(first) = name.and_then(|name| self.waiters.first(&name)) {
                        self.bells.look_now(first);
                    }
                }
            }
            PushKind::Disconnection => self.gap.store(true, Ordering::Release),
            PushKind::Subscribe if self.gap.swap(false, Ordering::AcqRel) => self.bells.look_at_all(),
            _ => {}
        }
    }
}
