//! How many files this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to `wanted`, as far as the hard limit allows; never lowers it. The limit in force then.
///
/// systemd starts services with 1024, for programs that use `select`; nothing here does.
#[must_use]
pub fn raise_open_files(wanted: u64) -> u64 {
    let now = getrlimit(Resource::Nofile);
    let current = now.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return current;
    }
    let raised = now.maximum.map_or(wanted, |most| most.min(wanted));
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: now.maximum }) {
        Ok(()) => raised,
        Err(_) => current,
    }
}
