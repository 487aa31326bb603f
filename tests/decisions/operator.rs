//! What an operator asks for: `failover.mode`, `failover.cooldown`, `pause`, `fence`, and promotions by hand after a loss.

use std::time::Duration;

use mysql_ha_agent::core::action::{MysqlKind, Op, Path, Record};
use mysql_ha_agent::core::consent::OPEN_WITHIN;
use mysql_ha_agent::core::memory::OpenedEpoch;
use mysql_ha_agent::core::reason::Reason;
use mysql_ha_agent::core::records::{Lease, MemberState, Mode, Pause, Progress};
use mysql_ha_agent::core::time::Wall;
use mysql_ha_agent::core::view::{Failure, Health, Node, Process, Session};

use super::scenarios::Add;
use super::world::{
    NOW, T, VERSION, World, gtids, names, primary, promoted, replica, request, seen, unadopted, vacant, voted, write,
};

/// The agent of the primary is gone and its lease is over.
fn lost() -> World {
    vacant().with(|w| {
        w.lease().released = false;
        w.topology().reason = Reason::AgentLost;
        age_lease(w, T);
    })
}

fn age_lease(world: &mut World, age: Duration) {
    if let Node::Here(lease) = &mut world.view.ensemble.lease {
        lease.first_seen = NOW - age;
    }
}

fn pause(for_ms: Option<u64>) -> Pause {
    Pause { operation: "pause".into(), at: Wall("2026-11-30T10:00:00.000Z".into()), for_ms, reason: "disk swap".into() }
}

/// `control/pause` stands, and the lease carries it.
fn in_pause(world: &mut World) {
    world.view.ensemble.pause = Node::Here(seen(pause(None), 0, Duration::from_secs(5)));
    world.lease().paused = Some("pause".into());
    world.lease().ttl_ms = Lease::FOREVER_MS;
}

/// `promote db2` after a loss.
fn told(world: &mut World, to: &str, force: bool) {
    let mut record = request(Progress::Requested);
    (record.to, record.after_loss, record.force) = (to.into(), true, force);
    world.view.ensemble.switchover = Node::Here(seen(record, 0, Duration::from_secs(1)));
}

fn failover_seen(world: &mut World, age: Duration) {
    world.memory.opened_epoch = Some(OpenedEpoch { epoch: 7, primary: "db1".into(), at: NOW - age, failover: true });
}

fn mysqld_exited(world: &mut World) {
    world.view.server.process = Process::Exited { at: NOW };
    world.view.server.health = Health::Failed { since: NOW, why: "exited".into() };
}

/// db1, fenced by hand and proven read-only.
fn fenced() -> World {
    primary().with(|w| {
        w.view.server.fenced_by_hand = true;
        w.view.server.fenced = Some(Reason::FencedByHand);
        w.facts().super_read_only = true;
    })
}

pub(crate) fn scenarios(case: Add<'_>) {
    manual(case);
    cooldown(case);
    pauses(case);
    fences(case);
    forced(case);
}

