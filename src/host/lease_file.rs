//! `run_dir/<cluster>-<name>.lease`: the lease as the guard on the same host sees it.
//!
//! A fixed layout of [`SIZE`] bytes, all numbers little-endian, written in place by every renewal (and, without ZooKeeper, by every
//! acknowledged heartbeat) with one `pwrite`:
//!
//! | offset | bytes | content |
//! | --- | --- | --- |
//! | 0 | 8 | magic `MYHALS01`, the version of the layout at its end |
//! | 8 | 8 | sequence, counts writes |
//! | 16 | 8 | until when the server may take writes (the lease's end or, with the failsafe, that of acknowledgements): nanoseconds on `CLOCK_BOOTTIME`, 0 for no lease |
//! | 24 | 4 | pid of the agent |
//! | 28 | 4 | paused until: whole seconds on `CLOCK_BOOTTIME`, 0 for no pause, all ones for one without an end |
//! | 32 | 36 | boot id: a moment means nothing in another boot |
//! | 68 | 36 | instance of the agent |
//! | 104 | 8 | checksum of all before (FNV-1a) |
//!
//! In place and not by renaming: the file, once written, needs no new block, so that a full disk cannot keep a renewal
//! from being seen; the first block is asked for when the file is made. A reader that meets a write half done finds a
//! wrong checksum and reads again. Read with one `pread` and not mapped: a mapping needs `unsafe` and ends in SIGBUS
//! where somebody truncates the file.
//!
//! The agent that writes the file holds a lock on it ([`super::presence`]), by which the guard sees that it lives. A file
//! that was deleted or replaced under a living agent is made anew with the next write.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

use super::presence;
use crate::core::time::Moment;

/// Bytes in the file.
pub const SIZE: usize = 112;
const MAGIC: &[u8; 8] = b"MYHALS01";
const ID: usize = 36;

/// A pause without an end of its own.
pub const FOR_EVER: Moment = Moment(u64::MAX);

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseState {
    /// Counts writes.
    pub sequence: u64,
    /// When the server must be read-only; none while no lease is held.
    pub until: Option<Moment>,
    /// Until when automatic fencing is paused; none: it is not. [`FOR_EVER`]: until the pause is taken back.
    pub paused: Option<Moment>,
    /// The agent's pid.
    pub pid: u32,
    /// The boot in which `until` counts.
    pub boot_id: String,
    /// The agent process.
    pub instance: String,
}

/// Content that is no valid lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Another file, or another version of the layout.
    #[error("not a lease file of this version")]
    Foreign,
    /// Met in the middle of a write, or spoiled: read again.
    #[error("a wrong checksum: met in the middle of a write, or spoiled")]
    Torn,
}

impl LeaseState {
    /// As it stands in the file.
    #[must_use]
    pub fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.until.map_or(0, |moment| moment.0).to_le_bytes());
        bytes[24..28].copy_from_slice(&self.pid.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.paused.map_or(0, in_seconds).to_le_bytes());
        put_id(&mut bytes[32..32 + ID], &self.boot_id);
        put_id(&mut bytes[68..68 + ID], &self.instance);
        let sum = checksum(&bytes[..104]);
        bytes[104..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads and validates.
    ///
    /// # Errors
    /// [`Invalid`]: another file, or torn.
    pub fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
        if bytes.len() != SIZE || &bytes[..8] != MAGIC {
            return Err(Invalid::Foreign);
        }
        if number(&bytes[104..]) != checksum(&bytes[..104]) {
            return Err(Invalid::Torn);
        }
        let until = number(&bytes[16..24]);
        Ok(Self {
            sequence: number(&bytes[8..16]),
            until: (until != 0).then_some(Moment(until)),
            pid: u32::try_from(number(&bytes[24..28])).map_err(|_| Invalid::Foreign)?,
            paused: match u32::try_from(number(&bytes[28..32])).map_err(|_| Invalid::Foreign)? {
                0 => None,
                u32::MAX => Some(FOR_EVER),
                seconds => Some(Moment(u64::from(seconds) * SECOND)),
            },
            boot_id: get_id(&bytes[32..32 + ID]),
            instance: get_id(&bytes[68..68 + ID]),
        })
    }
}

const SECOND: u64 = 1_000_000_000;

