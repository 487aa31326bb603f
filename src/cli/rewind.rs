//! The part of `prestart` that works on this host's files, with mysqld stopped: what stands there, and the cut. It waits for nothing but
//! the disk. Why what is allowed stands in [`crate::core::rewind`].
//!
//! **Dying at any point.** The copy is on the disk before the file is cut; the cut is one call of the file system; only then it is noted
//! that mysqld may start on the file. Before the cut everything is as it was, with a copy too many; after it a second run finds nothing
//! missing. While this process lives it holds the lock that a starting mysqld waits for.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use crate::binlog::head::{self, Head};
use crate::binlog::tail;
use crate::core::gtid::GtidSet;
use crate::core::rewind::{Cut, LastSeen, Leave, Site, Wrote, cut, on_this_host};
use crate::core::view::Ensemble;
use crate::host::datadir::{self, DatadirError, Stopped};
use crate::host::rewind::{keep_copy, last_seen, note_started_on, started_on};
use crate::host::state_dir::member_in;

/// So much is read at once.
const BUFFER: usize = 1 << 18;

/// A stopped server's newest binary log file.
#[derive(Debug)]
pub struct Scene {
    /// The agent's note.
    pub seen: LastSeen,
    /// The file.
    pub file: PathBuf,
    _stopped: Stopped,
}

/// A file that may hold what can be taken back.
#[derive(Debug, Clone)]
pub struct Open {
    head: Head,
    length: u64,
    /// What this server wrote last.
    pub wrote: Wrote,
}

/// What was done, or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// What was cut, and where.
    pub cut: Cut,
    /// The copy of it; none where nothing was done.
    pub copy: Option<PathBuf>,
}

/// Finds the server's files by the agent's note, and proves that mysqld does not run.
///
/// # Errors
/// There is no note, mysqld runs, or its index does not lead to a file.
pub fn find(state_dir: &Path) -> Result<Scene, Leave> {
    let seen = match last_seen(state_dir) {
        Ok(Some(seen)) => seen,
        Ok(None) => {
            let text = format!(
                "{} has no note of this server: its agent has not seen it yet (it notes it within seconds while both run)",
                state_dir.display()
            );
            return Err(match member_in(state_dir) {
                // Nothing of ours has ever run here.
                Ok(None) => Leave::nothing("L2", text),
                _ => Leave::refused("L2", text),
            });
        }
        Err(error) => return Err(Leave::refused("L2", format!("the agent's note cannot be read: {error}"))),
    };
    let refused = |error: DatadirError| {
        Leave::refused(if matches!(error, DatadirError::InUse { .. }) { "L3" } else { "L5" }, error.to_string())
    };
    let stopped = datadir::stopped(Path::new(&seen.files.system)).map_err(refused)?;
    let file =
        datadir::newest_binary_log(Path::new(&seen.files.index), Path::new(&seen.files.datadir)).map_err(refused)?;
    Ok(Scene { seen, file, _stopped: stopped })
}

impl Scene {
    /// What this host alone tells.
    ///
    /// # Errors
    /// Why nothing may be taken back here.
    pub fn examine(&self, state_dir: &Path, cluster: &str) -> Result<Open, Leave> {
        let (reader, length) = self.open()?;
        let head = head::read(reader, length).map_err(|fault| self.not_understood(&fault))?;
        let file = self.file.display().to_string();
        let uuid = datadir::server_uuid(Path::new(&self.seen.files.datadir));
        let wrote = on_this_host(&Site {
            seen: &self.seen,
            cluster,
            server_uuid: uuid.as_deref(),
            life: datadir::file_id(Path::new(&self.seen.files.temporary)),
            file: &file,
            in_use: head.in_use,
            started_on: started_on(state_dir).as_deref(),
        })?;
        Ok(Open { head, length, wrote })
    }

    /// Cuts, or with `dry_run` tells what would be cut. `executed`: the new primary's, read after it was named in `ensemble`. `at`: the
    /// time in words, for the copy's name. `late`: whether the time is over.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub fn take_back(
        &self,
        open: &Open,
        executed: &GtidSet,
        ensemble: &Ensemble,
        keep: Keep<'_>,
        late: &(dyn Fn() -> bool + Sync),
    ) -> Result<Done, Leave> {
        let (reader, length) = self.open()?;
        if length != open.length {
            return Err(Leave::refused("L5", format!("{} has changed while it was looked at", self.file.display())));
        }
        let tail = tail::read(reader, length, executed, late).map_err(|fault| self.not_understood(&fault))?;
        let cut = cut(&tail, &self.seen, executed, ensemble, open.head.version)?;
        if keep.dry_run {
            return Ok(Done { cut, copy: None });
        }
        let name = self.file.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{}-{name}-{}", keep.at, cut.at);
        let copy = keep_copy(keep.state_dir, &name, &self.file, &cut, late).map_err(|error| {
            Leave::refused("L13", format!("no copy can be kept below {}: {error}", keep.state_dir.display()))
        })?;
        if late() {
            return Err(Leave::refused("L14", "the time is over"));
        }
        datadir::cut(&self.file, cut.at, length)
            .map_err(|error| Leave::refused("L15", format!("{} cannot be cut: {error}", self.file.display())))?;
        Ok(Done { cut, copy: Some(copy) })
    }

    /// mysqld is let start on this file: from now on it may commit what stands there.
    ///
    /// # Errors
    /// The file system says no.
    pub fn note_start(&self, state_dir: &Path) -> Result<(), Leave> {
        note_started_on(state_dir, &self.file.display().to_string()).map_err(|error| {
            Leave::refused("L16", format!("this start cannot be noted in {}: {error}", state_dir.display()))
        })
    }

    fn open(&self) -> Result<(BufReader<File>, u64), Leave> {
        let opened = File::open(&self.file).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (length, file) = opened.map_err(|error| self.not_understood(&error))?;
        Ok((BufReader::with_capacity(BUFFER, file), length))
    }

    fn not_understood(&self, why: &dyn std::fmt::Display) -> Leave {
        Leave::refused("T1", format!("{} cannot be used: {why}", self.file.display()))
    }
}

/// Where the copy goes.
#[derive(Debug, Clone, Copy)]
pub struct Keep<'a> {
    /// `state_dir`.
    pub state_dir: &'a Path,
    /// The time, as the copy's name begins.
    pub at: &'a str,
    /// Only look.
    pub dry_run: bool,
}
