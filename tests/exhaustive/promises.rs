//! What is promised (contract, section 6), as conditions on a state.

use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::Property;

use crate::role::holds;
use crate::rules::{Faults, Scope};
use crate::step::{ALL, Step};
use crate::world::{Host, Mode, World, bit, servers};

/// Promise 1.
pub(crate) const ONE_WRITER: &str = "one writer";
/// Promise 2.
pub(crate) const NOTHING_LOST: &str = "nothing acknowledged is lost";
/// Promise 6.
pub(crate) const HEALS: &str = "heals";

/// The promises, and what shows that the search got somewhere.
pub(crate) fn all(scope: &Scope) -> Vec<Property<Scope>> {
    let mut all = vec![
        Property::always(ONE_WRITER, |_, world: &World| one_writer(world)),
        Property::always(NOTHING_LOST, |_, world: &World| nothing_lost(world)),
    ];
    if scope.heals {
        all.push(Property::always(HEALS, heals));
    }
    if let Some(only) = scope.only {
        all.retain(|promise| promise.name == only);
    }
    if scope.without.is_none() && scope.writes > 0 {
        all.push(Property::sometimes("an acknowledged write survives a failover", |_, world: &World| {
            (0..world.sent)
                .any(|write| acknowledged(world, write) && world.numbered[write as usize] != world.last_opened)
        }));
        all.push(Property::sometimes("a new primary has a write acknowledged", |_, world: &World| {
            let by_last = |write: u8| world.numbered[write as usize] == world.last_opened;
            world.tree.epoch > 1 && (0..world.sent).any(|write| acknowledged(world, write) && by_last(write))
        }));
    }
    if scope.without.is_none() && scope.failsafe {
        all.push(Property::sometimes("writable on acknowledgements alone", |_, world: &World| {
            let alone =
                |host: &Host| host.mode == Mode::Writable && host.held.as_ref().is_some_and(|held| held.left == 0);
            world.hosts.iter().any(alone)
        }));
    }
    all
}

fn acknowledged(world: &World, write: u8) -> bool {
    world.acknowledged & bit(write) != 0
}

/// At no instant two servers take writes. A thawed host is allowed its moment (promise 1).
fn one_writer(world: &World) -> bool {
    world.hosts.iter().filter(|host| host.takes_writes() && !host.frozen && !host.thawing).count() <= 1
}

/// Whatever was acknowledged, before or after, is on the server that opened last.
fn nothing_lost(world: &World) -> bool {
    world.acknowledged & !world.host(world.last_opened).executed == 0
}

/// How long a run without faults may take.
const STEPS: usize = 300;

thread_local! {
    /// Fingerprints of states that are known to heal.
    static HEALED: RefCell<HashSet<u64>> = RefCell::default();
}

/// From this state on nothing goes wrong any more: every host goes on, every mysqld is started, every message arrives, and
/// everybody does at once what is to be done. Then there is one primary, named, and all others follow it or hold
/// transactions of their own.
fn heals(scope: &Scope, world: &World) -> bool {
    let calm = calm(scope);
    let mut path = Vec::new();
    let mut at = World { faults: 0, ..world.clone() };
    for _ in 0..STEPS {
        let mut hasher = DefaultHasher::new();
        at.hash(&mut hasher);
        let print = hasher.finish();
        let known = HEALED.with_borrow(|healed| healed.contains(&print));
        if known || is_whole(&at) {
            HEALED.with_borrow_mut(|healed| healed.extend(path));
            return true;
        }
        path.push(print);
        let Some((_, next)) = calmly(&calm, &at) else { return false };
        at = next;
    }
    false
}

/// The next step of a run without faults.
pub(crate) fn calmly(calm: &Scope, world: &World) -> Option<(Step, World)> {
    let steps = ALL.iter().filter(|what| !what.is_optional());
    let steps = steps.flat_map(|what| servers().map(move |server| Step::Of(server, *what)));
    steps.chain([Step::Tick]).find_map(|step| Some((step, calm.after(world, step)?)))
}

/// The run without faults from a state, as far as it is examined.
pub(crate) fn calm_run(scope: &Scope, world: &World) -> Vec<(World, Option<Step>)> {
    let calm = calm(scope);
    let mut way = Vec::new();
    let mut at = World { faults: 0, ..world.clone() };
    while let Some((step, next)) = calmly(&calm, &at).filter(|_| way.len() < STEPS && !is_whole(&at)) {
        way.push((at, Some(step)));
        at = next;
    }
    way.push((at, None));
    way
}

fn calm(scope: &Scope) -> Scope {
    Scope { epochs: u8::MAX, kinds: Faults::default(), ..scope.clone() }
}

fn is_whole(world: &World) -> bool {
    let tree = &world.tree;
    let Some(primary) = tree.primary.filter(|primary| holds(world, *primary)) else { return false };
    let writes = world.host(primary).up && world.host(primary).mode == Mode::Writable;
    let executed = world.host(primary).executed;
    writes
        && servers().filter(|server| *server != primary).map(|server| world.host(server)).all(|host| {
            let follows = host.io && host.source == Some(primary);
            host.up && !host.frozen && host.mode == Mode::ReadOnly && (follows || host.received() & !executed != 0)
        })
}
