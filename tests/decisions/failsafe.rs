//! The failsafe (promise 7): the rows in which it decides, and each of its rules, with what happens without it.

use std::time::Duration;

use mysql_ha_agent::core::action::{MysqlAction, MysqlKind, Op, Path, Record};
use mysql_ha_agent::core::gtid::GtidSet;
use mysql_ha_agent::core::memory::{Frozen, Growth};
use mysql_ha_agent::core::records::{DurabilityMode, Lease, Progress, SwitchoverRequest, Topology};
use mysql_ha_agent::core::time::Moment;
use mysql_ha_agent::core::view::{Failure, Heartbeat, IoThread, Node, Session};

use super::scenarios::Add;
use super::world::{
    NOW, T, VERSION, World, beat_at, gtids, master, names, primary, promoted, replica, request, seen, uuid, vacant,
    voted, write,
};

const P: Duration = Duration::from_secs(4);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// With P in the record of the lease, whatever our own file says.
fn with_p(mut world: World) -> World {
    world.lease().proof_ms = 4000;
    world.view.own.failsafe = true;
    if let Some(held) = &mut world.view.held {
        held.proof = P;
    }
    world
}

/// db1 has written for half a minute without ZooKeeper; its last heartbeat was sent a second ago and is acknowledged.
fn outage() -> World {
    with_p(primary()).with(|w| {
        w.held().until = NOW - T * 3;
        w.view.ensemble.session = Session::Lost { since: NOW - T * 4 };
        w.view.ensemble.complete = false;
        w.view.server.heartbeat = Some(beat_at(NOW - ms(1000)));
    })
}

/// The same, and ZooKeeper is back, in a new session: our node `master` has gone with the old one.
fn back() -> World {
    outage().with(|w| {
        w.view.ensemble.session = Session::Connected { since: NOW, granted: T, id: 1 };
        w.view.ensemble.complete = true;
        w.view.ensemble.master = Node::Absent;
    })
}

fn beat(world: &mut World) -> &mut Heartbeat {
    world.view.server.heartbeat.as_mut().unwrap()
}

/// db2 sees that db1 has not renewed for so long, and `master` is still there.
fn unrenewed(age: Duration) -> World {
    with_p(replica()).with(|w| first_seen(w, NOW - age))
}

fn first_seen(world: &mut World, at: Moment) {
    if let Node::Here(lease) = &mut world.view.ensemble.lease {
        lease.first_seen = at;
    }
}

/// db1 and its session are gone, nobody has given anything up, and db2 still receives.
fn cut_off() -> World {
    with_p(vacant()).with(|w| {
        w.lease().released = false;
        w.channel().io = IoThread::Yes;
        first_seen(w, NOW - T);
    })
}

fn failed(kind: MysqlKind, at: Moment) -> Option<Failure> {
    Some(Failure { kind, why: "no answer".into(), at, touched: true })
}

/// What was received grew last at this moment.
fn grew(at: Moment) -> Growth {
    let mut growth = Growth::default();
    growth.note(GtidSet::new, at - ms(1));
    growth.note(|| gtids(9), at);
    growth
}

pub(crate) fn scenarios(case: Add<'_>) {
    on_acknowledgements(case);
    zookeeper_is_back(case);
    the_others(case);
}