fn manual(case: Add<'_>) {
    let manual = |w: &mut World| w.view.own.mode = Mode::Manual;
    case(
        "O6",
        "not_automatic",
        "",
        "manual: nobody freezes, nobody votes",
        lost().with(manual).with(|w| {
            w.channel().io = mysql_ha_agent::core::view::IoThread::Yes;
        }),
    );
    case("R8", "racing", "Vote", "manual, another leads: its vote is given all the same", {
        vacant().with(manual).lock(2, "db3", 9)
    });
    case("R9", "another_leads", "", "manual: the vote given does not lead", {
        vacant().with(manual).lock(1, "db2", 9).lock(2, "db3", 9).with(|w| w.vote(1).priority = 0)
    });
    case("R8", "racing", "Withdraw", "told since: votes anew, to lead", {
        voted().with(manual).with(|w| {
            w.vote(1).priority = 0;
            told(w, "db2", false);
        })
    });
    case(
        "R14",
        "promoted_by_hand",
        "Claim",
        "told, with the votes",
        voted().with(manual).with(|w| told(w, "db2", false)),
    );
    case("R10", "no_quorum", "", "told, without the votes", {
        vacant().with(manual).with(|w| told(w, "db2", false)).lock(1, "db2", 9)
    });
    case("R8", "racing", "Withdraw", "another is named: gives its lead up", voted().with(|w| told(w, "db3", false)));
    case("O6", "not_automatic", "", "told too long ago", {
        lost().with(manual).with(|w| {
            told(w, "db2", false);
            if let Node::Here(request) = &mut w.view.ensemble.switchover {
                request.first_seen = NOW - Duration::from_secs(30);
            }
        })
    });
    case("R7", "agent_lost", "Fence", "manual: the last writer takes its own role back, once it is read-only", {
        lost().with(manual).with(|w| {
            w.topology().last_writer = Some("db2".into());
            w.lease().name = "db2".into();
            w.memory.opened_incarnation = Some("db2/1".into());
            w.view.server.fenced = None;
        })
    });
    case("P2", "not_automatic", "Members", "manual, mysqld exited: the role stays, nobody is named", {
        primary().with(manual).with(mysqld_exited)
    });
    case("P3", "not_automatic", "", "manual, mysqld silent: neither fenced nor given up", {
        primary().with(manual).with(|w| w.view.server.health = Health::Failed { since: NOW, why: "silent".into() })
    });
    case("P2", "mysql_down", "Release", "manual, mysqld exited, told to promote another", {
        primary().with(manual).with(mysqld_exited).with(|w| told(w, "db2", false))
    });
    case("P11", "primary", "", "observe: says what a primary would do, does nothing", {
        primary().with(|w| w.view.own.mode = Mode::Observe)
    });
    case("R7", "racing", "", "observe, nothing adopted: would race when the primary is lost", {
        unadopted("db2").with(|w| {
            w.view.own.mode = Mode::Observe;
            w.step();
            w.agent("db1").healthy = false;
            w.agent("db1").writable = false;
        })
    });
}

fn cooldown(case: Add<'_>) {
    let secs = Duration::from_secs;
    case("O6", "not_automatic", "", "a failover was seen 10 s ago", lost().with(|w| failover_seen(w, secs(10))));
    case("R8", "racing", "Vote", "a failover was seen a cooldown ago", lost().with(|w| failover_seen(w, secs(60))));
    case("R8", "racing", "Vote", "what was seen opened was no failover", {
        lost().with(|w| {
            failover_seen(w, secs(10));
            w.memory.opened_epoch.as_mut().unwrap().failover = false;
        })
    });
    case(
        "O6",
        "not_automatic",
        "",
        "started while nobody takes writes: counts from now",
        lost().with(|w| w.memory.opened_epoch = None),
    );
    case("R8", "racing", "Vote", "by hand it does not wait", {
        lost().with(|w| {
            failover_seen(w, secs(10));
            told(w, "db2", false);
        })
    });
    case("R8", "racing", "Vote", "what an operator has fenced is taken over at once", {
        vacant().with(|w| {
            failover_seen(w, secs(10));
            w.topology().reason = Reason::FencedByHand;
        })
    });
    case("O6", "not_automatic", "Withdraw", "a vote of before is taken back where nobody leads", {
        voted().with(|w| {
            failover_seen(w, secs(10));
            w.view.ensemble.locks.remove(&2);
        })
    });
}

fn pauses(case: Add<'_>) {
    let paused_and_gone = || {
        replica().with(in_pause).with(|w| {
            w.view.ensemble.master = Node::Absent;
            age_lease(w, T * 10);
        })
    };
    case("O2", "paused", "", "paused, the primary's session expired: it stays named", paused_and_gone());
    case("O2", "paused", "", "resumed, and the primary has not renewed since", {
        paused_and_gone().with(|w| w.view.ensemble.pause = Node::Absent)
    });
    case("R2", "agent_lost", "Members", "the pause was never acknowledged: as ever", {
        paused_and_gone().with(|w| {
            w.lease().paused = None;
            w.lease().ttl_ms = 10_000;
        })
    });
    case("R2", "agent_lost", "Members", "its time is over", paused_and_gone().with(|w| w.lease().ttl_ms = 60_000));
    case("O1", "paused", "TakeOver", "paused, our session expired: master anew, same epoch", {
        primary().with(in_pause).with(|w| {
            w.view.ensemble.master = Node::Absent;
            age_lease(w, T * 10);
        })
    });
    case(
        "P2",
        "paused",
        "Members",
        "paused, mysqld of the primary is being restarted",
        primary().with(in_pause).with(mysqld_exited),
    );
    case("S5", "no_zookeeper", "", "paused without ZooKeeper: writes go on", {
        primary().with(in_pause).with(|w| {
            w.step();
            w.view.ensemble.session = Session::Lost { since: NOW };
        })
    });
    case("O4", "primary", "Progress", "the pause's own time is over", {
        primary().with(in_pause).with(|w| {
            w.view.ensemble.pause = Node::Here(seen(pause(Some(5_000)), 0, Duration::from_secs(5)));
        })
    });
    case("O8", "paused", "FenceRemote", "by hand past a paused lease: the old server first", {
        voted().with(|w| {
            past_pause(w);
            told(w, "db2", false);
        })
    });
    case("O8", "paused", "", "it was made read-only, and a statement to open it may be on its way", {
        voted().with(|w| {
            past_pause(w);
            told(w, "db2", false);
            w.step();
            w.view.server.done = Some((MysqlKind::FenceRemote, NOW));
        })
    });
    case("R14", "promoted_by_hand", "Claim", "proven read-only and proven again later", {
        voted().with(|w| {
            past_pause(w);
            told(w, "db2", false);
            w.step();
            w.now = NOW + OPEN_WITHIN;
            w.view.server.done = Some((MysqlKind::FenceRemote, w.now));
        })
    });
    case("O8", "paused", "", "it cannot be reached: not promoted", {
        voted().with(|w| {
            past_pause(w);
            told(w, "db2", false);
            w.view.server.failure =
                Some(Failure { kind: MysqlKind::FenceRemote, why: "no route".into(), at: NOW, touched: false });
        })
    });
}

