//! The data directory of a stopped mysqld: proof that it is stopped, who it belongs to, its newest binary log file, and the cut.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustix::fs::{FlockOperation, fcntl_lock};

use crate::core::rewind::FileId;

/// Why a data directory cannot be worked on.
#[derive(Debug, thiserror::Error)]
pub enum DatadirError {
    /// mysqld has it.
    #[error("mysqld runs, or is just starting or ending: {} is locked", .path.display())]
    InUse {
        /// The engine's system tablespace.
        path: PathBuf,
    },
    /// The file system says no.
    #[error("{}: {source}", .path.display())]
    Io {
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The index does not lead to the newest file.
    #[error("{}: {why}", .path.display())]
    Index {
        /// The index, or a file beside the newest one.
        path: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> DatadirError + '_ {
    move |source| DatadirError::Io { path: path.to_owned(), source }
}

/// The lock that InnoDB takes on its system tablespace. While this is held no mysqld gets further than to wait for it.
#[derive(Debug)]
pub struct Stopped {
    _lock: File,
}

/// Proves that no mysqld works on this data directory, by taking InnoDB's own lock. Never waits.
///
/// # Errors
/// [`DatadirError::InUse`], also for a mysqld that is frozen or has been killed and is not gone yet.
pub fn stopped(system: &Path) -> Result<Stopped, DatadirError> {
    let file = OpenOptions::new().read(true).write(true).open(system).map_err(failed(system))?;
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Stopped { _lock: file }),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => {
            Err(DatadirError::InUse { path: system.to_owned() })
        }
        Err(error) => Err(failed(system)(error.into())),
    }
}

/// `server-uuid` of `auto.cnf`; none where it is not there.
#[must_use]
pub fn server_uuid(datadir: &Path) -> Option<String> {
    let text = fs::read_to_string(datadir.join("auto.cnf")).ok()?;
    let values = text.lines().filter_map(|line| line.split_once('='));
    // MySQL takes `-` and `_` alike.
    let mut uuid = values
        .filter(|(key, _)| key.trim().replace('_', "-") == "server-uuid")
        .map(|(_, value)| value.trim().to_owned());
    uuid.next_back()
}

/// Which file stands there now. None: there is none, or its file system does not tell when it was made.
#[must_use]
pub fn file_id(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(path).ok()?;
    let born = found.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(FileId { inode: found.ino(), born: u64::try_from(born.as_nanos()).ok()? })
}

/// The newest binary log file: the last line of the index.
///
/// # Errors
/// There is none, or a newer file stands beside it, which a crash has left between making and listing it.
pub fn newest_binary_log(index: &Path, datadir: &Path) -> Result<PathBuf, DatadirError> {
    let wrong = |why| DatadirError::Index { path: index.to_owned(), why };
    let text = fs::read_to_string(index).map_err(failed(index))?;
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty()).ok_or_else(|| wrong("it lists no file"))?;
    let path = datadir.join(last.strip_prefix("./").unwrap_or(last));
    let (folder, stem) = (path.parent(), path.file_stem());
    let (Some(folder), Some(stem), Some(number)) = (folder, stem, number(&path)) else {
        return Err(wrong("its last line is no binary log file"));
    };
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let beside = entry.map_err(failed(folder))?.path();
        if beside.file_stem() == Some(stem) && self::number(&beside).is_some_and(|other| other > number) {
            return Err(DatadirError::Index { path: beside, why: "it is newer than what the index lists" });
        }
    }
    Ok(path)
}

fn number(path: &Path) -> Option<u64> {
    let digits = path.extension().and_then(OsStr::to_str)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// Cuts a file at `at`, all or nothing, and sees it on the disk.
///
/// # Errors
/// It has not the length it was read with, or the file system says no.
pub fn cut(file: &Path, at: u64, length: u64) -> io::Result<()> {
    let open = OpenOptions::new().read(true).write(true).open(file)?;
    if open.metadata()?.len() != length {
        return Err(io::Error::other("it has changed while it was looked at"));
    }
    assert!(at >= 4 && at < length, "a cut that is none");
    open.set_len(at)?;
    open.sync_all()
}

/// Copies so many bytes, unless the time is over.
pub(super) fn copy(
    from: &mut impl Read,
    to: &mut impl Write,
    mut left: u64,
    late: &dyn Fn() -> bool,
) -> io::Result<()> {
    let mut chunk = vec![0; 1 << 16];
    while left > 0 {
        if late() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "not copied in time"));
        }
        let part = usize::try_from(left).unwrap_or(chunk.len()).min(chunk.len());
        from.read_exact(&mut chunk[..part])?;
        to.write_all(&chunk[..part])?;
        left -= part as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_file_is_the_index_last_line() {
        let folder = tempfile::tempdir().unwrap();
        let index = folder.path().join("binlog.index");
        let newest = || newest_binary_log(&index, folder.path());
        assert!(matches!(newest(), Err(DatadirError::Io { .. })));
        fs::write(&index, "\n").unwrap();
        assert!(matches!(newest(), Err(DatadirError::Index { .. })));
        for line in ["./binlog.000002".to_owned(), folder.path().join("binlog.000002").display().to_string()] {
            fs::write(&index, format!("./binlog.000001\n{line}\n")).unwrap();
            assert_eq!(newest().unwrap(), folder.path().join("binlog.000002"));
        }
        for name in ["binlog.000001", "relay.000009", "binlog.index"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::write(&index, "./binlog.000002\n").unwrap();
        assert!(newest().is_ok());
        fs::write(folder.path().join("binlog.1000000"), "").unwrap();
        assert!(newest().unwrap_err().to_string().contains("newer than what the index lists"));
        fs::write(&index, "./binlog\n").unwrap();
        assert!(newest().is_err());
    }

    #[test]
    fn the_uuid_is_that_of_auto_cnf() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(server_uuid(folder.path()), None);
        fs::write(folder.path().join("auto.cnf"), "[auto]\nserver-uuid = abc\n").unwrap();
        assert_eq!(server_uuid(folder.path()).as_deref(), Some("abc"));
    }

    #[test]
    fn a_file_made_anew_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ibtmp1");
        assert_eq!(file_id(&path), None);
        fs::write(&path, "").unwrap();
        let first = file_id(&path).expect("the file system tells when a file was made");
        fs::write(&path, "more").unwrap();
        assert_eq!(file_id(&path), Some(first));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert_ne!(file_id(&path), Some(first));
    }

    #[test]
    fn a_file_that_has_changed_is_not_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, "0123456789").unwrap();
        assert!(cut(&path, 5, 9).is_err());
        cut(&path, 5, 10).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "01234");
    }
}
