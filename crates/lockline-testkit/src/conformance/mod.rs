//! The behaviours that every driver must have. Each is one function, named in [`conformance!`](macro@crate::conformance).
//!
//! What the design says, line by line, and the test that proves it on every engine (`tests/table.rs` checks that no test is
//! missing here, and that none is named that does not exist):
//!
//! | the design says | proved by |
//! |---|---|
//! | §1 `lock`, `release`, drop; one `Guard` type | `grants::mutex_has_one_holder`, `cancel::dropping_a_guard_releases`, `ends::dropped_client_leaves_nothing` |
//! | §1 busy is a value; `try_lock_for` gives `None`; zero is trying | `waiting::try_lock_is_busy_and_leaves_nothing`, `waiting::timed_wait_gives_up_and_leaves_nothing`, `waiting::timed_wait_gets_in`, `waiting::waiting_for_zero_is_trying` |
//! | §1 `run`: the future is dropped when the lock is lost | `loss::run_drops_the_work_when_lost` |
//! | §1 names, leases, counts, labels are refused before anything is sent | `names::bad_names_are_refused_before_sending`, `names::bad_options_are_refused_before_sending` |
//! | §1 names are data | `names::hostile_names_are_locks_of_their_own`, `names::view_prefix_is_not_a_pattern`, `names::prefixes_are_name_spaces` |
//! | §1 election | `election::campaign_lead_resign`, `election::observer_sees_changes` |
//! | §1 `lockline::blocking` is the same API | `blocking::blocking_has_every_primitive`, `blocking::blocking_waits_its_turn`, `blocking::blocking_is_refused_inside_a_runtime` |
//! | §1 renewed at a third; §4 in batches | `leases::renewal_keeps_a_lock_beyond_several_leases`, `leases::many_locks_are_renewed_in_batches` |
//! | §2 exclusive: no claim stands before it | `grants::mutex_has_one_holder`, `many::random_modes_never_break_the_table` |
//! | §2 shared: only shared claims before it | `grants::readers_are_in_together`, `grants::reader_waits_behind_a_waiting_writer` |
//! | §2 permits: counts up to the smallest limit | `grants::semaphore_counts_permits`, `grants::smallest_limit_rules` |
//! | §2 kinds on one name share one line | `grants::kinds_share_one_line` |
//! | §2 *Fair*: order of tickets, nobody barges; §6.7 FIFO | `grants::mutex_is_granted_in_order`, `grants::big_request_is_not_passed_by_small_ones`, `waiting::try_lock_does_not_barge`, `cancel::aborted_waiters_leave_the_line`, `many::thousand_waiters_are_served_in_order`, `processes::processes_take_turns`, `processes::eight_processes_take_fair_turns` |
//! | §2 *Direct handoff*: one bell, no second round trip | `grants::handoff_rings_one_bell` |
//! | §2 *The ticket is the fencing token* | `fencing::tokens_rise_over_clients`, `fencing::tokens_rise_over_restarts`, `fencing::tokens_rise_over_amnesia`, `fencing::several_locks_have_a_token_each`, `processes::tokens_rise_over_processes_and_restarts` |
//! | §2 a resource raises its mark only for exclusive tokens | `fencing::gate_refuses_an_older_holder`, `fencing::token_of_an_expired_hold_is_refused` |
//! | §2 *One lease rule*: waiting is renewed like holding | `waiting::waiting_is_renewed_like_holding` |
//! | §2 getting in changes no deadline | `verbs::getting_in_changes_no_deadline` |
//! | §2 *A place is a claim id and its ticket* | `waiting::bell_for_an_older_ticket_is_ignored`, `waiting::bell_for_a_newer_ticket_means_joining_anew`, `idempotence::second_place_of_an_id_is_not_believed`, `verbs::renew_for_another_ticket_extends_nothing` |
//! | §2 *Everything is idempotent by claim id*; §6.3 | `idempotence::lost_reply_of_join_finds_the_same_place`, `idempotence::lost_reply_keeps_the_turn`, `idempotence::lost_reply_counts_permits_once`, `idempotence::lost_reply_of_try_lock_is_not_busy`, `idempotence::lost_reply_of_renew_keeps_the_lock`, `idempotence::lost_reply_of_leave_is_sent_again`, `verbs::join_is_idempotent` |
//! | §2 … and the deadline extended as by a renewal | `idempotence::repeated_join_extends` |
//! | §2 a copy that arrives late stands at most one lease; its bell is answered with `leave` | `idempotence::late_copy_behind_a_holder_is_left_on_its_bell`, `idempotence::late_copy_that_is_in_lapses_with_its_lease`, `idempotence::late_copy_while_holding_changes_nothing` |
//! | §2 reentrancy: in the process, 0 round trips | `owners::second_lock_costs_no_command`, `owners::holds_count_down`, `owners::releasing_two_guards_at_once_waits_for_the_engine`, `owners::two_tasks_of_one_owner_share_a_hold`, `owners::owner_survives_a_race_of_its_tasks` |
//! | §2 … only while the claim is valid; then a new id | `owners::lost_hold_is_not_entered_again`, `owners::after_the_last_release_a_new_claim`, `owners::another_owner_waits` |
//! | §2 a shared identity: one place, a set of holds | `owners::shared_identity_is_one_place`, `owners::shared_holds_have_their_own_deadlines`, `idempotence::lost_reply_counts_a_shared_hold_once`, `processes::shared_identity_over_processes` |
//! | §2 several names: sorted, one at a time, one lost → leave all | `several::all_is_sorted_without_duplicates`, `several::all_joins_one_at_a_time`, `several::all_or_nothing`, `several::all_starts_again_when_one_is_lost`, `several::several_are_lost_together`, `several::random_crossing_does_not_deadlock` |
//! | §2 wrong order, upgrade: a clear error before sending | `several::wrong_order_is_refused_before_sending`, `owners::upgrade_is_refused_before_sending` |
//! | §2 fixed lease: final renewal once, from its first sending | `leases::fixed_lease_ends`, `leases::fixed_lease_begins_on_getting_in`, `idempotence::copies_of_the_final_renewal_do_not_move_it` |
//! | §2 `max_hold`: lost exactly at the cap | `leases::max_hold_is_lost_at_the_cap` |
//! | §2 evict: a waiter is dropped, a holder closed, nobody overlaps, `now` | `evict::evicted_waiter_fails`, `evict::evicted_holder_is_told_and_nobody_overlaps`, `evict::evicted_holder_that_hears_nothing_keeps_its_lease`, `evict::evicted_holder_learns_it_from_renewal`, `evict::at_once_lets_the_next_one_in_now`, `processes::eviction_reaches_another_process` |
//! | §3 `valid_until`, counted from before sending, less the margin | `leases::remaining_counts_down_from_less_than_the_lease`, `loss::nobody_overlaps_with_one_who_is_cut_off` |
//! | §3, §6.1 lost by `valid_until` with no network at all | `loss::lost_by_valid_until_without_a_network` |
//! | §3 … and on the first look after a pause | `loss::reason_expired_on_the_first_look_after_a_pause`, `processes::stopped_holder_is_lost_on_its_first_look` |
//! | §3 an answer counts only while the claim is valid; a lost guard never comes back | `loss::lost_guard_never_comes_back`, `loss::late_answer_does_not_revive` |
//! | §3 waiting claims have a `valid_until` too | `loss::waiter_that_was_cut_off_joins_anew`, `processes::stopped_waiter_is_passed` |
//! | §3 the reasons of a loss | `loss::reason_unreachable`, `loss::reason_evicted`, `loss::reason_forgotten`, `loss::reason_max_hold`, `loss::reason_shutdown` |
//! | §4 `join`: `wait = false` leaves nothing behind | `verbs::join_without_waiting_leaves_nothing` |
//! | §4 `renew` never makes a place; a batch | `verbs::renew_never_makes_a_place` |
//! | §4 `leave`: always Ok, nothing remains; never before its join | `verbs::leave_is_always_ok`, `verbs::leave_never_overtakes_its_join` |
//! | §4 `view`: holders and waiters in order | `names::view_shows_who_and_in_which_order` |
//! | §4 `evict`: compare-and-evict | `evict::wrong_ticket_evicts_nobody` |
//! | §4 each verb drops all lapsed claims, wherever they stand | `verbs::lapsed_claims_go_from_anywhere`, `verbs::try_enters_the_place_that_gets_in_by_it` |
//! | §4 bells are hints; kept when early; `look_again` | `waiting::lost_bell_is_found_by_looking_again`, `waiting::bell_before_the_first_answer_counts`, `verbs::look_again_is_soon_enough` |
//! | §6.2 only the claim that owns a place can touch it | `verbs::only_the_owner_of_a_place_can_touch_it` |
//! | §6.4 a future dropped at any await | `cancel::dropping_lock_anywhere_leaves_nothing`, `cancel::dropping_a_waiter_anywhere_leaves_nothing`, `cancel::dropping_a_try_anywhere_leaves_nothing`, `cancel::dropping_a_release_anywhere_still_releases`, `cancel::dropping_run_and_lost_keeps_the_lock`, `cancel::dropping_a_look_anywhere_changes_nothing`, `cancel::dropping_shutdown_and_connect_anywhere` |
//! | §6.5 no residue after one lease | `ends::no_residue_after_a_lease`, `processes::no_residue_after_everybody_was_killed` |
//! | §6.6 unsure means not held | `loss::nobody_overlaps_with_one_who_is_cut_off`, `loss::reason_unreachable` |
//! | `shutdown`; a runtime that is gone (algorithms §3) | `ends::shutdown_leaves_everything_and_refuses`, `ends::shutdown_among_lockers_leaves_nothing`, `ends::shutdown_waits_for_a_join_under_way`, `ends::shutdown_is_bounded`, `ends::runtime_that_is_dropped_leaves_it_to_the_lease` |
//! | killed holder, killed waiters (algorithms §3) | `processes::killed_holder_lets_the_next_one_in`, `processes::killed_waiters_hold_nobody_up` |
//! | fork: guards in the child are inert (algorithms §3) | `fork::guards_in_a_fork_are_inert`, `fork::blocking_guards_in_a_fork_are_inert` |
//! | nothing that one lock waits for delays the renewal or release of another (engines whose locks are rows) | `rows::stuck_rows_cost_no_other_lock` |
//! | §6.8 release, renew and evict work when the engine is full | the driver's own tests: only it can fill its engine |
//!
//! The pure machine and the protocol with every loss, delay and repetition are proved elsewhere: `lockline`'s own property
//! tests and its model check the very code that these tests run on real engines.

