//! How much memory the process keeps, and that it stays there. **The one module with `unsafe` code**: two calls, reviewed below.
//!
//! For the guard. It is one program with the agent, so that most of what is mapped at its start is code that it never runs
//! (the kernel maps whole windows of 64 kB around each page that is touched), and what it allocates while it reads its
//! command line and configuration stays in the heap. [`settle`] gives both back once the start is over.
//!
//! The other way round, what it does need must be there when it is needed. A guard that fences is on a host in trouble: memory is
//! short, or the disk hangs under mysqld. Pages of a program's file are the first that the kernel takes away, and to get one
//! back is to read that disk: a guard could stand still on its way to a fence. So what it has touched since is locked, and the
//! guard walks through a fence once beforehand ([`crate::mysql::fence::Fence::rehearse`]). Locked *on fault*: only what is used,
//! not the whole program. A page that is needed for the first time in a fence (the message of a rare failure) is, as a
//! rule, in the page cache all the same, as the agent runs from the same file.
//!
//! # Why the two calls are sound
//!
//! - `madvise(MADV_DONTNEED)` on a mapping makes its next use start from its source again. For a page that was written to that would
//!   lose data. It is called only for private mappings of files that are not writable and hold no anonymous page (`Anonymous: 0`
//!   in `smaps`): every page of theirs is the file's, unchanged, and comes back from the file with the same content. Relocated data
//!   (`RELRO`) is read-only too, and is left out by that rule. Nothing is unmapped, so no reference dangles. That a mapping is
//!   replaced between the look and the call would take another thread that unloads a library: there is none that does.
//! - `malloc_trim` takes no pointer and is safe to call at any time (`malloc_trim(3)`, MT-Safe).

#![allow(unsafe_code, reason = "see above; everywhere else it is denied")]

use std::io;

use rustix::mm::{Advice, MlockAllFlags, madvise, mlockall, munlockall};

/// Gives back what only the start (or a reload) needed, and locks what is there and what is touched from now on in
/// the mappings of this moment.
///
/// # Errors
/// The memory cannot be locked (the limit `LimitMEMLOCK=` of the unit, and no `CAP_IPC_LOCK`) or `/proc` not be read. All else is
/// done; the guard works without.
pub fn settle() -> io::Result<()> {
    // Nothing can be given back that is locked.
    let _ = munlockall();
    trim_heap();
    for (start, length) in unchanged_file_pages(&std::fs::read_to_string("/proc/self/smaps")?) {
        let address = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: see the module's documentation. Where the kernel refuses, nothing has changed.
        let _ = unsafe { madvise(address, length, Advice::LinuxDontNeed) };
    }
    // Not the mappings to come: the stack of each later thread would count against the limit, and one that does not fit would
    // fail. What is mapped now is the program, its libraries, the heap and the stack of the one thread that fences.
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT)?;
    Ok(())
}

#[cfg(target_env = "gnu")]
fn trim_heap() {
    unsafe extern "C" {
        fn malloc_trim(keep: usize) -> std::ffi::c_int;
    }
    // SAFETY: see the module's documentation; the signature is the one of `malloc.h`.
    let _ = unsafe { malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim_heap() {}

/// Address and length of each private mapping of a file that cannot be written to and holds no page of our own.
fn unchanged_file_pages(smaps: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut mapping = None;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some("Anonymous:"), Some("0")) => found.extend(mapping.take()),
            (Some("Anonymous:"), _) => mapping = None,
            (Some(range), Some(rights)) if !range.ends_with(':') => {
                let file = words.nth(3).is_some_and(|path| path.starts_with('/'));
                mapping = range_of(range).filter(|_| file && matches!(rights, "r-xp" | "r--p"));
            }
            _ => {}
        }
    }
    found
}

fn range_of(range: &str) -> Option<(usize, usize)> {
    let (start, end) = range.split_once('-')?;
    let [start, end] = [start, end].map(|number| usize::from_str_radix(number, 16).ok());
    Some((start?, end?.checked_sub(start?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel writes it, shortened.
    const SMAPS: &str = "\
1000-3000 r--p 00000000 fe:00 1 /usr/bin/program
Rss:                   8 kB
Anonymous:             0 kB
3000-9000 r-xp 00002000 fe:00 1 /usr/bin/program
Anonymous:             0 kB
9000-a000 r--p 00008000 fe:00 1 /usr/bin/program (deleted)
Anonymous:             4 kB
a000-b000 rw-p 00009000 fe:00 1 /usr/bin/program
Anonymous:             0 kB
b000-c000 rw-p 00000000 00:00 0 [heap]
Anonymous:             0 kB
c000-d000 r--p 00000000 00:00 0
Anonymous:             0 kB
d000-e000 r--s 00000000 00:01 2 /run/shared
Anonymous:             0 kB
e000-f000 r-xp 00000000 00:00 0 [vdso]
Anonymous:             0 kB
";

    #[test]
    fn only_what_comes_back_from_a_file_unchanged_is_given_back() {
        assert_eq!(unchanged_file_pages(SMAPS), [(0x1000, 0x2000), (0x3000, 0x6000)]);
        assert_eq!(unchanged_file_pages(""), []);
    }

    /// On this very process: its relocated data, its code and its heap are what they were.
    #[test]
    fn the_process_goes_on_afterwards() {
        static TABLE: [&(dyn std::fmt::Display + Sync); 3] = [&1, &"two", &'3'];
        let heap: Vec<String> = (0..10_000).map(|number| number.to_string()).collect();
        let before = unchanged_file_pages(&std::fs::read_to_string("/proc/self/smaps").unwrap());
        assert!(!before.is_empty());
        let _ = settle();
        let _ = munlockall();
        assert_eq!(TABLE.iter().map(ToString::to_string).collect::<String>(), "1two3");
        assert!(heap.iter().enumerate().all(|(at, text)| *text == at.to_string()));
    }
}