fn on_acknowledgements(case: Add<'_>) {
    case("S5", "failsafe", "", "no ZooKeeper, a lease long over, an acknowledged heartbeat", outage());
    // 4 s less the drift and the budget.
    let at = |age: u64| outage().with(move |w| beat(w).sent = NOW - ms(age));
    case("S5", "failsafe", "", "just before the proof ends", at(2919));
    case("S4", "lease_lost", "Fence", "the proof ends: it counts from the heartbeat's sending", at(2920));
    case("S4", "lease_lost", "Fence", "no heartbeat", outage().with(|w| w.view.server.heartbeat = None));
    case("S4", "lease_lost", "Fence", "degraded", outage().with(|w| w.topology().durability.degraded = true));
    case("S4", "lease_lost", "Fence", "async", outage().with(|w| w.topology().durability.mode = DurabilityMode::Async));
    case("S4", "lease_lost", "Fence", "nobody in S", outage().with(|w| w.topology().durability.sync.clear()));
    case("S4", "lease_lost", "Fence", "failover.failsafe: false", outage().with(|w| w.view.own.failsafe = false));
    case("S4", "lease_lost", "Fence", "P not acknowledged", outage().with(|w| w.held().proof = Duration::ZERO));
    let unproven = outage().with(|w| beat(w).acknowledged_by = None);
    case("S4", "lease_lost", "Fence", "it came back, perhaps without its acknowledgement", unproven);
    let fewer = outage().with(|w| w.topology().durability.sync_replicas = 2);
    case("S4", "lease_lost", "Fence", "acknowledged by fewer than are recorded", fewer);
    case("S4", "lease_lost", "Fence", "a heartbeat of an earlier epoch", outage().with(|w| beat(w).epoch = 6));
    case("S4", "lease_lost", "Fence", "another epoch has begun", outage().with(|w| w.topology().epoch = 8));
    let anothers = outage().with(|w| w.view.ensemble.master = Node::Here(seen(master("db2", 7), 2, T)));
    case("S4", "lease_lost", "Fence", "another holds master", anothers);
    let inherited = outage().with(|w| w.held().inherited = true);
    case("S4", "lease_lost", "Fence", "a restarted agent knows of no proof", inherited);
    let new_session = back().with(|w| {
        w.topology().epoch = 8;
        w.view.own.managed = false;
        w.view.ensemble.agents.remove("db1");
    });
    case("S4", "lease_lost", "Fence", "the next epoch, read in a session in which our name is not taken", new_session);
    let lost_again = || {
        outage().with(|w| {
            w.view.own.managed = false;
            w.view.held = None;
            w.view.ensemble.complete = false;
        })
    };
    case(
        "S4",
        "writable_without_lease",
        "Fence",
        "the lease is found lost, and ZooKeeper is lost before anything is read",
        lost_again().with(|w| w.memory.had_lease = true),
    );
    case("S5", "no_zookeeper", "", "the same without ever having held one: perhaps a second agent", lost_again());
    let read_only = outage().with(|w| w.facts().super_read_only = true);
    case("S5", "no_zookeeper", "", "read-only, once come, is not undone by a proof", read_only);
}

fn zookeeper_is_back(case: Add<'_>) {
    case("P12", "failsafe", "TakeBack", "back, without master", back());
    let old = back().with(|w| w.view.ensemble.master = Node::Here(seen(master("db1", 7), 99, T)));
    case("P12", "failsafe", "TakeBack", "back, with the node of our last session", old.clone());
    let unnamed = back().with(|w| w.topology().primary = None);
    case("P12", "failsafe", "TakeBack", "back, and the others have named nobody", unnamed);
    let holds = old.with(|w| {
        w.held().until = NOW + ms(5000);
        first_seen(w, NOW - ms(4000));
    });
    case("P1", "agent_restarted", "TakeOver", "the session alone was lost: topology stays as it is", holds);
    let released = back().with(|w| w.lease().released = true);
    case(
        "R7",
        "primary",
        "Fence",
        "what was released is not taken back",
        released.with(|w| w.topology().primary = None),
    );
    // In its old session nothing has to be made anew; but until the lease holds nothing is published.
    let resumed = outage().with(|w| {
        w.view.ensemble.session = Session::Connected { since: NOW, granted: T, id: 1 };
        w.view.ensemble.complete = true;
        w.agent("db3").healthy = false;
    });
    case("P11", "primary", "", "its session lives: a member that fails is not recorded yet", resumed.clone());
    let renewed = resumed.with(|w| {
        w.held().until = NOW + ms(9000);
        w.memory.on_acknowledgements = Some(NOW - T);
    });
    case("P11", "primary", "Incident Members", "renewed: the outage is written down", renewed);
    let offline = with_p(primary()).with(|w| {
        w.facts().super_read_only = true;
        w.facts().offline_mode = true;
    });
    case("P6", "opening", "Open", "made read-only over the network and back in time: no operator's wish", offline);
}

