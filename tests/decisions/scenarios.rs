//! One line of what is special about a world, and what is to be decided in it.

use std::time::Duration;

use mysql_ha_agent::core::action::MysqlKind;
use mysql_ha_agent::core::memory::FailedClose;
use mysql_ha_agent::core::reason::Reason;
use mysql_ha_agent::core::records::{MemberState, Progress};
use mysql_ha_agent::core::time::Moment;
use mysql_ha_agent::core::view::{Failure, Health, Held, IoThread, Node, Process, Session};

use super::world::{
    NOW, T, VERSION, World, asked, gtids, handed_over, master, primary, promoted, replica, request, seen, switch,
    unadopted, uuid, vacant, voted,
};

/// A world and its decision.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) row: &'static str,
    pub(crate) reason: &'static str,
    /// As [`super::world::names`] gives them, separated by spaces.
    pub(crate) actions: &'static str,
    pub(crate) world: World,
}

fn failed() -> Health {
    Health::Failed { since: NOW - Duration::from_secs(1), why: "no answer".into() }
}

fn exited(world: &mut World) {
    world.view.server.process = Process::Exited { at: NOW };
    world.view.server.health = failed();
}

/// All scenarios, in the order of the table.
pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut case = |row, reason, actions, name, world: World| all.push(Scenario { name, row, reason, actions, world });
    before_roles(&mut case);
    adoption(&mut case);
    holder(&mut case);
    planned_switch(&mut case);
    race(&mut case);
    followers(&mut case);
    super::durability::scenarios(&mut case);
    super::shut_out::scenarios(&mut case);
    super::operator::scenarios(&mut case);
    super::failsafe::scenarios(&mut case);
    super::fences::scenarios(&mut case);
    all
}

pub(crate) type Add<'a> = &'a mut dyn FnMut(&'static str, &'static str, &'static str, &'static str, World);

fn before_roles(case: Add<'_>) {
    case(
        "S1",
        "unsupported",
        "Refuse",
        "MariaDB that is no member",
        unadopted("db2").with(|w| {
            w.view.server.unsupported = Some("MariaDB".into());
        }),
    );
    case(
        "S2",
        "duplicate_uuid",
        "Refuse",
        "a copy of a member's data",
        replica().with(|w| {
            w.facts().server_uuid = uuid("db3");
        }),
    );
    case(
        "S3",
        "not_member",
        "Refuse",
        "a writable stranger",
        replica().with(|w| {
            w.topology().members.remove("db2");
            w.view.own.managed = false;
            w.facts().super_read_only = false;
        }),
    );
    case(
        "S4",
        "writable_without_lease",
        "Fence",
        "a replica that takes writes",
        replica().with(|w| {
            w.facts().super_read_only = false;
        }),
    );
    case(
        "S4",
        "lease_lost",
        "Fence",
        "a primary at the end of its lease",
        primary().with(|w| {
            w.held().until = NOW + Duration::from_millis(900);
        }),
    );
    case(
        "S4",
        "lease_lost",
        "Fence",
        "a primary whose epoch has ended",
        primary().with(|w| {
            w.topology().epoch = 8;
        }),
    );
    case(
        "S4",
        "writable_without_lease",
        "Fence",
        "managed, writable, and no ZooKeeper since the start",
        replica().with(|w| {
            w.view.ensemble = Default::default();
            w.facts().super_read_only = false;
        }),
    );
    case(
        "S5",
        "no_zookeeper",
        "",
        "a primary without ZooKeeper, its lease still holds",
        primary().with(|w| {
            w.view.ensemble.session = Session::Lost { since: NOW };
        }),
    );
    case(
        "S5",
        "starting",
        "",
        "a session in which the name is not taken yet",
        replica().with(|w| {
            w.view.ensemble.agents.get_mut("db2").unwrap().owner = 77;
        }),
    );
    case(
        "S6",
        "unreadable_record",
        "",
        "topology is no JSON",
        primary().with(|w| {
            w.view.ensemble.topology = Node::Unreadable { why: "no JSON".into(), version: 4 };
        }),
    );
    case(
        "S7",
        "stray_master",
        "DropStrayMaster",
        "a claim that landed late",
        replica().with(|w| {
            w.view.ensemble.master = Node::Here(seen(master("db2", 7), 2, Duration::ZERO));
        }),
    );
}

