//! Hosts and agents that stand still and go on.

use std::time::{Duration, Instant};

use crate::scene::{Scene, cannot, lossless};
use crate::support::{Follow, Kind, Span, Writer, WriterOptions, run};

/// How long a thawed host has until it can acknowledge nothing (contract, promise 1).
const THAWED: Duration = Duration::from_secs(1);

/// The primary's host stands still until another takes writes, and goes on: within a second it can acknowledge nothing, and in
/// `lossless` it acknowledges nothing at all that the new primary does not have.
#[test]
fn primary_host_frozen_and_thawed() {
    run("host_frozen", async |stage| {
        if cannot(&stage) {
            return;
        }
        let mut scene = Scene::start(&stage, lossless()).await;
        // A client that knows nothing of any change: its connections outlive the frost.
        let stubborn = WriterOptions { workers: 4, follow: Follow::Fixed("db1".into()), ..WriterOptions::default() };
        let stubborn = Writer::start(&scene.cluster, stubborn);
        stubborn.wait_for_acknowledged(50).await;
        scene.cluster.freeze_host("db1");
        let primary = scene.failed_over_from("db1").await;
        let thawed = Instant::now();
        scene.cluster.thaw_host("db1");
        scene.returns("db1", &primary).await;
        let theirs = stubborn.stop().await;
        assert_eq!(theirs.acknowledged_after(thawed + THAWED), 0, "the old primary acknowledged writes after its thaw");
        scene.forgive("db1", Span { from: thawed, to: thawed + THAWED });
        scene.remember(theirs);
        scene.end().await;
    });
}

/// a1: the primary's agent stands still and goes on. Another takes over; the server is read-only before, by the winner's hand.
#[test]
fn a1_agent_frozen_and_thawed() {
    run("a1_agent_frozen", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        scene.cluster.host("db1").pause(Kind::Agent);
        let primary = scene.failed_over_from("db1").await;
        scene.cluster.host("db1").resume(Kind::Agent);
        scene.returns("db1", &primary).await;
        scene.end().await;
    });
}

/// a1: the primary's agent is killed and kept down. Another takes over and makes its server read-only over the network; the
/// agent, started much later, follows.
#[test]
fn a1_agent_killed_and_kept_down() {
    run("a1_agent_kept_down", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        scene.cluster.host("db1").kill(Kind::Agent);
        let primary = scene.failed_over_from("db1").await;
        assert!(!scene.cluster.host("db1").is_writable().await.unwrap_or(false), "the old primary takes writes");
        scene.cluster.host("db1").start(Kind::Agent);
        scene.returns("db1", &primary).await;
        scene.end().await;
    });
}
