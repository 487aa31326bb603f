//! Runs a search and tells what it found.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::promises::{HEALS, calm_run};
use crate::rules::{Rule, Scope};
use crate::step::Step;
use crate::world::{Host, Mode, Server, World, bit};

/// More states than any search may generate: one that grew beyond it would end in the machine's memory.
fn limit() -> usize {
    if full() { 400_000_000 } else { 20_000_000 }
}

fn full() -> bool {
    std::env::var("EXHAUSTIVE").is_ok_and(|value| value == "full")
}

/// The larger scope where it is asked for.
pub(crate) fn bounds(quick: Scope, larger: Scope) -> Scope {
    if full() { larger } else { quick }
}

/// How a search ended.
pub(crate) struct Found {
    /// States, different ones.
    pub(crate) states: usize,
    /// Nothing was left out.
    pub(crate) complete: bool,
    /// What was broken, with the shortest way there.
    pub(crate) broken: Vec<(&'static str, String)>,
    /// What should have been reached and was not.
    pub(crate) unreached: Vec<&'static str>,
}

/// Breadth first, so that a counterexample is a shortest one.
pub(crate) fn search(scope: &Scope) -> Found {
    let began = Instant::now();
    let stop = match scope.without {
        Some(_) => HasDiscoveries::AnyFailures,
        None => HasDiscoveries::AllFailures,
    };
    let checker = scope.clone().checker().finish_when(stop).target_state_count(limit()).spawn_bfs().join();
    let mut broken = Vec::new();
    let mut unreached = Vec::new();
    for property in scope.properties() {
        match (property.expectation, checker.discovery(property.name)) {
            (stateright::Expectation::Sometimes, None) => unreached.push(property.name),
            (stateright::Expectation::Always, Some(path)) => {
                let way = path.into_vec();
                let last = way.last().map(|(world, _)| world.clone());
                let mut text = explain(way);
                if let Some(last) = last.filter(|_| property.name == HEALS) {
                    text += "\nand from there, with nothing going wrong any more:\n";
                    text += &explain(calm_run(scope, &last));
                }
                broken.push((property.name, text));
            }
            _ => {}
        }
    }
    let states = checker.unique_state_count();
    let complete = checker.state_count() < limit();
    println!(
        "{scope:?}\n{states} states ({} generated, depth {}) in {:.1} s",
        checker.state_count(),
        checker.max_depth(),
        began.elapsed().as_secs_f64()
    );
    Found { states, complete, broken, unreached }
}

/// Every state within the scope was visited, and every promise held.
pub(crate) fn holds(scope: &Scope) {
    let found = search(scope);
    for (promise, way) in &found.broken {
        println!("BROKEN: {promise}\n{way}");
    }
    let broken: Vec<_> = found.broken.iter().map(|(promise, _)| *promise).collect();
    assert!(broken.is_empty(), "broken after {} states: {broken:?} (see the steps above)", found.states);
    assert!(found.complete, "given up after {} states: more than this test may take", found.states);
    assert!(found.unreached.is_empty(), "the search is too small to say anything: never {:?}", found.unreached);
}

/// Without the rule this promise is broken.
pub(crate) fn needs(rule: Rule, promise: &str, scope: Scope) {
    let found = search(&scope.without(rule));
    for (promise, way) in &found.broken {
        println!("without {rule:?}: {promise} is broken:\n{way}");
    }
    assert!(
        found.broken.iter().any(|(broken, _)| *broken == promise),
        "without {rule:?} nothing was found in {} states: the model does not show what the rule is for",
        found.states
    );
}

/// A way through the states, to be read.
fn explain(way: Vec<(World, Option<Step>)>) -> String {
    let mut lines = Vec::new();
    let mut last: Option<World> = None;
    for (at, (world, step)) in way.iter().enumerate() {
        if let Some(last) = &last {
            lines.extend(differences(last, world));
        }
        if let Some(step) = step {
            lines.push(format!("{:>3}. {step}", at + 1));
        }
        last = Some(world.clone());
    }
    lines.join("\n")
}

fn differences(before: &World, after: &World) -> Vec<String> {
    let mut lines = Vec::new();
    if before.tree != after.tree {
        lines.push(format!("       {}", tree(after)));
    }
    for server in crate::world::servers() {
        if before.host(server) != after.host(server) {
            lines.push(format!("       {}", host(server, after.host(server))));
        }
    }
    if before.acknowledged != after.acknowledged {
        lines.push(format!("       acknowledged to clients: {}", writes(after.acknowledged)));
    }
    lines
}

fn name(server: Option<Server>) -> String {
    server.map_or_else(|| "nobody".to_owned(), |server| format!("db{}", server + 1))
}

fn set(bits: u8, what: &str) -> String {
    let all: Vec<String> = (0..8).filter(|at| bits & bit(*at) != 0).map(|at| format!("{what}{}", at + 1)).collect();
    if all.is_empty() { "none".to_owned() } else { all.join("+") }
}

fn writes(bits: u8) -> String {
    set(bits, "W")
}

fn tree(world: &World) -> String {
    let tree = &world.tree;
    let lease = &tree.lease;
    let flags =
        format!("{}{}", if lease.opened { ", opened" } else { "" }, if lease.released { ", released" } else { "" });
    let mut text = format!(
        "zookeeper: epoch {}, primary {}, master {}, S {}, lease {} (age {}{flags})",
        tree.epoch,
        name(tree.primary),
        name(tree.master),
        set(tree.sync, "db"),
        name(Some(lease.name)),
        lease.age
    );
    for server in crate::world::servers() {
        if let Some(lock) = &tree.locks[server as usize] {
            let stale = if lock.current { "" } else { ", outdated" };
            text += &format!(", vote of db{} with {}{stale}", server + 1, writes(lock.received));
        }
    }
    text
}

fn host(server: Server, host: &Host) -> String {
    let mode = match host.mode {
        _ if !host.up => "down",
        Mode::ReadOnly => "read-only",
        Mode::Writable => "WRITABLE",
        Mode::Closing => "closing",
    };
    let mut text = format!("db{}: {mode}, executed {}", server + 1, writes(host.executed));
    let mut note = |condition: bool, what: String| {
        if condition {
            text += &format!(", {what}");
        }
    };
    note(host.relay != 0, format!("relay log {}", writes(host.relay)));
    note(host.waiting != 0, format!("{} waiting", writes(host.waiting)));
    note(host.io, format!("receives from {}{}", name(host.source), if host.semi { " and acknowledges" } else { "" }));
    note(host.frozen, "STANDS STILL".to_owned());
    if let Some(held) = &host.held {
        note(
            true,
            format!(
                "lease of epoch {} for {} ticks{}",
                held.epoch,
                held.left,
                if held.opened { "" } else { ", not opened" }
            ),
        );
    }
    note(host.wait > 0, format!("waits {} ticks", host.wait));
    note(host.proof > 0, format!("acknowledgements prove {} ticks", host.proof));
    for request in host.request.iter().chain(&host.late) {
        note(true, format!("{:?} on its way for {} ticks", request.kind, request.age));
    }
    text
}
