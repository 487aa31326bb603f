//! All that can happen, and the search over it.
//!
//! Each step is one function: it looks whether it may happen and, if so, makes the next state. Agents decide on what
//! ZooKeeper holds at that moment and write by transactions that land later or never, which is how stale reads come in.

use std::fmt;

use stateright::{Model, Property};

use crate::promises;
use crate::rules::Scope;
use crate::world::{Server, World, servers};
use crate::{ensemble, faults, mysql, proof, race, role, symmetry, sync_set, time};

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A unit of time passes, for all.
    Tick,
    Of(Server, What),
}

/// What happens at one server or its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    // ZooKeeper
    Land,
    LandLate,
    Answer,
    // mysqld
    Write,
    Receive,
    Acknowledged,
    Apply,
    Restart,
    // the holder of `master`
    Renew,
    CheckOpen,
    Open,
    Publish,
    Close,
    Closed,
    Release,
    Undo,
    Yield,
    DropStray,
    // the others
    NameNobody,
    Freeze,
    EarlyFreeze,
    Vote,
    Prepare,
    Claim,
    Withdraw,
    Follow,
    // changes of S
    Add,
    Remove,
    CountAnew,
    Intend,
    ReadTopology,
    Enable,
    Disable,
    // the failsafe
    HeartbeatSent,
    HeartbeatReceived,
    HeartbeatDone,
    TakeBack,
    FenceOld,
    // faults
    Crash,
    PowerLost,
    Pause,
    Thaw,
    Expire,
    GiveUp,
}

/// In the order of urgency of a run without faults (see `promises::heals`).
pub(crate) const ALL: &[What] = &[
    What::Thaw,
    What::Restart,
    What::Land,
    What::LandLate,
    What::Answer,
    What::Yield,
    What::Acknowledged,
    What::Apply,
    What::HeartbeatReceived,
    What::HeartbeatDone,
    What::HeartbeatSent,
    What::Closed,
    What::CheckOpen,
    What::Open,
    What::Publish,
    What::Add,
    What::CountAnew,
    What::DropStray,
    What::TakeBack,
    What::NameNobody,
    What::Freeze,
    What::Withdraw,
    What::Vote,
    What::Prepare,
    What::Claim,
    What::Follow,
    What::Intend,
    What::ReadTopology,
    What::Enable,
    What::Receive,
    What::Renew,
    What::Write,
    What::EarlyFreeze,
    What::FenceOld,
    What::Close,
    What::Release,
    What::Undo,
    What::Disable,
    What::Remove,
    What::Crash,
    What::PowerLost,
    What::Pause,
    What::Expire,
    What::GiveUp,
];

impl What {
    /// Not part of a run in which nothing goes wrong any more and nobody asks for anything.
    pub(crate) fn is_optional(self) -> bool {
        use What::{
            Close, Crash, Disable, EarlyFreeze, Expire, FenceOld, GiveUp, Pause, PowerLost, Release, Remove, Undo,
            Write,
        };
        matches!(
            self,
            Write
                | EarlyFreeze
                | FenceOld
                | Close
                | Release
                | Undo
                | Disable
                | Remove
                | Crash
                | PowerLost
                | Pause
                | Expire
                | GiveUp
        )
    }
}

