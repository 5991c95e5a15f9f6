//! Seeded bugs, for the tests of the tests.
//!
//! `mutant!(X)` is the constant `false` in every build but this crate's own unit tests, where the model checker
//! or a simulation switches one bug on at a time and must find it. `docs/reliability.md` has the table of who finds which.

/// `true` while a harness runs with this bug switched on; the constant `false` in a real build.
macro_rules! mutant {
    ($which:ident) => {{
        #[cfg(test)]
        let on = $crate::mutant::is($crate::mutant::Mutant::$which);
        #[cfg(not(test))]
        let on = false;
        on
    }};
}

#[cfg(test)]
pub(crate) use testing::{Mutant, is, with};

#[cfg(test)]
mod testing {
    use std::cell::Cell;

    /// A bug that was once thought of, or made.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub(crate) enum Mutant {
        BelieveById,
        StaleBellById,
        RejoinDoesNotExtend,
        ValidFromReceipt,
        BellCountsFromReceipt,
        EvictDropsHolder,
        PermitsBesideExclusive,
        LargerLimitPasses,
        LapsedOnlyFromFront,
        ClockNeverBack,
        LeaveByName,
        PlainCounter,
        NoRestartGuard,
        ShortRestartGuard,
        TryPastWaiting,
        NoMargin,
        NeverLooksAgain,
        TicketByMax,
        SilentGrant,
        EarlyBellDropped,
        LostComesBack,
        WaitingDemotes,
        UnsureIsLost,
        CapIgnored,
        FixedIgnored,
        FixedFromLastSending,
        DroppedJoinStays,
        ReturnsWhenLost,
        LookIsSilent,
        LookNowForgotten,
        KeeperOversleeps,
        KeeperTooLate,
        ErrorEndsRenewal,
        AnswersMixedUp,
        CallWithoutDeadline,
        DroppedGuardStays,
        ShutdownKeepsGuards,
        OwnerEntersLost,
        TurnKept,
        TurnDoesNotWake,
        AllUnsorted,
        AllKeepsLost,
        #[cfg(feature = "redis")]
        NoYield,
        #[cfg(feature = "redis")]
        YieldAfterWinning,
        #[cfg(feature = "redis")]
        LeaveWhereGranted,
    }

    thread_local!(static ON: Cell<Option<Mutant>> = const { Cell::new(None) });

    pub(crate) fn is(which: Mutant) -> bool {
        ON.get() == Some(which)
    }

    /// Runs `body` with one bug switched on, on this thread.
    pub(crate) fn with<T>(which: Option<Mutant>, body: impl FnOnce() -> T) -> T {
        let before = ON.replace(which);
        let result = body();
        ON.set(before);
        result
    }
}