fn adoption(case: Add<'_>) {
    case("A1", "starting", "", "own server not seen yet", unadopted("db2").with(|w| w.view.server.facts = None));
    case(
        "A2",
        "two_writable_servers",
        "Refuse",
        "two writable servers, ours is one",
        unadopted("db1").with(|w| {
            w.agent("db2").writable = true;
        }),
    );
    case(
        "A2",
        "two_writable_servers",
        "",
        "two other writable servers",
        unadopted("db2").with(|w| {
            w.agent("db3").writable = true;
        }),
    );
    case("A3", "adopted", "Adopt", "the writable server that the others follow", unadopted("db1"));
    case(
        "A3",
        "nothing_follows",
        "",
        "nothing follows it",
        unadopted("db1").with(|w| {
            w.view.ensemble.agents.retain(|name, _| name == "db1");
        }),
    );
    case(
        "A3",
        "two_writable_servers",
        "",
        "writable and a replica at once",
        unadopted("db2").with(|w| {
            w.facts().super_read_only = false;
            w.agent("db1").writable = false;
        }),
    );
    case(
        "A3",
        "waiting_for_adoption",
        "",
        "a connected replica's agent is not there yet",
        unadopted("db1").with(|w| {
            w.view.ensemble.agents.remove("db3");
            w.view.ensemble.session = Session::Connected { since: NOW, granted: T, id: 1 };
        }),
    );
    case("A4", "waiting_for_adoption", "", "a replica waits for the primary's agent", unadopted("db2"));
    case(
        "A4",
        "no_writable_server",
        "",
        "no server is writable",
        unadopted("db2").with(|w| {
            w.agent("db1").writable = false;
        }),
    );
}

