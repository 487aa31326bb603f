//! Who lives: agent and guard each hold a lock on a file of their own in `run_dir`, and look at each other's.
//!
//! A lock and neither a pid nor a timestamp: the kernel takes it back when the process ends, however it ends, no stranger
//! can have it by a reused number, and no clock that stood still can fake it. It is a record lock (`fcntl`), because that
//! kind can be asked for without being taken: whoever asks can never keep the other from starting. Such a lock
//! ends when its process closes *any* descriptor of the file, so a holder must not open its file a second time.
//!
//! A process that was stopped (SIGSTOP) or hangs still holds its lock. For the agent that is what the lease is for; for the
//! guard, systemd's watchdog.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType, fcntl_getlk};

use super::lease_file::checksum;

/// The most that a holder writes into its file.
const MOST: usize = 512;

/// `run_dir/<cluster>-<name>.guard`, held by the guard.
#[must_use]
pub fn guard_path(run_dir: &Path, cluster: &str, name: &str) -> PathBuf {
    run_dir.join(format!("{cluster}-{name}.guard"))
}

/// Takes the lock on an open file; false: another process has it.
///
/// # Errors
/// The file system knows no locks.
pub fn lock(file: &File) -> io::Result<bool> {
    match fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The pid of the process that holds the file at `path`; none where nobody does. Takes no lock.
#[must_use]
pub fn holder(path: &Path) -> Option<u32> {
    let file = File::open(path).ok()?;
    let held = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)).ok()??;
    held.pid.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok())
}

/// A file held by this process until it ends, with a line of text in it.
#[derive(Debug)]
pub struct Presence {
    file: File,
    found: String,
}

impl Presence {
    /// Creates and takes the file. What a predecessor wrote into it is kept in [`Presence::found`].
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`]: another process has it, which the text names. Else what could not be created.
    pub fn take(path: &Path) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(named)?;
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(named)?;
        if !lock(&file).map_err(named)? {
            let held = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)).ok().flatten();
            let pid = held.and_then(|held| held.pid).map_or(0, |pid| pid.as_raw_nonzero().get());
            let text = format!("{}: held by another process (pid {pid})", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        let found = line_in(&file).map_err(named)?.unwrap_or_default();
        Ok(Self { file, found })
    }

    /// What stood in the file when it was taken.
    #[must_use]
    pub fn found(&self) -> &str {
        &self.found
    }

    /// Writes a line in place of what stands there. In place, so that a full disk matters only to the first.
    ///
    /// # Errors
    /// The file system says no.
    pub fn write(&self, text: &str) -> io::Result<()> {
        self.file.write_all_at(&sealed(text), 0)
    }
}

/// The line that the holder of the file at `path`, or the last one, has written; none where there is no whole one.
#[must_use]
pub fn line(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    // One that was met in the middle of a write is whole at the next look.
    (0..3).find_map(|_| line_in(&file).ok().flatten())
}

fn line_in(file: &File) -> io::Result<Option<String>> {
    let mut bytes = [0; MOST];
    let length = file.read_at(&mut bytes, 0)?;
    Ok(unsealed(&bytes[..length]))
}

/// A checksum, and the text padded to the full length.
fn sealed(text: &str) -> Vec<u8> {
    let mut bytes = format!("{:016x} {text}", checksum(text.as_bytes())).into_bytes();
    bytes.resize(MOST, b' ');
    bytes
}

fn unsealed(bytes: &[u8]) -> Option<String> {
    let (sum, text) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
    let text = text.trim_end_matches(' ');
    (u64::from_str_radix(sum, 16).ok()? == checksum(text.as_bytes())).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn nobody_holds_what_is_not_there_or_was_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = guard_path(folder.path(), "orders", "db1");
        assert_eq!(holder(&path), None);
        drop(Presence::take(&path).unwrap());
        assert_eq!(holder(&path), None);
    }

    #[test]
    fn what_was_written_is_found_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/x");
        let first = Presence::take(&path).unwrap();
        assert_eq!(first.found(), "");
        first.write("a longer line").unwrap();
        first.write("a line").unwrap();
        drop(first);
        assert_eq!(Presence::take(&path).unwrap().found(), "a line");
        assert_eq!(line(&path).as_deref(), Some("a line"));
    }

    #[test]
    fn a_line_met_in_the_middle_of_a_write_counts_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let [old, new] = ["fenced 100 lease_lost", "fenced 999 lease_lost"].map(sealed);
        std::fs::write(&path, [&new[..26], &old[26..]].concat()).unwrap();
        assert_eq!(line(&path), None);
        assert_eq!(Presence::take(&path).unwrap().found(), "");
        std::fs::write(&path, new).unwrap();
        assert_eq!(line(&path).as_deref(), Some("fenced 999 lease_lost"));
    }

    /// A process does not see its own lock: so another one looks (this test's program, started again for the next test).
    #[test]
    fn a_living_holder_is_seen_by_another_process_and_cannot_be_joined() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let held = Presence::take(&path).unwrap();
        let look = || {
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "host::presence::tests::look_from_outside", "--nocapture", "--ignored"])
                .env("PRESENCE_TEST_PATH", &path)
                .output()
                .unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let seen = look();
        assert!(seen.contains(&format!("holder=Some({})", std::process::id())), "{seen}");
        assert!(seen.contains("take=Some(AddrInUse)"), "{seen}");
        drop(held);
        assert!(look().contains("holder=None take=None"));
    }

    #[test]
    #[ignore = "run by another test, in a process of its own"]
    fn look_from_outside() {
        let Some(path) = std::env::var_os("PRESENCE_TEST_PATH") else { return };
        let holder = holder(Path::new(&path));
        let take = Presence::take(Path::new(&path)).err().map(|error| error.kind());
        println!("holder={holder:?} take={take:?}");
    }
}
