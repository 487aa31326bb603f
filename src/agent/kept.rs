//! What the operator's rules need to outlive a restart of the agent: the marker of `fence`, and when the present epoch was
//! first seen opened (`failover.cooldown`).

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use super::note::{Kept, Note};
use super::shared::ServerCell;
use crate::core::memory::OpenedEpoch;
use crate::core::time::Moment;
use crate::host::state_dir::fence_marker;

/// How often the marker of `fence` is looked for. The verb has made the server read-only by then; this is how much
/// later the agent knows that it must not open it again and gives the lease up.
const LOOK: Duration = Duration::from_millis(100);

/// Follows the marker of `fence`. A task of its own: a state directory that hangs must not keep a decision waiting; what was
/// known last counts meanwhile.
pub async fn watch_fence_marker(state_dir: PathBuf, server: ServerCell) {
    let marker = fence_marker(&state_dir);
    let mut complained = false;
    loop {
        match tokio::fs::try_exists(&marker).await {
            Ok(there) => {
                complained = false;
                // Compared with the view itself, so that whatever stands there otherwise is put right at the next look; and
                // changed only then, since a change costs two copies of the view.
                if server.is_fenced_by_hand() != there {
                    info!(event = "fence_marker", there, "fenced by hand, or released from it");
                    server.change(|server| server.fenced_by_hand = there);
                }
            }
            Err(error) if !complained => {
                complained = true;
                warn!(%error, marker = %marker.display(), "the marker of 'fence' cannot be looked for; what was known counts");
            }
            Err(_) => {}
        }
        sleep(LOOK).await;
    }
}

/// How often it is noted what the server holds: what a predecessor that was killed has not noted is not missed.
const HOLDINGS: Duration = Duration::from_secs(10);

/// Notes now and then what the server holds.
pub async fn keep_holdings(server: ServerCell) {
    loop {
        sleep(HOLDINGS).await;
        server.note_holdings();
    }
}

/// The epoch as an earlier process noted it. In another boot its moment means nothing: then it counts as seen `now`, which
/// is later.
#[must_use]
pub fn opened_epoch(note: &Note, boot_id: &str, now: Moment) -> Option<OpenedEpoch> {
    let text = note.read()?;
    let mut words = text.splitn(5, ' ');
    let epoch = words.next()?.parse().ok()?;
    let failover = words.next()? == "failover";
    let same_boot = words.next()? == boot_id;
    let at: u64 = words.next()?.parse().ok()?;
    let primary = words.next()?.to_owned();
    Some(OpenedEpoch { epoch, primary, at: if same_boot { Moment(at) } else { now }, failover })
}

/// Notes it for the next process.
pub fn keep_opened_epoch(note: &Kept, boot_id: &str, opened: &OpenedEpoch) {
    let kind = if opened.failover { "failover" } else { "asked-for" };
    note.set(Some(&format!("{} {kind} {boot_id} {} {}", opened.epoch, opened.at.0, opened.primary)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::note::keep;

    #[tokio::test]
    async fn the_epoch_is_found_again_and_counts_anew_after_a_reboot() {
        let folder = tempfile::tempdir().unwrap();
        let note = Note::of_epoch(folder.path());
        assert_eq!(opened_epoch(&note, "boot", Moment(9)), None);
        let opened = OpenedEpoch { epoch: 7, primary: "db 1".into(), at: Moment(5), failover: true };
        let kept = keep(note.clone());
        keep_opened_epoch(&kept, "boot", &opened);
        kept.settle().await;
        assert_eq!(opened_epoch(&note, "boot", Moment(9)), Some(opened.clone()));
        assert_eq!(opened_epoch(&note, "later", Moment(9)), Some(OpenedEpoch { at: Moment(9), ..opened }));
    }
}
