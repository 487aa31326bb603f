//! What protects acknowledged writes: S, semi-sync, and another durability in the primary's file.

use std::time::Duration;

use mysql_ha_agent::core::action::{MysqlKind, Op, Path, Record};
use mysql_ha_agent::core::memory::Setting;
use mysql_ha_agent::core::outcome::Decision;
use mysql_ha_agent::core::records::{Durability, DurabilityMode, MemberState, Mode};
use mysql_ha_agent::core::view::{Heartbeat, Node, SemiSyncReplica};

use super::scenarios::Add;
use super::world::{NOW, T, VERSION, World, beat_at, gtids, primary, replica, vacant, voted, write};

/// All of them.
pub(crate) fn scenarios(case: Add<'_>) {
    sync_set(case);
    terms(case);
    rooms(case);
    lives(case);
}

/// Commits were made to wait for `count` acknowledgements a second ago, and that has been read since.
pub(crate) fn settled(w: &mut World, count: u32) {
    let asked = NOW - Duration::from_secs(1);
    w.memory.setting = Some(Setting { count, asked, since: None });
    w.view.server.done = Some((MysqlKind::AwaitAcknowledgements, asked));
    let source = w.facts().semi_sync.source.as_mut().unwrap();
    (source.on, source.count) = (count > 0, count.max(1));
}

/// Another durability in the primary's file.
fn terms(case: Add<'_>) {
    let wants = |k: u32| primary().with(|w| w.view.own.sync_replicas = k);
    let beat = |w: &mut World, after: u64| {
        w.view.server.heartbeat = Some(beat_at(NOW + Duration::from_millis(after)));
    };
    case("D8", "durability_changed", "AwaitAcknowledgements", "k is raised: the server first", wants(2));
    case("P11", "primary", "", "the same, set, and no reading since", {
        wants(2).with(|w| {
            settled(w, 2);
            w.view.server.done = Some((MysqlKind::AwaitAcknowledgements, NOW));
        })
    });
    case(
        "D8",
        "durability_changed",
        "AwaitAcknowledgements",
        "two are waited for, by a reading from before our action",
        {
            wants(2).with(|w| {
                settled(w, 2);
                w.memory.setting = None;
            })
        },
    );
    case("P11", "primary", "", "two are waited for, and the last heartbeat is from before", {
        wants(2).with(|w| {
            settled(w, 2);
            beat(w, 0);
        })
    });
    case("D8", "primary", "Members Incident", "two are waited for, and a heartbeat sent since is acknowledged", {
        wants(2).with(|w| {
            settled(w, 2);
            beat(w, 1);
        })
    });
    case("P11", "primary", "", "k is raised, and fewer members of S acknowledge", {
        wants(2).with(|w| w.agent("db3").acknowledging = false)
    });
    case(
        "D1",
        "primary",
        "AwaitAcknowledgements",
        "k was raised on the server, and a member fails before the record",
        {
            wants(2).with(|w| {
                settled(w, 2);
                w.agent("db3").acknowledging = false;
            })
        },
    );
    let lowered = || {
        primary().with(|w| {
            w.topology().durability.sync_replicas = 2;
            w.facts().semi_sync.source.as_mut().unwrap().count = 2;
        })
    };
    case("D8", "primary", "Members Incident", "k is lowered: the record first", lowered());
    case("D1", "primary", "AwaitAcknowledgements", "then the server", {
        lowered().with(|w| w.topology().durability.sync_replicas = 1)
    });
    case("D8", "primary", "Members Incident", "degraded: k is lowered at once", {
        lowered().with(|w| w.topology().durability.degraded = true)
    });
    case("D2", "degraded", "AwaitAcknowledgements", "degraded: k is raised only after it was restored", {
        wants(2).with(|w| w.topology().durability.degraded = true)
    });

    let wants_async = || primary().with(|w| w.view.own.durability = DurabilityMode::Async);
    case("D7", "primary", "Members Incident", "async: recorded as degraded first", wants_async());
    case("P11", "primary", "", "async, and the file of another asks for lossless", {
        wants_async().with(|w| w.proposes("db3", DurabilityMode::Lossless))
    });
    case("D7", "primary", "Members Incident", "async, and an observer's file asks for lossless", {
        wants_async().with(|w| {
            w.proposes("db3", DurabilityMode::Lossless);
            w.view.ensemble.agents.get_mut("db3").unwrap().record.mode = Mode::Observe;
        })
    });
    let degraded = || wants_async().with(|w| w.topology().durability.degraded = true);
    case("D7", "primary", "Members", "it was degraded, and its end may land: replaced first", degraded());
    let giving_up = || degraded().with(|w| w.memory.degraded_over = Some(VERSION - 1));
    case("D7", "durability_changed", "AwaitAcknowledgements", "then commits stop waiting", giving_up());
    case("D7", "durability_changed", "AwaitAcknowledgements", "off by a reading from before our action", {
        giving_up().with(|w| {
            settled(w, 0);
            w.memory.setting = None;
        })
    });
    case("D7", "primary", "Members", "then async is recorded", giving_up().with(|w| settled(w, 0)));
    case("D2", "degraded", "AwaitAcknowledgements", "the file is back at lossless in between: restored", {
        giving_up().with(|w| w.view.own.durability = DurabilityMode::Lossless)
    });

    let in_async = || {
        primary().with(|w| {
            w.topology().durability.mode = DurabilityMode::Async;
            w.topology().durability.sync.clear();
            w.facts().semi_sync.source.as_mut().unwrap().on = false;
        })
    };
    case("D7", "primary", "Members Incident", "lossless: recorded as degraded, all in S", in_async());
    case("P11", "primary", "", "lossless, and the plugin is not loaded", {
        in_async().with(|w| w.facts().semi_sync.source = None)
    });
    case("P11", "primary", "", "lossless, and fewer follow than are to acknowledge", {
        in_async().with(|w| w.view.own.sync_replicas = 3)
    });
}

