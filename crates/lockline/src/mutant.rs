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
pub(crate) use testing::{ALL, Mutant, caught, is, with};

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

    /// All of them, and what each does.
    pub(crate) const ALL: &[(Mutant, &str)] = &[
        (Mutant::BelieveById, "an answer is believed by the claim's id, whatever ticket it names"),
        (Mutant::StaleBellById, "a bell is believed by the claim's id, whatever ticket it names"),
        (Mutant::RejoinDoesNotExtend, "a join that is asked again finds its place, and does not extend it"),
        (Mutant::ValidFromReceipt, "validity counts from when the answer came"),
        (Mutant::BellCountsFromReceipt, "a bell begins a new lease"),
        (Mutant::EvictDropsHolder, "eviction drops a holder's place at once"),
        (Mutant::PermitsBesideExclusive, "permits get in beside one who is alone"),
        (Mutant::LargerLimitPasses, "of two limits of permits the claim's own counts"),
        (Mutant::LapsedOnlyFromFront, "only the first place in line can lapse"),
        (Mutant::ClockNeverBack, "the engine's clock is the latest it ever showed"),
        (Mutant::LeaveByName, "leaving removes whoever stands first"),
        (Mutant::PlainCounter, "tickets are a counter, lost with the engine's memory"),
        (Mutant::NoRestartGuard, "an engine that forgot lets somebody in at once"),
        (Mutant::ShortRestartGuard, "an engine that forgot waits for less than the longest lease"),
        (Mutant::TryPastWaiting, "a try does not see those who wait"),
        (Mutant::NoMargin, "nothing is subtracted for clocks that differ"),
        (Mutant::NeverLooksAgain, "who waits relies on the bell alone"),
        (Mutant::TicketByMax, "a node of a quorum takes a ticket that is not its largest"),
        (Mutant::SilentGrant, "nobody is rung"),
        (Mutant::EarlyBellDropped, "a bell before the answer is thrown away"),
        (Mutant::LostComesBack, "an answer is applied to a claim that is lost"),
        (Mutant::WaitingDemotes, "an old answer makes a holder wait"),
        (Mutant::UnsureIsLost, "a part of the engine that cannot be asked costs the lock"),
        (Mutant::CapIgnored, "`max_hold` is not kept"),
        (Mutant::FixedIgnored, "a fixed lease is renewed"),
        (Mutant::FixedFromLastSending, "a fixed lease counts from its last sending"),
        (Mutant::DroppedJoinStays, "a dropped `lock()` does not leave the line"),
        (Mutant::ReturnsWhenLost, "a lock is returned that was lost meanwhile"),
        (Mutant::LookIsSilent, "nobody is woken when a standing changes"),
        (Mutant::LookNowForgotten, "a hint to look, while a look is under way, is forgotten"),
        (Mutant::KeeperOversleeps, "the keeper is not woken for what is due sooner"),
        (Mutant::KeeperTooLate, "renewal when the lease ends, not at a third of it"),
        (Mutant::ErrorEndsRenewal, "one failed renewal is the last"),
        (Mutant::AnswersMixedUp, "the answers of a batch go to the wrong claims"),
        (Mutant::CallWithoutDeadline, "a call waits for its answer without end"),
        (Mutant::DroppedGuardStays, "a dropped guard does not release"),
        (Mutant::ShutdownKeepsGuards, "shutdown leaves guards valid"),
        (Mutant::OwnerEntersLost, "an owner enters again what it has lost"),
        (Mutant::TurnKept, "an owner whose task gives up never lets its others ask"),
        (Mutant::TurnDoesNotWake, "an owner's other tasks are not woken"),
        (Mutant::AllUnsorted, "several locks are taken in the order given"),
        (Mutant::AllKeepsLost, "of several locks one may be lost before all are there"),
        #[cfg(feature = "redis")]
        (Mutant::NoYield, "two clients with half the nodes each wait for each other"),
        #[cfg(feature = "redis")]
        (Mutant::YieldAfterWinning, "a place is given up after a majority had it"),
        #[cfg(feature = "redis")]
        (Mutant::LeaveWhereGranted, "a claim leaves only the nodes that answered"),
    ];

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

    /// Says that a harness found a bug: a line of JSON, also for the file that `LOCKLINE_RESULTS` names.
    pub(crate) fn caught(mutant: Mutant, by: &str, after: &str, breaks: &str) {
        let line = serde_json::json!({
            "mutant": format!("{mutant:?}"), "by": by, "after": after, "breaks": breaks,
        });
        crate::document::result(&line.to_string());
    }
}
