//! What `state_dir` keeps for `prestart`: the agent's note of its server, the file on which mysqld was let start last, and copies of
//! what was taken back.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::datadir::copy;
use super::state_dir::write_whole;
use crate::core::rewind::{Cut, LastSeen};

/// So many copies are kept, the newest.
const COPIES: usize = 20;
/// Where the low byte of the first event's flags stands in a binary log file.
const FLAGS: usize = 4 + 17;

fn note(state_dir: &Path) -> PathBuf {
    state_dir.join("server.json")
}

/// The agent's note; none where it has left none.
///
/// # Errors
/// Unreadable, or of another form. The text names the file.
pub fn last_seen(state_dir: &Path) -> io::Result<Option<LastSeen>> {
    let path = note(state_dir);
    let named = |kind, why: String| io::Error::new(kind, format!("{}: {why}", path.display()));
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| named(io::ErrorKind::InvalidData, error.to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(named(error.kind(), error.to_string())),
    }
}

/// Replaces the note, so that it outlives a power cut.
///
/// # Errors
/// The file system says no; the old one then still stands whole.
pub fn note_last_seen(state_dir: &Path, seen: &LastSeen) -> io::Result<()> {
    write_whole(&note(state_dir), &serde_json::to_vec(seen)?)
}

fn marker(state_dir: &Path) -> PathBuf {
    state_dir.join("started_on")
}

/// The binary log file that was the newest when `prestart` let mysqld start last.
#[must_use]
pub fn started_on(state_dir: &Path) -> Option<String> {
    fs::read_to_string(marker(state_dir)).ok().map(|text| text.trim().to_owned())
}

/// Notes it, so that it outlives a power cut: from here on mysqld may commit what stands in that file.
///
/// # Errors
/// The file system says no.
pub fn note_started_on(state_dir: &Path, file: &str) -> io::Result<()> {
    fs::create_dir_all(state_dir)?;
    write_whole(&marker(state_dir), format!("{file}\n").as_bytes())
}

/// Keeps what `cut` takes out of `file` as a binary log file of its own, which `mysqlbinlog` reads: what stands ahead
/// of all transactions in it, then these as they stand. On the disk when this returns.
///
/// # Errors
/// The file system says no, or the time is over; nothing is left behind then.
pub fn keep_copy(state_dir: &Path, name: &str, file: &Path, cut: &Cut, late: &dyn Fn() -> bool) -> io::Result<PathBuf> {
    let folder = state_dir.join("rewound");
    fs::create_dir_all(&folder)?;
    remove_oldest(&folder)?;
    let path = folder.join(name);
    let kept = write_copy(&path, file, cut, late);
    if kept.is_err() {
        let _ = fs::remove_file(&path);
    }
    kept?;
    File::open(&folder)?.sync_all()?;
    Ok(path)
}

fn write_copy(path: &Path, file: &Path, cut: &Cut, late: &dyn Fn() -> bool) -> io::Result<()> {
    let mut from = File::open(file)?;
    let mut to = BufWriter::new(File::create(path)?);
    let mut head = Vec::new();
    copy(&mut from, &mut head, cut.head, late)?;
    // Closed, as far as this file goes; the checksum counts the flag as cleared.
    let flags = head.get_mut(FLAGS).ok_or_else(|| io::Error::other("no first event"))?;
    *flags &= !1;
    to.write_all(&head)?;
    from.seek(SeekFrom::Start(cut.at))?;
    copy(&mut from, &mut to, cut.whole - cut.at, late)?;
    to.into_inner().map_err(|error| error.into_error())?.sync_all()
}

/// Their names begin with the time, so that the oldest comes first.
fn remove_oldest(folder: &Path) -> io::Result<()> {
    let mut copies: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
    copies.sort();
    for old in copies.iter().take((copies.len() + 1).saturating_sub(COPIES)) {
        fs::remove_file(old)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::gtid::GtidSet;

    #[test]
    fn a_copy_has_the_head_and_what_is_cut_and_the_newest_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("binlog.000001");
        let bytes: Vec<u8> = (0..100).map(|byte| byte | 1).collect();
        fs::write(&file, &bytes).unwrap();
        let cut = Cut { at: 60, head: 30, whole: 90, gtids: GtidSet::new(), count: 1 };
        for number in 0..COPIES + 3 {
            let path = keep_copy(folder.path(), &format!("{number:03}.binlog"), &file, &cut, &|| false).unwrap();
            let mut expected = [&bytes[..30], &bytes[60..90]].concat();
            expected[FLAGS] &= !1;
            assert_eq!(fs::read(path).unwrap(), expected);
        }
        let mut left: Vec<_> =
            fs::read_dir(folder.path().join("rewound")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!((left.len(), left[0].to_str()), (COPIES, Some("003.binlog")));
        assert!(keep_copy(folder.path(), "late", &file, &cut, &|| true).is_err());
        assert!(!folder.path().join("rewound/late").exists());
    }

    #[test]
    fn notes_are_found_again_and_a_spoilt_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(started_on(folder.path()), None);
        note_started_on(folder.path(), "/data/binlog.000007").unwrap();
        assert_eq!(started_on(folder.path()).as_deref(), Some("/data/binlog.000007"));
        assert_eq!(last_seen(folder.path()).unwrap(), None);
        fs::write(folder.path().join("server.json"), "{").unwrap();
        assert!(last_seen(folder.path()).unwrap_err().to_string().contains("server.json"));
    }
}