// A behaviour that is not as it should be ends its test: that is what a panic is for here.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

use libtest_mimic::Trial;

use crate::engine::Engine;

pub mod blocking;
pub mod cancel;
pub mod election;
pub mod ends;
pub mod evict;
pub mod fencing;
pub mod fork;
pub mod grants;
pub mod idempotence;
pub mod leases;
pub mod loss;
pub mod many;
pub mod names;
pub mod needs;
pub mod owners;
pub mod processes;
pub mod rows;
pub mod several;
pub mod verbs;
pub mod waiting;

/// Names every behaviour that one process can show, and hands the list to another macro of this crate.
#[doc(hidden)]
#[macro_export]
macro_rules! __in_process {
    ($with:ident $($args:tt)*) => {
        $crate::$with! { [$($args)*]
            grants {
                mutex_has_one_holder mutex_is_granted_in_order readers_are_in_together
                reader_waits_behind_a_waiting_writer semaphore_counts_permits smallest_limit_rules
                big_request_is_not_passed_by_small_ones kinds_share_one_line handoff_rings_one_bell
            }
            waiting {
                try_lock_is_busy_and_leaves_nothing try_lock_does_not_barge
                timed_wait_gives_up_and_leaves_nothing timed_wait_gets_in waiting_for_zero_is_trying
                waiting_is_renewed_like_holding lost_bell_is_found_by_looking_again
                bell_before_the_first_answer_counts bell_for_an_older_ticket_is_ignored
                bell_for_a_newer_ticket_means_joining_anew
            }
            leases {
                renewal_keeps_a_lock_beyond_several_leases many_locks_are_renewed_in_batches
                fixed_lease_ends fixed_lease_begins_on_getting_in max_hold_is_lost_at_the_cap
                remaining_counts_down_from_less_than_the_lease
            }
            loss {
                lost_by_valid_until_without_a_network nobody_overlaps_with_one_who_is_cut_off
                reason_unreachable reason_expired_on_the_first_look_after_a_pause reason_evicted
                reason_forgotten reason_max_hold reason_shutdown lost_guard_never_comes_back
                late_answer_does_not_revive run_drops_the_work_when_lost waiter_that_was_cut_off_joins_anew
            }
            fencing {
                tokens_rise_over_clients tokens_rise_over_restarts tokens_rise_over_amnesia
                gate_refuses_an_older_holder token_of_an_expired_hold_is_refused
                several_locks_have_a_token_each
            }
            owners {
                second_lock_costs_no_command holds_count_down
                releasing_two_guards_at_once_waits_for_the_engine after_the_last_release_a_new_claim
                lost_hold_is_not_entered_again another_owner_waits upgrade_is_refused_before_sending
                two_tasks_of_one_owner_share_a_hold owner_survives_a_race_of_its_tasks
                shared_identity_is_one_place shared_holds_have_their_own_deadlines
            }
            several {
                all_is_sorted_without_duplicates all_joins_one_at_a_time all_or_nothing
                wrong_order_is_refused_before_sending all_starts_again_when_one_is_lost
                several_are_lost_together random_crossing_does_not_deadlock
            }
            election {
                campaign_lead_resign observer_sees_changes
            }
            idempotence {
                lost_reply_of_join_finds_the_same_place lost_reply_keeps_the_turn
                lost_reply_counts_permits_once lost_reply_of_try_lock_is_not_busy
                lost_reply_counts_a_shared_hold_once repeated_join_extends
                lost_reply_of_renew_keeps_the_lock lost_reply_of_leave_is_sent_again
                copies_of_the_final_renewal_do_not_move_it late_copy_behind_a_holder_is_left_on_its_bell
                late_copy_that_is_in_lapses_with_its_lease late_copy_while_holding_changes_nothing
                second_place_of_an_id_is_not_believed
            }
            cancel {
                dropping_lock_anywhere_leaves_nothing dropping_a_waiter_anywhere_leaves_nothing
                dropping_a_try_anywhere_leaves_nothing dropping_a_release_anywhere_still_releases
                dropping_run_and_lost_keeps_the_lock dropping_a_look_anywhere_changes_nothing
                dropping_shutdown_and_connect_anywhere dropping_a_guard_releases
                aborted_waiters_leave_the_line
            }
            evict {
                evicted_waiter_fails evicted_holder_is_told_and_nobody_overlaps
                evicted_holder_that_hears_nothing_keeps_its_lease evicted_holder_learns_it_from_renewal
                at_once_lets_the_next_one_in_now wrong_ticket_evicts_nobody
            }
            names {
                hostile_names_are_locks_of_their_own view_prefix_is_not_a_pattern
                bad_names_are_refused_before_sending bad_options_are_refused_before_sending
                prefixes_are_name_spaces view_shows_who_and_in_which_order
            }
            verbs {
                join_is_idempotent join_without_waiting_leaves_nothing renew_never_makes_a_place
                leave_is_always_ok only_the_owner_of_a_place_can_touch_it
                renew_for_another_ticket_extends_nothing getting_in_changes_no_deadline
                lapsed_claims_go_from_anywhere try_enters_the_place_that_gets_in_by_it look_again_is_soon_enough leave_never_overtakes_its_join
            }
            ends {
                shutdown_leaves_everything_and_refuses shutdown_among_lockers_leaves_nothing shutdown_waits_for_a_join_under_way
                shutdown_is_bounded runtime_that_is_dropped_leaves_it_to_the_lease no_residue_after_a_lease
                dropped_client_leaves_nothing
            }
            many {
                thousand_waiters_are_served_in_order random_modes_never_break_the_table
            }
            fork {
                guards_in_a_fork_are_inert blocking_guards_in_a_fork_are_inert
            }
            blocking {
                blocking_has_every_primitive blocking_waits_its_turn blocking_is_refused_inside_a_runtime
            }
        }
    };
}