/// The recorded sync set S and semi-sync.
fn sync_set(case: Add<'_>) {
    let source_off = |w: &mut World| w.facts().semi_sync.source.as_mut().unwrap().on = false;
    case("D1", "primary", "AwaitAcknowledgements", "commits do not wait as recorded", primary().with(source_off));
    let degraded = || primary().with(|w| w.topology().durability.degraded = true);
    case("D2", "degraded", "AwaitAcknowledgements", "degraded, enough acknowledge", degraded().with(source_off));
    case("P11", "degraded", "", "degraded, nobody acknowledges", {
        degraded().with(source_off).with(|w| {
            for replica in ["db2", "db3"] {
                w.agent(replica).acknowledges = Some(false);
                w.agent(replica).acknowledging = false;
            }
        })
    });
    let beat = |w: &mut World, after: u64| {
        w.view.server.heartbeat = Some(beat_at(NOW + Duration::from_millis(after)));
    };
    case("D2", "degraded", "AwaitAcknowledgements", "commits wait; what was asked for before may still stop that", {
        degraded().with(|w| beat(w, 1))
    });
    let settled = |w: &mut World| settled(w, 1);
    case("P11", "degraded", "", "commits wait, and the last heartbeat is from before", {
        degraded().with(settled).with(|w| beat(w, 0))
    });
    case("D2", "primary", "Members", "commits wait, and one has been acknowledged", {
        degraded().with(settled).with(|w| beat(w, 1))
    });

    // Three periods of 2 s without an acknowledgement.
    let unacknowledged = |periods: u64| {
        let mut world = primary();
        world.step();
        for period in 0..=periods {
            world.now = NOW + Duration::from_secs(2 * period);
            world.view.server.unacknowledged = Some(NOW);
            world.view.held.as_mut().unwrap().until = world.now + Duration::from_secs(9);
            if period < periods {
                world.step();
            }
        }
        world
    };
    case("P11", "primary", "", "acknowledgements are missing, not long enough", unacknowledged(2));
    case("D5", "primary", "Members Incident", "acknowledgements are missing three times in a row", unacknowledged(3));
    let recorded = |w: &mut World| {
        w.step();
        w.topology().durability.degraded = true;
        if let Node::Here(topology) = &mut w.view.ensemble.topology {
            topology.version += 1;
        }
    };
    let degraded_since = || unacknowledged(3).with(recorded);
    case(
        "D5",
        "degraded",
        "AwaitAcknowledgements",
        "recorded as degraded: then nobody is waited for",
        degraded_since(),
    );
    case("D5", "primary", "Members", "its end was recorded on this topology and may land: replaced first", {
        degraded_since().with(|w| w.memory.restored_over = Some(VERSION + 1))
    });
    case("D5", "degraded", "AwaitAcknowledgements", "the same, replaced", {
        degraded_since().with(|w| w.memory.restored_over = Some(VERSION + 1)).with(recorded)
    });
    case("D5", "primary", "Members", "degraded before our agent was restarted: what it had sent is not known", {
        degraded_since().with(|w| w.memory.degraded_over = None)
    });
    case("P11", "primary", "", "degrade.allow_times 0: blocks", {
        unacknowledged(2).with(|w| {
            w.view.own.degrade.times = None;
            w.step();
            w.now = w.now + Duration::from_secs(2);
        })
    });
    let came_back = || {
        unacknowledged(1).with(|w| {
            w.agent("db2").acknowledging = false;
            w.agent("db3").acknowledging = false;
            w.step();
            w.agent("db3").acknowledging = true;
        })
    };
    case("D6", "blocked", "CommitMarker", "commits wait, and a replica has begun to acknowledge", came_back());
    case("P11", "primary", "", "the same, and the marker is committed", {
        came_back().with(|w| {
            w.step();
            w.view.server.done = Some((MysqlKind::CommitMarker, w.now));
        })
    });

    // db3 does not follow any more; its agent is there.
    let failing = |world: World| {
        world.with(|w| {
            w.agent("db3").source.as_mut().unwrap().sql_running = false;
            w.topology().members.get_mut("db3").unwrap().state = MemberState::Na;
        })
    };
    let missed = |since: Duration| failing(primary()).with(|w| w.memory.missed = [("db3".into(), NOW - since)].into());
    case("P11", "primary", "", "a member of S fails, for less than T", missed(T));
    case("D3", "primary", "Members", "a member of S fails for longer", missed(T + Duration::from_millis(1)));
    case("P11", "primary", "", "the same, and nobody else is left", {
        missed(T * 2).with(|w| {
            w.agent("db2").source.as_mut().unwrap().sql_running = false;
            w.topology().members.get_mut("db2").unwrap().state = MemberState::Na;
        })
    });
    let retiring = |world: World| world.with(|w| w.topology().durability.retiring = vec!["db3".into()]);
    case("D3", "primary", "Members", "a retiring member follows again", retiring(primary()));
    let receives_nothing = |w: &mut World| w.agent("db3").source.as_mut().unwrap().io_running = false;
    case(
        "P11",
        "primary",
        "",
        "it follows and receives nothing: stays retiring",
        retiring(primary()).with(receives_nothing),
    );
    case("P11", "primary", "", "it follows and receives nothing: does not join", {
        primary().with(receives_nothing).with(|w| w.topology().durability.forget("db3"))
    });
    let confirmed = |after: u64| {
        retiring(failing(primary())).with(|w| {
            w.agent("db3").acknowledges = Some(false);
            w.step();
            beat(w, after);
        })
    };
    case(
        "P11",
        "primary",
        "",
        "retiring, and still able to acknowledge",
        retiring(failing(primary())).with(|w| beat(w, 1)),
    );
    case("P11", "primary", "", "confirmed, no heartbeat sent since has been acknowledged", confirmed(0));
    case("D4", "primary", "Members", "confirmed, and a heartbeat sent since has been acknowledged", confirmed(1));
    case("P11", "primary", "", "the same, and its agent is gone again", {
        confirmed(1).with(|w| w.view.ensemble.agents.retain(|name, _| name != "db3"))
    });

    let silent = |w: &mut World| {
        w.facts().semi_sync.replica = Some(SemiSyncReplica { enabled: false, active: false });
    };
    case("F9", "following", "Acknowledge", "recorded, and has said so", replica().with(silent));
    case("F9", "following", "", "recorded, and has not said so yet", {
        replica().with(silent).with(|w| w.agent("db2").acknowledges = Some(false))
    });
    case("F9", "following", "Acknowledge", "not recorded: switches off", {
        replica().with(|w| w.topology().durability.sync.retain(|name| name != "db2"))
    });
    case("F9", "following", "Acknowledge", "retiring: switches off", {
        replica().with(|w| w.topology().durability.retiring = vec!["db2".into()])
    });
    case("F9", "following", "Acknowledge", "off, and the IO thread was not restarted (interleaving 4)", {
        replica().with(|w| {
            w.topology().durability.sync.retain(|name| name != "db2");
            w.facts().semi_sync.replica = Some(SemiSyncReplica { enabled: false, active: true });
        })
    });
}