fn the_others(case: Add<'_>) {
    let back_since = |since: u64, growth: Growth| {
        cut_off().with(move |w| {
            w.topology().primary = Some("db1".into());
            w.view.ensemble.session = Session::Connected { since: NOW - ms(since), granted: T, id: 2 };
            first_seen(w, NOW - T * 6);
            w.memory.growth = growth;
        })
    };
    let wrote = || grew(NOW - ms(800));
    case(
        "R1",
        "settling",
        "",
        "ZooKeeper is back: 1 s + 2 × 1.2 s for the primary",
        back_since(3300, Growth::default()),
    );
    case("R2", "agent_lost", "Members", "and no more", back_since(3400, Growth::default()));
    case("R1", "settling", "", "it goes on writing to us: it gets all of T", back_since(9900, wrote()));
    case("R2", "agent_lost", "Members", "and no more than T", back_since(10_000, wrote()));

    case("R15", "agent_lost", "FenceRemote", "before it freezes, the old primary is closed", cut_off());
    let answered = |failure| {
        cut_off().with(move |w| {
            w.step();
            w.now = NOW + ms(50);
            w.view.server.failure = failure;
        })
    };
    case("R7", "racing", "StopIo", "it could not be", answered(failed(MysqlKind::FenceRemote, NOW + ms(40))));
    case("R15", "agent_lost", "FenceRemote", "no answer yet", answered(None));
    case("R7", "racing", "StopIo", "none at all", answered(None).with(|w| w.now = NOW + ms(900)));
    let plain = cut_off().with(|w| w.lease().proof_ms = 0);
    case("R7", "racing", "StopIo", "without a failsafe it has fenced itself by then", plain);

    case("F7", "following", "", "unrenewed, not for long enough", unrenewed(ms(5699)));
    case("F10", "following", "Reach", "T − P less the time of one look", unrenewed(ms(5700)));
    case("F7", "following", "", "the same without a failsafe", unrenewed(ms(5700)).with(|w| w.lease().proof_ms = 0));
    let looked = |growth: Option<u64>, silent: bool| {
        unrenewed(ms(6000)).with(move |w| {
            w.step();
            w.now = NOW + ms(500);
            match silent {
                true => w.view.server.failure = failed(MysqlKind::Reach, w.now),
                false => w.view.server.done = Some((MysqlKind::Reach, w.now)),
            }
            w.memory.growth = growth.map(|age| grew(w.now - ms(age))).unwrap_or_default();
        })
    };
    case("F10", "frozen_early", "StopIo", "its server does not answer", looked(Some(1000), true));
    case("F10", "following", "", "a lost packet is no silence while something comes", looked(Some(999), true));
    case("F7", "following", "", "its server answers: never frozen for", looked(Some(5000), false));
    let again = looked(Some(5000), false).with(|w| w.now = NOW + ms(1000));
    case("F10", "following", "Reach", "and is looked at again", again);
    let frozen = looked(Some(1000), true).with(|w| {
        w.step();
        w.channel().io = IoThread::No;
    });
    case("F10", "frozen_early", "", "frozen it stays", frozen.clone());
    let renewed = frozen.clone().with(|w| {
        if let Node::Here(lease) = &mut w.view.ensemble.lease {
            (lease.version, lease.first_seen) = (VERSION + 1, w.now);
        }
    });
    case("F5", "repointing", "Follow", "the lease is renewed after all: it follows again", renewed);
    let seen_later = |sent: u64| {
        frozen.clone().with(move |w| {
            if let Node::Here(lease) = &mut w.view.ensemble.lease {
                (lease.version, lease.first_seen) = (VERSION + 1, w.now - ms(sent));
            }
        })
    };
    case("F10", "frozen_early", "", "a renewal of before, seen after a break, changes nothing", seen_later(5700));
    case("F5", "repointing", "Follow", "one that is younger does", seen_later(5699));
    let blind = |w: &mut World| {
        w.view.ensemble.session = Session::Lost { since: w.now };
        w.view.ensemble.complete = false;
    };
    case("F11", "following", "Reach", "the same as it loses ZooKeeper too", unrenewed(ms(5700)).with(blind));
    case("F11", "following", "Reach", "one look that finds nobody is not enough", looked(Some(5000), true).with(blind));
    let twice = |growth: u64| {
        looked(Some(growth), true).with(blind).with(move |w| {
            w.step();
            w.now = NOW + ms(900);
            w.view.server.failure = failed(MysqlKind::Reach, w.now);
            w.memory.growth = grew(w.now - ms(growth));
        })
    };
    case("F11", "following", "", "two, while something came lately", twice(1999));
    case("F11", "frozen_early", "StopIo", "two, and nothing for two heartbeats", twice(2000));
    let stopped = twice(2000).with(|w| {
        w.step();
        w.channel().io = IoThread::No;
    });
    case("F11", "frozen_early", "", "frozen it stays", stopped.clone());
    let over = |w: &mut World| {
        w.now = NOW + ms(4000);
        w.view.server.failure = None;
    };
    case("F11", "frozen_early", "Reach", "and looks on, also when the lease is over", stopped.clone().with(over));
    let back = stopped.with(over).with(|w| {
        w.step();
        w.now = w.now + ms(100);
        w.view.server.done = Some((MysqlKind::Reach, w.now));
    });
    case("F11", "following", "Follow", "it answers again: follows, ZooKeeper or not", back);
    case("F11", "frozen_early", "", "frozen in a session it waits for one", frozen.clone().with(blind));
    case("S5", "no_zookeeper", "", "it does not begin then", unrenewed(ms(10_000)).with(blind));
    case("S5", "no_zookeeper", "", "nor before it is old", unrenewed(ms(5699)).with(blind));
    let not_yet = |w: &mut World| w.view.own.instance = "another".into();
    case("S5", "no_zookeeper", "", "nor before its name is taken", unrenewed(ms(6000)).with(blind).with(not_yet));
    let cooling = unrenewed(ms(6000)).with(|w| {
        let opened = w.memory.opened_epoch.as_mut().unwrap();
        (opened.failover, opened.at) = (true, NOW);
    });
    case("F7", "following", "", "nobody freezes before somebody may lead", cooling);

    // The old lease is over, P since the quorum has stopped is not.
    let waiting = promoted().with(|w| {
        w.topology().reason = mysql_ha_agent::core::reason::Reason::AgentLost;
        let claim = w.memory.race.as_mut().unwrap().claim.as_mut().unwrap();
        (claim.wait_until, claim.lease_over) = (NOW + ms(3000), NOW - ms(1));
    });
    case(
        "P4",
        "waiting_old_lease",
        "FenceRemote",
        "waits for P, and asks for the proof that ends the wait",
        waiting.clone(),
    );
    let proven = |begun| waiting.clone().with(move |w| w.view.server.fenced_remote = Some((uuid("db3"), begun)));
    case("P7", "opening", "", "proven read-only, begun after its lease was over", proven(NOW));
    case("P4", "waiting_old_lease", "FenceRemote", "begun before: it may have been opened again", proven(NOW - ms(2)));
    let anothers = waiting.clone().with(|w| w.view.server.fenced_remote = Some((uuid("db2"), NOW)));
    case("P4", "waiting_old_lease", "FenceRemote", "another server than the last writer's", anothers);
}