/// Names every behaviour that needs processes which share the engine.
#[doc(hidden)]
#[macro_export]
macro_rules! __across_processes {
    ($with:ident $($args:tt)*) => {
        $crate::$with! { [$($args)*]
            processes {
                processes_take_turns killed_holder_lets_the_next_one_in killed_waiters_hold_nobody_up
                stopped_holder_is_lost_on_its_first_look stopped_waiter_is_passed
                no_residue_after_everybody_was_killed tokens_rise_over_processes_and_restarts
                shared_identity_over_processes eviction_reaches_another_process
                eight_processes_take_fair_turns
            }
        }
    };
}

/// Names every behaviour of an engine whose locks are rows, on which a session of somebody else can sit. They are no part of
/// the suite of an engine that has none.
#[doc(hidden)]
#[macro_export]
macro_rules! __with_rows {
    ($with:ident $($args:tt)*) => {
        $crate::$with! { [$($args)*]
            rows {
                stuck_rows_cost_no_other_lock
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ([$engine:expr] $($group:ident { $($behaviour:ident)* })*) => {$(
        mod $group {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                let behaviour = $crate::conformance::$group::$behaviour;
                $crate::setup::Setup::run($engine, env!("CARGO_BIN_EXE_lockline-test-peer"), behaviour).await;
            }
        )*}
    )*};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __trials {
    ([$engine:expr, $peer:expr] $($group:ident { $($behaviour:ident)* })*) => {
        vec![$($($crate::server::trial(
            concat!(stringify!($group), "::", stringify!($behaviour)),
            $engine,
            $peer,
            $crate::conformance::$group::$behaviour,
        )),*),*]
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __names {
    ([] $($group:ident { $($behaviour:ident)* })*) => {
        &[$($(concat!(stringify!($group), "::", stringify!($behaviour))),*),*]
    };
}

/// Runs every behaviour that one process can show, each as a test of its own, each on a fresh engine.
///
/// `engine` is evaluated once per test, inside a module: name functions by their whole path.
#[macro_export]
macro_rules! conformance {
    ($engine:expr) => {
        $crate::__in_process!(__tests $engine);
    };
}

/// Runs every behaviour that needs several processes on one engine: killed, stopped, and many of them.
#[macro_export]
macro_rules! conformance_across_processes {
    ($engine:expr) => {
        $crate::__across_processes!(__tests $engine);
    };
}

/// Every behaviour as a test on an engine, for a program that runs several.
#[macro_export]
macro_rules! conformance_trials {
    ($engine:expr) => {
        $crate::conformance::trials(|| $engine, env!("CARGO_BIN_EXE_lockline-test-peer"))
    };
}

/// Makes a program that runs every behaviour on a server, or counts them as ignored if the run leaves it out.
#[macro_export]
macro_rules! conformance_on_server {
    ($server:expr, $engine:expr) => {
        fn main() -> ::std::process::ExitCode {
            $crate::server::run($server, $crate::conformance_trials!($engine))
        }
    };
}

/// The same on a server whose locks are rows.
#[macro_export]
macro_rules! conformance_on_rows {
    ($server:expr, $engine:expr) => {
        fn main() -> ::std::process::ExitCode {
            let mut trials = $crate::conformance_trials!($engine);
            trials.extend($crate::conformance::trials_with_rows(
                || $engine,
                env!("CARGO_BIN_EXE_lockline-test-peer"),
            ));
            $crate::server::run($server, trials)
        }
    };
}

/// What [`conformance_trials!`](crate::conformance_trials) gives. They are made here, so that the behaviours are compiled once and not
/// with every program that runs them.
pub fn trials(engine: fn() -> Engine, peer: &'static str) -> Vec<Trial> {
    let mut trials = crate::__in_process!(__trials engine, peer);
    trials.extend(crate::__across_processes!(__trials engine, peer));
    trials
}

/// What an engine whose locks are rows must do beside those.
pub fn trials_with_rows(engine: fn() -> Engine, peer: &'static str) -> Vec<Trial> {
    crate::__with_rows!(__trials engine, peer)
}

/// The names of all behaviours, `group::name`.
pub fn names() -> Vec<&'static str> {
    const ROWS: &[&str] = crate::__with_rows!(__names);
    const IN_PROCESS: &[&str] = crate::__in_process!(__names);
    const ACROSS: &[&str] = crate::__across_processes!(__names);
    [IN_PROCESS, ACROSS, ROWS].concat()
}
