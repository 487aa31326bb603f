//! Verbs where nothing else runs: what they say without a usable file, and without ZooKeeper and MySQL.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FILE: &str = "cluster: c
name: db1
zookeeper: {hosts: ['127.0.0.1:1'], op_timeout: 100ms}
mysql:
  socket: /nowhere/s
  user: agent
  password: agent-secret
  advertise: 127.0.0.1:3306
  replication: {user: repl, password: repl-secret}
failover: {durability: lossless}
tags: {rack: '7'}
";

/// A folder with this file in it.
fn folder(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("agent.yaml");
    let own = format!("state_dir: {0}\nrun_dir: {0}\n", folder.path().display());
    let text = if text.is_empty() { String::new() } else { format!("{text}{own}") };
    std::fs::write(&file, text).expect("the file can be written");
    (folder, file)
}

fn verb(file: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mysql-ha-agent"));
    let Output { status, stdout, stderr } =
        command.args(words).arg("--config").arg(file).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (status.code(), text(&stdout), text(&stderr))
}

/// A monitor reads stdout and its own codes, also where the file is the fault.
#[test]
fn a_monitor_is_told_of_an_unusable_file_in_one_line() {
    let faulty = "cluster: c\nnonsense: 1\n";
    for (text, part) in [(Some(faulty), "nonsense"), (Some(""), "is empty"), (None, "cannot be read")] {
        let (_folder, mut file) = folder(text.unwrap_or_default());
        if text.is_none() {
            file = file.with_file_name("missing.yaml");
        }
        let (code, stdout, stderr) = verb(&file, &["check", "--nagios"]);
        assert_eq!(code, Some(3), "{stdout}{stderr}");
        assert!(stdout.starts_with("UNKNOWN: ") && stdout.lines().count() == 1, "{stdout}");
        assert!(stderr.contains(part), "{stderr}");
        let (code, stdout, _) = verb(&file, &["check"]);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "without a monitor as ever");
    }
    let (_folder, file) = folder("");
    let (_, _, stderr) = verb(&file, &["status"]);
    assert!(stderr.contains("is empty") && stderr.contains("agent.yaml.example"), "{stderr}");
}

#[test]
fn config_show_gives_json_where_that_is_asked_for() {
    let (_folder, file) = folder(FILE);
    let (code, stdout, _) = verb(&file, &["config", "show", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
    assert_eq!(code, Some(0));
    assert_eq!((&shown["cluster"], &shown["tags"]["rack"]), (&"c".into(), &"7".into()), "{shown}");
    assert!(shown["mysql"]["password"] == "***" && !stdout.contains("secret"), "{shown}");
    let (_, yaml, _) = verb(&file, &["config", "show"]);
    assert!(yaml.starts_with("cluster: c"), "{yaml}");
}

/// Without ZooKeeper the lease file is all that is known.
#[test]
fn status_says_without_zookeeper_what_the_lease_file_tells() {
    use mysql_ha_agent::host::clock;
    use mysql_ha_agent::host::lease_file::{LeaseFile, LeaseState};
    let (folder, file) = folder(FILE);
    let (code, stdout, stderr) = verb(&file, &["status"]);
    assert_eq!((code, stdout.as_str()), (Some(3), ""), "{stderr}");
    assert!(stderr.contains("ZooKeeper cannot be reached") && stderr.contains("may take no writes"), "{stderr}");
    let state = LeaseState {
        sequence: 1,
        until: Some(clock::now() + std::time::Duration::from_secs(600)),
        paused: None,
        pid: 1,
        boot_id: clock::boot_id().expect("/proc is there"),
        instance: "agent".into(),
    };
    std::fs::write(LeaseFile::path_in(folder.path(), "c", "db1"), state.encode()).expect("it can be written");
    let (code, _, stderr) = verb(&file, &["status"]);
    assert!(code == Some(3) && stderr.contains("may take writes for 5"), "{stderr}");
    let (_, stdout, _) = verb(&file, &["check"]);
    assert!(stdout.contains("may take writes for 5"), "{stdout}");
}
