//! Faults of whole hosts and of the network between them. Faults of one process: [`Host`].
//!
//! All but [`Cluster::kill_host`] and [`Cluster::start_host`] need namespaces and panic with loopback addresses; a test
//! asks `Stage::can_partition` first.

use super::cluster::Cluster;
use super::host::{Host, Kind};
use super::network::{Namespace, ZOOKEEPER_PORT};

impl Cluster {
    fn namespace(&self, host: &str) -> &Namespace {
        let host: &Host = self.host(host);
        host.namespace.as_ref().unwrap_or_else(|| {
            panic!(
                "the network of {} cannot be cut with loopback addresses: run as root, or ask Stage::can_partition",
                host.name
            )
        })
    }

    /// Drops everything between this host and the client port of every ZooKeeper member, its own one included. The
    /// member itself stays in the ensemble, and MySQL's traffic passes.
    pub(crate) fn cut_zookeeper(&self, host: &str) {
        self.namespace(host).drop_traffic_to(None, ZOOKEEPER_PORT);
    }

    /// Drops everything between `host` and the client port of the ZooKeeper member on `member`: no answer, no reset.
    pub(crate) fn silence_member(&self, host: &str, member: &str) {
        self.namespace(host).drop_traffic_to(Some(self.host(member).address), ZOOKEEPER_PORT);
    }

    /// Pulls the host's cable out. What runs on it goes on.
    pub(crate) fn cut_host(&self, host: &str) {
        self.namespace(host).set_cable(false);
    }

    /// Undoes every cut of the host.
    pub(crate) fn heal(&self, host: &str) {
        self.namespace(host).heal();
    }

    /// The power goes: the cable first, so that no process says good-bye, then every process at once.
    pub(crate) fn kill_host(&self, host: &str) {
        let host = self.host(host);
        if let Some(namespace) = &host.namespace {
            namespace.set_cable(false);
        }
        host.kill_all();
    }

    /// The power is back: the cable, ZooKeeper, mysqld (waits until it answers), and the agent if `agent`.
    pub(crate) async fn start_host(&self, host: &str, agent: bool) {
        let host = self.host(host);
        if let Some(namespace) = &host.namespace {
            namespace.heal();
        }
        host.start(Kind::Zookeeper);
        self.start_mysqld(&host.name).await;
        if agent {
            host.start(Kind::Agent);
        }
    }
}
