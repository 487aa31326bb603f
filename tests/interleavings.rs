//! The twenty interleavings of the design (section 2), and the tests named after each: `interleaving_NN_…`, in the file given. One of
//! them at least fails when the rule is taken out; where the rule rests on how MySQL or ZooKeeper behaves, another shows that
//! on the real server. `cargo test --test interleavings` sees that every name exists and that none is missing here.
//!
//! Beside these, the simulation drives the real core through all of them but 11, 15 and 18 with every seed, and finds most again
//! when the rule is gone.

#![allow(clippy::unwrap_used)] // a test ends by it

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Its number, what goes wrong in it, where its tests are and what they are called after the number.
type Row = (u8, &'static str, &'static [(&'static str, &'static str)]);

const TABLE: &[Row] = &[
    (
        1,
        "a dethroned primary renews",
        &[
            ("tests/exhaustive/each_rule.rs", "a_dethroned_primary_renews"),
            ("tests/zookeeper.rs", "a_dethroned_primary_cannot_renew"),
            ("tests/zookeeper.rs", "a_check_of_master_alone_lets_it_through"),
        ],
    ),
    (
        2,
        "a winner that never opened releases the old lease",
        &[
            ("tests/exhaustive/each_rule.rs", "a_winner_that_never_opened_releases"),
            ("tests/decisions/details.rs", "a_holder_that_never_opened_does_not_release_the_lease"),
        ],
    ),
    (
        3,
        "stale votes",
        &[
            ("tests/exhaustive/each_rule.rs", "votes_of_an_earlier_version"),
            ("tests/exhaustive/each_rule.rs", "unfreezing_with_a_vote_left"),
            ("tests/exhaustive/each_rule.rs", "a_vote_that_lands_after_the_primary_is_back"),
            ("tests/decisions/details.rs", "a_vote_lands_only_beside_the_topology_and_the_lease_it_was_decided_upon"),
        ],
    ),
    (
        4,
        "freezing too weakly",
        &[
            ("tests/exhaustive/each_rule.rs", "a_vote_before_the_io_thread_has_stopped"),
            ("tests/exhaustive/each_rule.rs", "replication_that_resumes_after_a_restart"),
            ("tests/mysql_control/interleavings.rs", "switched_off_alone_it_goes_on_acknowledging"),
            (
                "tests/mysql_control/control.rs",
                "a_frozen_replica_acknowledges_nothing_when_somebody_starts_its_io_thread",
            ),
            ("tests/mysql_control/control.rs", "a_restart_never_acknowledges_by_itself"),
        ],
    ),
    (
        5,
        "a change of S, k or degraded loses what was acknowledged under the old rule",
        &[
            ("tests/exhaustive/each_rule.rs", "a_floor_with_every_removal"),
            (
                "tests/decisions/details.rs",
                "what_is_acknowledged_since_counts_before_a_member_leaves_or_waiting_is_restored",
            ),
            ("tests/decisions/durability.rs", "k_is_raised_with_a_floor_and_lowered_without"),
            ("tests/decisions/durability.rs", "async_is_recorded_with_an_empty_s_and_lossless_with_everybody_in_it"),
        ],
    ),
    (
        6,
        "removing an unreachable member",
        &[
            ("tests/exhaustive/each_rule.rs", "certain_before_it_is_removed"),
            (
                "tests/mysql_control/interleavings.rs",
                "a_locked_account_or_an_ended_dump_thread_alone_stops_no_acknowledgement",
            ),
            ("tests/mysql_control/shut_out.rs", "a_connected_replica_acknowledges_nothing_more_and_is_let_in_again"),
            ("tests/mysql_control/shut_out.rs", "a_replica_that_was_frozen_acknowledges_nothing_when_it_thaws"),
            ("tests/decisions/shut_out.rs", "who_was_shut_out_leaves_s_with_a_floor_and_stays_known"),
            ("tests/decisions/shut_out.rs", "who_was_shut_out_by_the_last_primary_counts_for_the_next"),
            ("tests/simulation/main.rs", "who_is_away_for_long_is_shut_out_and_let_in_again"),
            ("tests/live_cases/shut_out.rs", "a_dead_host_leaves_the_sync_set_and_the_other_alone_can_take_over"),
            ("tests/live_cases/shut_out.rs", "a_dead_host_with_a_shared_account_stays_in_the_sync_set_and_is_reported"),
            ("tests/guard.rs", "a_replica_keeps_its_semi_sync"),
        ],
    ),
    (
        7,
        "received shrinks",
        &[
            ("src/core/holdings.rs", "who_holds_less_than_before_lives_anew"),
            ("tests/live_cases/replicas.rs", "a_replica_whose_copy_was_broken_off_leads_nobody_astray"),
            ("tests/exhaustive/each_rule.rs", "received_shrinks"),
            ("tests/exhaustive/each_rule.rs", "a_vote_from_another_life"),
            ("tests/exhaustive/each_rule.rs", "counted_on_again_too_early"),
            ("tests/simulation/main.rs", "hosts_lose_what_was_not_synced"),
            ("src/core/election.rs", "a_vote_from_another_life_does_not_count"),
            ("tests/decisions/durability.rs", "a_new_life_is_recorded_beside_the_record_that_shows_it"),
            ("tests/decisions/durability.rs", "who_waits_for_votes_says_whose_do_not_count_and_what_helps"),
            ("tests/decisions/durability.rs", "a_member_that_leaves_s_takes_its_life_along_and_a_winner_needs_none"),
            ("tests/mysql_control/interleavings.rs", "relay_log_recovery_throws_away_what_was_acknowledged"),
            ("tests/mysql_control/interleavings.rs", "what_a_restart_may_lose_is_known"),
            ("tests/mysql_control/interleavings.rs", "the_shipped_settings_keep_relay_logs"),
        ],
    ),
    (
        8,
        "a clean shutdown acknowledges what nobody has",
        &[
            ("tests/mysql_control/interleavings.rs", "a_shutdown_answers_ok_and_the_ladder_does_not"),
            ("tests/mysql_control/stop.rs", "a_stop_answers_ok_and_prestop_ahead_of_it_does_not"),
            ("tests/mysql_control/stop.rs", "without_waiting_commits_mysqld_ends_cleanly"),
            ("tests/mysql_control/stop.rs", "a_replica_is_left_as_it_is"),
            ("tests/mysql_control/stop.rs", "who_cannot_look_kills_only_what_is_silent"),
            ("tests/live_cases/restarts.rs", "a_busy_primary_is_stopped_in_an_orderly_way"),
        ],
    ),
    (
        9,
        "semi-sync gives up by itself",
        &[
            ("tests/mysql_control/interleavings.rs", "semi_sync_gives_up_by_itself_unless_it_is_told_not_to"),
            ("tests/decisions/details.rs", "a_setting_that_gives_up_is_mended_and_proves_nothing"),
        ],
    ),
    (
        10,
        "semi-sync off releases the waiters",
        &[
            ("tests/mysql_control/fence.rs", "a_commit_that_waits_for_an_acknowledgement_never_returns_ok"),
            ("tests/guard.rs", "a_waiting_commit_never_returns_ok"),
        ],
    ),
    // `prestart` is built with returning servers; its tests come with it.
    (
        11,
        "prestart",
        &[
            ("tests/mysql_control/prestart.rs", "a_start_commits_what_was_in_flight"),
            ("tests/mysql_control/prestart.rs", "three_inserts_in_flight_are_taken_back"),
            ("tests/mysql_control/prestart.rs", "many_waiters_and_a_torn_end"),
            ("tests/mysql_control/prestart.rs", "definitions_are_taken_back"),
            ("tests/mysql_control/prestart.rs", "other_definitions_and_engines_are_left"),
            ("tests/mysql_control/prestart.rs", "xa_prepare_is_taken_back_and_xa_commit_is_left"),
            ("tests/mysql_control/prestart.rs", "compressed_transactions_are_left"),
            ("tests/mysql_control/prestart.rs", "gtids_with_a_tag_are_left"),
            ("tests/mysql_control/prestart.rs", "without_checksums_nothing_is_taken_back"),
            ("tests/mysql_control/prestart.rs", "a_file_just_begun_and_one_about_to_be_closed"),
            ("tests/mysql_control/prestart.rs", "unsynced_degraded_or_not_waiting_is_left"),
            ("tests/mysql_control/prestart.rs", "a_mysqld_that_runs_is_left"),
            ("tests/mysql_control/prestart.rs", "mysqld_waits_for_prestart"),
            ("tests/mysql_control/prestart.rs", "after_a_start_that_died_nothing_is_taken_back"),
            ("tests/mysql_control/prestart.rs", "a_committed_transaction_without_its_event_is_found_again"),
            ("tests/live_cases/rewinds.rs", "in_flight_commits_are_taken_back_after_a_promotion"),
        ],
    ),
    (
        12,
        "resume after a partition: two writers",
        &[
            ("tests/live_cases/operator.rs", "resume_after_a_partition_has_one_writer"),
            ("tests/zookeeper.rs", "a_paused_lease_is_long_and_shortened_from_sending_on"),
            ("tests/decisions/operator.rs", "nobody_races_while_a_paused_lease_may_be_in_use"),
        ],
    ),
    (
        13,
        "nobody may reopen the old primary",
        &[
            ("tests/exhaustive/each_rule.rs", "the_last_writer_is_who_recorded_opened"),
            ("tests/decisions/details.rs", "the_last_writer_needs_no_quorum"),
            ("tests/decisions/details.rs", "who_recorded_opened_is_the_last_writer"),
        ],
    ),
    (
        14,
        "checked, paused, opened",
        &[
            ("tests/exhaustive/each_rule.rs", "checked_paused_opened"),
            ("tests/mysql_control/control.rs", "a_lease_that_has_ended_opens_nothing"),
            ("tests/mysql_control/control.rs", "a_statement_that_arrives_late_leaves_the_server_read_only"),
            ("tests/mysql_control/control.rs", "a_server_that_thaws_after_the_leases_end_stays_read_only"),
            ("tests/guard.rs", "reopened_and_fenced_again"),
            ("src/core/guard.rs", "a_reopened_server_is_fenced_again_and_again"),
        ],
    ),
    (
        15,
        "re-pointing purges",
        &[
            ("tests/mysql_control/control.rs", "repointing_keeps_what_was_received"),
            ("tests/mysql_control/interleavings.rs", "a_change_with_both_threads_stopped_purges"),
        ],
    ),
    (
        16,
        "wedges after healing",
        &[
            ("tests/mysql_control/interleavings.rs", "a_replica_enabled_late_acknowledges_with_the_next_commit"),
            (
                "tests/mysql_control/interleavings.rs",
                "sessions_with_an_active_role_see_the_account_statement_that_waits",
            ),
            (
                "tests/mysql_control/interleavings.rs",
                "an_account_statement_that_waits_lets_nobody_in_until_mysqld_is_killed",
            ),
            ("tests/live_cases/durability.rs", "blocks_without_degrading_and_goes_on_when_a_replica_is_back"),
            ("tests/live_cases/durability.rs", "an_account_statement_without_acknowledgement_is_no_silent_server"),
        ],
    ),
    (
        17,
        "watermark too large",
        &[
            ("tests/mysql_control/probe.rs", "the_watermark_lies_before_the_heartbeat_that_proves_it"),
            ("tests/mysql_control/interleavings.rs", "after_a_crash_executed_holds_what_nobody_acknowledged"),
        ],
    ),
    (
        18,
        "enabling on a stale read",
        &[
            ("tests/exhaustive/each_rule.rs", "enabling_on_a_stale_read"),
            ("tests/decisions/details.rs", "a_member_says_so_before_it_acknowledges"),
            ("tests/decisions/shut_out.rs", "an_account_is_recorded_only_beside_the_record_it_was_read_from"),
        ],
    ),
    (
        19,
        "switchover leftovers",
        &[
            ("tests/exhaustive/each_rule.rs", "undo_takes_master_first"),
            ("tests/decisions/details.rs", "a_request_of_an_epoch_that_has_ended_or_past_its_time_is_void"),
        ],
    ),
    (
        20,
        "an ambiguous transaction lands late",
        &[
            ("tests/exhaustive/each_rule.rs", "an_ambiguous_claim_lands_late"),
            ("tests/zookeeper.rs", "what_became_of_a_call_without_an_answer_is_found_out"),
            ("tests/zookeeper.rs", "a_renewal_given_up_in_mid_call_is_not_forgotten"),
        ],
    ),
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let rust = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    rust.chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

/// All tests that are named after an interleaving: file and name.
fn found() -> BTreeSet<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["src", "tests"].map(|folder| sources(&root.join(folder))).concat();
    let mut found = BTreeSet::new();
    for path in files {
        let file = path.strip_prefix(root).unwrap().display().to_string();
        for line in fs::read_to_string(&path).unwrap().lines() {
            let name = line.trim_start().trim_start_matches("async ").strip_prefix("fn interleaving_");
            if let Some(name) = name.and_then(|name| name.split('(').next()) {
                found.insert((file.clone(), name.to_owned()));
            }
        }
    }
    found
}

#[test]
fn every_interleaving_has_the_tests_that_are_listed() {
    assert!(TABLE.iter().map(|(number, ..)| *number).eq(1..=20));
    let tests = |&(number, _, tests): &Row| {
        tests.iter().map(move |(file, name)| ((*file).to_owned(), format!("{number:02}_{name}")))
    };
    let listed: BTreeSet<(String, String)> = TABLE.iter().flat_map(tests).collect();
    let found = found();
    let missing: Vec<_> = listed.difference(&found).collect();
    assert!(missing.is_empty(), "listed and not there: {missing:#?}");
    let unlisted: Vec<_> = found.difference(&listed).collect();
    assert!(unlisted.is_empty(), "there and not listed: {unlisted:#?}");
    let without: Vec<_> = TABLE.iter().filter(|(_, _, tests)| tests.is_empty()).map(|(number, ..)| *number).collect();
    assert_eq!(without, Vec::<u8>::new(), "interleavings without a test");
}
