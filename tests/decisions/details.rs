//! What a row id and a list of actions do not show: the content of transactions, and several steps in a row.

use std::time::Duration;

use mysql_ha_agent::core::action::{Action, MysqlAction, MysqlKind, Op, Path, Purpose, Record};
use mysql_ha_agent::core::outcome::Decision;
use mysql_ha_agent::core::reason::Reason;
use mysql_ha_agent::core::records::{DurabilityMode, MemberState, Progress, Topology};
use mysql_ha_agent::core::view::{Failure, Node, SemiSyncReplica};

use super::durability::settled;
use super::world::{
    NOW, VERSION, World, asked, beat_at, gtids, names, primary, promoted, replica, request, seen, switch, vacant,
    voted, write,
};

#[test]
fn a_claim_checks_each_counted_lock_and_replaces_exactly_what_was_seen() {
    let decision = voted().step();
    let claim = write(&decision);
    assert_eq!(claim.purpose, Purpose::Claim);
    for sequence in [1, 2] {
        assert!(claim.ops.contains(&Op::Check(Path::Lock(sequence), VERSION)), "interleaving 3: {claim:?}");
    }
    let topology = claim.ops.iter().find_map(|op| match op {
        Op::Set(Path::Topology, Record::Topology(next), version) => Some((next, *version)),
        _ => None,
    });
    let (next, version) = topology.unwrap();
    assert_eq!((next.epoch, &next.primary, version), (8, &None, VERSION));
    assert_eq!(next.durability.floor, gtids(9), "interleaving 5");
    assert!(claim.ops.iter().any(|op| matches!(op, Op::Create(Path::Master, _))));
    let lease = claim.ops.iter().find_map(|op| match op {
        Op::Set(Path::Lease, Record::Lease(lease), VERSION) => Some(lease),
        _ => None,
    });
    assert!(lease.unwrap().opened, "a released lease: nothing to wait for");
}

#[test]
fn interleaving_03_a_vote_lands_only_beside_the_topology_and_the_lease_it_was_decided_upon() {
    let decision = vacant().step();
    let vote = write(&decision);
    assert_eq!(vote.purpose, Purpose::Vote);
    for path in [Path::Topology, Path::Lease] {
        assert!(vote.ops.contains(&Op::Check(path, VERSION)), "{vote:?}");
    }
}

#[test]
fn a_claim_over_a_lease_that_was_not_released_is_not_opened() {
    let mut world = voted();
    world.lease().released = false;
    let decision = world.step();
    let opened =
        write(&decision).ops.iter().any(|op| matches!(op, Op::Set(Path::Lease, Record::Lease(l), _) if l.opened));
    assert!(!opened, "interleaving 2");
    assert_eq!(world.memory.race.unwrap().claim.unwrap().wait_until, NOW + Duration::from_secs(9));
}

#[test]
fn a_later_claim_never_waits_shorter_than_an_earlier_one() {
    let mut world = voted();
    world.lease().released = false;
    world.step();
    world.lease().released = true;
    world.step();
    assert_eq!(world.memory.race.unwrap().claim.unwrap().wait_until, NOW + Duration::from_secs(9));
}

#[test]
fn opening_ends_before_the_lease_and_asks_for_acknowledgements() {
    let mut world = promoted();
    world.held().opened = true;
    let until = world.held().until;
    let decision = world.step();
    let expected = MysqlAction::Open { not_after: until - Duration::from_secs(1), acknowledgements: 1 };
    assert_eq!(decision.outcome.actions, [Action::Mysql(expected)], "interleaving 14");
}

#[test]
fn interleaving_02_a_holder_that_never_opened_does_not_release_the_lease() {
    for opened in [true, false] {
        let mut world = promoted();
        world.held().opened = opened;
        world.view.server.process = mysql_ha_agent::core::view::Process::Exited { at: NOW };
        world.view.server.health = mysql_ha_agent::core::view::Health::Failed { since: NOW, why: "exited".into() };
        let decision = world.step();
        assert_eq!(decision.row, "P2");
        let released = write(&decision).ops.iter().any(|op| matches!(op, Op::Set(Path::Lease, ..)));
        assert_eq!(released, opened, "interleaving 2");
    }
}

/// What it holds is all that it ever acknowledged: a quorum that is not there must not keep it from its own role. Who wrote
/// before it does not count.
#[test]
fn interleaving_13_the_last_writer_needs_no_quorum() {
    for (last_writer, row) in [("db2", "R14"), ("db1", "R10")] {
        let mut world = vacant().lock(1, "db2", 9).with(|w| {
            w.lease().name = last_writer.into();
            w.topology().last_writer = Some(last_writer.into());
            w.view.ensemble.agents.remove("db3");
        });
        assert_eq!(world.step().row, row, "{last_writer}");
    }
}

/// It may have opened and died before `topology` named it, and then all it acknowledged is in nobody's count but its own.
#[test]
fn interleaving_13_who_recorded_opened_is_the_last_writer() {
    let mut world = vacant().lock(1, "db2", 9).with(|w| {
        w.topology().last_writer = Some("db2".into());
        w.view.ensemble.agents.remove("db3");
    });
    assert!(world.lease().opened && world.lease().name == "db1");
    assert_eq!(world.step().row, "R10");
}

