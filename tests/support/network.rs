//! Hosts as network namespaces on a bridge, or as loopback addresses.
//!
//! A namespace here has no name: it belongs to a process that does nothing else (its holder) and vanishes with it, cables
//! included. The holders are bound to the test's process, so that nothing is left behind however it ends, and two
//! tests at once cannot get in each other's way.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::process::{Bond, Process, command};

/// Where hosts live.
pub(crate) enum Network {
    /// The hub's holder: the bridges stand in its namespace, and so do the test's own sockets.
    Namespaces(Process),
    /// The second and third byte of all addresses, by the process id: 127.x.y.z.
    Loopback(u8, u8),
}

/// The ports are the same everywhere; the addresses differ. Not the usual ones: on loopback addresses a MySQL or ZooKeeper of
/// the machine that listens on all addresses would be in the way.
pub(crate) const MYSQL_PORT: u16 = 13306;
/// ZooKeeper's client port.
pub(crate) const ZOOKEEPER_PORT: u16 = 12181;

impl Network {
    /// Namespaces where the machine lets us make some, else loopback addresses; `MYSQL_HA_NET=loopback` asks for those.
    pub(crate) fn new(bond: Bond) -> Self {
        let asked = std::env::var("MYSQL_HA_NET").is_ok_and(|value| value == "loopback");
        let able = rustix::process::geteuid().is_root()
            && std::process::Command::new("unshare")
                .args(["--net", "--mount", "true"])
                .output()
                .is_ok_and(|o| o.status.success());
        if asked || !able {
            let pid = std::process::id();
            return Self::Loopback((pid >> 8) as u8 | 0x80, pid as u8);
        }
        let hub = holder(bond);
        within(hub.pid(), &["ip", "link", "set", "lo", "up"]);
        Self::Namespaces(hub)
    }

    /// Moves the calling thread into the hub; threads that it starts from then on are there too.
    pub(crate) fn enter(&self) {
        let Self::Namespaces(hub) = self else { return };
        let path = format!("/proc/{}/ns/net", hub.pid());
        let namespace = std::fs::File::open(&path).unwrap_or_else(|error| panic!("cannot open {path}: {error}"));
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network))
            .unwrap_or_else(|error| panic!("cannot enter the namespace {path}: {error}"));
    }

    /// The process in whose network the test itself lives; none with loopback addresses.
    pub(super) fn hub(&self) -> Option<u32> {
        match self {
            Self::Namespaces(hub) => Some(hub.pid()),
            Self::Loopback(..) => None,
        }
    }

    /// The address of the test itself as the hosts of cluster `cluster` reach it.
    pub(super) fn own_address(&self, cluster: u8) -> Ipv4Addr {
        match self {
            Self::Namespaces(_) => Ipv4Addr::new(10, 77, cluster, 1),
            Self::Loopback(x, y) => Ipv4Addr::new(127, *x, *y, cluster * 16 + 15),
        }
    }

    /// The address of host `number` (from 1) of cluster `cluster` (from 0).
    pub(crate) fn address(&self, cluster: u8, number: u8) -> Ipv4Addr {
        match self {
            Self::Namespaces(_) => Ipv4Addr::new(10, 77, cluster, 10 + number),
            Self::Loopback(x, y) => Ipv4Addr::new(127, *x, *y, cluster * 16 + number),
        }
    }

    /// Makes the bridge of a cluster. With loopback addresses there is nothing to make.
    pub(crate) fn add_bridge(&self, cluster: u8) {
        let Self::Namespaces(hub) = self else { return };
        let script = format!(
            "ip link add br{cluster} type bridge && ip addr add 10.77.{cluster}.1/24 dev br{cluster} && ip link set br{cluster} up"
        );
        within(hub.pid(), &["sh", "-c", &script]);
    }

    /// Makes the namespace of a host and its cable to the bridge.
    pub(crate) fn add_host(&self, bond: Bond, cluster: u8, number: u8) -> Option<Namespace> {
        let Self::Namespaces(hub) = self else { return None };
        let holder = holder(bond);
        let cable = format!("c{cluster}h{number}");
        let pid = holder.pid();
        let script = format!(
            "ip link add {cable} type veth peer name eth0 netns {pid} && ip link set {cable} master br{cluster} up"
        );
        within(hub.pid(), &["sh", "-c", &script]);
        let address = self.address(cluster, number);
        let script = format!("ip link set lo up && ip addr add {address}/24 dev eth0 && ip link set eth0 up");
        within(pid, &["sh", "-c", &script]);
        Some(Namespace { holder, bond, hub: hub.pid(), cable })
    }
}