/// Rounded up: the agent, which knows the end exactly, is the first to go by it.
fn in_seconds(moment: Moment) -> u32 {
    u32::try_from(moment.0.div_ceil(SECOND)).unwrap_or(u32::MAX).max(1)
}

fn put_id(place: &mut [u8], id: &str) {
    let length = id.len().min(ID);
    place[..length].copy_from_slice(&id.as_bytes()[..length]);
}

fn get_id(place: &[u8]) -> String {
    String::from_utf8_lossy(place).trim_end_matches('\0').to_owned()
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// FNV-1a, 64 bits: against torn writes and accidents, not against attackers (the directory's mode is).
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The file as the agent writes it.
#[derive(Debug)]
pub struct LeaseFile {
    path: PathBuf,
    file: File,
    state: LeaseState,
}

impl LeaseFile {
    /// `<cluster>-<name>.lease` in `run_dir`.
    #[must_use]
    pub fn path_in(run_dir: &Path, cluster: &str, name: &str) -> PathBuf {
        run_dir.join(format!("{cluster}-{name}.lease"))
    }

    /// Opens the file, creating directory and file, and **leaves what stands in it**: a predecessor's lease counts
    /// until this agent has taken it over or let it run out. The sequence goes on from there.
    ///
    /// # Errors
    /// What could not be created. The agent can live without the file; the guard then has nothing to go by.
    pub fn open(path: &Path, boot_id: &str, instance: &str) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("lease file {}: {error}", path.display()));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(named)?;
        }
        let file = create(path).map_err(named)?;
        let sequence = read_from(&file).ok().and_then(Result::ok).map_or(0, |old| old.sequence);
        let state = LeaseState {
            sequence,
            until: None,
            paused: None,
            pid: std::process::id(),
            boot_id: boot_id.to_owned(),
            instance: instance.to_owned(),
        };
        Ok(Self { path: path.to_owned(), file, state })
    }

    /// Until when automatic fencing is paused, from the next write on. The guard fences nothing meanwhile.
    pub fn set_paused(&mut self, paused: Option<Moment>) {
        self.state.paused = paused;
    }

    /// Writes when the server must be read-only; `None`: no lease is held (and the server is read-only or dead).
    ///
    /// # Errors
    /// The write failed. It is to be reported and must stop nothing: the guard then fences too early at worst.
    pub fn write(&mut self, until: Option<Moment>) -> io::Result<()> {
        self.state.sequence += 1;
        self.state.until = until;
        self.make_anew_if_gone()?;
        let written = self.file.write_at(&self.state.encode(), 0);
        match written {
            Ok(SIZE) => Ok(()),
            Ok(short) => Err(io::Error::new(
                io::ErrorKind::WriteZero,
                format!("lease file {}: only {short} of {SIZE} bytes written", self.path.display()),
            )),
            Err(error) => Err(io::Error::new(error.kind(), format!("lease file {}: {error}", self.path.display()))),
        }
    }

    /// A file that was removed or replaced (a cleaner of `/run`, an operator) would be written to and never read again.
    fn make_anew_if_gone(&mut self) -> io::Result<()> {
        let same = |there: fs::Metadata, ours: fs::Metadata| (there.dev(), there.ino()) == (ours.dev(), ours.ino());
        if fs::metadata(&self.path).and_then(|there| Ok(same(there, self.file.metadata()?))).unwrap_or(false) {
            return Ok(());
        }
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        self.file = create(&self.path)
            .map_err(|error| io::Error::new(error.kind(), format!("lease file {}: {error}", self.path.display())))?;
        Ok(())
    }
}

/// Opens or creates the file, with its one block, and takes the lock that says this agent lives. That the lock is missing (a
/// file system without locks, another agent, which `state_dir` refuses anyway) costs the guard a log line and no more.
fn create(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    let _ = presence::lock(&file);
    // A full disk is met now and not at a renewal; where blocks cannot be asked for beforehand, then.
    let _ = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, SIZE as u64);
    Ok(file)
}