/// A heartbeat sent `after` so many milliseconds, with transactions up to `executed` before it, is acknowledged.
fn acknowledged(w: &mut World, after: u64, executed: u64) {
    let beat = beat_at(NOW + Duration::from_millis(after));
    w.view.server.heartbeat = Some(Heartbeat { executed: gtids(executed), ..beat });
}

/// db3's host was restarted; this is known since `NOW`.
fn anew() -> World {
    primary().with(|w| {
        w.agent("db3").incarnation = Some("db3 anew".into());
        acknowledged(w, 0, 9);
        w.step();
    })
}

/// In which life a member of S is counted on (interleaving 7).
fn lives(case: Add<'_>) {
    case("P11", "primary", "", "a member lives anew: no heartbeat sent since is acknowledged", anew());
    case("D12", "primary", "Members", "one is, and it has received all that was executed before", {
        anew().with(|w| acknowledged(w, 1, 9))
    });
    case("P11", "primary", "", "one is, and it has not caught up", anew().with(|w| acknowledged(w, 1, 10)));
    case("D12", "primary", "Members", "it has, and the next heartbeat is ahead of it already", {
        anew().with(|w| {
            acknowledged(w, 1, 9);
            w.agent("db3").retrieved = gtids(8);
            w.agent("db3").executed = gtids(8);
            w.step();
            acknowledged(w, 2, 11);
            w.agent("db3").retrieved = gtids(10);
        })
    });
    case("P11", "primary", "", "caught up, and restarted again: counted from then", {
        anew().with(|w| {
            acknowledged(w, 1, 9);
            w.now = NOW + Duration::from_millis(2);
            w.agent("db3").incarnation = Some("db3 once more".into());
        })
    });
    case("D2", "degraded", "AwaitAcknowledgements", "degraded: what others acknowledge says nothing", {
        anew().with(|w| {
            acknowledged(w, 1, 9);
            w.topology().durability.degraded = true;
            w.memory.degraded_over = Some(VERSION - 1);
        })
    });
    case("P11", "primary", "Members", "an agent of an earlier version has come back: counted as it always was", {
        primary().with(|w| w.agent("db3").incarnation = None)
    });
    case("P11", "primary", "Members", "a member whose life was not recorded: taken as it is", {
        primary().with(|w| drop(w.topology().durability.incarnations.remove("db3")))
    });
    case("P11", "primary", "Members", "our own commits are not synced: recorded", {
        primary().with(|w| w.facts().synced_commits = false)
    });

    let another = |sequence: i64| move |w: &mut World| w.vote(sequence).incarnation = "another life".into();
    case("R10", "no_quorum", "", "a vote from another life than the recorded one", voted().with(another(2)));
    case("R14", "mysql_down", "Claim", "the same, and a heartbeat later it had been recorded", {
        voted().with(another(2)).with(|w| {
            w.topology().durability.incarnations.insert("db3".into(), "another life".into());
        })
    });
    case("R14", "mysql_down", "Claim", "the same, and S was recorded by an earlier version", {
        voted().with(another(2)).with(|w| w.topology().durability.incarnations.clear())
    });
    case("R14", "mysql_down", "Claim", "the same, and the last writer votes", {
        voted().with(another(2)).with(|w| w.lease().name = "db2".into())
    });
    case(
        "R14",
        "mysql_down",
        "Claim",
        "the same, and the last epoch was never opened: all that counts is in its floor",
        {
            voted().with(another(2)).with(|w| {
                w.lease().opened = false;
                w.topology().durability.floor = gtids(9);
            })
        },
    );
    let unsynced = |w: &mut World| {
        w.lease().name = "db2".into();
        w.topology().durability.incarnations.insert("db2".into(), "the life in which it wrote".into());
    };
    case("R10", "no_quorum", "", "the last writer's commits were not synced, and it lives anew", {
        vacant().lock(1, "db2", 9).with(unsynced)
    });
    case("R13", "fetching", "Fetch", "a vote from another life has received more: fetched from all the same", {
        vacant().lock(1, "db2", 9).lock(2, "db3", 11).with(another(2)).with(|w| w.lease().name = "db2".into())
    });
    let fetches = || {
        vacant().lock(1, "db2", 9).lock(2, "db3", 11).with(|w| {
            w.step();
            w.vote(2).received = gtids(9);
            w.now = NOW + Duration::from_millis(100);
        })
    };
    case("R14", "fetching", "", "whose vote promised more is gone: the fetch may be under way still", fetches());
    case("R14", "mysql_down", "Claim", "it has come back, and what it brought has been read", {
        fetches().with(|w| {
            w.view.server.done = Some((MysqlKind::Fetch, w.now));
            w.view.server.facts.as_mut().unwrap().1 = w.now;
        })
    });
    case("R14", "mysql_down", "Claim", "nothing has come back for longer than it may take", {
        fetches().with(|w| w.now = NOW + Duration::from_secs(3))
    });
    case("R8", "racing", "Withdraw", "our own vote is from a life that has ended", {
        vacant().lock(1, "db2", 9).with(another(1))
    });
    case("R9", "another_leads", "", "mysqld alone was restarted: what it had been sent is kept", {
        vacant().lock(1, "db3", 9).lock(2, "db2", 9).with(|w| w.facts().incarnation = "db2/2".into())
    });
    case("R8", "racing", "Withdraw", "the same, and relay_log_recovery throws it away", {
        vacant().lock(1, "db3", 9).lock(2, "db2", 9).with(|w| {
            w.facts().incarnation = "db2/2".into();
            w.facts().relay_log_recovery = true;
        })
    });
}

