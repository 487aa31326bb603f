//! `state_dir`: what must outlive a restart of the agent, and the proof that only one agent uses it.
//!
//! The lock is more than tidiness: whoever holds it knows that its predecessor of the same directory is dead, and may
//! take over the predecessor's nodes in ZooKeeper (design, "Restart of an agent").

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// What is wrong with the directory.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// Another agent runs on it.
    #[error("another agent{} runs with state_dir {}; end it, or give this one a state_dir of its own", .pid.map_or(String::new(), |pid| format!(" (pid {pid})")), .path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Its pid, where it could be read.
        pid: Option<u32>,
    },
    /// The file system says no.
    #[error("{what} {}: {source}; state_dir must be a directory that the agent may write to", .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The marker is there and says nothing that can be understood.
    #[error("{} cannot be read: {source}; remove it if this server is to be adopted anew", .path.display())]
    Marker {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// `member.json`: tells a later start that this server is under the product's care, also while ZooKeeper is away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// `cluster`.
    pub cluster: String,
    /// `@@server_uuid`.
    pub server_uuid: String,
    /// Whether it was part of a `topology`.
    pub adopted: bool,
}

/// The directory, held by this process until it ends.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    /// Holds the lock; the kernel takes it back when the process ends, however it ends.
    _lock: File,
}

impl StateDir {
    /// Takes the directory, creating it where it is missing.
    ///
    /// # Errors
    /// [`StateDirError::InUse`] names the other agent; [`StateDirError::Io`] what could not be created or locked.
    pub fn take(path: &Path) -> Result<Self, StateDirError> {
        let file = path.join("lock");
        fs::create_dir_all(path).map_err(failed("cannot create", path))?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&file)
            .map_err(failed("cannot open", &file))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let pid = lock.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(StateDirError::InUse { path: path.to_owned(), pid });
            }
            Err(error) => return Err(failed("cannot lock", &file)(error.into())),
        }
        // The pid is for the message of the next one alone. A full disk must not keep the agent from starting.
        let _ = lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| write!(lock, "{}", std::process::id()));
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The marker, where this server has been under our care.
    ///
    /// # Errors
    /// Unreadable, or no JSON of this form.
    pub fn member(&self) -> Result<Option<Member>, StateDirError> {
        member_in(&self.path)
    }

    /// Writes the marker; writes nothing where it already says so.
    ///
    /// # Errors
    /// The file system says no; the old marker then still stands whole.
    pub fn set_member(&self, member: &Member) -> Result<(), StateDirError> {
        if self.member().is_ok_and(|old| old.as_ref() == Some(member)) {
            return Ok(());
        }
        let path = self.path.join("member.json");
        let text = serde_json::to_vec(member).map_err(|source| StateDirError::Marker { path: path.clone(), source })?;
        write_whole(&path, &text).map_err(failed("cannot write", &path))
    }
}

/// The marker in a directory that another process holds.
///
/// # Errors
/// Unreadable, or no JSON of this form.
pub fn member_in(state_dir: &Path) -> Result<Option<Member>, StateDirError> {
    let path = state_dir.join("member.json");
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("cannot read", &path)(error)),
    };
    serde_json::from_slice(&text).map(Some).map_err(|source| StateDirError::Marker { path, source })
}

/// The marker of the verb `fence`: while it is there the agent gives no write to this server. The verb sets it before it
/// touches the server, the agent looks for it all the time, also before anything else at its start.
#[must_use]
pub fn fence_marker(state_dir: &Path) -> PathBuf {
    state_dir.join("fenced_by_hand")
}

/// Sets the marker, so that it outlives a power cut. No lock is needed: it has no content to spoil.
///
/// # Errors
/// The file system says no.
pub fn set_fence_marker(state_dir: &Path) -> Result<(), StateDirError> {
    let path = fence_marker(state_dir);
    fs::create_dir_all(state_dir).map_err(failed("cannot create", state_dir))?;
    write_whole(&path, b"set by 'mysql-ha-agent fence', removed by 'mysql-ha-agent unfence'\n")
        .map_err(failed("cannot write", &path))
}

/// Removes it; whether it was there.
///
/// # Errors
/// The file system says no.
pub fn clear_fence_marker(state_dir: &Path) -> Result<bool, StateDirError> {
    let path = fence_marker(state_dir);
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed("cannot remove", &path)(error)),
    }
}

fn failed<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> StateDirError + 'a {
    move |source| StateDirError::Io { what, path: path.to_owned(), source }
}

/// Replaces a file so that a reader, also one after a power cut, sees the old content or the new.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = File::create(&draft)?;
    file.write_all(content)?;
    // Before the rename: some file systems order the rename first and would leave an empty file.
    file.sync_all()?;
    fs::rename(&draft, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(adopted: bool) -> Member {
        Member { cluster: "orders".into(), server_uuid: "3e11fa47-71ca-11e1-9e33-c80aa9429562".into(), adopted }
    }

    #[test]
    fn one_at_a_time_and_the_other_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let first = StateDir::take(&path).unwrap();
        let error = StateDir::take(&path).unwrap_err();
        assert!(matches!(error, StateDirError::InUse { pid: Some(pid), .. } if pid == std::process::id()), "{error}");
        drop(first);
        StateDir::take(&path).unwrap();
    }

    #[test]
    fn the_marker_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::take(folder.path()).unwrap();
        assert_eq!(state.member().unwrap(), None);
        for adopted in [false, true, true] {
            state.set_member(&member(adopted)).unwrap();
            assert_eq!(state.member().unwrap(), Some(member(adopted)));
        }
    }

    #[test]
    fn a_spoiled_marker_is_named_and_can_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::take(folder.path()).unwrap();
        fs::write(folder.path().join("member.json"), "{").unwrap();
        assert!(state.member().unwrap_err().to_string().contains("member.json"));
        state.set_member(&member(true)).unwrap();
        assert_eq!(state.member().unwrap(), Some(member(true)));
    }

    #[test]
    fn a_directory_that_cannot_be_made_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = StateDir::take(&file.join("state")).unwrap_err().to_string();
        assert!(error.contains("state_dir must be a directory"), "{error}");
    }
}