fn lease_of(ops: &[Op]) -> &Lease {
    let found = ops.iter().find_map(|op| match op {
        Op::Set(Path::Lease, Record::Lease(lease), VERSION) => Some(lease),
        _ => None,
    });
    found.expect("the lease, at the version that was seen")
}

fn topology_of(ops: &[Op]) -> &Topology {
    let found = ops.iter().find_map(|op| match op {
        Op::Set(Path::Topology, Record::Topology(topology), VERSION) => Some(topology),
        _ => None,
    });
    found.expect("topology, at the version that was seen")
}

#[test]
fn master_is_taken_back_on_the_version_of_topology_which_is_rewritten() {
    let decision = back().with(|w| w.topology().primary = None).step();
    let ops = &write(&decision).ops;
    let topology = topology_of(ops);
    assert_eq!((topology.epoch, topology.primary.as_deref()), (7, Some("db1")), "the epoch stays");
    assert_eq!(topology.durability.sync, ["db2", "db3"], "S stays");
    assert!(lease_of(ops).opened && lease_of(ops).sequence == 4);
    assert!(ops.iter().any(|op| matches!(op, Op::Create(Path::Master, _))));
}

/// Until when a claim of db2 waits, after now.
fn waits(change: impl FnOnce(&mut World)) -> Duration {
    let mut world = with_p(voted()).with(|w| {
        w.lease().released = false;
        first_seen(w, NOW - T);
    });
    change(&mut world);
    assert_eq!(names(&world.step()), ["Claim"]);
    world.memory.race.unwrap().claim.unwrap().wait_until.until(NOW)
}

#[test]
fn a_winner_waits_p_after_the_last_of_its_quorum_has_stopped() {
    assert_eq!(waits(|_| {}), P, "nothing is known of the time before the votes");
    let since = |w: &mut World, db2, db3| (w.vote(1).frozen_ms, w.vote(2).frozen_ms) = (db2, db3);
    assert_eq!(waits(|w| since(w, 6000, 3000)), ms(1000), "the last to stop counts");
    assert_eq!(waits(|w| since(w, 6000, 4000)), Duration::ZERO);
    assert_eq!(waits(|w| w.lease().released = true), Duration::ZERO, "released");
    assert_eq!(waits(|w| w.lease().proof_ms = 0), Duration::ZERO, "no failsafe");
    let last_writer = waits(|w| *w = w.clone().lock(3, "db1", 9));
    assert_eq!(last_writer, Duration::ZERO, "the last writer votes: it is read-only");
    let outside = waits(|w| {
        w.topology().durability.sync = vec!["db2".into()];
        w.vote(1).frozen_ms = 6000;
    });
    assert_eq!(outside, Duration::ZERO, "who is not in S has acknowledged nothing");
}

