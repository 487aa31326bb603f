//! The layer rule of design section 3 and of `src/core/mod.rs`, held by reading the sources.

use std::fs;
use std::path::{Path, PathBuf};

/// Folder of `src` and what it may name by `crate::`; its own modules always.
const MAY_USE: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("config", &["core"]),
    ("binlog", &["core"]),
    ("zookeeper", &["core"]),
    // The host's clock and the process behind the socket: the fence ends in a SIGKILL.
    ("mysql", &["core", "host"]),
    ("host", &["core"]),
    ("http", &["core"]),
    // `cli::exit` alone: the exit codes of the contract.
    ("agent", &["core", "config", "zookeeper", "mysql", "host", "http", "cli::exit"]),
    ("datasource", &["core", "zookeeper"]),
    // Never ZooKeeper: what can stop an agent must not stop the guard.
    (
        "guard",
        &["core", "config", "mysql", "host", "cli::exit", "agent::reload", "agent::run::own_target", "agent::watcher"],
    ),
    ("cli", &["binlog", "core", "config", "zookeeper", "mysql", "host", "http", "agent", "guard"]),
];

/// Client crates and the only folders that may name them.
const ONLY_IN: &[(&str, &[&str])] = &[("zookeeper_client", &["zookeeper"]), ("mysql_async", &["mysql", "datasource"])];

/// What would make a decision depend on anything but its arguments, or have an effect.
const NOT_IN_CORE: &[&str] = &[
    "std::time::Instant",
    "Instant::now",
    "SystemTime",
    "std::thread",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::io",
    "std::sync",
    "tokio",
    "tracing",
    "async ",
    ".await",
    "println!",
    "rand::",
    "log::",
    "serde_json",
    "jiff",
];

/// Crates that core may use; `proptest` in its unit tests.
const CORE_CRATES: &[&str] = &["std", "serde", "thiserror", "proptest", "crate", "super", "self"];

/// The one reviewed module.
const UNSAFE_IN: &str = "host/memory.rs";

/// The faults of one file of the folder `layer`, each with its line.
fn faults(layer: &str, name: &str, source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in source.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let mut fault = |what: String| found.push(format!("{name}:{}: {what}", number + 1));
        for (krate, folders) in ONLY_IN {
            if code.contains(krate) && !folders.contains(&layer) {
                fault(format!("only {folders:?} may name {krate}"));
            }
        }
        for used in code.split("crate::").skip(1) {
            let first = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            let allowed = MAY_USE.iter().find(|(folder, _)| *folder == layer).map_or(&[][..], |(_, uses)| *uses);
            let fits = |rule: &&str| rule.split("::").next() == Some(first) && used.starts_with(*rule);
            if first != layer && !allowed.iter().any(fits) {
                fault(format!("{layer} may not use {first}"));
            }
        }
        if name != UNSAFE_IN && (code.contains("unsafe_code") || code.contains("unsafe {")) {
            fault(format!("only {UNSAFE_IN} may have unsafe code"));
        }
        if layer == "core" {
            for word in NOT_IN_CORE.iter().filter(|word| code.contains(**word)) {
                fault(format!("core may not use {word}"));
            }
            let import = code.trim_start().trim_start_matches("pub ").strip_prefix("use ");
            if let Some(root) = import.and_then(|path| path.split([':', ';', ' ']).next())
                && !CORE_CRATES.contains(&root)
                && root.starts_with(|c: char| c.is_lowercase())
            {
                fault(format!("core may not use the crate {root}"));
            }
        }
    }
    found
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("the sources can be listed") {
        let path = entry.expect("an entry can be read").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn no_source_breaks_the_layers() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut layers = Vec::new();
    for file in rust_files(&src) {
        let name = file.strip_prefix(&src).unwrap();
        // Files at the top (`lib.rs`, `main.rs`) tie the layers together.
        let Some(layer) = name.parent().and_then(|parent| parent.iter().next()) else { continue };
        let layer = layer.to_str().unwrap();
        assert!(MAY_USE.iter().any(|(folder, _)| *folder == layer), "src/{layer} has no rule yet: give it one");
        layers.push(layer.to_owned());
        found.extend(faults(layer, &name.display().to_string(), &fs::read_to_string(&file).unwrap()));
    }
    assert!(layers.iter().any(|layer| layer == "core"), "nothing was read");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn each_rule_can_be_broken() {
    for (layer, line) in [
        ("core", "let now = std::time::Instant::now();"),
        ("core", "use std::fs;"),
        ("core", "use rustix::time;"),
        ("core", "async fn step() {}"),
        ("core", "use crate::agent::turn::Turn;"),
        ("core", "use crate::mysql::fence::Fence;"),
        ("config", "use crate::agent::run::End;"),
        ("agent", "use zookeeper_client::Client;"),
        ("core", "fn f() { mysql_async::Conn::new() }"),
        ("zookeeper", "use crate::mysql::probe::Beat;"),
        ("agent", "use crate::cli::status::Status;"),
        ("host", "use crate::config::Config;"),
        ("guard", "use crate::zookeeper::viewer::Viewer;"),
        ("guard", "use crate::agent::turn::Turn;"),
        ("host", "#[allow(unsafe_code)]"),
    ] {
        assert!(!faults(layer, "made_up.rs", line).is_empty(), "not noticed in {layer}: {line}");
    }
    for (layer, line) in [
        ("core", "// tokio and std::fs are spoken of here"),
        ("core", "use super::view::View;"),
        ("agent", "use crate::cli::exit::Exit;"),
        ("zookeeper", "use zookeeper_client::Client;"),
    ] {
        assert_eq!(faults(layer, "made_up.rs", line), Vec::<String>::new(), "wrongly noticed in {layer}: {line}");
    }
}