fn holder(case: Add<'_>) {
    case(
        "P1",
        "agent_restarted",
        "TakeOver",
        "the nodes of our last process",
        primary().with(|w| {
            w.view.ensemble.master = Node::Here(seen(master("db1", 7), 99, T));
        }),
    );
    case("P2", "mysql_down", "Release", "mysqld of the primary has exited", primary().with(exited));
    case("P2", "mysql_silent", "Release", "it did not answer, and the fence has killed it", {
        primary().with(exited).with(|w| w.view.server.fence_begins_for(Reason::MysqlSilent, NOW))
    });
    case("P2", "fenced_by_hand", "Release", "fenced by hand, and killed by that", {
        primary().with(exited).with(|w| w.view.server.fenced_by_hand = true)
    });
    case(
        "P3",
        "mysql_silent",
        "Fence",
        "mysqld of the primary is silent",
        primary().with(|w| {
            w.view.server.health = failed();
            w.view.server.facts.as_mut().unwrap().1 = NOW - Duration::from_secs(5);
        }),
    );
    case(
        "P3",
        "mysql_silent",
        "Release",
        "silent and fenced",
        primary().with(|w| {
            w.view.server.health = failed();
            w.facts().super_read_only = true;
            w.view.server.fenced = Some(Reason::MysqlSilent);
        }),
    );
    case(
        "P3",
        "mysql_silent",
        "Fence",
        "silent, reads read-only while the fence still waits for commits in flight",
        primary().with(|w| {
            w.view.server.health = failed();
            w.facts().super_read_only = true;
        }),
    );
    case(
        "P3",
        "mysql_silent",
        "",
        "silent, and nobody could take over",
        primary().with(|w| {
            w.view.server.health = failed();
            w.agent("db2").healthy = false;
            w.agent("db3").healthy = false;
        }),
    );
    case("P4", "waiting_old_lease", "FenceRemote", "claimed, the old lease may be in use", {
        promoted().after_claim(Duration::from_secs(5))
    });
    case(
        "P4",
        "waiting_old_lease",
        "FenceRemote",
        "claimed by a process that died: a full T",
        promoted().with(|w| {
            w.memory.race = None;
        }),
    );
    case("P4", "waiting_old_lease", "FenceRemote", "the old lease is over, and nobody says its server is read-only", {
        promoted().with(|w| {
            w.topology().reason = Reason::AgentLost;
            w.held().opened = true;
        })
    });
    let fencing = || {
        let mut world = promoted().with(|w| {
            w.topology().reason = Reason::AgentLost;
            w.held().opened = true;
        });
        world.step();
        world
    };
    let dropped = "asked for, and no answer yet: a busy lane may have dropped it";
    case("P4", "waiting_old_lease", "FenceRemote", dropped, fencing());
    case(
        "P7",
        "opening",
        "Open",
        "fenced over the network",
        fencing().with(|w| w.view.server.done = Some((MysqlKind::FenceRemote, NOW))),
    );
    case(
        "P7",
        "opening",
        "Open",
        "tried to: not longer than that",
        fencing().with(|w| w.now = NOW + Duration::from_millis(400)),
    );
    let by_hand = |w: &mut World| {
        w.topology().primary = None;
        w.topology().reason = Reason::ReadOnlyByHand;
    };
    case("P5", "opening", "Publish", "the operator cleared read-only", primary().with(by_hand));
    case(
        "P6",
        "read_only_by_hand",
        "Members",
        "read-only by hand",
        primary().with(|w| w.facts().super_read_only = true),
    );
    case(
        "P6",
        "read_only_by_hand",
        "",
        "read-only by hand, no longer named",
        primary().with(by_hand).with(|w| {
            w.facts().super_read_only = true;
        }),
    );
    case(
        "P6",
        "opening",
        "Open",
        "read-only by a fence of ours",
        primary().with(|w| {
            w.facts().super_read_only = true;
            w.view.server.fenced = Some(Reason::LeaseLost);
        }),
    );
    case(
        "P6",
        "opening",
        "Open",
        "mysqld came back within its grace",
        primary().with(|w| {
            w.facts().super_read_only = true;
            w.facts().incarnation = "db1/2".into();
        }),
    );
    case("P7", "opening", "", "opened is not recorded yet", promoted());
    case("P7", "opening", "Open", "opened is recorded", promoted().with(|w| w.held().opened = true));
    case(
        "P8",
        "opening",
        "Publish",
        "writable and not named",
        promoted().with(|w| {
            w.held().opened = true;
            w.facts().super_read_only = false;
        }),
    );
    case("P9", "primary", "History", "named, history not written", {
        let mut w = promoted();
        w.step();
        w.topology().primary = Some("db1".into());
        w.held().opened = true;
        w.facts().super_read_only = false;
        w
    });
    case("P10", "primary", "Withdraw", "its lock of the race is left", primary().lock(1, "db1", 9));
    let unfenced = || primary().with(|w| w.memory.unfenced = Some("db3".into()));
    case("P11", "old_primary_unfenced", "FenceRemote", "nobody has seen the old primary read-only", {
        unfenced().with(|w| {
            w.view.ensemble.agents.remove("db3");
            w.topology().members.get_mut("db3").unwrap().state = MemberState::Na;
        })
    });
    case("P11", "old_primary_unfenced", "", "the same, tried a moment ago", {
        unfenced().with(|w| {
            w.view.ensemble.agents.remove("db3");
            w.topology().members.get_mut("db3").unwrap().state = MemberState::Na;
            w.view.server.failure = Some(Failure {
                kind: MysqlKind::FenceRemote,
                why: "no answer".into(),
                at: NOW - Duration::from_secs(1),
                touched: true,
            });
        })
    });
    case("P11", "primary", "", "the old primary's agent is back and says it is read-only", unfenced());
    case("P11", "primary", "", "steady", primary());
    case(
        "P11",
        "primary",
        "Members",
        "a replica's agent has gone",
        primary().with(|w| {
            w.view.ensemble.agents.remove("db3");
        }),
    );
    case(
        "P11",
        "primary",
        "PersistReadOnly",
        "read-only is not persisted",
        primary().with(|w| {
            w.facts().persisted_read_only = false;
        }),
    );
    case(
        "P11",
        "primary",
        "CreateHeartbeatTable",
        "no heartbeat table",
        primary().with(|w| {
            w.facts().heartbeat_table = false;
        }),
    );
    let with_channel = |source: &'static str| {
        primary().with(move |w| {
            let mut channel = replica().facts().channel.clone();
            if let Some(channel) = &mut channel {
                channel.io = IoThread::No;
                channel.source = source.into();
            }
            w.facts().channel = channel;
        })
    };
    let member = primary().topology().members["db2"].address.clone();
    case("P11", "primary", "ForgetSource", "the channel of the replica it was is left", with_channel(member.leak()));
    case("P11", "primary", "", "an operator's channel to a server elsewhere", with_channel("elsewhere:3306"));
    case(
        "P11",
        "blocked",
        "",
        "a commit waits for its acknowledgement",
        primary().with(|w| {
            w.view.server.health = Health::Blocked { by: "no acknowledgement".into() };
        }),
    );
    case(
        "P11",
        "unhealthy",
        "",
        "a refused password",
        primary().with(|w| {
            w.view.server.health = Health::Unreachable { why: "access denied".into() };
        }),
    );
}

