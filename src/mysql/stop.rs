//! Before mysqld is stopped in an orderly way: sees that its end answers no commit that nobody has acknowledged.
//!
//! A mysqld that is told to end (SIGTERM, `SHUTDOWN`) answers OK to the commits that wait for an acknowledgement, though no replica has
//! them (interleaving 8). So the fence's ladder is climbed first: read-only, so that commits under way get the acknowledgements that are
//! due and none begin; `offline_mode`, which cuts the clients that wait without an OK; then the accounts that it spares are killed. What
//! is different is the end. Where no commit waits mysqld can be told to end, whatever else held read-only up (a rollback
//! must not cost it its life). Where one does, nothing but SIGKILL ends it without an OK (interleaving 10).
//!
//! | interleaving | rule |
//! | --- | --- |
//! | a running agent takes offline for a fence's left-over and opens its server again under its lease | what waits is looked at last, after the ladder; clients were cut, and have to connect anew before they can commit |
//! | the commit that waits is the agent's own heartbeat | counts like any other: an OK that is not earned would become a watermark that no candidate has (interleaving 17) |
//! | an account statement that waits lets nobody in, so that nobody can look (interleaving 16) | a server that gives no answer in time is taken for one with waiting commits, where it may have some (`lossless`) |
//! | it answers, and does not let us in (password, connections) | nothing is known and nothing is killed: the message says so |

use std::time::Duration;

use tokio::time::Instant;

use super::blockers;
use super::fault::Fault;
use super::fence::{Fence, Fenced, Report, end_process, ends};
use crate::core::fencing::{Rung, ladder};

/// The longest look at who waits.
const LOOK: Duration = Duration::from_millis(500);

/// What may follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// No commit waits for an acknowledgement: mysqld can be told to end.
    Ready,
    /// Commits waited, or might have: it was ended by SIGKILL, and nobody got an OK. Why, in words.
    Killed(String),
    /// It does not run any more.
    Gone,
    /// What waits is not known, or the process is not: mysqld was left as it is.
    NotSafe(String),
}

impl Fence {
    /// Makes the server ready to be told to end, within `budget`. `may_wait`: commits may wait for acknowledgements, as far as is
    /// known without asking the server. The report has what held it up.
    pub async fn before_stop(&mut self, budget: Duration, may_wait: bool) -> (Stop, Report) {
        let mysqld = self.mysqld.borrow().clone();
        let mysqld = mysqld.as_deref();
        let start = Instant::now();
        let steps = ladder(budget, mysqld.is_some());
        let end = |rung| start + ends(&steps, rung);
        let mut report =
            Report { fenced: Fenced::Failed(String::new()), rung: None, harmless: None, trouble: Vec::new() };
        // A replica, or whoever is read-only already: nobody is to be disconnected for that.
        if !self.look(ends(&steps, Rung::ReadOnly)).await.is_ok_and(|(closed, _)| closed) {
            let ends = [end(Rung::ReadOnly), end(Rung::Offline), end(Rung::KillSessions)];
            self.close(ends, mysqld, &|| true, &mut report).await;
        }
        let process = || mysqld.ok_or("the process to kill is not known (mysql.socket)");
        let gone = || mysqld.is_some_and(|mysqld| mysqld.has_exited());
        if gone() {
            return (Stop::Gone, report);
        }
        let why = match self.commits_wait().await {
            Ok(0) => return (Stop::Ready, report),
            Ok(waiting) => format!("{waiting} commits waited for an acknowledgement that did not come"),
            Err(_) if gone() => return (Stop::Gone, report),
            Err(Fault::Timeout { .. } | Fault::Lost { .. }) if may_wait => {
                "it gave no answer, and commits may have waited for acknowledgements".to_owned()
            }
            Err(fault) => return (Stop::NotSafe(format!("whether commits wait is not known: {fault}")), report),
        };
        match process() {
            Ok(mysqld) => {
                report.fenced = end_process(mysqld, start, budget, &mut report).await;
                match &report.fenced {
                    Fenced::Failed(failed) => (Stop::NotSafe(format!("{why}; {failed}")), report),
                    _ => (Stop::Killed(why), report),
                }
            }
            Err(unknown) => (Stop::NotSafe(format!("{why}; {unknown}")), report),
        }
    }

    /// How many commits wait for an acknowledgement. Once more where the answer does not come: the connection may have been cut.
    async fn commits_wait(&mut self) -> Result<usize, Fault> {
        let sessions = match blockers::sessions(&mut self.hand, LOOK).await {
            Ok(sessions) => sessions,
            Err(_) => blockers::sessions(&mut self.hand, LOOK).await?,
        };
        Ok(sessions.iter().filter(|session| session.waits_for_ack()).count())
    }
}
