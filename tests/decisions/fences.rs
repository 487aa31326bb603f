//! What a fence leaves behind: what it proves, what it does not, and who lifts it. All of it was found by simulation.

use std::time::Duration;

use mysql_ha_agent::core::reason::Reason;
use mysql_ha_agent::core::records::{DurabilityMode, MemberState, Progress};
use mysql_ha_agent::core::view::{Health, IoThread, Node};

use super::scenarios::Add;
use super::world::{NOW, World, asked, gtids, primary, replica, request, seen, switch, vacant, voted};

const MOMENT: Duration = Duration::from_millis(100);

fn read_at(world: &mut World, age: Duration) {
    world.view.server.facts.as_mut().unwrap().1 = NOW - age;
}

/// db2 took writes; its fence has returned, the last reading is older than that.
fn voter_of_before_the_fence() -> World {
    vacant().with(|w| {
        w.memory.opened_incarnation = Some("db2/1".into());
        w.view.server.fenced = Some(Reason::LeaseLost);
        w.view.server.fenced_at = Some(NOW);
    })
}

pub(crate) fn scenarios(case: Add<'_>) {
    readings(case);
    not_by_hand(case);
    back_as_a_replica(case);
    left_over(case);
    too_far_behind(case);
}

/// What was executed while a fence waited for it must be in what is voted with and handed over.
fn readings(case: Add<'_>) {
    case("R7", "racing", "StopIo", "read before the fence returned: the vote would lack its last commits", {
        voter_of_before_the_fence().with(|w| {
            w.step();
            w.now = NOW + MOMENT;
            w.view.server.fenced_at = Some(w.now);
        })
    });
    case("R8", "racing", "Vote", "the same, read again", voter_of_before_the_fence());
    let closed = |fenced_at| {
        asked().with(|w| {
            w.memory.switch = Some(switch(Some(NOW - Duration::from_secs(1))));
            w.facts().super_read_only = true;
            w.view.server.fenced = Some(Reason::Switchover);
            w.view.server.fenced_at = Some(fenced_at);
        })
    };
    case("W2", "switchover", "Close", "read-only by a fence, the final set read before", closed(NOW + MOMENT));
    case("W3", "switchover", "Release", "the same, read since", closed(NOW));
    case("P3", "mysql_silent", "Release", "silent and fenced, not read since", {
        primary().with(|w| {
            w.view.server.health = Health::Failed { since: NOW - Duration::from_secs(1), why: "no answer".into() };
            read_at(w, Duration::from_secs(5));
            w.facts().super_read_only = true;
            w.view.server.fenced = Some(Reason::MysqlSilent);
            w.view.server.fenced_at = Some(NOW);
        })
    });
    case("P3", "mysql_silent", "Fence", "silent, and the guard has begun to fence it: that proves nothing", {
        primary().with(|w| {
            w.view.server.health = Health::Failed { since: NOW - Duration::from_secs(1), why: "no answer".into() };
            w.facts().super_read_only = true;
            w.view.server.fence_begun = Some(w.now);
        })
    });
}

/// A primary whose lease holds takes back what fences have left, and respects what an operator has set.
fn not_by_hand(case: Add<'_>) {
    case("P6", "opening", "Open", "a fence that was not needed any more has left it offline", {
        primary().with(|w| w.facts().offline_mode = true)
    });
    case("P6", "opening", "Open", "a fence over the network, sent late by a host that thawed", {
        primary().with(|w| {
            w.facts().offline_mode = true;
            w.facts().super_read_only = true;
        })
    });
    case("P6", "opening", "Open", "a fence of ours has begun: its first rungs are not an operator's", {
        primary().with(|w| {
            w.facts().super_read_only = true;
            w.view.server.fence_begun = Some(w.now);
        })
    });
}

/// The last process of our agent died in the midst of its fence: commits wait for ever, and read-only with them.
fn back_as_a_replica(case: Add<'_>) {
    let took_writes = || {
        replica().with(|w| {
            w.channel().io = IoThread::No;
            w.channel().source = "db3:3306".into();
            w.memory.opened_incarnation = Some("db2/1".into());
        })
    };
    case(
        "F5",
        "repointing",
        "Fence",
        "another is primary, and no fence of ours is known to have returned",
        took_writes(),
    );
    case("F5", "repointing", "Follow", "the same, fenced", {
        took_writes().with(|w| w.view.server.fenced = Some(Reason::LeaseLost))
    });
    case("F5", "repointing", "Follow", "the same, mysqld was restarted", {
        took_writes().with(|w| w.facts().incarnation = "db2/2".into())
    });
}

/// A switch that was asked for while its primary became read-only for another reason.
fn left_over(case: Add<'_>) {
    let by_hand = |w: &mut World| {
        w.memory.switch = Some(switch(None));
        w.topology().primary = None;
        w.topology().reason = Reason::ReadOnlyByHand;
        w.topology().members.get_mut("db1").unwrap().state = MemberState::Read;
    };
    case("P6", "opening", "Open", "a switch is asked for, and a fence has closed the server meanwhile", {
        asked().with(by_hand).with(|w| {
            w.facts().super_read_only = true;
            w.view.server.fenced = Some(Reason::LeaseLost);
        })
    });
    case("W1", "switchover_refused", "Progress", "named again long after it was asked for", {
        asked().with(|w| {
            let age = Duration::from_millis(request(Progress::Requested).timeout_ms);
            w.view.ensemble.switchover = Node::Here(seen(request(Progress::Requested), 0, age));
            w.memory.switch = None;
            w.view.ensemble.agents.get_mut("db2").unwrap().first_seen = NOW + MOMENT;
        })
    });
}

/// `async`: the leader's lag is judged by what all candidates have together.
fn too_far_behind(case: Add<'_>) {
    let behind = |world: World| {
        world.with(|w| {
            w.topology().durability.mode = DurabilityMode::Async;
            w.lease().watermark = gtids(12);
            w.facts().heartbeat_age = Some(Duration::from_secs(600));
        })
    };
    case("R13", "fetching", "Fetch", "async, behind, and another candidate has more", {
        behind(vacant().lock(1, "db2", 9).lock(2, "db3", 11))
    });
    case("R12", "catching_up", "WaitApplied", "async, behind by what is not applied yet", {
        behind(voted()).with(|w| w.facts().executed = gtids(7))
    });
    case("R10", "too_far_behind", "", "async, behind, and nobody has more", behind(voted()));
    case("R14", "mysql_down", "Claim", "async, behind, and the last writer has voted: nothing is missing", {
        behind(vacant().lock(1, "db2", 9).lock(2, "db1", 9).lock(3, "db3", 9))
    });
}
