//! What a behaviour needs that not every engine offers. An engine that shares its locks with other clients has only what
//! their format has; its tests name what it lacks, and every behaviour that needs it is listed as *not offered*.

use std::fmt;

/// Something that an engine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Modes other than exclusive: readers, permits.
    Modes,
    /// A line in the engine: waiting claims have tickets and an order, and are seen and evicted by others; a deadline can
    /// be fixed for good.
    Line,
    /// Fencing tokens.
    Tokens,
    /// Tokens that rise although the engine lost its memory.
    Amnesia,
    /// An identity that several processes share.
    Identities,
    /// A message to the one claim that something happened to.
    Bells,
    /// The owner's label beside every holder.
    Labels,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Need::Modes => "readers and permits",
            Need::Line => "a line",
            Need::Tokens => "tokens",
            Need::Amnesia => "tokens that outlive the engine's memory",
            Need::Identities => "shared identities",
            Need::Bells => "a bell for each claim",
            Need::Labels => "the labels of owners",
        })
    }
}

/// What each behaviour needs; one that is not listed needs nothing that an engine may lack.
const NEEDS: &[(&str, &[Need])] = &[
    ("grants::mutex_is_granted_in_order", &[Need::Line]),
    ("grants::readers_are_in_together", &[Need::Modes]),
    ("grants::reader_waits_behind_a_waiting_writer", &[Need::Modes]),
    ("grants::semaphore_counts_permits", &[Need::Modes]),
    ("grants::smallest_limit_rules", &[Need::Modes]),
    ("grants::big_request_is_not_passed_by_small_ones", &[Need::Modes]),
    ("grants::kinds_share_one_line", &[Need::Modes]),
    ("grants::handoff_rings_one_bell", &[Need::Line]),
    ("waiting::try_lock_does_not_barge", &[Need::Modes]),
    ("waiting::timed_wait_gives_up_and_leaves_nothing", &[Need::Modes]),
    ("waiting::timed_wait_gets_in", &[Need::Line]),
    ("waiting::waiting_is_renewed_like_holding", &[Need::Line]),
    ("waiting::bell_before_the_first_answer_counts", &[Need::Bells]),
    ("waiting::bell_for_an_older_ticket_is_ignored", &[Need::Line]),
    ("waiting::bell_for_a_newer_ticket_means_joining_anew", &[Need::Line]),
    ("leases::fixed_lease_begins_on_getting_in", &[Need::Line]),
    ("loss::nobody_overlaps_with_one_who_is_cut_off", &[Need::Tokens]),
    ("loss::reason_evicted", &[Need::Tokens, Need::Bells]),
    ("loss::run_drops_the_work_when_lost", &[Need::Tokens, Need::Bells]),
    ("fencing::tokens_rise_over_clients", &[Need::Tokens]),
    ("fencing::tokens_rise_over_restarts", &[Need::Tokens]),
    ("fencing::tokens_rise_over_amnesia", &[Need::Tokens, Need::Amnesia]),
    ("fencing::gate_refuses_an_older_holder", &[Need::Modes]),
    ("fencing::token_of_an_expired_hold_is_refused", &[Need::Tokens]),
    ("fencing::several_locks_have_a_token_each", &[Need::Tokens]),
    ("owners::after_the_last_release_a_new_claim", &[Need::Tokens]),
    ("owners::lost_hold_is_not_entered_again", &[Need::Tokens, Need::Bells]),
    ("owners::upgrade_is_refused_before_sending", &[Need::Modes]),
    ("owners::shared_identity_is_one_place", &[Need::Identities]),
    ("owners::shared_holds_have_their_own_deadlines", &[Need::Identities]),
    ("several::all_joins_one_at_a_time", &[Need::Line]),
    ("several::all_starts_again_when_one_is_lost", &[Need::Line]),
    ("several::several_are_lost_together", &[Need::Tokens, Need::Bells]),
    ("election::campaign_lead_resign", &[Need::Tokens, Need::Labels]),
    ("election::observer_sees_changes", &[Need::Tokens, Need::Labels]),
    ("idempotence::lost_reply_of_join_finds_the_same_place", &[Need::Tokens]),
    ("idempotence::lost_reply_keeps_the_turn", &[Need::Line]),
    ("idempotence::lost_reply_counts_permits_once", &[Need::Modes]),
    ("idempotence::lost_reply_counts_a_shared_hold_once", &[Need::Identities]),
    ("idempotence::lost_reply_of_renew_keeps_the_lock", &[Need::Tokens]),
    ("idempotence::copies_of_the_final_renewal_do_not_move_it", &[Need::Line]),
    ("idempotence::late_copy_behind_a_holder_is_left_on_its_bell", &[Need::Line]),
    ("idempotence::late_copy_that_is_in_lapses_with_its_lease", &[Need::Tokens]),
    ("idempotence::late_copy_while_holding_changes_nothing", &[Need::Tokens]),
    ("idempotence::second_place_of_an_id_is_not_believed", &[Need::Line]),
    ("cancel::dropping_lock_anywhere_leaves_nothing", &[Need::Modes]),
    ("cancel::dropping_a_waiter_anywhere_leaves_nothing", &[Need::Modes]),
    ("cancel::dropping_a_try_anywhere_leaves_nothing", &[Need::Modes]),
    ("cancel::dropping_a_look_anywhere_changes_nothing", &[Need::Tokens]),
    ("cancel::aborted_waiters_leave_the_line", &[Need::Line]),
    ("evict::evicted_waiter_fails", &[Need::Line]),
    ("evict::evicted_holder_is_told_and_nobody_overlaps", &[Need::Tokens]),
    ("evict::evicted_holder_that_hears_nothing_keeps_its_lease", &[Need::Tokens]),
    ("evict::evicted_holder_learns_it_from_renewal", &[Need::Tokens]),
    ("evict::at_once_lets_the_next_one_in_now", &[Need::Tokens]),
    ("evict::wrong_ticket_evicts_nobody", &[Need::Tokens, Need::Bells]),
    ("names::hostile_names_are_locks_of_their_own", &[Need::Tokens]),
    ("names::prefixes_are_name_spaces", &[Need::Tokens]),
    ("names::view_shows_who_and_in_which_order", &[Need::Line]),
    ("verbs::join_is_idempotent", &[Need::Line]),
    ("verbs::getting_in_changes_no_deadline", &[Need::Line]),
    ("verbs::lapsed_claims_go_from_anywhere", &[Need::Modes]),
    ("verbs::try_enters_the_place_that_gets_in_by_it", &[Need::Identities]),
    ("ends::no_residue_after_a_lease", &[Need::Modes]),
    ("many::thousand_waiters_are_served_in_order", &[Need::Line]),
    ("many::random_modes_never_break_the_table", &[Need::Modes]),
    ("blocking::blocking_has_every_primitive", &[Need::Modes]),
    ("blocking::blocking_waits_its_turn", &[Need::Line]),
    ("processes::processes_take_turns", &[Need::Line]),
    ("processes::killed_holder_lets_the_next_one_in", &[Need::Tokens]),
    ("processes::killed_waiters_hold_nobody_up", &[Need::Line]),
    ("processes::stopped_holder_is_lost_on_its_first_look", &[Need::Tokens]),
    ("processes::stopped_waiter_is_passed", &[Need::Line]),
    ("processes::no_residue_after_everybody_was_killed", &[Need::Line]),
    ("processes::tokens_rise_over_processes_and_restarts", &[Need::Tokens]),
    ("processes::shared_identity_over_processes", &[Need::Identities]),
    ("processes::eviction_reaches_another_process", &[Need::Line]),
    ("processes::eight_processes_take_fair_turns", &[Need::Line]),
];

/// What a behaviour needs.
pub fn needs(behaviour: &str) -> &'static [Need] {
    NEEDS.iter().find(|(name, _)| *name == behaviour).map_or(&[], |(_, needs)| needs)
}

/// The behaviours that need something.
pub fn needy() -> impl Iterator<Item = &'static str> {
    NEEDS.iter().map(|(name, _)| *name)
}
