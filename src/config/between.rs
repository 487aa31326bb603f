//! Rules between keys, and what is found out where the file leaves a key open.

use std::path::Path;
use std::time::Duration;

use super::reader::Reader;
use super::rule;
use super::value::Value;
use crate::core::timing::Timing;

/// Where distributions put mysqld's socket: Debian and Ubuntu, then Red Hat and MySQL's own packages.
const SOCKETS: [&str; 2] = ["/run/mysqld/mysqld.sock", "/var/lib/mysql/mysql.sock"];

/// MySQL's limit for the password in `CHANGE REPLICATION SOURCE TO`.
const LONGEST_REPLICATION_PASSWORD: usize = 32;

/// Applies them all.
pub(super) fn check(reader: &mut Reader<'_>) {
    name(reader);
    endpoint(reader);
    secret(reader, "mysql.password", true);
    secret(reader, "mysql.replication.password", true);
    replication_password(reader);
    let authenticated = reader.names("zookeeper.auth.user");
    secret(reader, "zookeeper.auth.password", authenticated);
    if !authenticated && FORMS.iter().any(|form| reader.names(&format!("zookeeper.auth.password{form}"))) {
        reader.fault("zookeeper.auth.user", "is missing beside the password", "add it, or remove the password");
    }
    for section in ["zookeeper.tls", "mysql.tls"] {
        certificate(reader, section);
    }
    timing(reader);
}

/// What a secret's key ends with in its three forms.
const FORMS: [&str; 3] = ["", "_file", "_env"];

fn secret(reader: &mut Reader<'_>, path: &str, required: bool) {
    let given: Vec<String> = FORMS.iter().map(|form| format!("{path}{form}")).filter(|p| reader.names(p)).collect();
    match given.as_slice() {
        [] if required => {
            reader.fault(path, "is missing", format!("add one of {path}, {path}_file and {path}_env"));
        }
        [first, second, ..] => {
            reader.fault(second, format!("is given beside {first}"), "keep one of the forms");
        }
        _ => {}
    }
}

fn replication_password(reader: &mut Reader<'_>) {
    for form in FORMS {
        let path = format!("mysql.replication.password{form}");
        if let Some(Value::Secret(secret)) = reader.values.by_path.get(&path)
            && secret.reveal().chars().count() > LONGEST_REPLICATION_PASSWORD
        {
            reader.fault(
                &path,
                format!("is a password of more than {LONGEST_REPLICATION_PASSWORD} characters"),
                "MySQL cannot replicate with it: give the replication account a shorter one",
            );
        }
    }
}

fn name(reader: &mut Reader<'_>) {
    if reader.names("name") {
        return;
    }
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    match rule::name(&host) {
        Ok(()) => {
            reader.values.by_path.insert("name".into(), Value::Text(host.into_owned()));
        }
        Err((what, _)) => {
            reader.fault("name", format!("is missing, and the host name {what}"), "add it, unique within the cluster");
        }
    }
}

/// A socket, or a host with a port.
fn endpoint(reader: &mut Reader<'_>) {
    let (socket, host, port) = (reader.names("mysql.socket"), reader.names("mysql.host"), reader.names("mysql.port"));
    if socket && (host || port) {
        let second = if host { "mysql.host" } else { "mysql.port" };
        reader.fault(second, "is given beside mysql.socket", "keep one way to reach the server");
    } else if port && !host {
        reader.fault("mysql.port", "is given without mysql.host", "add mysql.host, or remove the port");
    } else if host && !port {
        reader.values.by_path.insert("mysql.port".into(), Value::Integer(3306));
    } else if !socket && !host {
        // While mysqld is down neither is there; then the first, which the next start of the agent corrects.
        let found = SOCKETS.iter().find(|path| Path::new(path).exists()).unwrap_or(&SOCKETS[0]);
        reader.values.by_path.insert("mysql.socket".into(), Value::Text((*found).to_owned()));
    }
}

fn certificate(reader: &mut Reader<'_>, section: &str) {
    let (certificate, key) = (format!("{section}.cert_file"), format!("{section}.key_file"));
    for (given, missing) in [(&certificate, &key), (&key, &certificate)] {
        if reader.names(given) && !reader.names(missing) {
            reader.fault(missing, format!("is missing beside {given}"), "add it: a certificate needs its key");
        }
    }
}

/// With the timeout as asked for; what the ensemble grants is checked again once connected.
fn timing(reader: &mut Reader<'_>) {
    const KEYS: [&str; 4] =
        ["zookeeper.session_timeout", "zookeeper.renew_interval", "zookeeper.op_timeout", "fencing.budget"];
    let [Some(session_timeout), Some(renew_interval), Some(op_timeout), Some(fencing_budget)] =
        KEYS.map(|key| duration(reader, key))
    else {
        return; // one of them has a fault of its own
    };
    let timing = Timing { session_timeout, renew_interval, op_timeout, fencing_budget };
    if let Err(fault) = timing.check() {
        // All on defaults fits, so the file names at least one of them.
        let key = KEYS.into_iter().find(|key| reader.names(key)).unwrap_or(KEYS[0]);
        reader.fault(key, fault.what(), fault.mend());
    }
}

fn duration(reader: &Reader<'_>, path: &str) -> Option<Duration> {
    match reader.values.by_path.get(path) {
        Some(Value::Duration(length)) => Some(*length),
        _ => None,
    }
}
