//! Files that work: defaults, every section, what is shown, what a reload does.

use std::time::Duration;

use super::super::keys::{KEYS, NOT_YET_IN_FORCE, find};
use super::super::sections::{CommandLine, Endpoint, Mode, Readers, RejoinPolicy};
use super::super::{Differences, HostPort};
use super::{LEAST, least_with, read};
use crate::core::records::DurabilityMode;

fn with(lines: &str) -> super::super::Config {
    read(&format!("{LEAST}{lines}")).unwrap_or_else(|faults| panic!("{faults}"))
}

#[test]
fn the_least_file_has_the_defaults_of_the_contract() {
    let config = with("");
    assert_eq!(config.zookeeper.root, "/mysql-ha");
    assert_eq!(config.timing(config.zookeeper.session_timeout).sum(), Duration::from_millis(5800));
    assert_eq!(config.zookeeper.readers, Readers::World);
    assert!(config.zookeeper.auth.is_none() && config.zookeeper.tls.is_none() && config.mysql.tls.is_none());
    assert!(matches!(config.mysql.endpoint, Endpoint::Socket(_)));
    assert_eq!((config.heartbeat.retries, config.heartbeat.recover_after), (3, 3));
    assert_eq!(config.heartbeat.exit_grace, Duration::ZERO);
    assert_eq!((config.failover.mode, config.failover.durability), (Mode::Automatic, DurabilityMode::Lossless));
    assert_eq!((config.failover.sync_replicas, config.failover.priority), (1, 100));
    assert_eq!(config.degrade.check_period, Some(Duration::from_secs(2)));
    assert_eq!(config.degrade.allow_times, Some(10));
    assert!(config.fencing.kill_connections && config.rejoin.rewind && config.failover.failsafe);
    assert_eq!(config.rejoin.policy, RejoinPolicy::Auto);
    assert_eq!(config.http.listen.map(|a| a.to_string()).as_deref(), Some("127.0.0.1:8008"));
    assert_eq!(config.log.level, tracing::Level::INFO);
    assert!(config.tags.is_empty());
}

#[test]
fn without_a_name_it_is_the_host_s() {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(read(&least_with("name: db1\n", "")).unwrap().name, host.trim_end());
}

#[test]
fn forms_that_mean_something_of_their_own() {
    let config = with(
        "http: {listen: off}\ndegrade: {check_period: 0, allow_times: 0}\ntags: {rack.unit: '1'}\n\
         hooks: {fenced: /bin/tell me, pre_promote: [/bin/ask, 'may I?']}\nheartbeat:\n",
    );
    assert_eq!(config.http.listen, None);
    assert_eq!((config.degrade.check_period, config.degrade.allow_times), (None, None));
    assert_eq!(config.tags["rack.unit"], "1");
    assert_eq!(config.hooks.fenced, Some(CommandLine(vec!["/bin/tell".into(), "me".into()])));
    assert_eq!(config.hooks.pre_promote, Some(CommandLine(vec!["/bin/ask".into(), "may I?".into()])));
}

#[test]
fn a_host_without_a_port_has_mysql_s() {
    for (given, port) in [("host: ::1", 3306), ("host: '::1'\n  port: 3307", 3307)] {
        let config = read(&least_with("user: agent", &format!("{given}\n  user: agent"))).unwrap();
        assert_eq!(config.mysql.endpoint, Endpoint::Tcp(HostPort { host: "::1".into(), port }));
    }
}

#[test]
fn what_is_shown_reads_back_as_the_same() {
    let config = with("tags: {rack: a, x.y: 'true'}\nfencing: {spare_users: [a, b]}\nzone: '7'\nhttp: {listen: off}\n");
    let shown = config.masked_yaml();
    assert_eq!(shown.matches("'***'").count(), 2, "{shown}");
    let again = read(&shown.replacen("'***'", "hunter2", 1).replacen("'***'", "hunter3", 1)).unwrap();
    assert_eq!(config.reload_differences(&again), Differences::default(), "{shown}");
    assert_eq!(again.masked_yaml(), shown);
}

#[test]
fn a_reload_applies_some_and_leaves_others() {
    let old = with("tags: {rack: a, row: b}\n");
    let changed = least_with("cluster: orders", "cluster: others");
    let new = read(&format!("{changed}tags: {{rack: c}}\nhooks: {{fenced: /bin/x}}\nstate_dir: /elsewhere\n")).unwrap();
    let differences = old.reload_differences(&new);
    assert_eq!(differences.applied, ["tags.rack", "tags.row"]);
    assert_eq!(differences.needs_restart, ["cluster", "hooks.fenced", "state_dir"]);

    let merged = old.reloaded(&new);
    assert_eq!((merged.cluster.as_str(), &merged.state_dir), ("orders", &old.state_dir));
    assert_eq!((&merged.tags, &merged.hooks), (&new.tags, &old.hooks));
    assert_eq!(old.reload_differences(&old.clone()), Differences::default());
    assert_eq!(merged.reload_differences(&new).needs_restart, differences.needs_restart);
    assert!(merged.reload_differences(&new).applied.is_empty());
}

#[test]
fn what_has_no_effect_yet_is_named_only_where_it_is_changed() {
    assert_eq!(with("").not_yet_in_force(), Vec::<&str>::new());
    assert_eq!(with("rejoin: {policy: auto, rewind: false}\n").not_yet_in_force(), Vec::<&str>::new());
    let file = format!("{LEAST}rejoin: {{policy: clone}}\nhooks: {{fenced: /bin/x}}\nzone: a\n");
    assert_eq!(read(&file).unwrap().not_yet_in_force(), ["rejoin.policy", "hooks.fenced"]);
}

#[test]
fn the_lists_of_keys_hold_together() {
    for path in NOT_YET_IN_FORCE {
        assert!(find(path).is_some(), "{path}");
    }
    for (index, key) in KEYS.iter().enumerate() {
        assert!(KEYS[..index].iter().all(|other| other.path != key.path), "{} stands twice", key.path);
        if let super::super::keys::Fallback::Is(_) = key.default {
            assert!(super::super::default_value(key).is_some(), "{} has a default it refuses", key.path);
        }
    }
}

/// The README names every key that has no effect yet, so that nobody counts on one.
#[test]
fn the_readme_names_what_is_not_in_force() {
    let readme = include_str!("../../../README.md");
    for key in crate::config::keys::NOT_YET_IN_FORCE {
        assert!(readme.contains(&format!("`{key}`")), "{key} is missing in the README");
    }
}