/// db1 and db2 stand in room a, db3 in b.
fn in_rooms(world: World) -> World {
    world.with(|w| {
        w.view.own.zone = Some("a".into());
        for (name, room) in [("db1", "a"), ("db2", "a"), ("db3", "b")] {
            w.view.ensemble.agents.get_mut(name).unwrap().record.zone = Some(room.into());
        }
    })
}

/// S leaves out the primary's room (promise 8).
fn rooms(case: Add<'_>) {
    let long = |w: &mut World| w.memory.elsewhere = Some(NOW - T - Duration::from_millis(1));
    let db3_fails = |w: &mut World| {
        w.agent("db3").source.as_mut().unwrap().io_running = false;
    };
    case("P11", "primary", "", "enough acknowledge in another room, for less than T", in_rooms(primary()));
    case(
        "D3",
        "primary",
        "Members",
        "the same for longer: the member in our room is to leave",
        in_rooms(primary()).with(long),
    );
    case("P11", "primary", "", "the same, and the room of nobody else is known", {
        in_rooms(primary()).with(long).with(|w| {
            w.view.ensemble.agents.get_mut("db3").unwrap().record.zone = None;
        })
    });
    case("P11", "primary", "", "the same, and the member elsewhere does not acknowledge", {
        in_rooms(primary()).with(long).with(db3_fails)
    });
    case("P11", "primary", "", "two are to acknowledge, one is elsewhere", {
        in_rooms(primary()).with(long).with(|w| {
            w.topology().durability.sync_replicas = 2;
            w.view.own.sync_replicas = 2;
            w.facts().semi_sync.source.as_mut().unwrap().count = 2;
        })
    });
    let retiring = || in_rooms(primary()).with(|w| w.topology().durability.retiring = vec!["db2".into()]);
    case("P11", "primary", "", "retiring, and it follows as before: it stays so", retiring());
    case(
        "D3",
        "primary",
        "Members",
        "retiring, and too few elsewhere acknowledge: taken back",
        retiring().with(db3_fails),
    );
    let left_out = || {
        in_rooms(primary()).with(|w| {
            w.topology().durability.sync = vec!["db3".into()];
            w.topology().durability.incarnations.remove("db2");
        })
    };
    case("P11", "primary", "", "left out: it follows and does not join", left_out());
    case(
        "P11",
        "primary",
        "Members",
        "left out, and too few elsewhere acknowledge: it joins",
        left_out().with(db3_fails),
    );
    case("P11", "primary", "Members", "left out, and the file asks for more than are elsewhere: it joins", {
        left_out().with(|w| w.view.own.sync_replicas = 2)
    });
    case("P11", "primary", "Members", "left out, and an acknowledgement is missing for a period: it joins", {
        left_out().with(|w| {
            w.step();
            w.now = NOW + Duration::from_secs(2);
            w.view.server.unacknowledged = Some(NOW);
        })
    });
}

