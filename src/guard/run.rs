//! The guard's loop: look at the files, decide, ask the server where that matters, fence.

use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{error, info, warn};

use super::sight::Files;
use crate::agent::reload::reloads;
use crate::agent::run::own_target;
use crate::agent::watcher;
use crate::cli::exit::Exit;
use crate::config::{Config, sections::Mode};
use crate::core::fenced::Told;
use crate::core::guard::{Action, Answer, Ended, LeaseId, Marker, Memory, Sight, Verdict, step};
use crate::core::reason::Reason;
use crate::core::time::Moment;
use crate::host::notify::{self, Notifier};
use crate::host::presence::{self, Presence};
use crate::host::{clock, memory};
use crate::mysql::fault::Fault;
use crate::mysql::fence::{Fence, Fenced, KEEP_OPEN, Report, limit_of_use};

/// The longest time between two looks at the lease file, and between two questions to a server without a lease.
pub const LOOK: Duration = Duration::from_millis(250);
/// One question's limit; a new login is part of it.
const ASK: Duration = KEEP_OPEN;
/// Between two looks at whether an agent lives.
const AGENT: Duration = Duration::from_secs(1);
/// Before a fence that failed, or was undone by somebody, is repeated.
const AGAIN: Duration = Duration::from_millis(50);

/// Why the guard ends: an exit code and a text for stderr.
pub type End = (Exit, String);

/// Runs until it is told to stop. `path`: the configuration file, read again at SIGHUP.
pub async fn run(config: Config, path: &Path) -> End {
    let boot_id = match clock::boot_id() {
        Ok(boot_id) => boot_id,
        Err(error) => return (Exit::Usage, format!("this host cannot be examined: {error}")),
    };
    let own_path = presence::guard_path(&config.run_dir, &config.cluster, &config.name);
    let presence = match Presence::take(&own_path) {
        Ok(presence) => Some(presence),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            return (Exit::Refused, format!("another guard of this server runs: {error}; nothing was done"));
        }
        // It can guard without, and nobody sees that it does.
        Err(error) => {
            warn!(event = "presence", %error, "the guard's own file cannot be used: its agent will report it as missing");
            None
        }
    };
    let mut guard = Guard::new(&config, boot_id, presence);
    let mut reloads = reloads(path.to_owned());
    let mut stop = std::pin::pin!(notify::told_to_stop());
    info!(event = "guarding", "the guard watches over the lease of this host's server");
    loop {
        let pause = guard.turn().await;
        guard.settle();
        tokio::select! {
            // Time: the lease's end comes near, or the next question is due.
            () = sleep(pause) => {}
            // The operator has changed the file.
            Some(next) = reloads.recv() => guard.reload(&next),
            () = &mut stop => {
                notify::stopping();
                warn!(event = "stopped", "the guard stops: if the agent fails too, nothing on this host fences its server");
                return (Exit::Done, String::new());
            }
        }
    }
}

/// What the process keeps in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Footprint {
    /// All that its start, or a reload, has touched.
    Start,
    /// What it has touched since.
    Settled,
    /// And what a fence needs.
    Rehearsed,
}

/// The guard's state between two turns.
struct Guard {
    files: Files,
    fence: Fence,
    memory: Memory,
    presence: Option<Presence>,
    notifier: Notifier,
    /// What stands in its own file.
    told: Told,
    boot_id: String,
    observe: bool,
    budget: Duration,
    /// The row that decided last, for the log.
    row: &'static str,
    /// When the connections were seen to be open last.
    kept: Moment,
    /// How far it has come with keeping in memory what it needs, and nothing else.
    footprint: Footprint,
    /// The agent's pid as last seen, and when that was.
    agent: Option<(Option<u32>, Moment)>,
}

impl Guard {
    fn new(config: &Config, boot_id: String, presence: Option<Presence>) -> Self {
        let told = presence.as_ref().map(|presence| Told::of(presence.found(), &boot_id)).unwrap_or_default();
        Self {
            files: Files::new(config, &boot_id),
            fence: watcher::fence(config, watcher::watch_process(config)),
            memory: Memory { told: told.clone(), ..Memory::default() },
            presence,
            notifier: Notifier::default(),
            told,
            boot_id,
            observe: config.failover.mode == Mode::Observe,
            budget: config.fencing.budget,
            row: "",
            kept: Moment(0),
            footprint: Footprint::Start,
            agent: None,
        }
    }