/// Nobody holds `master`, and the lease is paused.
fn past_pause(world: &mut World) {
    world.lease().released = false;
    in_pause(world);
}

fn fences(case: Add<'_>) {
    case("O3", "fenced_by_hand", "Fence", "the marker of 'fence' was seen", {
        primary().with(|w| w.view.server.fenced_by_hand = true)
    });
    case("O3", "fenced_by_hand", "Release", "proven read-only: the lease is given up", fenced());
    case("O3", "fenced_by_hand", "Release", "promoted and not opened: gives up without opening", {
        promoted().with(|w| {
            w.view.server.fenced_by_hand = true;
            w.view.server.fenced = Some(Reason::FencedByHand);
        })
    });
    case(
        "O6",
        "fenced_by_hand",
        "",
        "a fenced replica leads no race",
        lost().with(|w| w.view.server.fenced_by_hand = true),
    );
    case("R8", "racing", "Vote", "a fenced replica votes for another", {
        vacant().with(|w| w.view.server.fenced_by_hand = true).lock(2, "db3", 9)
    });
    case("F7", "following", "", "a fenced replica follows", replica().with(|w| w.view.server.fenced_by_hand = true));
    case("O6", "paused", "", "fenced during a pause: nobody takes over before it ends", {
        vacant().with(|w| {
            in_pause(w);
            w.lease().released = true;
        })
    });
}

fn forced(case: Add<'_>) {
    case("R14", "forced", "Claim", "--allow-data-loss needs no votes", {
        vacant().lock(1, "db2", 9).with(|w| {
            told(w, "db2", true);
            w.topology().members.get_mut("db3").unwrap().state = MemberState::Na;
        })
    });
    case("R14", "forced", "Claim", "--allow-data-loss past the watermark", {
        vacant().lock(1, "db2", 9).lock(2, "db3", 9).with(|w| {
            told(w, "db2", true);
            w.lease().watermark = gtids(20);
        })
    });
}

/// Resumed, and the primary has not renewed its lease since: it may not have heard of it, and takes writes still.
#[test]
fn interleaving_12_nobody_races_while_a_paused_lease_may_be_in_use() {
    let resumed = |ttl_ms, paused: Option<&str>| {
        replica().with(in_pause).with(|w| {
            w.view.ensemble.master = Node::Absent;
            w.view.ensemble.pause = Node::Absent;
            age_lease(w, T * 10);
            (w.lease().ttl_ms, w.lease().paused) = (ttl_ms, paused.map(str::to_owned));
        })
    };
    assert_eq!(resumed(Lease::FOREVER_MS, Some("pause")).step().row, "O2");
    assert_eq!(resumed(60_000, Some("pause")).step().row, "R2", "its own end has passed");
    assert_eq!(resumed(10_000, None).step().row, "R2", "renewed without it, and lost since");
}

#[test]
fn a_manual_vote_is_cast_with_priority_0_and_counts() {
    let mut world = vacant().with(|w| w.view.own.mode = Mode::Manual).lock(2, "db3", 9);
    let decision = world.step();
    let Some(Op::Create(Path::NewLock, Record::Vote(vote))) = write(&decision).ops.last() else {
        panic!("{decision:?}")
    };
    assert_eq!((vote.priority, vote.frozen, &vote.received), (0, true, &gtids(9)));
}

