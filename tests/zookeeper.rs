//! `src/zookeeper` against a real ZooKeeper 3.8: what is written is seen, what is unknown is found out, and a lease
//! that has passed on cannot be renewed.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

#[path = "support_zookeeper.rs"]
mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use mysql_ha_agent::core::action::{Op, Path, Purpose, Record};
use mysql_ha_agent::core::gtid::GtidSet;
use mysql_ha_agent::core::memory::PauseTerm;
use mysql_ha_agent::core::reason::Reason;
use mysql_ha_agent::core::records::{AgentRecord, Incident, Progress, SwitchoverRequest, Vote};
use mysql_ha_agent::core::time::Wall;
use mysql_ha_agent::core::view::{Ensemble, Node, Session};
use mysql_ha_agent::zookeeper::archive::KEPT_INCIDENTS;
use mysql_ha_agent::zookeeper::lease_keeper::{Renewal, Wanted};
use mysql_ha_agent::zookeeper::name::NameError;
use mysql_ha_agent::zookeeper::session::{Link, State};
use mysql_ha_agent::zookeeper::writer::{Outcome, Refusal};
use tokio::time::timeout;

use support::*;

fn session(view: &Ensemble) -> Option<i64> {
    match view.session {
        Session::Connected { id, .. } => Some(id),
        Session::Lost { .. } => None,
    }
}

fn vote(name: &str) -> Record {
    Record::Vote(Vote {
        name: name.into(),
        received: GtidSet::new(),
        priority: 100,
        topology_version: 0,
        incarnation: "i".into(),
        frozen: true,
        frozen_ms: 0,
    })
}

fn request(operation: &str) -> Record {
    Record::Switchover(SwitchoverRequest {
        operation: operation.into(),
        epoch: 1,
        from: "db1".into(),
        to: "db2".into(),
        timeout_ms: 1,
        at: Wall::default(),
        progress: Progress::Requested,
        detail: String::new(),
        after_loss: false,
        force: false,
    })
}

#[track_caller]
fn assert_done(outcome: &Outcome) {
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
}

/// A server that takes writes.
const OPENED: Wanted<'static> = Wanted { opened: true, pause: None, proof: None };

