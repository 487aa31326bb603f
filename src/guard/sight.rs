//! The files that the guard looks at.

use std::path::PathBuf;
use std::time::Duration;

use tracing::warn;

use crate::config::Config;
use crate::core::guard::{Lease, Marker};
use crate::core::time::Moment;
use crate::host::beside::Beside;
use crate::host::lease_file::{self, LeaseFile};
use crate::host::state_dir::{StateDirError, member_in};

/// Lease file and marker as last read.
#[derive(Debug)]
pub struct Files {
    /// The lease file.
    pub lease_path: PathBuf,
    state_dir: PathBuf,
    cluster: String,
    boot_id: String,
    lease: Option<Lease>,
    marker: Marker,
    reading: Beside<Result<Marker, StateDirError>>,
    complained: bool,
}

impl Files {
    /// Reads nothing yet.
    #[must_use]
    pub fn new(config: &Config, boot_id: &str) -> Self {
        Self {
            lease_path: LeaseFile::path_in(&config.run_dir, &config.cluster, &config.name),
            state_dir: config.state_dir.clone(),
            cluster: config.cluster.clone(),
            boot_id: boot_id.to_owned(),
            lease: None,
            marker: Marker::Unknown,
            reading: Beside::default(),
            complained: false,
        }
    }

    /// The lease: what the file says, or what it said last where it says nothing now (interleaving 9).
    pub fn lease(&mut self) -> Option<Lease> {
        let trouble = match lease_file::read(&self.lease_path) {
            Ok(Some(Ok(state))) if state.boot_id == self.boot_id => {
                self.lease = Some(Lease { until: state.until, paused: state.paused, instance: state.instance });
                None
            }
            Ok(Some(Ok(_)) | None) => None,
            Ok(Some(Err(invalid))) => Some(invalid.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = trouble.as_ref().filter(|_| !self.complained) {
            warn!(event = "lease_file", path = %self.lease_path.display(), %why,
                "the lease file cannot be read; what it said last stays in force until its end");
        }
        self.complained = trouble.is_some();
        self.lease.clone()
    }

    /// Whether the file shows a lease that holds: asked in the midst of a fence.
    #[must_use]
    pub fn holds_again(&self, budget: Duration, now: Moment) -> bool {
        let state = lease_file::read(&self.lease_path).ok().flatten().and_then(Result::ok);
        let until = state.filter(|state| state.boot_id == self.boot_id).and_then(|state| state.until);
        until.is_some_and(|until| now < until - budget)
    }

    /// The marker, read anew; what was read last where the disk hangs or fails.
    pub async fn marker(&mut self) -> Marker {
        let (folder, cluster) = (self.state_dir.clone(), self.cluster.clone());
        match self.reading.run(move || read_marker(&folder, &cluster)).await {
            Some(Ok(marker)) => self.marker = marker,
            Some(Err(error)) => warn!(event = "marker", %error, "the marker of this server cannot be read"),
            None => {}
        }
        self.marker.clone()
    }
}

fn read_marker(state_dir: &std::path::Path, cluster: &str) -> Result<Marker, StateDirError> {
    let member = member_in(state_dir)?.filter(|member| member.adopted && member.cluster == cluster);
    Ok(member.map_or(Marker::Absent, |member| Marker::Of(member.server_uuid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str = "11111111-1111-1111-1111-111111111111";

    fn files(folder: &std::path::Path) -> Files {
        Files {
            lease_path: folder.join("run/lease"),
            state_dir: folder.to_owned(),
            cluster: "orders".into(),
            boot_id: BOOT.into(),
            lease: None,
            marker: Marker::Unknown,
            reading: Beside::default(),
            complained: false,
        }
    }

    /// Interleaving 9.
    #[test]
    fn what_was_granted_stays_granted_when_the_file_goes_or_breaks() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files(folder.path());
        assert_eq!(files.lease(), None);
        let mut file = LeaseFile::open(&files.lease_path, BOOT, "agent").unwrap();
        assert_eq!(files.lease(), None, "opened is not written");
        file.write(Some(Moment(7))).unwrap();
        let granted = files.lease();
        assert_eq!(granted.as_ref().and_then(|lease| lease.until), Some(Moment(7)));
        let path = files.lease_path.clone();
        for break_it in [
            &(|| std::fs::write(&path, "torn").unwrap()) as &dyn Fn(),
            &|| std::fs::write(&path, "").unwrap(),
            &|| std::fs::remove_file(&path).unwrap(),
            &|| std::fs::create_dir(&path).unwrap(),
        ] {
            break_it();
            assert_eq!(files.lease(), granted);
        }
        std::fs::remove_dir(&path).unwrap();
        file.write(None).unwrap();
        assert_eq!(files.lease().map(|lease| lease.until), Some(None), "the agent says that it holds none");
    }

    /// Interleaving 8.
    #[test]
    fn a_lease_of_another_boot_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files(folder.path());
        let another = "22222222-2222-2222-2222-222222222222";
        LeaseFile::open(&files.lease_path, another, "agent").unwrap().write(Some(Moment(7))).unwrap();
        assert_eq!(files.lease(), None);
    }

    #[tokio::test]
    async fn the_marker_is_ours_only_if_adopted_by_this_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files(folder.path());
        let write = |text: &str| std::fs::write(folder.path().join("member.json"), text).unwrap();
        write("{");
        assert_eq!(files.marker().await, Marker::Unknown);
        std::fs::remove_file(folder.path().join("member.json")).unwrap();
        assert_eq!(files.marker().await, Marker::Absent);
        write(r#"{"cluster": "orders", "server_uuid": "u", "adopted": true}"#);
        assert_eq!(files.marker().await, Marker::Of("u".into()));
        write("{");
        assert_eq!(files.marker().await, Marker::Of("u".into()), "what was read last");
        for other in [
            r#"{"cluster": "others", "server_uuid": "u", "adopted": true}"#,
            r#"{"cluster": "orders", "server_uuid": "u", "adopted": false}"#,
        ] {
            write(other);
            assert_eq!(files.marker().await, Marker::Absent);
        }
    }
}