impl Scope {
    /// The state after `step`, where it can happen.
    pub(crate) fn after(&self, world: &World, step: Step) -> Option<World> {
        let (server, what) = match step {
            Step::Tick => return time::tick(self, world),
            Step::Of(server, what) => (server, what),
        };
        // Nothing happens on a host that stands still, but what it has sent travels on.
        if world.host(server).frozen && !matches!(what, What::Land | What::LandLate | What::Thaw | What::Expire) {
            return None;
        }
        match what {
            What::Land => ensemble::land(self, world, server),
            What::LandLate => ensemble::land_late(self, world, server),
            What::Answer => ensemble::answer(self, world, server),
            What::Write => mysql::write(self, world, server),
            What::Receive => mysql::receive(self, world, server),
            What::Acknowledged => mysql::acknowledged(self, world, server),
            What::Apply => mysql::apply(world, server),
            What::Restart => mysql::restart(self, world, server),
            What::Renew => role::renew(self, world, server),
            What::CheckOpen => role::check_open(self, world, server),
            What::Open => role::open(self, world, server),
            What::Publish => role::publish(self, world, server),
            What::Close => role::close(self, world, server),
            What::Closed => role::closed(world, server),
            What::Release => role::release(self, world, server),
            What::Undo => role::undo(self, world, server),
            What::Yield => role::give_way(self, world, server),
            What::DropStray => role::drop_stray(self, world, server),
            What::NameNobody => race::name_nobody(self, world, server),
            What::Freeze => race::freeze(self, world, server),
            What::EarlyFreeze => proof::early_freeze(self, world, server),
            What::Vote => race::vote(self, world, server),
            What::Prepare => race::prepare(self, world, server),
            What::Claim => race::claim(self, world, server),
            What::Withdraw => race::withdraw(self, world, server),
            What::Follow => race::follow(self, world, server),
            What::Add => sync_set::add(self, world, server),
            What::Remove => sync_set::remove(self, world, server),
            What::CountAnew => race::count_anew(self, world, server),
            What::Intend => sync_set::intend(self, world, server),
            What::ReadTopology => sync_set::read_topology(self, world, server),
            What::Enable => sync_set::enable(self, world, server),
            What::Disable => sync_set::disable(self, world, server),
            What::HeartbeatSent => proof::heartbeat_sent(self, world, server),
            What::HeartbeatReceived => proof::heartbeat_received(world, server),
            What::HeartbeatDone => proof::heartbeat_done(self, world, server),
            What::TakeBack => proof::take_back(self, world, server),
            What::FenceOld => proof::fence_old(self, world, server),
            What::Crash => faults::crash(self, world, server),
            What::PowerLost => faults::power(self, world, server),
            What::Pause => faults::pause(self, world, server),
            What::Thaw => faults::thaw(self, world, server),
            What::Expire => faults::expire(self, world, server),
            What::GiveUp => faults::give_up(self, world, server),
        }
    }
}

impl Model for Scope {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.lease, self.faults)]
    }

    fn actions(&self, _: &World, steps: &mut Vec<Step>) {
        steps.push(Step::Tick);
        for what in ALL {
            steps.extend(servers().map(|server| Step::Of(server, *what)));
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let next = self.after(world, step)?;
        Some(if self.symmetry { symmetry::representative(&next) } else { next })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::all(self)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, what) = match self {
            Step::Tick => return write!(f, "time passes"),
            Step::Of(server, what) => (server + 1, what),
        };
        let text = match what {
            What::Land => "its transaction gets to ZooKeeper",
            What::LandLate => "a transaction it had given up gets to ZooKeeper after all",
            What::Answer => "gets the answer",
            What::Write => "a client writes",
            What::Receive => "receives",
            What::Acknowledged => "gets enough acknowledgements: commits return OK",
            What::Apply => "applies what it has received",
            What::Restart => "mysqld is started again",
            What::Renew => "sends a renewal of the lease",
            What::CheckOpen => "checks that it may open",
            What::Open => "opens: takes writes",
            What::Publish => "is named in topology",
            What::Close => "asks for read-only (planned switch)",
            What::Closed => "read-only has come",
            What::Release => "releases the lease in so many words",
            What::Undo => "takes its switch back and writes again, without master",
            What::Yield => "sees that the role is another's or nobody's: read-only",
            What::DropStray => "removes a master node that it has no lease for",
            What::NameNobody => "names nobody in topology",
            What::Freeze => "sees no primary: stops its IO thread",
            What::EarlyFreeze => "sees the lease unchanged for T - P: stops its IO thread early",
            What::Vote => "sends its vote",
            What::Prepare => "applies and fetches what the counted votes have",
            What::Claim => "sends its claim",
            What::Withdraw => "withdraws its lock",
            What::Follow => "follows the holder of master",
            What::Add => "records one more member of S",
            What::CountAnew => "has caught up in a new life: counted on again",
            What::Remove => "sends the removal of a member of S",
            What::Intend => "publishes that it means to acknowledge",
            What::ReadTopology => "reads that it is in S",
            What::Enable => "acknowledges from now on",
            What::Disable => "stops acknowledging, restarts its IO thread, says so",
            What::HeartbeatSent => "commits a heartbeat",
            What::HeartbeatReceived => "acknowledges the heartbeat",
            What::HeartbeatDone => "its heartbeat returns acknowledged",
            What::FenceOld => "makes the old primary read-only over the network",
            What::TakeBack => "sends a transaction that takes master back",
            What::Crash => "FAULT: mysqld is killed",
            What::PowerLost => "FAULT: the host loses its power, and what was not applied",
            What::Pause => "FAULT: the host stands still",
            What::Thaw => "the host goes on",
            What::Expire => "FAULT: ZooKeeper expires its session",
            What::GiveUp => "FAULT: no answer; gives the transaction up",
        };
        write!(f, "db{server}: {text}")
    }
}