#[test]
fn forced_without_a_quorum_it_waits_p_from_its_claim_on() {
    let forced = waits(|w| {
        w.view.ensemble.locks.remove(&2);
        w.view.ensemble.agents.remove("db3");
        w.vote(1).frozen_ms = 6000;
        let told = SwitchoverRequest { after_loss: true, force: true, ..request(Progress::Requested) };
        w.view.ensemble.switchover = Node::Here(seen(told, 0, Duration::ZERO));
    });
    assert_eq!(forced, P);
}

#[test]
fn a_lease_that_holds_is_waited_for_all_the_same() {
    let rest = waits(|w| {
        (w.vote(1).frozen_ms, w.vote(2).frozen_ms) = (6000, 6000);
        first_seen(w, NOW - ms(9000));
    });
    assert_eq!(rest, ms(1000));
}

#[test]
fn a_claim_keeps_the_larger_p_until_its_holder_has_opened() {
    let mut world = with_p(voted()).with(|w| {
        w.lease().released = false;
        w.view.own.failsafe = false;
        first_seen(w, NOW - T);
    });
    assert_eq!(lease_of(&write(&world.step()).ops).proof_ms, 4000, "the next winner must wait for the old primary too");
    world.lease().released = true;
    assert_eq!(lease_of(&write(&world.step()).ops).proof_ms, 0);
}

/// When, what the IO thread did, and the last action that was done by then.
type Reading = (u64, IoThread, Option<(MysqlKind, u64)>);

/// Since when db2 counts as frozen, after its server was seen so.
fn frozen_since(readings: &[Reading]) -> Option<Moment> {
    let mut world = cut_off().with(|w| w.topology().primary = Some("db1".into()));
    for (at, io, done) in readings {
        world.now = NOW + ms(*at);
        world.view.server.facts.as_mut().unwrap().1 = world.now;
        world.channel().io = *io;
        world.view.server.done = done.map(|(kind, at)| (kind, NOW + ms(at)));
        world.step();
    }
    world.memory.frozen.since.map(|(since, _)| since)
}

#[test]
fn the_frozen_time_counts_from_a_stop_after_everything_that_may_have_started_the_io_thread() {
    use IoThread::{No, Yes};
    let stop = |at| Some((MysqlKind::StopIo, at));
    let at = |at| Some(NOW + ms(at));
    assert_eq!(frozen_since(&[(0, Yes, None), (10, No, None)]), None, "stopped by nobody we know");
    assert_eq!(frozen_since(&[(0, Yes, None), (10, No, stop(5))]), at(5));
    assert_eq!(frozen_since(&[(0, Yes, None), (10, No, stop(5)), (90, No, stop(80))]), at(5), "the first counts");
    assert_eq!(frozen_since(&[(0, Yes, None), (10, No, stop(5)), (20, Yes, stop(5)), (30, No, stop(5))]), None);
    assert_eq!(frozen_since(&[(0, Yes, None), (10, Yes, stop(10)), (20, No, stop(30))]), at(30), "started after it");
}

#[test]
fn what_may_start_the_io_thread_ends_the_frozen_time_before_it_is_done() {
    let mut world = replica().with(|w| {
        w.channel().io = IoThread::No;
        w.memory.frozen = Frozen { since: Some((NOW - T, "db2/1".into())), thawed: None };
    });
    let decision = world.step();
    assert!(matches!(names(&decision).as_slice(), [only] if only == "Follow"), "{decision:?}");
    assert_eq!(world.memory.frozen, Frozen { since: None, thawed: Some(NOW) });
}

#[test]
fn another_life_of_the_server_begins_with_a_stop_of_its_own() {
    let mut world = cut_off().with(|w| {
        w.channel().io = IoThread::No;
        w.memory.frozen = Frozen { since: Some((NOW - T, "db2/1".into())), thawed: None };
        w.view.server.done = Some((MysqlKind::StopIo, NOW - T));
    });
    world.step();
    assert_eq!(world.memory.frozen.since.as_ref().map(|(since, _)| *since), Some(NOW - T));
    world.facts().incarnation = "db2/2".into();
    world.step();
    assert_eq!(world.memory.frozen.since, None);
}

#[test]
fn the_old_primary_is_closed_while_it_is_still_acknowledged() {
    let decision = cut_off().step();
    let gentle = decision.outcome.actions.iter().any(|action| {
        matches!(
            action,
            mysql_ha_agent::core::action::Action::Mysql(MysqlAction::FenceRemote { acknowledged: true, .. })
        )
    });
    assert!(gentle, "{decision:?}");
}