    /// One turn; how long to sleep after it.
    async fn turn(&mut self) -> Duration {
        let (verdict, answer) = self.decide().await;
        let pause = match verdict.action.clone() {
            Action::Fence { within, lease } => {
                self.fence_now(&verdict, within, lease, answer.as_ref()).await;
                AGAIN
            }
            Action::Rest(start) => {
                self.say(&verdict, answer.as_ref());
                self.keep_open(start, answer.as_ref()).await;
                start.map_or(LOOK, |start| start.until(clock::now()).clamp(Duration::from_millis(1), LOOK))
            }
            Action::Ask => LOOK,
        };
        self.tell();
        self.look_for_agent();
        self.notifier.turned(clock::now());
        pause
    }

    /// What is to be done now. The file is read before the clock: a freeze in between makes a lease older, never younger.
    async fn decide(&mut self) -> (Verdict, Option<Answer>) {
        let lease = self.files.lease();
        let mut sight =
            Sight { lease, marker: Marker::Unknown, answer: None, observe: self.observe, budget: self.budget };
        let verdict = step(&mut self.memory.clone(), &sight, clock::now());
        if matches!(verdict.action, Action::Rest(_)) {
            return (verdict, None);
        }
        // Not at rest: from here on it matters whose server this is.
        sight.marker = self.files.marker().await;
        let verdict = step(&mut self.memory, &sight, clock::now());
        if verdict.action != Action::Ask {
            return (verdict, None);
        }
        let answer = self.ask(ASK).await;
        // While it was asked a lease may have been taken.
        sight.lease = self.files.lease();
        sight.answer = Some(answer.clone());
        (step(&mut self.memory, &sight, clock::now()), Some(answer))
    }

    /// After the first turn, and the first after a reload.
    fn settle(&mut self) {
        if self.footprint != Footprint::Start {
            return;
        }
        self.footprint = Footprint::Settled;
        if let Err(error) = memory::settle() {
            warn!(event = "memory", %error, "the guard cannot keep itself in memory (LimitMEMLOCK of its unit): where memory is short a \
                fence may have to wait for the disk that holds its program");
        }
    }

    async fn ask(&mut self, limit: Duration) -> Answer {
        match self.fence.look(limit).await {
            Ok((true, uuid)) => Answer::ReadOnly { uuid },
            Ok((false, uuid)) => Answer::Writable { uuid },
            // One that shuts down listens no more and still answers commits: it is down when it has exited.
            Err(Fault::Refused { .. }) if !self.fence.process_lives() => Answer::Down,
            Err(fault) => Answer::Silent(fault.to_string()),
        }
    }

    /// Keeps the fence's connections open, and knows the server's name, before they are needed.
    async fn keep_open(&mut self, start: Option<Moment>, answered: Option<&Answer>) {
        let now = clock::now();
        let left = start.map_or(Duration::MAX, |start| start.until(now));
        // One for the question, one for each connection, and once the four of a rehearsal.
        let uses = if self.footprint == Footprint::Settled { 7 } else { 3 };
        let Some(limit) = limit_of_use(left, uses).filter(|_| now.since(self.kept) >= KEEP_OPEN) else { return };
        self.kept = now;
        let answer = match answered {
            Some(answer) => answer.clone(),
            None => self.ask(limit).await,
        };
        let silent = matches!(answer, Answer::Down | Answer::Silent(_));
        let (lease, answer) = (self.files.lease(), Some(answer));
        let sight = Sight { lease, marker: Marker::Unknown, answer, observe: self.observe, budget: self.budget };
        // For the memory alone; the next turn decides.
        let _ = step(&mut self.memory, &sight, clock::now());
        if !silent {
            // What failed here is opened at the next try.
            let open = self.fence.keep_open(limit).await.is_ok();
            if open && self.footprint == Footprint::Settled && self.fence.rehearse(limit).await.is_ok() {
                // What a fence does beside the ladder: a reading on a thread of its own, and a line of the log.
                let marker = self.files.marker().await;
                info!(event = "rehearsed", ?marker, "has all in memory that a fence needs");
                self.footprint = Footprint::Rehearsed;
            }
        }
    }