/// The durability that a decision records.
fn recorded(decision: &Decision) -> Durability {
    let found = write(decision).ops.iter().find_map(|op| match op {
        Op::Set(Path::Topology, Record::Topology(next), _) => Some(next.durability.clone()),
        _ => None,
    });
    found.expect("a record")
}

#[test]
fn interleaving_05_k_is_raised_with_a_floor_and_lowered_without() {
    let mut world = primary().with(|w| {
        w.view.own.sync_replicas = 2;
        settled(w, 2);
        w.view.server.heartbeat = Some(Heartbeat { executed: gtids(8), ..beat_at(NOW + Duration::from_millis(1)) });
    });
    let raised = recorded(&world.step());
    assert_eq!((raised.sync_replicas, raised.floor), (2, gtids(8)));
    let mut world = primary().with(|w| w.topology().durability.sync_replicas = 2);
    let lowered = recorded(&world.step());
    assert_eq!((lowered.sync_replicas, lowered.floor.is_empty()), (1, true));
}

#[test]
fn interleaving_05_async_is_recorded_with_an_empty_s_and_lossless_with_everybody_in_it() {
    let mut world = primary().with(|w| {
        w.view.own.durability = DurabilityMode::Async;
        w.topology().durability.degraded = true;
        w.memory.degraded_over = Some(VERSION - 1);
        settled(w, 0);
    });
    let next = recorded(&world.step());
    assert_eq!((next.mode, next.degraded, next.sync.len()), (DurabilityMode::Async, false, 0));
    let mut world = primary().with(|w| {
        w.topology().durability.mode = DurabilityMode::Async;
        w.topology().durability.sync.clear();
    });
    let next = recorded(&world.step());
    assert_eq!(
        (next.mode, next.degraded),
        (DurabilityMode::Lossless, true),
        "nobody is promoted before a commit waits"
    );
    assert_eq!(next.sync, ["db2", "db3"], "any of them may acknowledge");
}