/// Members are removed, and waiting is restored, only with a heartbeat that was sent since and acknowledged under the new rule;
/// what was executed before it becomes the floor.
#[test]
fn interleaving_05_what_is_acknowledged_since_counts_before_a_member_leaves_or_waiting_is_restored() {
    for (sent_after, row) in [(0, "P11"), (1, "D4")] {
        let mut removing = retiring().with(|w| {
            w.step();
            w.view.server.heartbeat = Some(beat_at(NOW + Duration::from_millis(sent_after)));
        });
        let decision = removing.step();
        assert_eq!(decision.row, row);
        if row == "D4" {
            let next = next_topology(&decision);
            assert_eq!((next.durability.sync, next.durability.floor), (vec!["db2".to_owned()], gtids(9)));
        }
    }
    for (sent_after, row) in [(0, "P11"), (1, "D2")] {
        let mut restoring = primary().with(|w| {
            w.topology().durability.degraded = true;
            settled(w, 1);
            w.view.server.heartbeat = Some(beat_at(NOW + Duration::from_millis(sent_after)));
        });
        let decision = restoring.step();
        assert_eq!(decision.row, row);
        if row == "D2" {
            let next = next_topology(&decision);
            assert_eq!((next.durability.degraded, next.durability.floor), (false, gtids(9)));
        }
    }
}

/// db3, which is to leave S, confirms that it acknowledges nothing more.
fn retiring() -> World {
    primary().with(|w| {
        w.topology().durability.retiring = vec!["db3".into()];
        w.topology().members.get_mut("db3").unwrap().state = MemberState::Na;
        w.agent("db3").source.as_mut().unwrap().sql_running = false;
        w.agent("db3").acknowledges = Some(false);
    })
}

fn next_topology(decision: &Decision) -> Topology {
    let of = |op: &Op| match op {
        Op::Set(Path::Topology, Record::Topology(next), VERSION) => Some((**next).clone()),
        _ => None,
    };
    write(decision).ops.iter().find_map(of).unwrap()
}

/// Commits that wait with a time limit are as good as commits that do not wait: neither does a heartbeat count that came back then.
#[test]
fn interleaving_09_a_setting_that_gives_up_is_mended_and_proves_nothing() {
    let weak = |w: &mut World| w.facts().semi_sync.source.as_mut().unwrap().strict = false;
    let decision = primary().with(weak).step();
    assert_eq!((decision.row, names(&decision).join(" ")), ("D1", "AwaitAcknowledgements".to_owned()));
    let mut removing = retiring().with(|w| {
        w.step();
        w.view.server.heartbeat = Some(beat_at(NOW + Duration::from_millis(1)));
        weak(w);
        // Tried a moment ago, in vain: the rows below are asked.
        w.view.server.failure =
            Some(Failure { kind: MysqlKind::AwaitAcknowledgements, why: "no".into(), at: NOW, touched: true });
    });
    assert_eq!(removing.step().row, "P11");
}

/// Recorded as one that acknowledges it says so first, and acts on what it has read after that was to be seen.
#[test]
fn interleaving_18_a_member_says_so_before_it_acknowledges() {
    for (said, actions) in [(false, ""), (true, "Acknowledge")] {
        let mut world = replica().with(|w| {
            w.facts().semi_sync.replica = Some(SemiSyncReplica { enabled: false, active: false });
            w.agent("db2").acknowledges = Some(said);
        });
        let decision = world.step();
        assert_eq!((decision.row, names(&decision).join(" ")), ("F9", actions.to_owned()));
        assert!(decision.may_acknowledge, "published with the next renewal");
    }
}

#[test]
fn interleaving_19_a_request_of_an_epoch_that_has_ended_or_past_its_time_is_void() {
    let mut ended = request(Progress::Requested);
    ended.epoch = 6;
    let late = Duration::from_millis(ended.timeout_ms);
    for (request, age) in [(ended, Duration::ZERO), (request(Progress::Requested), late)] {
        let mut world = asked().with(|w| {
            w.view.ensemble.switchover = Node::Here(seen(request, 0, age));
            w.view.ensemble.agents.get_mut("db2").unwrap().first_seen = NOW;
        });
        let decision = world.step();
        assert_eq!((decision.row, decision.outcome.reason), ("W1", Reason::SwitchoverRefused));
    }
}

/// An agent that is restarted between its claim and its history has forgotten what it knew; found by simulation.
#[test]
fn what_was_lost_is_told_by_whoever_writes_the_history() {
    let mut world = voted().with(|w| {
        w.topology().durability.mode = DurabilityMode::Async;
        w.lease().watermark = gtids(12);
    });
    let claimed = next_topology(&world.step());
    assert_eq!(claimed.lost, gtids(12).subtract(&gtids(9)));

    let mut restarted = promoted().with(|w| w.memory.race = None);
    restarted.topology().lost = claimed.lost.clone();
    restarted.step();
    restarted.topology().primary = Some("db1".into());
    restarted.held().opened = true;
    restarted.facts().super_read_only = false;
    let history = write(&restarted.step()).ops.iter().find_map(|op| match op {
        Op::Create(Path::History(_), Record::History(history)) => Some(history.lost.clone()),
        _ => None,
    });
    assert_eq!(history, Some(claimed.lost));
}