fn planned_switch(case: Add<'_>) {
    case(
        "W1",
        "switchover_refused",
        "Progress",
        "for an epoch that has ended",
        asked().with(|w| {
            w.view.ensemble.switchover = Node::Here(seen(
                {
                    let mut other = request(Progress::Requested);
                    other.epoch = 6;
                    other
                },
                0,
                Duration::ZERO,
            ));
        }),
    );
    case(
        "W1",
        "switchover_refused",
        "Progress",
        "to a server that does not answer",
        asked().with(|w| {
            w.agent("db2").healthy = false;
        }),
    );
    case("W1", "switchover", "", "to a server that is behind", asked().with(|w| w.agent("db2").lag_ms = Some(60_000)));
    case(
        "W1",
        "switchover_refused",
        "Progress",
        "behind at the deadline",
        asked().with(|w| {
            w.agent("db2").lag_ms = None;
            w.memory.switch = Some(switch(None));
            w.memory.switch.as_mut().unwrap().deadline = NOW;
        }),
    );
    case("W1", "switchover", "", "what is known of the target is from before the request", asked());
    let read_since = |w: &mut World| {
        w.memory.switch = Some(switch(None));
        w.view.ensemble.agents.get_mut("db2").unwrap().first_seen = NOW;
    };
    case("W2", "switchover", "Close", "the target has caught up", asked().with(read_since));
    let failed = |touched| {
        asked().with(read_since).with(|w| {
            w.memory.switch = Some(switch(Some(NOW - Duration::from_secs(1))));
            let why = "a long statement".into();
            w.view.server.failure = Some(Failure { kind: MysqlKind::Close, why, at: NOW, touched });
        })
    };
    case("W2", "switchover", "", "read-only did not come: writes go on for a while", failed(true));
    case("W2", "switchover", "", "somebody is in the way: nothing is tried for a moment", failed(false));
    let failed_before = |tries, again| FailedClose { why: "a long statement".into(), tries, again };
    case("W2", "switchover", "", "not yet again", {
        asked().with(read_since).with(|w| {
            w.memory.switch.as_mut().unwrap().failed = Some(failed_before(1, NOW + Duration::from_millis(1)));
        })
    });
    case("W2", "switchover", "Close", "tried again", {
        asked().with(read_since).with(|w| w.memory.switch.as_mut().unwrap().failed = Some(failed_before(1, NOW)))
    });
    for (tries, reason, name) in [
        (1, "switchover_undone", "tried until its time was over: undone"),
        (0, "switchover_refused", "somebody was in the way until its time was over: refused"),
    ] {
        case("W1", reason, "Progress", name, {
            asked().with(read_since).with(|w| {
                let switch = w.memory.switch.as_mut().unwrap();
                (switch.deadline, switch.failed) = (NOW, Some(failed_before(tries, NOW)));
            })
        });
    }
    case("W1", "switchover_undone", "Progress", "the target fails after a try", {
        asked().with(read_since).with(|w| {
            w.memory.switch.as_mut().unwrap().failed = Some(failed_before(1, NOW));
            w.agent("db2").healthy = false;
        })
    });
    let blocked = |w: &mut World| {
        w.view.server.health = Health::Blocked { by: "a read lock".into() };
        w.agent("db2").lag_ms = Some(60_000);
    };
    case("W1", "switchover", "", "our own writes do not finish: waits, and says so", {
        asked().with(read_since).with(blocked)
    });
    case("W1", "switchover_refused", "Progress", "they did not until its time was over", {
        asked().with(read_since).with(blocked).with(|w| w.memory.switch.as_mut().unwrap().deadline = NOW)
    });
    let closed = |w: &mut World| {
        w.memory.switch = Some(switch(Some(NOW - Duration::from_secs(1))));
        w.facts().super_read_only = true;
        w.view.server.fenced = Some(Reason::Switchover);
    };
    case("W3", "switchover", "Release", "read-only", asked().with(closed));
    case(
        "W2",
        "switchover",
        "Close",
        "reads read-only while the statement still waits for commits in flight",
        asked().with(closed).with(|w| w.view.server.fenced = None),
    );
    case(
        "W3",
        "switchover_undone",
        "Progress",
        "read-only past the deadline",
        asked().with(closed).with(|w| {
            w.memory.switch.as_mut().unwrap().deadline = NOW;
        }),
    );
}

