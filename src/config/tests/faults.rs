//! Broken files and what is said of each: line, key, mend.

use super::{LEAST, least_with, read};

/// A file and the faults it must give: line, key, part of what is wrong, part of the mend.
struct Case {
    file: String,
    faults: Vec<(usize, &'static str, &'static str, &'static str)>,
}

fn appended(lines: &str, faults: &[(usize, &'static str, &'static str, &'static str)]) -> Case {
    Case { file: format!("{LEAST}{lines}"), faults: faults.to_vec() }
}

fn replaced(line: &str, by: &str, fault: (usize, &'static str, &'static str, &'static str)) -> Case {
    Case { file: least_with(line, by), faults: vec![fault] }
}

fn check(cases: Vec<Case>) {
    for Case { file, faults } in cases {
        let found = read(&file).expect_err(&file);
        assert_eq!(found.faults.len(), faults.len(), "{file}\n{found}");
        for (fault, (line, key, what, mend)) in found.faults.iter().zip(faults) {
            assert_eq!((fault.line, fault.key.as_str()), (Some(line), key), "{file}\n{found}");
            assert!(fault.what.contains(what), "wants `{what}`:\n{file}\n{found}");
            assert!(fault.mend.contains(mend), "wants `{mend}`:\n{file}\n{found}");
        }
    }
}

// LEAST has 13 lines; what is appended begins in line 14.

#[test]
fn unknown_and_misplaced_keys() {
    check(vec![
        appended("colour: red\n", &[(14, "colour", "no known key", "known here are cluster, name, zone, zookeeper")]),
        appended("heartbeat:\n  intervall: 1s\n", &[(15, "heartbeat.intervall", "no known", "`heartbeat.interval`")]),
        appended("heart_beat:\n  interval: 1s\n", &[(14, "heart_beat", "no known key", "did you mean `heartbeat`")]),
        appended("heartbeat:\n  retry-interval: 1s\n", &[(15, "heartbeat.retry-interval", "no", "retry_interval`?")]),
        appended("session_timeout: 5s\n", &[(14, "session_timeout", "no known", "`zookeeper.session_timeout`")]),
        appended("fencing.budget: 1s\n", &[(14, "fencing.budget", "no known key", "nested")]),
        appended("tags.rack: a\n", &[(14, "tags.rack", "no known key", "nested")]),
        appended("zookeeper.auth: {user: a}\n", &[(14, "zookeeper.auth", "no known key", "nested")]),
        appended("tags: {a b: c}\n", &[(14, "tags.a b", "no tag name", "letters")]),
        appended("tags: {\"<name>\": c}\n", &[(14, "tags.<name>", "no tag name", "letters")]),
        appended("hooks: {timeout: 1s, started: x}\n", &[(14, "hooks.started", "no known key", "pre_promote")]),
    ]);
}

#[test]
fn duplicates_name_both_lines() {
    check(vec![
        appended("cluster: b\n", &[(14, "cluster", "already in line 1", "remove one")]),
        appended(
            "# comment\n\nheartbeat:\n  \"retries\": 2\n  # between\n  retries: 3\n",
            &[(19, "heartbeat.retries", "already in line 17", "remove one")],
        ),
    ]);
}

#[test]
fn wrong_types() {
    check(vec![
        replaced("cluster: orders", "cluster: 7", (1, "cluster", "number 7", "quotes")),
        replaced("cluster: orders", "cluster: [a]", (1, "cluster", "a list", "one text")),
        replaced("cluster: orders", "cluster:", (1, "cluster", "no value", "write one")),
        replaced("name: db1", "name: ''", (2, "name", "empty", "remove the line")),
        appended("heartbeat: 1s\n", &[(14, "heartbeat", "text, not a group", "interval, timeout, retries")]),
        appended("heartbeat:\n  interval: 10\n", &[(15, "heartbeat.interval", "no unit", "10s or 10ms")]),
        appended("heartbeat:\n  interval: 1.5\n", &[(15, "heartbeat.interval", "`1.5`", "whole number")]),
        appended("heartbeat:\n  interval: [1s]\n", &[(15, "heartbeat.interval", "a list", "500ms")]),
        appended("heartbeat:\n  retries: '3'\n", &[(15, "heartbeat.retries", "`3`", "without quotes")]),
        appended("heartbeat:\n  retries: 2.5\n", &[(15, "heartbeat.retries", "2.5", "from 0 to 100")]),
        appended("fencing:\n  kill_connections: yes\n", &[(15, "fencing.kill_connections", "`yes`", "true or false")]),
        appended("fencing:\n  spare_users: bob\n", &[(15, "fencing.spare_users", "no list", "write a list")]),
        appended("http:\n  listen: false\n", &[(15, "http.listen", "false", "write off")]),
        appended("tags:\n  rack: 12\n", &[(15, "tags.rack", "number 12", "quotes")]),
    ]);
}

#[test]
fn values_that_cannot_work() {
    check(vec![
        replaced("cluster: orders", "cluster: Orders", (1, "cluster", "`Orders`", "lower-case")),
        replaced("cluster: orders", "cluster: a/b", (1, "cluster", "`a/b`", "lower-case")),
        replaced("cluster: orders", "cluster: ..", (1, "cluster", "`..`", "lower-case")),
        replaced("name: db1", "name: db 1", (2, "name", "no agent name", "letters")),
        replaced("advertise: db1:3306", "advertise: db1", (8, "mysql.advertise", "no port", "host:port")),
        replaced("advertise: db1:3306", "advertise: db1:70000", (8, "mysql.advertise", "1 to 65535", "host:port")),
        replaced(
            "durability: lossless",
            "durability: lossy",
            (13, "failover.durability", "`lossy`", "lossless, async"),
        ),
        replaced("[zk1:2181, zk2:2181]", "zk1:2181", (4, "zookeeper.hosts", "no list", "[zk1:2181")),
        replaced("[zk1:2181, zk2:2181]", "[]", (4, "zookeeper.hosts", "empty list", "at least one")),
        replaced("[zk1:2181, zk2:2181]", "[a:1, b:1, a:1]", (4, "zookeeper.hosts", "named twice", "remove one")),
        replaced(
            " [zk1:2181, zk2:2181]",
            "\n    - a:1\n    # c\n    - b\n",
            (7, "zookeeper.hosts", "`b` has no port", "host:port"),
        ),
        appended("heartbeat:\n  interval: 0s\n", &[(15, "heartbeat.interval", "0s", "from 50ms to 5m")]),
        appended("heartbeat:\n  retries: -1\n", &[(15, "heartbeat.retries", "-1", "from 0 to 100")]),
        appended("heartbeat:\n  recover_after: 0\n", &[(15, "heartbeat.recover_after", "0", "from 1")]),
        appended("heartbeat:\n  schema: my-ha\n", &[(15, "heartbeat.schema", "`my-ha`", "letters")]),
        appended("state_dir: state\n", &[(14, "state_dir", "no absolute path", "leading slash")]),
        appended("log:\n  level: loud\n", &[(15, "log.level", "`loud`", "error, warn, info")]),
        appended("http:\n  listen: ':8008'\n", &[(15, "http.listen", "no host", "host:port")]),
        appended("hooks:\n  fenced: echo $X | mail\n", &[(15, "hooks.fenced", "shell", "list of words")]),
        appended("hooks:\n  fenced: []\n", &[(15, "hooks.fenced", "no program", "write one")]),
        replaced(
            "durability: lossless",
            "durability: async\n  sync_replicas: 0",
            (14, "failover.sync_replicas", "0", "from 1"),
        ),
        replaced(
            "durability: lossless",
            "durability: async\n  priority: 10001",
            (14, "failover.priority", "10001", "0 to 10000"),
        ),
        replaced(
            "durability: lossless",
            "durability: async\n  priority: -1",
            (14, "failover.priority", "-1", "0 to 10000"),
        ),
        replaced("hosts:", "root: mysql-ha\n  hosts:", (4, "zookeeper.root", "no ZooKeeper path", "/mysql-ha")),
        replaced("hosts:", "root: /ha/\n  hosts:", (4, "zookeeper.root", "no ZooKeeper path", "slash at its end")),
        replaced("hosts:", "root: /zookeeper/x\n  hosts:", (4, "zookeeper.root", "own", "another parent")),
        replaced("hosts:", "auth: {readers: [bob]}\n  hosts:", (4, "zookeeper.auth.readers", "`bob`", "digest")),
    ]);
}

#[test]
fn rules_between_keys() {
    check(vec![
        replaced(
            "user: agent",
            "socket: /s\n  host: h\n  user: agent",
            (7, "mysql.host", "beside mysql.socket", "one way"),
        ),
        replaced("user: agent", "port: 3306\n  user: agent", (6, "mysql.port", "without mysql.host", "add mysql.host")),
        replaced(
            "password: hunter2",
            "password: a\n  password_env: SET",
            (8, "mysql.password_env", "beside mysql.password", "keep one"),
        ),
        replaced("hosts:", "auth: {user: u}\n  hosts:", (4, "zookeeper.auth.password", "missing", "password_file")),
        replaced("hosts:", "auth: {password: p}\n  hosts:", (4, "zookeeper.auth.user", "missing", "add it")),
        replaced("hosts:", "tls: {cert_file: /c}\n  hosts:", (4, "zookeeper.tls.key_file", "beside", "needs its key")),
        replaced("hosts:", "tls: {key_file: /c}\n  hosts:", (4, "zookeeper.tls.cert_file", "beside", "needs its key")),
    ]);
}

#[test]
fn the_timing_names_the_sum_and_the_keys() {
    check(vec![
        replaced(
            "hosts:",
            "session_timeout: 5s\n  hosts:",
            (
                4,
                "zookeeper.session_timeout",
                "1s + 3 × op_timeout 1.2s + fencing.budget 1s + drift 0.1s = 5.7s > T 5s",
                "lower zookeeper.op_timeout to 960ms or less, or raise zookeeper.session_timeout to 5800ms",
            ),
        ),
        // Where the session timeout is left at its default, the fault stands at the key that was changed.
        appended("fencing:\n  budget: 6s\n", &[(15, "fencing.budget", "= 10.8s > T 10s", "op_timeout to 930ms")]),
    ]);
}

#[test]
fn what_is_missing_stands_at_its_section() {
    check(vec![
        Case {
            file: "name: db1\nmysql:\n  user: a\n  replication: {}\n".into(),
            faults: vec![
                (1, "cluster", "missing", "the replica set's name"),
                (1, "zookeeper.hosts", "missing", "members of the ensemble"),
                (1, "failover.durability", "missing", "lossless or async"),
                (2, "mysql.advertise", "missing", "replicas and clients"),
                (2, "mysql.password", "missing", "mysql.password_file"),
                (4, "mysql.replication.user", "missing", "replicates"),
                (4, "mysql.replication.password", "missing", "mysql.replication.password_env"),
            ],
        },
        Case { file: "- a\n- b\n".into(), faults: vec![(1, "", "a list, not keys", "agent.yaml.example")] },
    ]);
}

#[test]
fn all_faults_come_at_once_in_the_order_of_lines() {
    let file = "cluster: A\nname: b c\nzookeeper: {hosts: [x], op_timeout: 3}\nmysql: {usr: x}\nlog: {level: all}\n";
    let faults = read(file).unwrap_err();
    let lines: Vec<usize> = faults.faults.iter().filter_map(|f| f.line).collect();
    assert!(lines.is_sorted(), "{faults}");
    for key in
        ["cluster", "name", "zookeeper.hosts", "zookeeper.op_timeout", "mysql.usr", "log.level", "mysql.advertise"]
    {
        assert!(faults.faults.iter().any(|f| f.key == key), "{key} in\n{faults}");
    }
    assert_eq!(faults.to_string().lines().count(), faults.faults.len(), "{faults}");
}

#[test]
fn the_text_names_file_line_key_and_mend() {
    let faults = read(&least_with("durability: lossless", "durability: lossy")).unwrap_err();
    assert_eq!(faults.to_string(), "agent.yaml:13: failover.durability: is `lossy` — write one of lossless, async");
}

#[test]
fn text_that_is_no_yaml_names_its_line() {
    for (file, line) in
        [("cluster: a\n\tname: b\n", 2), ("a: 'x\nb: 1\n", 3), ("a: !tag x\n", 1), ("a: 1\n---\nb: 1\n", 1)]
    {
        let faults = read(file).unwrap_err();
        assert_eq!(faults.faults.len(), 1, "{faults}");
        assert!(faults.faults[0].what.contains("no valid YAML"), "{faults}");
        assert!(faults.faults[0].line.is_none_or(|l| l <= line), "{file}: {faults}");
    }
}

#[test]
fn a_file_that_is_not_there_says_what_to_do() {
    let faults = super::super::load(std::path::Path::new("/nowhere/agent.yaml")).unwrap_err().to_string();
    assert!(faults.starts_with("/nowhere/agent.yaml: cannot be read: "), "{faults}");
    assert!(faults.contains("--config"), "{faults}");
}
