//! What systemd sees of agent and guard, over a real notify socket: ready although neither ZooKeeper nor MySQL answers (an
//! outage of theirs must not become a restart loop), a status in words, a watchdog that is fed, an orderly stop. And what
//! their units say of each other.

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

/// Ends the program with the test, however it ends.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a datagram with `part` in it; those before are skipped.
fn expect(socket: &UnixDatagram, part: &str) {
    let since = Instant::now();
    let mut buffer = [0; 4096];
    while since.elapsed() < LIMIT {
        if let Ok(length) = socket.recv(&mut buffer)
            && String::from_utf8_lossy(&buffer[..length]).contains(part)
        {
            return;
        }
    }
    panic!("waited {LIMIT:?} in vain for {part}");
}

#[test]
fn agent_ready_without_zookeeper_and_mysql_fed_and_stopped() {
    ready_fed_and_stopped("run");
}

#[test]
fn guard_ready_without_mysql_fed_and_stopped() {
    ready_fed_and_stopped("guard");
}

fn ready_fed_and_stopped(verb: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display();
    let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a limit");
    let config = format!(
        "cluster: c\nname: db1\nzookeeper: {{hosts: ['127.0.0.1:1']}}\nfailover: {{durability: async}}\n\
         state_dir: {path}/state\nrun_dir: {path}/run\n\
         mysql: {{socket: {path}/none.sock, user: agent, password: x, advertise: '127.0.0.1:3306', \
         replication: {{user: repl, password: x}}}}\n"
    );
    std::fs::write(folder.path().join("agent.yaml"), config).expect("the file can be written");
    let child = Command::new(env!("CARGO_BIN_EXE_mysql-ha-agent"))
        .args([verb, "--config"])
        .arg(folder.path().join("agent.yaml"))
        .env("NOTIFY_SOCKET", folder.path().join("notify"))
        .spawn()
        .expect("the program starts");
    let mut agent = Agent(child);
    expect(&socket, "READY=1");
    expect(&socket, "WATCHDOG=1");
    let pid = agent.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
    expect(&socket, "STOPPING=1");
    assert_eq!(agent.0.wait().expect("it ends").code(), Some(0));
}

/// Whatever stops the agent must not stop the guard, nor the other way round.
#[test]
fn no_unit_stops_with_the_other() {
    for unit in ["agent", "guard"] {
        let path = format!("{}/packaging/mysql-ha-{unit}.service", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect("the unit can be read");
        let settings: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        for tie in ["Requires=", "Requisite=", "BindsTo=", "PartOf=", "Conflicts=", "Upholds="] {
            assert!(!settings.iter().any(|line| line.starts_with(tie)), "{path}: {tie}");
        }
        // The lease file must outlive a restart of either, which both do by themselves.
        for needed in
            ["Restart=always", "RuntimeDirectory=mysql-ha-agent", "RuntimeDirectoryPreserve=yes", "Type=notify"]
        {
            assert!(settings.contains(&needed), "{path}: {needed}");
        }
        assert!(settings.iter().any(|line| line.starts_with("OOMScoreAdjust=-")), "{path}");
    }
}

/// It acts when it is stopped, which at shutdown comes before anything that it needs is stopped.
#[test]
fn the_handover_unit_acts_at_its_stop_and_before_what_it_needs_is_stopped() {
    let path = format!("{}/packaging/mysql-ha-handover.service", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the unit can be read");
    let settings: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for needed in ["Type=oneshot", "RemainAfterExit=yes", "ExecStop=/usr/bin/mysql-ha-agent handover"] {
        assert!(settings.contains(&needed), "{path}: {needed}");
    }
    let after = settings.iter().find_map(|line| line.strip_prefix("After=")).expect("an order");
    for needed in ["mysql-ha-agent.service", "mysql.service", "network-online.target", "zookeeper.service"] {
        assert!(after.split(' ').any(|unit| unit == needed), "{path}: After={needed}");
    }
}

/// As root and by a verb that there is; and a package that puts it where systemd reads it by itself has enabled it. Whatever the one
/// before the start says, mysqld starts.
#[test]
fn the_drop_ins_of_mysqlds_unit_run_prestop_and_prestart() {
    for (file, line, verb) in [
        ("mysql-ha-stop.conf", "ExecStop=+/usr/bin/mysql-ha-agent prestop", "prestop"),
        ("mysql-ha-start.conf", "ExecStartPre=+-/usr/bin/mysql-ha-agent prestart", "prestart"),
    ] {
        let path = format!("{}/packaging/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect("the drop-in can be read");
        let settings: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(settings, ["[Service]", line]);
        let help = Command::new(env!("CARGO_BIN_EXE_mysql-ha-agent")).args([verb, "--help"]).output().expect("it runs");
        assert!(help.status.success(), "{help:?}");
    }
}

/// Where it knows nothing it changes nothing and says why; switched off it does not even look.
#[test]
fn prestart_without_a_note_or_switched_off_says_so() {
    for (rewind, part) in [("true", "has no note of this server"), ("false", "rejoin.rewind is false")] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().display();
        let config = format!(
            "cluster: c\nname: db1\nzookeeper: {{hosts: ['127.0.0.1:1']}}\nfailover: {{durability: lossless}}\n\
             state_dir: {path}/state\nrun_dir: {path}/run\nrejoin: {{rewind: {rewind}}}\n\
             mysql: {{socket: {path}/none.sock, user: agent, password: x, advertise: '127.0.0.1:3306', \
             replication: {{user: repl, password: x}}}}\n"
        );
        std::fs::write(folder.path().join("agent.yaml"), config).expect("the file can be written");
        let output = Command::new(env!("CARGO_BIN_EXE_mysql-ha-agent"))
            .args(["prestart", "--config"])
            .arg(folder.path().join("agent.yaml"))
            .output()
            .expect("the program runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.code() == Some(0) && said.contains(part), "{output:?}");
        assert!(!folder.path().join("state").exists(), "it has left something behind");
    }
}