/// One that was never named leaves it to the next; of one that was named the history tells.
#[test]
fn what_was_lost_stays_until_a_primary_was_named() {
    let lost = gtids(12).subtract(&gtids(9));
    let mut world = voted().with(|w| w.topology().durability.mode = DurabilityMode::Async);
    world.topology().lost = lost.clone();
    assert_eq!(next_topology(&world.step()).lost, lost);
    let mut world = vacant().with(|w| {
        w.topology().primary = Some("db1".into());
        w.lease().released = false;
    });
    world.topology().lost = lost;
    let decision = world.step();
    assert_eq!((decision.row, next_topology(&decision).lost), ("R2", Default::default()));
}

/// The limit of a planned switch is for waiting; writes are held up for seconds, however long it is.
#[test]
fn a_planned_switch_holds_writes_up_for_seconds_at_the_most() {
    let mut world = asked().with(|w| {
        w.memory.switch = Some(switch(None));
        w.view.ensemble.agents.get_mut("db2").unwrap().first_seen = NOW;
        w.held().until = NOW + Duration::from_secs(60);
    });
    let decision = world.step();
    let limit = decision.outcome.actions.iter().find_map(|action| match action {
        Action::Mysql(MysqlAction::Close { limit }) => Some(*limit),
        _ => None,
    });
    assert_eq!(limit, Some(Duration::from_secs(1)));
    // It fails: the heartbeat goes on, and so do the others' writes. What is answered in the end names what was in the way.
    world.view.server.failure =
        Some(Failure { kind: MysqlKind::Close, why: "a lock of app".into(), at: world.now, touched: true });
    assert!(world.step().heartbeat_write);
    let mut closed_at = Vec::new();
    for _ in 0..150 {
        world.now = world.now + Duration::from_millis(100);
        if names(&world.step()) == ["Close"] {
            closed_at.push(world.now.since(NOW).as_secs());
            let at = world.now;
            world.view.server.failure =
                Some(Failure { kind: MysqlKind::Close, why: "a lock".into(), at, touched: true });
        }
    }
    assert_eq!(closed_at, [4, 8, 12]);
    world.now = world.memory.switch.as_ref().unwrap().deadline;
    let decision = world.step();
    assert!(decision.outcome.detail.contains("undone: a lock (tried 4 times)"), "{}", decision.outcome.detail);
    // The answer was lost: the next one says the same.
    let again = world.step();
    assert_eq!((again.row, &again.outcome.detail), ("W1", &decision.outcome.detail));
    // Released, it is over in seconds, too: the others hold back no longer.
    let mut closed = asked().with(|w| {
        w.memory.switch = Some(switch(Some(NOW - Duration::from_secs(1))));
        w.facts().super_read_only = true;
        w.view.server.fenced = Some(Reason::Switchover);
    });
    let released = closed.step();
    let hold = next_topology(&released).handover.unwrap().hold_ms;
    let own = closed.view.own.op_timeout * 2;
    assert_eq!(Duration::from_millis(hold), Duration::from_secs(4) + own);
    assert_eq!(closed.memory.switch.unwrap().deadline, NOW + Duration::from_secs(4));
}

#[test]
fn a_switch_that_is_answered_is_forgotten() {
    let mut world = primary();
    world.memory.switch = Some(switch(None));
    world.view.ensemble.switchover = Node::Here(seen(request(Progress::Refused), 0, Duration::ZERO));
    world.step();
    assert_eq!(world.memory.switch, None, "W0");
    let mut world = asked();
    world.step();
    assert!(world.memory.switch.is_some(), "W0 leaves one that is under way");
}

#[test]
fn the_heartbeat_is_written_under_a_lease_and_not_while_closing() {
    assert!(primary().step().heartbeat_write);
    assert!(!vacant().step().heartbeat_write);
    let mut closing = asked().with(|w| {
        w.memory.switch = Some(switch(None));
        w.view.ensemble.agents.get_mut("db2").unwrap().first_seen = NOW;
    });
    assert!(!closing.step().heartbeat_write);
}

#[test]
fn a_deleted_topology_is_adopted_anew_over_our_own_master() {
    let mut world = primary();
    world.view.ensemble.topology = Node::Absent;
    let decision = world.step();
    let adopt = write(&decision);
    assert_eq!(adopt.purpose, Purpose::Adopt);
    assert!(adopt.ops.iter().any(|op| matches!(op, Op::Delete(Path::Master, _))), "it is there: {adopt:?}");
    let epoch = adopt.ops.iter().find_map(|op| match op {
        Op::Create(Path::Topology, Record::Topology(next)) => Some(next.epoch),
        _ => None,
    });
    assert_eq!(epoch, Some(8), "the lease knows epoch 7");
}