    async fn fence_now(
        &mut self,
        verdict: &Verdict,
        within: Duration,
        lease: Option<LeaseId>,
        answer: Option<&Answer>,
    ) {
        let reason = if lease.is_some() { Reason::LeaseLost } else { Reason::WritableWithoutLease };
        let started = clock::now();
        // First, so that the agent does not take what it sees meanwhile for somebody's hand, nor for done.
        self.memory.fence_begins(reason, started + within);
        self.tell();
        let (files, budget) = (&self.files, self.budget);
        let report = self.fence.climb(within, || !files.holds_again(budget, clock::now())).await;
        let ended = match &report.fenced {
            Fenced::ReadOnly | Fenced::Dead if report.rung.is_none() => Ended::NothingToDo,
            Fenced::ReadOnly | Fenced::Dead => Ended::Closed,
            Fenced::Withdrawn => Ended::Withdrawn,
            Fenced::Failed(_) => Ended::Failed,
        };
        self.memory.fence_ended(ended, lease, clock::now());
        self.tell();
        self.say_fenced(verdict, &report, clock::now().since(started), answer);
    }

    /// What became of a fence, after it.
    fn say_fenced(&mut self, verdict: &Verdict, report: &Report, took: Duration, answer: Option<&Answer>) {
        let ms = took.as_secs_f64() * 1000.0;
        let before = std::mem::replace(&mut self.row, verdict.row);
        let rung = report.rung.map_or("none", |rung| rung.code());
        let trouble = report.trouble.join("; ");
        match &report.fenced {
            Fenced::Failed(why) => {
                error!(event = "fence_failed", row = verdict.row, rung, ms, %why, trouble,
                    "{}, and the server could not be made read-only; trying again", verdict.says);
                return;
            }
            Fenced::Withdrawn => {
                info!(event = "fence_withdrawn", row = verdict.row, rung, ms, "the lease was renewed: fences no more");
                return;
            }
            // The agent was faster, or there was nothing to do: not worth a warning.
            fenced if report.rung.is_none() => {
                info!(event = "fenced", row = verdict.row, rung, ms, ?fenced, "{}; it takes no writes", verdict.says);
            }
            fenced => warn!(
                event = "fenced",
                row = verdict.row,
                before,
                rung,
                ms,
                ?fenced,
                ?answer,
                trouble,
                "{}: the guard has made the server read-only or ended it",
                verdict.says
            ),
        }
        self.notifier.status(&format!("fenced ({})", verdict.says));
    }

    /// Writes down what the next guard and the agent are to know, where it has changed. In `run_dir`, which is no disk.
    fn tell(&mut self) {
        let Some(presence) = self.presence.as_ref().filter(|_| self.told != self.memory.told) else { return };
        self.told.clone_from(&self.memory.told);
        if let Err(error) = presence.write(&self.told.text(&self.boot_id)) {
            warn!(event = "presence", %error, "the agent cannot be told of a fence: a read-only primary may count as set by hand");
        }
    }

    fn say(&mut self, verdict: &Verdict, answer: Option<&Answer>) {
        if std::mem::replace(&mut self.row, verdict.row) == verdict.row {
            return;
        }
        self.notifier.status(verdict.says);
        match verdict.row {
            "G5" | "G8" | "G9" => warn!(event = "guard", row = verdict.row, ?answer, "{}", verdict.says),
            _ => info!(event = "guard", row = verdict.row, ?answer, "{}", verdict.says),
        }
    }

    /// Says when an agent comes or goes. Nothing is decided by it: the lease is what counts.
    fn look_for_agent(&mut self) {
        let now = clock::now();
        let seen = match self.agent {
            Some((_, at)) if now.since(at) < AGENT => return,
            Some((seen, _)) => Some(seen),
            None => None,
        };
        let holder = presence::holder(&self.files.lease_path);
        self.agent = Some((holder, now));
        match (seen, holder) {
            (Some(before), now) if before == now => {}
            (_, Some(pid)) => info!(event = "agent_present", pid, "an agent writes the lease file"),
            (_, None) => warn!(
                event = "agent_missing",
                "no agent runs on this host; its server is fenced at the end of its lease, and stays read-only without one"
            ),
        }
    }

    fn reload(&mut self, next: &Config) {
        self.fence.retarget(&own_target(next));
        self.footprint = Footprint::Start;
        info!(
            event = "reloaded",
            "mysql.user, mysql.password and mysql.socket are used from the next connection on; all other keys at the \
             next start of the guard"
        );
    }
}