/// One host's namespaces: the network's, and one of mounts, so that what is mounted for the host (a small disk) is gone with it.
pub(crate) struct Namespace {
    holder: Process,
    bond: Bond,
    hub: u32,
    cable: String,
}

impl Namespace {
    /// The process whose namespace it is.
    pub(crate) fn pid(&self) -> u32 {
        self.holder.pid()
    }

    /// Pulls the cable out (or plugs it in again): everything on the host still reaches the host itself.
    pub(crate) fn set_cable(&self, plugged: bool) {
        within(self.hub, &["ip", "link", "set", &self.cable, if plugged { "up" } else { "down" }]);
    }

    /// Drops the packets that go `way` between the host and `peer` (or everyone) of connections to `port` on `end`.
    pub(crate) fn drop_packets(&self, way: Way, peer: Option<Ipv4Addr>, end: End, port: u16) {
        let (peer, port) = (peer.map(|peer| peer.to_string()), port.to_string());
        let (chain, side) = match way {
            Way::Out => ("OUTPUT", "-d"),
            Way::In => ("INPUT", "-s"),
        };
        // Packets to whoever listens carry the port as their destination, those from there as their source.
        let ports = match (way, end) {
            (Way::Out, End::Theirs) | (Way::In, End::Ours) => "--dport",
            (Way::In, End::Theirs) | (Way::Out, End::Ours) => "--sport",
        };
        let mut words = vec!["iptables", "-w", "-A", chain, "-p", "tcp", ports, &port, "-j", "DROP"];
        if let Some(peer) = &peer {
            words.extend([side, peer.as_str()]);
        }
        within(self.pid(), &words);
    }

    /// Drops what the host sends to `port` (of `peer`, or of everyone) and what comes back from there.
    pub(crate) fn drop_traffic_to(&self, peer: Option<Ipv4Addr>, port: u16) {
        for way in Way::BOTH {
            self.drop_packets(way, peer, End::Theirs, port);
        }
    }

    /// Gives the host a disk of its own at `place`, of `megabytes`: a file system in memory that vanishes with the host.
    pub(crate) fn mount_small_disk(&self, place: &Path, megabytes: u32) {
        let size = format!("size={megabytes}m");
        self.run(&["mount", "-t", "tmpfs", "-o", &size, "tmpfs", &place.display().to_string()]);
    }

    /// Runs a command as on the host: in its network, with its disks.
    pub(crate) fn run(&self, words: &[&str]) -> String {
        within(self.pid(), words)
    }

    /// Lets everything through again and plugs the cable in.
    pub(crate) fn heal(&self) {
        within(self.pid(), &["iptables", "-w", "-F"]);
        self.set_cable(true);
    }
}

/// A direction, seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the host.
    Out,
    /// To the host.
    In,
}

impl Way {
    /// Either.
    pub(crate) const BOTH: [Self; 2] = [Self::Out, Self::In];
}

/// Who listens on the port of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The host: others connect to it.
    Ours,
    /// The peer: the host connects to it.
    Theirs,
}

/// The namespace vanishes with its last process. The kernel would end the holder too, a moment after us: whoever looks
/// right after a test would still find it.
impl Drop for Namespace {
    fn drop(&mut self) {
        if self.bond == Bond::Bound {
            self.holder.kill();
        }
    }
}

/// Runs a command inside the namespaces of a process.
fn within(pid: u32, words: &[&str]) -> String {
    let entry = enter(pid);
    command(&[&["nsenter", &entry[0], &entry[1]], words].concat())
}

/// The words by which `nsenter` enters the namespaces of a holder.
pub(super) fn enter(pid: u32) -> [String; 2] {
    [format!("--net=/proc/{pid}/ns/net"), format!("--mount=/proc/{pid}/ns/mnt")]
}

/// Starts a process with namespaces of its own (network, mounts), and waits until it has them.
fn holder(bond: Bond) -> Process {
    let words = ["--net", "--mount", "sleep", "infinity"].map(String::from);
    let holder = Process::start(bond, None, Path::new("unshare"), &words, Path::new("/dev/null"));
    // When it has become what it is for good, both namespaces are there and nothing mounted in them is seen outside.
    let name = format!("/proc/{}/comm", holder.pid());
    let since = Instant::now();
    while std::fs::read_to_string(&name).map_or(true, |name| name.trim() != "sleep") {
        assert!(since.elapsed() < Duration::from_secs(10), "no namespaces after 10 s for the process behind {name}");
        std::thread::sleep(Duration::from_millis(1));
    }
    holder
}
