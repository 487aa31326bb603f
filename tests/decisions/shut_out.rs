//! A member whose agent is gone: by which accounts it connects, shutting it out, letting it in again.

use std::collections::BTreeSet;
use std::time::Duration;

use mysql_ha_agent::core::action::{MysqlAction, MysqlKind, Op, Path, Record};
use mysql_ha_agent::core::memory::ShuttingOut;
use mysql_ha_agent::core::outcome::Decision;
use mysql_ha_agent::core::records::{DurabilityMode, MemberState, Pause, Topology};
use mysql_ha_agent::core::time::Wall;
use mysql_ha_agent::core::view::{AccountChange, Failure, Node};

use super::scenarios::Add;
use super::world::{NOW, T, VERSION, World, account, beat_at, gtids, primary, replica, seen, uuid, voted, write};

/// All of them.
pub(crate) fn scenarios(case: Add<'_>) {
    learning(case);
    shutting_out(case);
    letting_in(case);
    used_as_recorded(case);
}

fn one(name: &str) -> BTreeSet<String> {
    [name.to_owned()].into()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn learning(case: Add<'_>) {
    case("D9", "primary", "Members", "by which account a member replicates is not recorded", {
        primary().with(|w| drop(w.topology().durability.accounts.remove("db3")))
    });
    case("D9", "primary", "Members", "its channel uses another account than its file names", {
        primary().with(|w| w.agent("db3").source.as_mut().unwrap().user = Some("repl".into()))
    });
    case("D9", "primary", "Members", "its agent is of an earlier version now: it obeys no entry", {
        primary().with(|w| w.view.ensemble.agents.get_mut("db3").unwrap().record.replication_user = None)
    });
    case("P11", "primary", "Members", "its agent has just started and not seen its server: the entry stays", {
        primary().with(|w| w.view.ensemble.agents.get_mut("db3").unwrap().record.server = None)
    });
    case("P11", "primary", "", "somebody who is not in S does not tell", {
        primary().with(|w| {
            w.topology().durability.forget("db3");
            w.topology().members.get_mut("db3").unwrap().state = MemberState::Na;
            w.agent("db3").source.as_mut().unwrap().sql_running = false;
            w.topology().durability.accounts.remove("db3");
        })
    });
}

/// db3 is retiring, and its agent has been gone for so long.
fn gone(since: Duration) -> World {
    primary().with(|w| {
        w.view.ensemble.agents.remove("db3");
        w.facts().replicas.retain(|connected| *connected != uuid("db3"));
        let topology = w.topology();
        topology.members.get_mut("db3").unwrap().state = MemberState::Na;
        topology.durability.retiring = vec!["db3".into()];
        w.memory.absent = [("db3".into(), NOW - since)].into();
    })
}

fn long_gone() -> World {
    gone(T + ms(1))
}

/// That this primary locks is recorded.
fn recorded() -> World {
    long_gone().with(|w| w.topology().durability.shut_out = [("db3".into(), one("db1"))].into())
}

fn shut_out(users: BTreeSet<String>) -> MysqlAction {
    MysqlAction::ShutOut { member: "db3".into(), users }
}

/// Asked for two seconds ago, begun and ended so many milliseconds ago.
fn changed(w: &mut World, action: MysqlAction, begun: u64, ended: u64) {
    w.memory.shutting_out = Some(ShuttingOut { member: "db3".into(), epoch: 7, asked: NOW - ms(2_000) });
    w.view.server.accounts = Some(AccountChange { action, begun: NOW - ms(begun), ended: NOW - ms(ended) });
}

/// Shut out in this term, and a heartbeat was sent so many milliseconds ago.
fn done(beat: u64) -> World {
    recorded().with(|w| {
        changed(w, shut_out(one(&account("db3"))), 1_000, 500);
        w.view.server.heartbeat = Some(beat_at(NOW - ms(beat)));
    })
}

fn failed(w: &mut World, age: Duration) {
    w.view.server.failure =
        Some(Failure { kind: MysqlKind::ShutOut, why: "denied".into(), at: NOW - age, touched: true });
}

fn shutting_out(case: Add<'_>) {
    case("D10", "primary", "Members", "its agent is gone: recorded first", long_gone());
    case("P11", "primary", "", "its agent has been gone for T", gone(T));
    case("P11", "primary", "", "its account is ours too", {
        long_gone().with(|w| {
            w.view.ensemble.agents.get_mut("db1").unwrap().record.replication_user = Some(account("db3"));
        })
    });
    case("P11", "primary", "", "its account is that of a server outside S too", {
        long_gone().with(|w| {
            let mut other = w.view.ensemble.agents["db2"].clone();
            other.record.name = "db4".into();
            other.record.replication_user = Some(account("db3"));
            other.record.server = None;
            w.view.ensemble.agents.insert("db4".into(), other);
        })
    });
    case("P11", "primary", "", "its account was never recorded", {
        long_gone().with(|w| drop(w.topology().durability.accounts.remove("db3")))
    });
    case("P11", "primary", "", "nobody else would be left", long_gone().with(|w| w.agent("db2").acknowledging = false));
    case("D2", "degraded", "AwaitAcknowledgements", "degraded", {
        long_gone().with(|w| w.topology().durability.degraded = true)
    });
    let pause = || Pause { operation: "op".into(), at: Wall::default(), for_ms: None, reason: String::new() };
    case("P11", "primary", "", "a pause: agents may be away on purpose", {
        long_gone().with(|w| w.view.ensemble.pause = Node::Here(seen(pause(), 0, Duration::ZERO)))
    });
    case("P11", "primary", "", "not retiring yet", long_gone().with(|w| w.topology().durability.retiring.clear()));

    case("D10", "shut_out", "ShutOut", "recorded: locked", recorded());
    case("D10", "primary", "Members", "another primary has recorded itself: we too", {
        recorded().with(|w| w.topology().durability.shut_out = [("db3".into(), one("db2"))].into())
    });
    case("P11", "primary", "", "it has failed just now", recorded().with(|w| failed(w, ms(5_001))));
    case("D10", "shut_out", "ShutOut", "it has failed a minute ago", recorded().with(|w| failed(w, ms(60_001))));
    case("D10", "shut_out", "ShutOut", "done before it was recorded: done again", {
        recorded().with(|w| changed(w, shut_out(one(&account("db3"))), 2_001, 500))
    });
    case("D10", "shut_out", "ShutOut", "done in an earlier epoch", {
        done(400).with(|w| w.memory.shutting_out.as_mut().unwrap().epoch = 6)
    });
    case("D10", "shut_out", "ShutOut", "another account was locked", {
        recorded().with(|w| changed(w, shut_out(one("repl")), 1_000, 500))
    });
    case("D10", "shut_out", "ShutOut", "let in since", {
        done(400).with(|w| changed(w, MysqlAction::LetIn { member: "db3".into() }, 300, 200))
    });
    case("D10", "primary", "Members Incident", "done, and a heartbeat sent since is acknowledged: out of S", done(499));
    case("P11", "primary", "", "done, and the heartbeat was sent before", done(500));
    case("P11", "primary", "", "done, and it is connected all the same", {
        done(499).with(|w| w.facts().replicas.push(uuid("db3")))
    });
    case("P11", "primary", "", "done, and the server was not read since", {
        done(499).with(|w| w.view.server.facts.as_mut().unwrap().1 = NOW - ms(500))
    });
    case("D1", "primary", "AwaitAcknowledgements", "done, and commits do not wait any more", {
        done(499).with(|w| w.facts().semi_sync.source.as_mut().unwrap().on = false)
    });
}

/// db1 has locked the account of db3, whose agent is here.
fn back() -> World {
    primary().with(|w| w.topology().durability.shut_out = [("db3".into(), one("db1"))].into())
}

/// The same, and it is not in S.
fn back_outside(acknowledges: bool) -> World {
    back().with(|w| {
        w.topology().durability.sync.retain(|name| name != "db3");
        w.agent("db3").acknowledges = Some(acknowledges);
        w.agent("db3").acknowledging = acknowledges;
    })
}

fn letting_in(case: Add<'_>) {
    case("D11", "primary", "LetIn", "it is back, and counts in S", back());
    case("D11", "primary", "LetIn", "it is back, and acknowledges nothing", back_outside(false));
    case("P11", "primary", "Members", "it is back, and may acknowledge: recorded first", back_outside(true));
    case("D3", "primary", "Members", "it is back, retiring, and follows: taken back first", {
        back().with(|w| w.topology().durability.retiring = vec!["db3".into()])
    });
    case("P11", "primary", "", "it is back, retiring, and may acknowledge", {
        back().with(|w| {
            w.topology().durability.retiring = vec!["db3".into()];
            w.topology().members.get_mut("db3").unwrap().state = MemberState::Na;
            w.agent("db3").source.as_mut().unwrap().sql_running = false;
        })
    });
    case("P11", "primary", "", "its agent is gone", {
        back().with(|w| {
            w.view.ensemble.agents.remove("db3");
            w.topology().members.get_mut("db3").unwrap().state = MemberState::Na;
            w.topology().durability.sync.retain(|name| name != "db3");
        })
    });
    case("P11", "primary", "", "another primary has locked it, not we", {
        back().with(|w| w.topology().durability.shut_out = [("db3".into(), one("db2"))].into())
    });
    case("D11", "primary", "LetIn", "it has left the cluster", {
        back().with(|w| {
            w.view.ensemble.agents.remove("db3");
            w.topology().members.remove("db3");
            w.topology().durability.forget("db3");
        })
    });
    case("D11", "primary", "LetIn", "async: nobody is waited for", {
        back_outside(true).with(|w| {
            w.topology().durability.mode = DurabilityMode::Async;
            w.view.own.durability = DurabilityMode::Async;
            w.topology().durability.sync.clear();
        })
    });
    case("P11", "primary", "", "it has failed just now", back().with(|w| failed(w, ms(5_001))));
    case("D11", "primary", "Members", "unlocked: recorded", {
        back().with(|w| changed(w, MysqlAction::LetIn { member: "db3".into() }, 300, 200))
    });
    case("D11", "primary", "LetIn", "another member was unlocked", {
        back().with(|w| changed(w, MysqlAction::LetIn { member: "db2".into() }, 300, 200))
    });
}

fn used_as_recorded(case: Add<'_>) {
    let entry = |w: &mut World, user: &str| drop(w.topology().durability.accounts.insert("db2".into(), one(user)));
    case("F9", "following", "Acknowledge", "the recorded account is another than the file's: switches off", {
        replica().with(|w| entry(w, "repl"))
    });
    case("F9", "following", "Acknowledge", "the recorded account is another than the channel's: switches off", {
        replica().with(|w| w.channel().user = "repl".into())
    });
    case("F7", "following", "", "no account is recorded: as in earlier versions", {
        replica().with(|w| w.topology().durability.accounts.clear())
    });
    let both = || {
        replica().with(|w| {
            w.channel().user = "repl".into();
            w.topology().durability.accounts.get_mut("db2").unwrap().insert("repl".into());
        })
    };
    case("F7", "following", "Follow", "the file names another account, and both are recorded", both());
    case("F7", "following", "", "the same, and it was not let in by it", {
        both().with(|w| {
            w.view.server.failure =
                Some(Failure { kind: MysqlKind::Follow, why: "denied".into(), at: NOW - ms(60_000), touched: true });
        })
    });
}

/// The `topology` that a decision records, and all that is checked with it.
fn next(decision: &Decision) -> (Topology, Vec<Op>) {
    let ops = write(decision).ops.clone();
    let (set, checks): (Vec<Op>, Vec<Op>) = ops.into_iter().partition(|op| matches!(op, Op::Set(Path::Topology, ..)));
    match set.into_iter().next() {
        Some(Op::Set(_, Record::Topology(next), VERSION)) => (*next, checks),
        other => panic!("no topology is recorded: {other:?}"),
    }
}

#[test]
fn interleaving_18_an_account_is_recorded_only_beside_the_record_it_was_read_from() {
    let told = primary().with(|w| {
        w.topology().durability.accounts.remove("db3");
        w.agent("db3").source.as_mut().unwrap().user = Some("repl".into());
    });
    let (topology, checks) = next(&told.clone().step());
    let both: BTreeSet<String> = ["repl".to_owned(), account("db3")].into();
    assert_eq!(topology.durability.accounts["db3"], both, "that of its file and that of its channel");
    assert_eq!(checks, [Op::Check(Path::Agent("db3".into()), VERSION)]);
}

#[test]
fn interleaving_06_who_was_shut_out_leaves_s_with_a_floor_and_stays_known() {
    let (topology, _) = next(&done(499).step());
    let durability = topology.durability;
    assert_eq!((durability.sync, durability.retiring), (vec!["db2".to_owned()], vec![]));
    assert_eq!(durability.floor, gtids(9), "what was executed before the heartbeat");
    assert_eq!(durability.shut_out["db3"], one("db1"), "who is to unlock it");
    assert_eq!(durability.accounts["db3"], one(&account("db3")), "the next primary has to lock it too");
}

/// It is locked on the server of the last primary alone.
#[test]
fn interleaving_06_who_was_shut_out_by_the_last_primary_counts_for_the_next() {
    let claim = |change: fn(&mut World)| {
        let mut world = voted().with(|w| {
            w.topology().durability.sync = vec!["db2".into()];
            w.topology().durability.shut_out = [("db3".into(), one("db1"))].into();
        });
        world = world.with(change);
        let decision = world.step();
        assert_eq!(decision.row, "R14", "{}", decision.outcome.detail);
        next(&decision).0.durability.sync
    };
    let gone = claim(|w| drop((w.view.ensemble.agents.remove("db3"), w.view.ensemble.locks.remove(&2))));
    assert_eq!(gone, ["db2", "db3"]);
    assert_eq!(claim(|w| w.agent("db3").acknowledges = Some(true)), ["db2", "db3"]);
    assert_eq!(claim(|w| w.agent("db3").acknowledges = Some(false)), ["db2"], "its agent says that it does not");
}

#[test]
fn whoever_looks_is_told_who_is_shut_out_and_who_cannot_be() {
    let detail = |mut world: World| world.step().outcome.detail;
    let shared = detail(long_gone().with(|w| {
        w.view.ensemble.agents.get_mut("db1").unwrap().record.replication_user = Some(account("db3"));
    }));
    assert!(shared.contains("'repl_db3' is also that of db1"), "{shared}");
    let out = detail(recorded().with(|w| w.topology().durability.sync = vec!["db2".into()]));
    assert!(out.contains("db3 was shut out") && out.contains("locked on db1"), "{out}");
    let denied = detail(recorded().with(|w| failed(w, ms(1))));
    assert!(denied.contains("denied"), "{denied}");
}
