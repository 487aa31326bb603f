//! A real file of 9.7.4, cut anywhere and with any bit turned. In flight when its server was killed: an insert, a `CREATE TABLE`, an
//! `XA PREPARE` (written by `tests/mysql_control/prestart.rs` ahead of its first version).

use proptest::prelude::*;

use super::event::Fault;
use super::{head, tail};
use crate::core::gtid::GtidSet;
use crate::core::rewind::{Cut, Ending, FileId, LastSeen, Leave, ServerFiles, Tail, cut};
use crate::core::view::Ensemble;

const FILE: &[u8] = include_bytes!("in_flight.binlog");
const UUID: &str = "061126ad-4e48-4e7a-8acd-d326c2209ca1";
/// Where the first transaction in flight begins, and the ends of all three.
const ENDS: [u64; 4] = [1134, 1401, 1603, 1975];
/// The byte with the in-use flag, the only bit that no checksum covers.
const IN_USE_AT: usize = 4 + 17;

fn set(numbers: impl IntoIterator<Item = u64>) -> GtidSet {
    GtidSet::of_intervals(numbers.into_iter().map(|number| (UUID.to_owned(), number, number))).unwrap()
}

fn read(bytes: &[u8], executed: &GtidSet) -> Result<Tail, Fault> {
    tail::read(bytes, bytes.len() as u64, executed, || false)
}

fn decide(tail: &Tail, executed: &GtidSet) -> Result<Cut, Leave> {
    let seen = LastSeen {
        cluster: "c".into(),
        server_uuid: UUID.into(),
        files: ServerFiles::default(),
        life: FileId { inode: 1, born: 1 },
        synced: true,
        wrote: None,
        strangers: Vec::new(),
    };
    cut(tail, &seen, executed, &Ensemble::default(), (9, 7, 4))
}

#[test]
fn the_whole_file_is_understood() {
    let head = head::read(FILE, FILE.len() as u64).unwrap();
    assert!(head.in_use && head.version == (9, 7, 4), "{head:?}");
    let tail = read(FILE, &set(1..=4)).unwrap();
    let found: Vec<_> = tail.transactions.iter().map(|one| (one.at, one.ending.clone(), one.missing)).collect();
    let expected =
        [(ENDS[0], Ending::Xid, true), (ENDS[1], Ending::Definition, true), (ENDS[2], Ending::XaPrepare, true)];
    assert_eq!((found, tail.whole, tail.head), (expected.to_vec(), ENDS[3], head.end + 31));
    assert_eq!(decide(&tail, &set(1..=4)).unwrap().gtids, set(5..=7));
    assert!(read(FILE, &set(1..=7)).unwrap().transactions.is_empty());
}

/// Of every length there could be: what is whole is cut where it begins, and nothing that stood before it.
#[test]
fn a_file_that_ends_anywhere_is_cut_at_the_same_place_or_not_at_all() {
    for length in 0..FILE.len() {
        let executed = set(1..=4);
        let at = length as u64;
        match read(&FILE[..length], &executed).map(|tail| decide(&tail, &executed)) {
            Ok(Ok(cut)) => {
                assert!(at >= ENDS[1] && cut.at == ENDS[0] && cut.whole <= at, "{length}: {cut:?}");
                assert!(ENDS[1..].contains(&cut.whole), "{length}: {cut:?}");
            }
            Ok(Err(leave)) => assert!(at < ENDS[1] && leave.row == "T3", "{length}: {leave:?}"),
            // Too short even for what every file begins with.
            Err(fault) => assert!(at < 158, "{length}: {fault}"),
        }
    }
}

#[test]
fn a_file_with_any_bit_turned_is_refused() {
    for (at, bit) in (0..FILE.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut bytes = FILE.to_vec();
        bytes[at] ^= 1 << bit;
        let understood = read(&bytes, &set(1..=4)).is_ok();
        assert_eq!(understood, (at, bit) == (IN_USE_AT, 0), "bit {bit} of byte {at}");
    }
}

#[test]
fn a_file_without_checksums_or_with_an_unknown_event_is_refused() {
    // The byte that says so, and the first event's checksum made right again.
    let mut bytes = FILE.to_vec();
    rewrite(&mut bytes, 4, |event| event[123 - 5] = 0);
    assert!(matches!(read(&bytes, &set(1..=4)), Err(Fault::NoChecksums)));
    let mut bytes = FILE.to_vec();
    rewrite(&mut bytes, 1330, |event| event[4] = 99);
    assert!(matches!(read(&bytes, &set(1..=4)), Err(Fault::Unknown { at: 1330, kind: 99 })));
    // Encrypted files begin otherwise; 9.7 as packaged has no keyring to write a real one.
    let mut bytes = FILE.to_vec();
    bytes[0] = 0xfd;
    assert!(matches!(read(&bytes, &set(1..=4)), Err(Fault::Encrypted)));
}

/// Changes the event at `at` and makes its checksum right.
fn rewrite(bytes: &mut [u8], at: usize, change: impl FnOnce(&mut [u8])) {
    let length = u32::from_le_bytes(bytes[at + 9..at + 13].try_into().unwrap()) as usize;
    let event = &mut bytes[at..at + length];
    change(event);
    let flag = event[17] & 1;
    event[17] &= !flag;
    let checksum = crc32fast::hash(&event[..length - 4]).to_le_bytes();
    event[length - 4..].copy_from_slice(&checksum);
    event[17] |= flag;
}

proptest! {
    /// Whatever the other server has: what is cut it has not, and it has all that stays.
    #[test]
    fn nothing_that_the_other_has_is_cut(has in proptest::collection::btree_set(1..10u64, 0..10), length in 0..=FILE.len()) {
        let executed = set(has);
        let Ok(tail) = read(&FILE[..length], &executed) else { return Ok(()) };
        let Ok(cut) = decide(&tail, &executed) else { return Ok(()) };
        prop_assert_eq!(cut.gtids.subtract(&executed), cut.gtids.clone());
        let stays = usize::try_from(cut.at).unwrap();
        let left = read(&FILE[..stays], &executed).unwrap();
        prop_assert!(left.transactions.is_empty() && left.whole == cut.at);
    }

    #[test]
    fn garbage_is_refused_or_torn(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), from in 0..FILE.len()) {
        let _ = read(&bytes, &GtidSet::new());
        // Behind a beginning that is right.
        let mut file = FILE[..from].to_vec();
        file.append(&mut bytes);
        if let Ok(tail) = read(&file, &set(1..=4)) {
            prop_assert!(tail.whole <= from as u64);
        }
    }
}