#[test]
fn a_claim_by_hand_answers_the_request_and_a_forced_one_marks_the_epoch() {
    for force in [false, true] {
        let mut world = voted().with(|w| told(w, "db2", force));
        let decision = world.step();
        let ops = &write(&decision).ops;
        let answered = ops.iter().any(|op| {
            matches!(op, Op::Set(Path::Switchover, Record::Switchover(request), VERSION) if request.progress == Progress::Released)
        });
        let forced = ops.iter().find_map(|op| match op {
            Op::Set(Path::Topology, Record::Topology(topology), _) => Some((topology.forced, topology.kept_since)),
            _ => None,
        });
        assert!(answered, "{ops:?}");
        // What `prestart` relies on: the new epoch has all that was acknowledged in the one before, or nobody says so.
        assert_eq!(forced, Some(if force { (Some(8), None) } else { (None, Some(7)) }));
    }
}

#[test]
fn what_a_forced_promotion_loses_stands_in_its_history() {
    let mut world = vacant().lock(1, "db2", 9).with(|w| {
        told(w, "db2", true);
        w.lease().watermark = gtids(20);
        w.topology().members.get_mut("db3").unwrap().state = MemberState::Na;
    });
    world.step();
    assert_eq!(world.memory.race.unwrap().expected, gtids(20));
}

#[test]
fn a_pause_is_acknowledged_and_a_break_of_the_connection_does_not_take_it_back() {
    let mut world = primary().with(|w| {
        w.view.ensemble.pause = Node::Here(seen(pause(Some(60_000)), 0, Duration::from_secs(1)));
    });
    let term = world.step().pause.expect("acknowledged");
    assert_eq!((term.operation.as_str(), term.until), ("pause", NOW + Duration::from_secs(59)));
    world.view.ensemble.session = Session::Lost { since: NOW };
    assert_eq!(world.step().pause, Some(term));
    let mut resumed = primary().with(in_pause).with(|w| w.view.ensemble.pause = Node::Absent);
    assert_eq!(resumed.step().pause, None, "the next renewal ends it");
}

#[test]
fn a_restarted_agent_goes_on_with_what_is_left_of_the_pause() {
    let mut world = primary().with(in_pause).with(|w| {
        w.view.ensemble.pause = Node::Here(seen(pause(Some(60_000)), 0, Duration::ZERO));
        w.lease().ttl_ms = 20_000;
    });
    // The lease was seen a second ago.
    assert_eq!(world.step().pause.unwrap().until, NOW + Duration::from_secs(19));
}

#[test]
fn nothing_is_fetched_beside_a_claim_on_its_way() {
    let mut world = voted();
    assert_eq!(names(&world.step()), ["Claim"]);
    world = world.lock(3, "db3", 12).with(|w| {
        w.view.ensemble.locks.remove(&2);
        w.now = NOW + Duration::from_millis(100);
    });
    let waits = world.step();
    assert_eq!((waits.row, names(&waits)), ("R13", vec![]));
    world.now = NOW + Duration::from_secs(2);
    assert_eq!(names(&world.step()), ["Fetch"]);
}

#[test]
fn the_cooldown_says_how_long_and_ends_by_itself() {
    let mut world = lost().with(|w| failover_seen(w, Duration::from_secs(10)));
    assert!(world.step().outcome.detail.contains("in 50 s"), "{}", world.step().outcome.detail);
    world.now = NOW + Duration::from_secs(50);
    assert_eq!(names(&world.step()), ["StopIo"], "and then it freezes");
}

#[test]
fn only_failovers_to_another_server_count() {
    for (reason, primary_before, counts) in [
        (Reason::MysqlDown, "db3", true),
        (Reason::AgentLost, "db1", false),
        (Reason::Switchover, "db3", false),
        (Reason::PromotedByHand, "db3", false),
    ] {
        let mut world = replica().with(|w| {
            w.topology().reason = reason;
            w.memory.opened_epoch =
                Some(OpenedEpoch { epoch: 6, primary: primary_before.into(), at: NOW - T, failover: false });
        });
        world.step();
        let seen = world.memory.opened_epoch.unwrap();
        assert_eq!((seen.epoch, seen.at, seen.failover), (7, NOW, counts), "{reason}");
    }
}