fn race(case: Add<'_>) {
    case(
        "R1",
        "settling",
        "",
        "ZooKeeper has just come back",
        vacant().with(|w| {
            w.view.ensemble.session = Session::Connected { since: NOW, granted: T, id: 2 };
            w.lease().released = false;
        }),
    );
    // Its lease ended 2 s ago, 12 s after its last renewal was seen; what the last primary wrote stopped coming then.
    let back = |last_growth: Duration| {
        vacant().with(|w| {
            w.view.server.facts.as_mut().unwrap().1 = NOW - last_growth - Duration::from_secs(1);
            w.facts().executed = gtids(8);
            w.channel().retrieved = gtids(8);
            w.step();
            w.view.server.facts.as_mut().unwrap().1 = NOW - last_growth;
            w.facts().executed = gtids(9);
            w.channel().retrieved = gtids(9);
            w.step();
            w.memory.race = None;
            w.view.server.facts.as_mut().unwrap().1 = NOW;
            w.view.ensemble.session = Session::Connected { since: NOW, granted: T, id: 2 };
            w.view.ensemble.master = Node::Here(seen(master("db1", 7), 1, T));
            w.topology().primary = Some("db1".into());
            let Node::Here(lease) = &mut w.view.ensemble.lease else { panic!("no lease") };
            lease.record.released = false;
            lease.first_seen = NOW - Duration::from_secs(12);
        })
    };
    case(
        "R2",
        "agent_lost",
        "Members",
        "just back, and the primary had fallen silent early in its lease",
        back(Duration::from_secs(11)),
    );
    case(
        "F7",
        "following",
        "",
        "just back, and the primary wrote until its lease ended: it may be back with us",
        back(Duration::from_secs(3)).with(|w| w.channel().io = IoThread::Yes),
    );
    case(
        "R2",
        "agent_lost",
        "Members",
        "the primary's node has gone",
        vacant().with(|w| {
            w.topology().primary = Some("db1".into());
            w.lease().released = false;
        }),
    );
    case("R3", "held_back", "", "a planned switch names another", handed_over("db3"));
    let third = || {
        handed_over("db3").with(|w| {
            w.channel().io = IoThread::Yes;
        })
    };
    case("R3", "held_back", "FollowTarget", "a planned switch names another, and we replicate still", third());
    case(
        "R3",
        "held_back",
        "",
        "we hold more than the final set: compared with the new primary first",
        third().with(|w| {
            w.facts().executed = gtids(10);
        }),
    );
    case("R3", "held_back", "", "we have voted", third().lock(1, "db2", 9));
    let giver = || {
        vacant().with(|w| {
            w.topology().handover = handed_over("db3").topology().handover.clone();
            w.memory.switch = Some(switch(Some(NOW - Duration::from_secs(1))));
            w.view.ensemble.switchover = Node::Here(seen(request(Progress::Released), 0, T));
            w.facts().channel = None;
        })
    };
    case("R3", "held_back", "", "our own switch: another server can acknowledge", {
        giver().with(|w| {
            w.topology().members.get_mut("db1").unwrap().state = MemberState::Read;
        })
    });
    case("R3", "held_back", "FollowTarget", "our own switch: the acknowledgement has to be ours", giver());
    case("R4", "mysql_down", "Claim", "a planned switch names us, all is applied", handed_over("db2"));
    case(
        "R4",
        "mysql_down",
        "Claim StopIo",
        "named, and the IO thread runs still",
        handed_over("db2").with(|w| w.channel().io = IoThread::Yes),
    );
    case(
        "R4",
        "catching_up",
        "WaitApplied",
        "named, and something is not applied",
        handed_over("db2").with(|w| {
            w.facts().executed = gtids(7);
        }),
    );
    case(
        "R5",
        "switchover_undone",
        "Claim",
        "our own switch past its deadline",
        handed_over("db3").with(|w| {
            w.memory.switch = Some(switch(Some(NOW - Duration::from_secs(9))));
            w.memory.switch.as_mut().unwrap().deadline = NOW;
            w.view.ensemble.switchover = Node::Here(seen(request(Progress::Released), 0, T));
        }),
    );
    case("R6", "unhealthy", "Withdraw", "a vote whose server has died", voted().with(exited));
    let foreign = |w: &mut World| {
        w.topology().durability.floor = gtids(5);
        w.facts().executed = format!("{}:1-9,{}:1-2", uuid("db1"), uuid("db3")).parse().unwrap();
    };
    case("R6", "diverged", "", "what nobody can have received from the last primary", vacant().with(foreign));
    case("R8", "racing", "Vote", "the same, known to the last primary", {
        vacant().with(foreign).with(|w| w.lease().watermark = format!("{}:1-2", uuid("db3")).parse().unwrap())
    });
    case("R6", "diverged", "", "transactions of its own", vacant().with(|w| w.view.server.errant = gtids(3)));
    case(
        "R7",
        "mysql_down",
        "Fence",
        "master is gone and our server still takes writes under its lease: it must not vote",
        vacant().with(|w| {
            w.facts().super_read_only = false;
            let until = NOW + Duration::from_secs(60);
            let epoch = w.topology().epoch;
            w.view.held = Some(Held { epoch, until, opened: true, inherited: false, proof: Duration::ZERO });
        }),
    );
    case("R7", "racing", "StopIo", "the IO thread runs", vacant().with(|w| w.channel().io = IoThread::Connecting));
    case("R8", "racing", "Vote", "frozen", vacant());
    case(
        "R8",
        "racing",
        "",
        "another has received more and goes first",
        vacant().with(|w| {
            w.agent("db3").executed = gtids(11);
        }),
    );
    case(
        "R8",
        "racing",
        "Withdraw",
        "a vote under an older topology",
        vacant().lock(1, "db2", 9).with(|w| {
            w.view.ensemble.locks.get_mut(&1).unwrap().record.topology_version = VERSION - 1;
        }),
    );
    case("R9", "another_leads", "", "another's lock is lower", vacant().lock(1, "db3", 9).lock(2, "db2", 9));
    case(
        "R9",
        "another_leads",
        "StartApplier",
        "another leads, and will fetch what lies here unapplied",
        vacant().lock(1, "db3", 9).lock(2, "db2", 9).with(|w| {
            w.facts().executed = gtids(7);
            w.channel().sql_running = false;
        }),
    );
    case(
        "R9",
        "another_leads",
        "",
        "the same, and the applier has failed: only a person can help it",
        vacant().lock(1, "db3", 9).lock(2, "db2", 9).with(|w| {
            w.facts().executed = gtids(7);
            w.channel().sql_running = false;
            w.channel().sql_error = "duplicate key".into();
        }),
    );
    case(
        "R9",
        "never_promoted",
        "",
        "nobody may be promoted",
        vacant().lock(1, "db2", 9).with(|w| {
            w.view.ensemble.locks.get_mut(&1).unwrap().record.priority = 0;
            w.view.own.priority = 0;
        }),
    );
    case("R10", "no_quorum", "", "alone of two", vacant().lock(1, "db2", 9));
    case(
        "R10",
        "behind_watermark",
        "",
        "nobody has what was acknowledged",
        voted().with(|w| {
            w.lease().watermark = gtids(10);
        }),
    );
    case(
        "R10",
        "too_far_behind",
        "",
        "async and of unknown age",
        voted().with(|w| {
            w.topology().durability.mode = mysql_ha_agent::core::records::DurabilityMode::Async;
            w.lease().watermark = gtids(12);
            w.facts().heartbeat_age = None;
        }),
    );
    case(
        "R13",
        "fetching",
        "Fetch",
        "async and of unknown age, and the last writer is back with everything behind it in the queue",
        vacant().lock(1, "db2", 9).lock(2, "db3", 9).lock(3, "db1", 12).with(|w| {
            w.topology().durability.mode = mysql_ha_agent::core::records::DurabilityMode::Async;
            w.lease().watermark = gtids(12);
            w.facts().heartbeat_age = None;
        }),
    );
    case(
        "R11",
        "applier_broken",
        "Withdraw",
        "its applier is broken, another can go on",
        voted().with(|w| {
            w.facts().executed = gtids(7);
            w.channel().sql_running = false;
            w.channel().sql_error = "duplicate key".into();
        }),
    );
    let unfetched = |world: World| {
        world.with(|w| {
            w.step();
            let why = "the source purged required binary logs".to_owned();
            w.view.server.failure = Some(Failure { kind: MysqlKind::Fetch, why, at: NOW, touched: true });
        })
    };
    case(
        "R11",
        "fetching",
        "Withdraw",
        "what another has more cannot be fetched: who has everything takes over",
        unfetched(vacant().lock(1, "db2", 9).lock(2, "db3", 11)),
    );
    case(
        "R13",
        "fetching",
        "Fetch",
        "the same, and who has everything must not be promoted",
        unfetched(vacant().lock(1, "db2", 9).lock(2, "db3", 11).with(|w| w.vote(2).priority = 0)),
    );
    case(
        "R12",
        "catching_up",
        "WaitApplied",
        "received and not applied",
        voted().with(|w| w.facts().executed = gtids(7)),
    );
    case(
        "R12",
        "catching_up",
        "StartApplier",
        "not applied, the applier has stopped",
        voted().with(|w| {
            w.facts().executed = gtids(7);
            w.channel().sql_running = false;
        }),
    );
    case("R13", "fetching", "Fetch", "another has received more", vacant().lock(1, "db2", 9).lock(2, "db3", 11));
    case("R14", "mysql_down", "Claim", "everything is here", voted());
    case(
        "R14",
        "mysql_down",
        "Claim",
        "the last writer needs nobody",
        vacant().lock(1, "db2", 9).with(|w| {
            w.lease().name = "db2".into();
            w.view.ensemble.agents.remove("db3");
        }),
    );
    case(
        "R10",
        "no_quorum",
        "",
        "the writer before one that opened and died unnamed is not the last writer",
        vacant().lock(1, "db2", 9).with(|w| {
            w.topology().last_writer = Some("db2".into());
            w.view.ensemble.agents.remove("db3");
        }),
    );
}