/// What the file at `path` says; none where there is no file. Torn content is read again a few times.
///
/// # Errors
/// The outer one: the file cannot be read. The inner one: it holds no valid lease.
pub fn read(path: &Path) -> io::Result<Option<Result<LeaseState, Invalid>>> {
    match File::open(path) {
        // Made by an agent that ended before it held a lease: nothing was ever written.
        Ok(file) if is_blank(&file)? => Ok(None),
        Ok(file) => read_from(&file).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_blank(file: &File) -> io::Result<bool> {
    let mut bytes = [0; SIZE];
    let length = file.read_at(&mut bytes, 0)?;
    Ok(bytes[..length].iter().all(|byte| *byte == 0))
}

fn read_from(file: &File) -> io::Result<Result<LeaseState, Invalid>> {
    let mut state = Err(Invalid::Torn);
    for _ in 0..16 {
        let mut bytes = [0; SIZE];
        let length = file.read_at(&mut bytes, 0)?;
        state = LeaseState::decode(&bytes[..length]);
        if state != Err(Invalid::Torn) {
            break;
        }
        std::thread::yield_now();
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOOT: &str = "11111111-1111-1111-1111-111111111111";
    const INSTANCE: &str = "22222222-2222-2222-2222-222222222222";

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = LeaseFile::path_in(&folder.path().join("run"), "orders", "db1");
        assert_eq!(read(&path).unwrap(), None);
        let mut file = LeaseFile::open(&path, BOOT, INSTANCE).unwrap();
        file.write(Some(Moment(7))).unwrap();
        file.write(Some(Moment(8))).unwrap();
        let expected = LeaseState {
            sequence: 2,
            until: Some(Moment(8)),
            paused: None,
            pid: std::process::id(),
            boot_id: BOOT.into(),
            instance: INSTANCE.into(),
        };
        assert_eq!(read(&path).unwrap(), Some(Ok(expected.clone())));
        file.write(None).unwrap();
        assert_eq!(read(&path).unwrap(), Some(Ok(LeaseState { sequence: 3, until: None, ..expected })));
    }

    #[test]
    fn opening_leaves_the_predecessors_lease() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lease");
        LeaseFile::open(&path, BOOT, INSTANCE).unwrap().write(Some(Moment(9))).unwrap();
        let mut next = LeaseFile::open(&path, BOOT, "other").unwrap();
        assert_eq!(read(&path).unwrap().unwrap().unwrap().until, Some(Moment(9)));
        next.write(None).unwrap();
        assert_eq!(read(&path).unwrap().unwrap().unwrap().sequence, 2);
    }

    #[test]
    fn a_pause_is_read_back_in_whole_seconds_and_never_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lease");
        let mut file = LeaseFile::open(&path, BOOT, INSTANCE).unwrap();
        for (written, found) in [
            (None, None),
            (Some(Moment(0)), Some(Moment(SECOND))),
            (Some(Moment(7 * SECOND + 1)), Some(Moment(8 * SECOND))),
            (Some(FOR_EVER), Some(FOR_EVER)),
        ] {
            file.set_paused(written);
            file.write(Some(Moment(9))).unwrap();
            let state = read(&path).unwrap().unwrap().unwrap();
            assert_eq!((state.paused, state.pid), (found, std::process::id()));
        }
    }

    #[test]
    fn a_file_that_was_deleted_or_replaced_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/lease");
        let mut file = LeaseFile::open(&path, BOOT, INSTANCE).unwrap();
        file.write(Some(Moment(7))).unwrap();
        fs::remove_dir_all(folder.path().join("run")).unwrap();
        file.write(Some(Moment(8))).unwrap();
        assert_eq!(read(&path).unwrap().unwrap().unwrap().until, Some(Moment(8)));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        file.write(Some(Moment(9))).unwrap();
        assert_eq!(read(&path).unwrap().unwrap().unwrap().until, Some(Moment(9)));
    }

    #[test]
    fn other_files_are_refused() {
        assert_eq!(LeaseState::decode(b""), Err(Invalid::Foreign));
        assert_eq!(LeaseState::decode(&[0; SIZE]), Err(Invalid::Foreign));
    }

    proptest! {
        #[test]
        fn half_a_write_is_never_taken_for_a_lease(cut in 1..SIZE, old in 1..u64::MAX, new in 1..u64::MAX) {
            let state = |sequence, until| LeaseState {
                sequence, until: Some(Moment(until)), paused: None, pid: 1, boot_id: BOOT.into(), instance: INSTANCE.into(),
            };
            let (before, after) = (state(1, old).encode(), state(2, new).encode());
            let mut torn = after;
            torn[cut..].copy_from_slice(&before[cut..]);
            let whole = torn == before || torn == after;
            prop_assert_eq!(LeaseState::decode(&torn).is_err(), !whole);
        }
    }
}
