//! Lines kept in `state_dir` for the process that comes after this one.
//!
//! Read at the start, before any task runs. Written by [`keep`] alone, on a thread beside: whoever has something to note hands it
//! over and goes on, so that a disk that hangs stops no decision, no fence and no renewal. The last text counts; those between
//! may never be written.

use std::path::{Path, PathBuf};

use tokio::sync::watch;
use tokio::time::timeout;

use crate::host::beside::BRIEFLY;

/// One line.
#[derive(Debug, Clone)]
pub struct Note {
    path: PathBuf,
}

impl Note {
    /// The reason of a fence: a restarted agent must know that the server's read-only is ours.
    #[must_use]
    pub fn of_fence(state_dir: &Path) -> Self {
        Self { path: state_dir.join("fenced") }
    }

    /// The life of the server that was opened: a restarted agent must know whether mysqld was restarted meanwhile.
    #[must_use]
    pub fn of_opening(state_dir: &Path) -> Self {
        Self { path: state_dir.join("opened") }
    }

    /// The present epoch and when it was first seen opened (see [`super::kept`]).
    #[must_use]
    pub fn of_epoch(state_dir: &Path) -> Self {
        Self { path: state_dir.join("epoch") }
    }

    /// What the server has shown to hold ([`crate::core::holdings`]).
    #[must_use]
    pub fn of_holdings(state_dir: &Path) -> Self {
        Self { path: state_dir.join("holdings") }
    }

    /// What was noted.
    #[must_use]
    pub fn read(&self) -> Option<String> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Notes or clears. A full disk is no reason to stop: the note only spares an operator one command.
    fn write(&self, text: Option<&str>) {
        let result = match text {
            Some(text) => std::fs::write(&self.path, text),
            None => std::fs::remove_file(&self.path).or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
        };
        if let Err(error) = result {
            tracing::warn!(path = %self.path.display(), %error, "cannot be noted; after a restart of this agent a read-only primary may count as set by hand, failover.cooldown counts anew, and data that is replaced may not be noticed");
        }
    }
}

/// A note that is kept up to date.
#[derive(Debug, Clone)]
pub struct Kept {
    /// The text, and how many there were before.
    wanted: watch::Sender<(u64, Option<String>)>,
    written: watch::Receiver<u64>,
}

/// Starts the one writer of a note. Must run within tokio.
#[must_use]
pub fn keep(note: Note) -> Kept {
    let (wanted, mut wants) = watch::channel((0, None));
    let (writes, written) = watch::channel(0);
    tokio::spawn(async move {
        while wants.changed().await.is_ok() {
            let (count, text) = wants.borrow_and_update().clone();
            let note = note.clone();
            let _ = tokio::task::spawn_blocking(move || note.write(text.as_deref())).await;
            writes.send_replace(count);
        }
    });
    Kept { wanted, written }
}

impl Kept {
    /// Notes or clears; waits for nothing. Of several the last is kept, in the order of the calls.
    pub fn set(&self, text: Option<&str>) {
        self.wanted.send_modify(|(count, wanted)| {
            *count += 1;
            *wanted = text.map(str::to_owned);
        });
    }

    /// Waits until all that was handed over by now is written; on a disk that hangs only for [`BRIEFLY`].
    pub async fn settle(&self) {
        let handed_over = self.wanted.borrow().0;
        let mut written = self.written.clone();
        let _ = timeout(BRIEFLY, written.wait_for(|count| *count >= handed_over)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn the_last_text_is_found_by_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let note = Note::of_fence(folder.path());
        let kept = keep(note.clone());
        for (text, expected) in [(Some("one"), Some("one")), (Some("two"), Some("two")), (None, None), (None, None)] {
            kept.set(text);
            kept.settle().await;
            assert_eq!(note.read().as_deref(), expected);
        }
    }

    /// A FIFO that nobody reads holds its writer up as a disk that hangs does.
    #[tokio::test]
    async fn a_disk_that_hangs_holds_nobody_up_and_gets_the_last_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fenced");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let kept = keep(Note::of_fence(folder.path()));
        for text in ["one", "two", "three"] {
            kept.set(Some(text));
            kept.settle().await;
        }
        // Open for both, so that it has no end between two writers.
        let mut fifo = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let read = tokio::task::spawn_blocking(move || {
            let mut text = Vec::new();
            while !text.ends_with(b"three") {
                let mut byte = [0];
                fifo.read_exact(&mut byte).unwrap();
                text.extend(byte);
            }
            text
        });
        assert_eq!(read.await.unwrap(), b"onethree");
    }
}
