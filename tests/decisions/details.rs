//! What a row id and a list of actions do not show: the content of transactions, and several steps in a row.

use std::time::Duration;

use mysql_ha_agent::core::action::{Action, MysqlAction, Op, Path, Purpose, Record};
use mysql_ha_agent::core::records::Progress;
use mysql_ha_agent::core::view::Node;

use super::world::{NOW, VERSION, asked, gtids, primary, promoted, request, seen, switch, vacant, voted, write};

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
fn interleaving_3_a_vote_lands_only_beside_the_topology_and_the_lease_it_was_decided_upon() {
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
fn a_holder_that_never_opened_does_not_release_the_lease() {
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
