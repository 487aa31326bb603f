//! A panic anywhere in the agent ends in the fence.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use mysql_ha_agent::agent::fencer::{Fencer, on_panic};
use mysql_ha_agent::agent::note::{self, Note};
use mysql_ha_agent::agent::run::own;
use mysql_ha_agent::agent::shared::{Deadline, GuardsFile, Notes, ServerCell, Shared};
use mysql_ha_agent::config;
use mysql_ha_agent::core::gtid::GtidSet;
use mysql_ha_agent::core::holdings::Holdings;
use mysql_ha_agent::host::process::Mysqld;
use mysql_ha_agent::mysql::fence::Fence;
use tokio::sync::{mpsc, watch};

use crate::server::Server;

fn configuration(server: &Server) -> config::Config {
    let socket = server.socket();
    let text = format!(
        "cluster: c\nname: db1\nzookeeper: {{hosts: ['127.0.0.1:1']}}\nfailover: {{durability: async}}\n\
         mysql: {{socket: '{}', user: agent, password: agent-secret, advertise: '127.0.0.1:3306', \
         replication: {{user: repl, password: repl-secret}}}}\n",
        socket.display()
    );
    config::parse(&text, "test", &|_| None).unwrap()
}

#[tokio::test]
async fn a_panic_in_another_thread_makes_the_server_read_only() {
    let server = Server::start().await;
    assert_eq!(server.value("@@global.super_read_only").await, "0");
    let config = configuration(&server);
    let folder = tempfile::tempdir().unwrap();
    let (_own, own) = watch::channel(Arc::new(own(&config, "instance", true).unwrap()));
    let (_decision, decision) = watch::channel(None);
    let (_watermark, watermark) = watch::channel(GtidSet::new());
    let notes = Notes {
        fence: note::keep(Note::of_fence(folder.path())),
        holdings: note::keep(Note::of_holdings(folder.path())),
    };
    let cell = ServerCell::new(None, Holdings::default(), Some(notes));
    let guard = GuardsFile::new(folder.path().join("none"), "boot");
    let shared = Shared { own, server: cell, decision, watermark, guard, tally: std::sync::Arc::default() };
    let mysqld = Arc::new(Mysqld::behind(&server.socket()).unwrap());
    let (_found, found) = watch::channel(Some(mysqld));
    let (_orders, orders) = mpsc::channel(1);
    let fencer = Fencer {
        shared,
        fence: Fence::new(&server.agent(), Vec::new(), found),
        deadline: Deadline::new(Arc::new(AtomicU64::new(0))),
        orders,
        panic: on_panic(),
        last: None,
    };
    let running = tokio::spawn(fencer.run());
    assert!(std::thread::spawn(|| panic!("on purpose")).join().is_err());
    running.await.unwrap();
    assert_eq!(server.value("@@global.super_read_only").await, "1");
    assert_eq!(Note::of_fence(folder.path()).read().as_deref(), Some("fenced"));
}