#[track_caller]
fn assert_renewed(renewal: &Renewal) {
    assert!(matches!(renewal, Renewal::Renewed { .. }), "{renewal:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_view_follows_what_others_write() {
    let server = Server::start().await;
    let a = Agent::ready(&server, "db1").await;
    let mut b = Agent::ready(&server, "db2").await;

    assert_done(&a.keeper.commit(&adopt("db1")).await);
    let seen = b.until(|view| view.topology.here().is_some() && view.lease.here().is_some()).await;
    assert_eq!(seen.master.here().unwrap().owner, session(&a.now()).unwrap());
    assert_eq!(seen.agents.keys().collect::<Vec<_>>(), ["db1", "db2"]);

    let first_seen = seen.lease.here().unwrap().first_seen;
    let again = b.look().await;
    assert_eq!(again.lease.here().unwrap().first_seen, first_seen, "reading again is not seeing for the first time");
    assert_renewed(&a.keeper.renew(&a.record(), &GtidSet::new(), OPENED).await);
    let renewed = b.until(|view| view.lease.record().is_some_and(|lease| lease.opened)).await;
    assert!(renewed.lease.here().unwrap().first_seen > first_seen);

    let lock = write(Purpose::Vote, vec![Op::Create(Path::NewLock, vote("db1"))]);
    let outcome = a.writer.commit(&lock).await;
    let Outcome::Done { created, .. } = &outcome else { panic!("{outcome:?}") };
    let [Path::Lock(sequence)] = created[..] else { panic!("{created:?}") };
    b.until(|view| view.locks.contains_key(&sequence)).await;
    assert_eq!(outcome.touched(&lock), [Path::Lock(sequence)]);
    assert_done(&a.writer.commit(&write(Purpose::Withdraw, vec![Op::Delete(Path::Lock(sequence), 0)])).await);
    b.until(|view| view.locks.is_empty()).await;

    assert_done(&a.writer.commit(&write(Purpose::Progress, vec![Op::Create(Path::Switchover, request("x"))])).await);
    b.until(|view| view.switchover.record().is_some_and(|request| request.operation == "x")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_view_contains_an_own_write_once_it_was_refreshed() {
    let server = Server::start().await;
    let a = Agent::ready(&server, "db1").await;
    let adopting = adopt("db1");
    let outcome = a.keeper.commit(&adopting).await;
    a.viewer.refresh(outcome.touched(&adopting)).await.unwrap();
    let version = a.now().topology.here().unwrap().version;
    assert_eq!(version, outcome.version(&Path::Topology).unwrap());
    // Deleted and made anew in one transaction, over and over: an event of the deletion must not be applied after
    // what was read later.
    for epoch in 2..30 {
        let anew =
            write(Purpose::TakeOver, vec![Op::Delete(Path::Master, 0), Op::Create(Path::Master, master("db1", epoch))]);
        let outcome = a.keeper.commit(&anew).await;
        assert_done(&outcome);
        a.viewer.refresh(outcome.touched(&anew)).await.unwrap();
        assert_eq!(a.now().master.record().map(|master| master.epoch), Some(epoch));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_claims_on_the_same_state_one_wins() {
    let server = Server::start().await;
    let first = Agent::ready(&server, "db0").await;
    assert_done(&first.keeper.commit(&adopt("db0")).await);
    assert_done(&first.writer.commit(&write(Purpose::DropStrayMaster, vec![Op::Delete(Path::Master, 0)])).await);
    let a = Agent::ready(&server, "db1").await;
    let b = Agent::ready(&server, "db2").await;
    let (one, two) = (claim("db1", 2, &*a.look().await), claim("db2", 2, &*b.look().await));
    let (one, two) = tokio::join!(a.keeper.commit(&one), b.keeper.commit(&two));
    let won = [&one, &two].iter().filter(|outcome| matches!(outcome, Outcome::Done { .. })).count();
    assert_eq!(won, 1, "{one:?} {two:?}");
    let refused = Outcome::Rejected { op: 0, path: Path::Topology, why: Refusal::BadVersion };
    assert!(one == refused || two == refused, "{one:?} {two:?}");
    let holding = [&a, &b].iter().filter(|agent| agent.keeper.held().borrow().is_some()).count();
    assert_eq!(holding, 1);
}

/// db1 holds the lease; then its `master` is deleted (as if its session had expired) and db2 claims.
async fn dethroned(server: &Server) -> (Agent, Agent) {
    let a = Agent::ready(server, "db1").await;
    assert_done(&a.keeper.commit(&adopt("db1")).await);
    assert_renewed(&a.keeper.renew(&a.record(), &GtidSet::new(), OPENED).await);
    assert!(a.keeper.held().borrow().as_ref().is_some_and(|held| held.opened && held.epoch == 1));
    let b = Agent::ready(server, "db2").await;
    assert_done(&b.writer.commit(&write(Purpose::DropStrayMaster, vec![Op::Delete(Path::Master, 0)])).await);
    let outcome = b.keeper.commit(&claim("db2", 2, &*b.look().await)).await;
    assert_done(&outcome);
    (a, b)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interleaving_01_a_dethroned_primary_cannot_renew() {
    let server = Server::start().await;
    let (a, b) = dethroned(&server).await;
    let renewal = a.keeper.renew(&a.record(), &GtidSet::new(), OPENED).await;
    assert!(matches!(renewal, Renewal::Lost { .. }), "{renewal:?}");
    assert_eq!(*a.keeper.held().borrow(), None);
    assert_eq!(a.keeper.until().load(Ordering::Acquire), 0);
    assert_eq!(b.look().await.lease.record().unwrap().name, "db2");
    assert_renewed(&b.keeper.renew(&b.record(), &GtidSet::new(), OPENED).await);
    assert_eq!(a.keeper.renew(&a.record(), &GtidSet::new(), OPENED).await, Renewal::NotHeld);
}

/// The same without the exact version of the lease: it goes through, which is why the test above can fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interleaving_01_a_check_of_master_alone_lets_it_through() {
    let server = Server::start().await;
    let (a, b) = dethroned(&server).await;
    let weak = write(
        Purpose::TakeOver,
        vec![Op::Check(Path::Master, 0), Op::Set(Path::Lease, Record::Lease(lease("db1", 1, 3)), -1)],
    );
    assert_done(&a.writer.commit(&weak).await);
    assert_eq!(b.look().await.lease.record().unwrap().name, "db1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_carries_the_observation_and_makes_its_node_anew() {
    let server = Server::start().await;
    let mut a = Agent::ready(&server, "db1").await;
    assert_done(&a.keeper.commit(&adopt("db1")).await);
    let mut record = a.record();
    record.detail = "first".into();
    assert_renewed(&a.keeper.renew(&record, &GtidSet::new(), Wanted::default()).await);
    a.until(|view| view.agents.get("db1").is_some_and(|seen| seen.record.detail == "first")).await;
    let version = a.now().agents["db1"].version;
    assert_done(&a.writer.commit(&write(Purpose::Members, vec![Op::Delete(Path::Agent("db1".into()), version)])).await);
    record.detail = "second".into();
    assert_renewed(&a.keeper.renew(&record, &GtidSet::new(), Wanted::default()).await);
    a.until(|view| view.agents.get("db1").is_some_and(|seen| seen.record.detail == "second")).await;
    assert_eq!(a.look().await.lease.record().unwrap().sequence, 3, "a renewal that was sent again counts once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_takes_the_version_of_the_renewals_since_and_ends_the_hold() {
    let server = Server::start().await;
    let a = Agent::ready(&server, "db1").await;
    assert_done(&a.keeper.commit(&adopt("db1")).await);
    let seen = a.look().await;
    for _ in 0..3 {
        assert_renewed(&a.keeper.renew(&a.record(), &GtidSet::new(), OPENED).await);
    }
    let mut released = lease("db1", 1, 2);
    (released.opened, released.released) = (true, true);
    let version = seen.lease.here().unwrap().version;
    let release = write(
        Purpose::Release,
        vec![Op::Set(Path::Lease, Record::Lease(released), version), Op::Delete(Path::Master, 0)],
    );
    assert_done(&a.keeper.commit(&release).await);
    assert_eq!(*a.keeper.held().borrow(), None);
    assert_eq!(a.keeper.until().load(Ordering::Acquire), 0);
    let seen = a.look().await;
    let lease = seen.lease.record().unwrap();
    assert!(lease.released && lease.sequence == 5, "{lease:?}");
    assert_eq!(seen.master, Node::Absent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interleaving_20_what_became_of_a_call_without_an_answer_is_found_out() {
    let server = Server::start().await;
    let mut a = Agent::ready(&server, "db1").await;
    assert_done(&a.keeper.commit(&adopt("db1")).await);
    let before = a.keeper.held().borrow().clone().unwrap();

    server.freeze();
    let (record, watermark) = (a.record(), GtidSet::new());
    let progress = write(Purpose::Progress, vec![Op::Create(Path::Switchover, request("x"))]);
    let (renewal, outcome) = tokio::join!(a.keeper.renew(&record, &watermark, OPENED), a.writer.commit(&progress));
    assert!(matches!(renewal, Renewal::Unknown { .. }), "{renewal:?}");
    assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}");
    assert_eq!(a.keeper.held().borrow().clone(), Some(before.clone()), "what was held goes on until its end");
    a.until(|view| session(view).is_none()).await;
    assert!(a.viewer.refresh_all().await.is_err());
    assert!(matches!(a.writer.commit(&adopt("db1")).await, Outcome::NotDone { .. }), "not queued for later");

    server.thaw();
    a.until(|view| view.complete).await;
    let seen = a.look().await;
    assert!(matches!(seen.switchover, Node::Here(_) | Node::Absent));
    assert_renewed(&a.keeper.renew(&a.record(), &GtidSet::new(), OPENED).await);
    let held = a.keeper.held().borrow().clone().unwrap();
    assert!(held.opened && held.until > before.until, "{held:?}");
    assert_eq!(a.keeper.until().load(Ordering::Acquire), held.until.0);
    // Landed or not, the first one has its number to itself.
    let now = a.look().await;
    let lease = now.lease.here().unwrap();
    assert!(
        (lease.record.sequence, lease.version) == (2, 1) || (lease.record.sequence, lease.version) == (3, 2),
        "{lease:?}"
    );
    // Nothing of the unknown write comes late: what the refresh behind the sync has shown is what there is.
    assert_eq!(now.switchover, seen.switchover);
}

/// db1 with the lease, whose calls may take so long that the connection outlives a freeze, and a renewal takes effect after
/// its caller has gone.
async fn patient_holder() -> (Server, Agent) {
    let server = Server::start().await;
    let mut options = server.options();
    options.op_timeout = Duration::from_secs(10);
    let mut a = Agent::new(options, "db1").await;
    a.writer.prepare().await.unwrap();
    a.own.claim(&a.record(), false, &mut a.view).await.unwrap();
    assert_done(&a.keeper.commit(&adopt("db1")).await);
    (server, a)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interleaving_20_a_renewal_given_up_in_mid_call_is_not_forgotten() {
    let (server, mut a) = patient_holder().await;
    server.freeze();
    let record = a.record();
    assert!(timeout(Duration::from_millis(50), a.keeper.renew(&record, &GtidSet::new(), OPENED)).await.is_err());
    server.thaw();
    a.until(|view| view.complete && view.lease.record().is_some_and(|lease| lease.sequence == 2)).await;
    assert_renewed(&a.keeper.renew(&record, &GtidSet::new(), OPENED).await);
    assert_eq!(a.look().await.lease.record().unwrap().sequence, 3);
}

/// Interleaving 12: the lease is as long as the pause; from sending a shorter one on nobody relies on more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interleaving_12_a_paused_lease_is_long_and_shortened_from_sending_on() {
    let (server, mut a) = patient_holder().await;
    let record = a.record();
    let hour = Duration::from_secs(3600);
    let until = |agent: &Agent| agent.keeper.held().borrow().as_ref().map(|held| held.until).unwrap();
    let usual = until(&a);

    let pause = PauseTerm { operation: "p".into(), until: clock() + hour };
    assert_renewed(&a.keeper.renew(&record, &GtidSet::new(), Wanted { pause: Some(&pause), ..OPENED }).await);
    let lease = a.look().await.lease.record().unwrap().clone();
    assert_eq!(lease.paused.as_deref(), Some("p"));
    assert!(lease.ttl_ms > 3_500_000 && lease.ttl_ms <= 3_600_000, "{}", lease.ttl_ms);
    let long = until(&a);
    assert!(long > usual + hour * 9 / 10 && long < pause.until, "less than the pause by the drift of two clocks");

    // Resumed, and the answer does not come.
    server.freeze();
    assert!(timeout(Duration::from_millis(50), a.keeper.renew(&record, &GtidSet::new(), OPENED)).await.is_err());
    assert!(until(&a) < usual + hour / 2, "the others may have seen the shorter one");
    server.thaw();
    a.until(|view| view.complete && view.lease.record().is_some_and(|lease| lease.paused.is_none())).await;
    assert_renewed(&a.keeper.renew(&record, &GtidSet::new(), OPENED).await);
    let lease = a.look().await.lease.record().unwrap().clone();
    assert!(lease.paused.is_none() && lease.ttl_ms < 60_000, "{lease:?}");
    assert!(until(&a) < usual + hour / 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_and_started_again_costs_neither_session_nor_view() {
    let mut server = Server::start().await;
    let mut a = Agent::ready(&server, "db1").await;
    let mut b = Agent::ready(&server, "db2").await;
    assert_done(&a.keeper.commit(&adopt("db1")).await);
    let before = b.until(|view| view.lease.here().is_some() && view.agents.len() == 2).await;

    server.kill();
    let lost = b.until(|view| !view.complete && session(view).is_none()).await;
    assert_eq!(lost.lease, before.lease, "the contents stay, as what was seen last");
    server.up();
    for agent in [&mut a, &mut b] {
        agent.until(|view| view.complete).await;
    }
    let after = b.now();
    assert_eq!(session(&after), session(&before));
    assert_eq!(after.lease, before.lease, "the moment of first sight too");
    assert_renewed(&a.keeper.renew(&a.record(), &GtidSet::new(), OPENED).await);
    b.until(|view| view.lease.record().is_some_and(|lease| lease.opened)).await;
}

/// db1 holds the lease, with every renewal answered, and its session expires; it has a new one now. The gate is to be kept.
async fn expired(server: &Server) -> (Agent, Gate) {
    let gate = Gate::to(server.port).await;
    let mut options = server.options();
    options.session_timeout = Duration::from_secs(2);
    options.hosts = vec![format!("127.0.0.1:{}", gate.port)];
    let mut a = Agent::new(options, "db1").await;
    a.writer.prepare().await.unwrap();
    a.own.claim(&a.record(), false, &mut a.view).await.unwrap();
    assert_done(&a.keeper.commit(&adopt("db1")).await);
    let before = session(&a.now()).unwrap();

    // The server goes on without us and ends the session; it alone says so.
    gate.shut();
    a.until(|view| !view.complete).await;
    let mut other = Agent::new(server.options(), "db2").await;
    other.until(|view| view.master.here().is_none()).await;
    gate.open();
    let seen = a.until(|view| view.complete).await;
    assert_ne!(session(&seen).unwrap(), before);
    (a, gate)
}

/// Nothing of ours is pending that would be settled, and nothing can be renewed: the lease itself has to be looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_another_took_while_the_session_was_lost_is_known_to_be_lost() {
    let server = Server::start().await;
    let (mut a, _gate) = expired(&server).await;
    let b = Agent::ready(&server, "db2").await;
    a.own.claim(&a.record(), false, &mut a.view).await.unwrap();
    // Nobody has taken it yet: it may be made ours anew, and what is observed is published all the same.
    let record = AgentRecord { detail: "seen in the new session".into(), ..a.record() };
    assert_eq!(a.keeper.renew(&record, &GtidSet::new(), OPENED).await, Renewal::OtherSession);
    assert_eq!(a.look().await.agents["db1"].record.detail, record.detail);
    assert_done(&b.keeper.commit(&claim("db2", 2, &*b.look().await)).await);
    let renewal = a.keeper.renew(&a.record(), &GtidSet::new(), OPENED).await;
    assert!(matches!(renewal, Renewal::Lost { .. }), "{renewal:?}");
    assert_eq!(*a.keeper.held().borrow(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_expired_session_there_is_a_new_one_and_master_must_be_made_anew() {
    let server = Server::start().await;
    let (mut a, _gate) = expired(&server).await;
    let after = session(&a.now()).unwrap();

    assert_eq!(a.keeper.renew(&a.record(), &GtidSet::new(), OPENED).await, Renewal::OtherSession);
    assert!(matches!(a.own.publish(&a.record()).await, Outcome::NotDone { .. }), "the name is another session's");
    a.own.claim(&a.record(), false, &mut a.view).await.unwrap();
    let seen = a.look().await;
    assert_eq!(seen.agents["db1"].owner, after);
    let ops = vec![
        Op::Create(Path::Master, master("db1", 1)),
        Op::Set(Path::Lease, Record::Lease(lease("db1", 1, 2)), seen.lease.here().unwrap().version),
    ];
    assert_done(&a.keeper.commit(&write(Purpose::TakeOver, ops)).await);
    assert_renewed(&a.keeper.renew(&a.record(), &GtidSet::new(), OPENED).await);
    assert_eq!(a.look().await.master.here().unwrap().owner, after);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_taken_over_from_the_dead_and_refused_to_a_second_agent() {
    let server = Server::start().await;
    let mut options = server.options();
    options.session_timeout = Duration::from_secs(3);
    let first = Agent::new(options.clone(), "db1").await;
    first.writer.prepare().await.unwrap();
    first.own.claim(&record("db1", "first"), false, &mut first.viewer.view()).await.unwrap();

    // A second agent of the same name elsewhere, while the first one goes on refreshing.
    let mut elsewhere = record("db1", "elsewhere");
    elsewhere.boot_id = "another host".into();
    let second = Agent::new(options.clone(), "db1").await;
    let mut view = second.viewer.view();
    let claiming = second.own.claim(&elsewhere, true, &mut view);
    tokio::pin!(claiming);
    let refused = loop {
        tokio::select! {
            refused = &mut claiming => break refused,
            () = tokio::time::sleep(Duration::from_millis(100)) => assert_done(&first.own.publish(&first.record()).await),
        }
    };
    assert!(matches!(refused, Err(NameError::Taken { .. })), "{refused:?}");

    // The first one is stopped and leaves its session behind; its successor need not wait.
    let old = session(&first.now()).unwrap();
    drop(first);
    let successor = Agent::new(options.clone(), "db1").await;
    assert_eq!(successor.now().agents["db1"].owner, old, "the session was left behind");
    successor.own.claim(&record("db1", "second"), true, &mut successor.viewer.view()).await.unwrap();
    assert_eq!(successor.look().await.agents["db1"].record.instance, "second");

    // Elsewhere it has to wait for the end of the session.
    drop(successor);
    second.own.claim(&elsewhere, true, &mut second.viewer.view()).await.unwrap();
    assert_eq!(second.look().await.agents["db1"].record.instance, "elsewhere");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lists_are_bounded() {
    let server = Server::start().await;
    let a = Agent::ready(&server, "db1").await;
    let incident = |number: usize| {
        Op::Create(
            Path::NewIncident,
            Record::Incident(Incident {
                at: Wall::default(),
                kind: Reason::MysqlDown,
                subject: "db1".into(),
                noticed_by: "db1".into(),
                detail: number.to_string(),
            }),
        )
    };
    let many = write(Purpose::Incident, (0..KEPT_INCIDENTS + 30).map(incident).collect());
    assert_done(&a.writer.commit(&many).await);
    assert_eq!(a.writer.prune().await, Ok(30));
    assert_eq!(a.writer.prune().await, Ok(0));
    let kept = a.writer.incidents(usize::MAX).await.unwrap();
    let numbers: Vec<usize> = kept.iter().map(|incident| incident.detail.parse().unwrap()).collect();
    assert_eq!(numbers, (30..KEPT_INCIDENTS + 30).collect::<Vec<_>>(), "the newest, oldest first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_authentication_others_read_topology_and_no_more() {
    let server = Server::start().await;
    let mut options = server.options();
    options.auth = Some(auth());
    let mut a = Agent::new(options, "db1").await;
    a.writer.prepare().await.unwrap();
    a.own.claim(&a.record(), false, &mut a.view).await.unwrap();
    assert_done(&a.keeper.commit(&adopt("db1")).await);
    assert_done(&a.writer.commit(&write(Purpose::Progress, vec![Op::Create(Path::Switchover, request("x"))])).await);
    assert!(a.look().await.switchover.here().is_some());

    let stranger = Agent::new(server.options(), "db9").await;
    let seen = stranger.look().await;
    assert!(seen.topology.here().is_some());
    assert!(matches!(seen.switchover, Node::Unreadable { .. }), "{:?}", seen.switchover);
    let version = seen.topology.here().unwrap().version;
    let outcome =
        stranger.writer.commit(&write(Purpose::Members, vec![Op::Set(Path::Topology, topology(9), version)])).await;
    assert_eq!(outcome, Outcome::Rejected { op: 0, path: Path::Topology, why: Refusal::NoAuth });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_server_the_link_says_what_to_look_at() {
    let server = Server::start().await;
    let mut options = server.options();
    options.session_timeout = Duration::from_millis(500);
    options.op_timeout = Duration::from_millis(200);
    options.hosts = vec!["127.0.0.1:1".into(), "no-such-host.invalid:2181".into()];
    let link = Link::open(options.clone(), clock);
    let mut states = link.changes();
    let explained = |state: &State| matches!(state, State::Down { why, .. } if why.contains("no-such-host.invalid"));
    timeout(PATIENCE, states.wait_for(explained)).await.unwrap().unwrap();
    assert!(link.live().is_err());
    // A name that does not resolve is passed over while another host answers.
    options.session_timeout = Duration::from_secs(20);
    options.op_timeout = Duration::from_secs(1);
    options.hosts = vec!["no-such-host.invalid:2181".into(), format!("127.0.0.1:{}", server.port)];
    assert!(Link::open(options, clock).connected(PATIENCE).await.is_ok());
}

/// The failsafe: from sending a smaller P on nobody relies on more; until a holder has opened its record keeps the larger one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_shrinks_from_sending_on_and_only_once_its_holder_has_opened() {
    let server = Server::start().await;
    let mut options = server.options();
    options.op_timeout = Duration::from_secs(10);
    let mut a = Agent::new(options, "db1").await;
    a.writer.prepare().await.unwrap();
    a.own.claim(&a.record(), false, &mut a.view).await.unwrap();
    let mut claim = adopt("db1");
    for op in &mut claim.ops {
        if let Op::Create(Path::Lease, Record::Lease(lease)) = op {
            // Taken from a primary that may write on acknowledgements for so long.
            (lease.opened, lease.proof_ms) = (false, 5000);
        }
    }
    assert_done(&a.keeper.commit(&claim).await);
    let record = a.record();
    let proof = |agent: &Agent| agent.keeper.held().borrow().as_ref().map(|held| held.proof).unwrap();
    let second = Wanted { proof: Some(Duration::from_secs(1)), ..OPENED };

    assert_renewed(&a.keeper.renew(&record, &GtidSet::new(), Wanted { opened: false, ..second }).await);
    assert_renewed(&a.keeper.renew(&record, &GtidSet::new(), second).await);
    assert_eq!(a.look().await.lease.record().unwrap().proof_ms, 5000, "it had not opened when that was sent");

    server.freeze();
    assert!(timeout(Duration::from_millis(50), a.keeper.renew(&record, &GtidSet::new(), second)).await.is_err());
    assert_eq!(proof(&a), Duration::from_secs(1), "the others may have seen the smaller one");
    server.thaw();
    a.until(|view| view.complete && view.lease.record().is_some_and(|lease| lease.proof_ms == 1000)).await;
    assert_renewed(&a.keeper.renew(&record, &GtidSet::new(), OPENED).await);
    assert_eq!(a.look().await.lease.record().unwrap().proof_ms, 1000, "not known: it stays");
}
