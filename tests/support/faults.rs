//! Faults of whole hosts and of the network between them. Faults of one process: [`Host`].
//!
//! All but [`Cluster::kill_host`] and [`Cluster::start_host`] need namespaces and panic with loopback addresses; a test
//! asks `Stage::can_partition` first.

use super::cluster::Cluster;
use super::host::{Host, Kind};
use super::network::{End, MYSQL_PORT, Namespace, Way, ZOOKEEPER_PORT};

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

    /// Drops what goes one way between this host's clients of ZooKeeper and all members: its requests (`Out`), or the answers
    /// to them (`In`).
    pub(crate) fn cut_zookeeper_one_way(&self, host: &str, way: Way) {
        self.namespace(host).drop_packets(way, None, End::Theirs, ZOOKEEPER_PORT);
    }

    /// Drops what goes `ways` between this host and `peer` of MySQL's traffic, whoever of the two has connected.
    pub(crate) fn cut_mysql(&self, host: &str, peer: &str, ways: &[Way]) {
        let address = self.host(peer).address;
        for way in ways {
            for end in [End::Ours, End::Theirs] {
                self.namespace(host).drop_packets(*way, Some(address), end, MYSQL_PORT);
            }
        }
    }

    /// The host's virtual machine stands still: nothing runs, nothing is answered.
    pub(crate) fn freeze_host(&self, host: &str) {
        let host = self.host(host);
        host.pause_all();
        if let Some(namespace) = &host.namespace {
            namespace.set_cable(false);
        }
    }

    /// It goes on. The cable first: what has waited for it meanwhile comes in as its processes wake up.
    pub(crate) fn thaw_host(&self, host: &str) {
        let host = self.host(host);
        if let Some(namespace) = &host.namespace {
            namespace.set_cable(true);
        }
        host.resume_all();
    }

    /// Puts mysqld's data directory on a disk of its own, before anything is in it.
    pub(super) fn mount_data_disk(&self, host: &str, megabytes: u32) {
        let place = self.host(host).data_directory();
        std::fs::create_dir_all(&place).unwrap_or_else(|error| panic!("cannot make {}: {error}", place.display()));
        self.namespace(host).mount_small_disk(&place, megabytes);
    }

    /// Fills the disk of `host` to its last byte (`small_disks`).
    pub(crate) fn fill_disk(&self, host: &str) {
        let host = self.host(host);
        // `dd` says that there is no space left, as it should.
        let script = format!(
            "dd if=/dev/zero of='{}/ballast' bs=64k 2> /dev/null; test -s '{0}/ballast'",
            host.data_directory().display()
        );
        host.run(&["sh", "-c", &script]);
    }

    /// Makes room again.
    pub(crate) fn empty_disk(&self, host: &str) {
        let host = self.host(host);
        host.run(&["rm", &format!("{}/ballast", host.data_directory().display())]);
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