fn followers(case: Add<'_>) {
    case("F1", "repointing", "Withdraw", "the race is decided", replica().lock(1, "db2", 9));
    case("F2", "unhealthy", "", "own server silent", replica().with(|w| w.view.server.health = failed()));
    case(
        "F3",
        "not_member",
        "",
        "not a member",
        replica().with(|w| {
            w.topology().members.remove("db2");
        }),
    );
    case(
        "F4",
        "diverged",
        "Follow",
        "transactions of its own, to be compared again",
        replica().with(|w| {
            w.view.server.errant = gtids(2);
        }),
    );
    case(
        "F5",
        "repointing",
        "Follow",
        "replicates from another",
        replica().with(|w| w.channel().source = "db3:3306".into()),
    );
    case(
        "F5",
        "repointing",
        "Follow",
        "came back with replication stopped",
        replica().with(|w| {
            w.channel().io = IoThread::No;
            w.channel().sql_running = false;
        }),
    );
    case(
        "F6",
        "replication_broken",
        "",
        "the applier has an error",
        replica().with(|w| {
            w.channel().sql_running = false;
            w.channel().sql_error = "duplicate key".into();
        }),
    );
    let refused = || {
        replica().with(|w| {
            w.channel().io = IoThread::Connecting;
            w.channel().io_error = "Error connecting to source: Access denied for user 'repl'@'db2'".into();
        })
    };
    let purged = || {
        replica().with(|w| {
            w.channel().io = IoThread::No;
            w.channel().io_error =
                "Got fatal error 1236 from source when reading data from binary log: 'Cannot replicate because \
                                    the source purged required binary logs."
                    .into();
        })
    };
    case(
        "F6",
        "replication_broken",
        "Follow",
        "the primary has purged what it lacks: looks again now and then",
        purged(),
    );
    case("F6", "replication_broken", "", "it has just looked", purged().with(|w| drop(w.step())));
    case("F6", "replication_broken", "Follow", "not let in: tries the file's password", refused());
    case("F6", "replication_broken", "", "tried it a moment ago", refused().with(|w| drop(w.step())));
    case(
        "F6",
        "replication_broken",
        "",
        "stopped by hand",
        replica().with(|w| {
            w.step();
            w.channel().io = IoThread::No;
            w.channel().sql_running = false;
        }),
    );
    let given = |named: bool| {
        replica().with(|w| {
            w.memory.switch = Some(switch(Some(NOW - Duration::from_secs(1))));
            w.view.ensemble.switchover = Node::Here(seen(request(Progress::Released), 0, T));
            w.topology().primary = named.then(|| "db1".into());
            if named {
                w.view.ensemble.switchover = Node::Here(seen(request(Progress::Done), 0, T));
            }
            w.channel().source = "db3:3306".into();
        })
    };
    case("F5", "repointing", "", "our own switch, the new primary does not take writes yet", given(false));
    case("F1", "switchover", "EndClientConnections", "our own switch, the new primary is named", given(true));
    case(
        "F5",
        "repointing",
        "Follow",
        "the same, and the clients have been ended",
        given(true).with(|w| w.view.server.done = Some((MysqlKind::EndClientConnections, NOW))),
    );
    let named = || {
        replica().with(|w| {
            w.view.ensemble.switchover = Node::Here(seen(request(Progress::Requested), 0, Duration::from_secs(1)));
        })
    };
    case("F7", "following", "FlushBinaryLog", "a planned switch to us is asked for", named());
    case(
        "F7",
        "following",
        "",
        "the same, prepared",
        named().with(|w| w.view.server.done = Some((MysqlKind::FlushBinaryLog, NOW))),
    );
    case("F7", "following", "", "steady", replica());
    case(
        "F7",
        "following",
        "PersistReadOnly",
        "read-only is not persisted",
        replica().with(|w| {
            w.facts().persisted_read_only = false;
        }),
    );
    case(
        "F8",
        "waiting_for_primary",
        "",
        "master of another epoch than topology",
        replica().with(|w| {
            w.view.ensemble.master = Node::Here(seen(master("db1", 6), 1, T));
        }),
    );
    case(
        "F8",
        "waiting_for_primary",
        "",
        "master outlives a lease that still holds",
        replica().with(|w| {
            w.view.ensemble.master = Node::Here(seen(master("db1", 8), 1, T));
            w.now = Moment(NOW.0 + 1);
        }),
    );
}