#[test]
fn who_leaves_s_for_its_room_is_asked_first_and_who_joins_is_recorded_first() {
    let mut leaves = in_rooms(primary()).with(|w| w.memory.elsewhere = Some(NOW - T * 2));
    let next = recorded(&leaves.step());
    assert_eq!((next.sync, next.retiring), (vec!["db2".to_owned(), "db3".to_owned()], vec!["db2".to_owned()]));
    let mut joins = in_rooms(primary()).with(|w| {
        w.topology().durability.sync = vec!["db3".into()];
        w.agent("db3").acknowledging = false;
    });
    assert_eq!(recorded(&joins.step()).sync, ["db3", "db2"]);
}

#[test]
fn what_is_asked_for_and_not_in_force_is_said() {
    let detail = |change: fn(&mut World)| primary().with(change).step().outcome.detail;
    let more = detail(|w| w.view.own.sync_replicas = 3);
    assert!(more.contains("failover.sync_replicas is 3") && more.contains("1 in force"), "{more}");
    let less = detail(|w| {
        w.view.own.durability = DurabilityMode::Async;
        w.proposes("db2", DurabilityMode::Lossless);
    });
    assert!(less.contains("files of db2 ask for it still"), "{less}");
}

#[test]
fn interleaving_07_a_new_life_is_recorded_beside_the_record_that_shows_it() {
    let decision = anew().with(|w| acknowledged(w, 1, 9)).step();
    assert_eq!(recorded(&decision).incarnations["db3"], "db3 anew");
    let checked = write(&decision).ops.iter().any(|op| matches!(op, Op::Check(Path::Agent(name), _) if name == "db3"));
    assert!(checked, "restarted once more, it would be counted on for a life that has ended: {decision:?}");
}

#[test]
fn interleaving_07_who_waits_for_votes_says_whose_do_not_count_and_what_helps() {
    let detail = voted().with(|w| w.vote(2).incarnation = "another life".into()).step().outcome.detail;
    for part in ["1 of 2", "not counted: db3", "bring the last primary, db1, back", "--allow-data-loss"] {
        assert!(detail.contains(part), "{detail}");
    }
}

#[test]
fn interleaving_07_a_member_that_leaves_s_takes_its_life_along_and_a_winner_needs_none() {
    let mut leaves = primary().with(|w| {
        w.topology().durability.retiring = vec!["db3".into()];
        w.agent("db3").source.as_mut().unwrap().sql_running = false;
        w.agent("db3").acknowledges = Some(false);
        w.step();
        acknowledged(w, 1, 9);
    });
    assert!(!recorded(&leaves.step()).incarnations.contains_key("db3"));
    // Its next life's vote is that of the last writer; what it was counted on for as a replica is in the floor.
    assert!(!recorded(&voted().step()).incarnations.contains_key("db2"));
}
