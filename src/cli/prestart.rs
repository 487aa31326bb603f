//! `prestart`: before each start of mysqld on this host (`ExecStartPre=` of its unit, `packaging/mysql-ha-start.conf`). Takes back the
//! commits that were in flight when mysqld died, where it is shown that nobody was told of them; changes nothing in every other case, and says why.
//! Needs no running agent on this host. Never takes longer than 5 s: mysqld waits for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::exit::Exit;
use super::rewind::{Done, Keep, Open, Scene, find};
use super::session::{self, Tree};
use crate::agent::run::own_target;
use crate::config::Config;
use crate::core::action::{Op, Path as Node, Record};
use crate::core::gtid::GtidSet;
use crate::core::reason::Reason;
use crate::core::records::{Incident, Mode};
use crate::core::rewind::{Kind, LastSeen, Leave, MayMove, NewPrimary, Roles, Wrote, roles};
use crate::core::view::Ensemble;
use crate::host::clock;
use crate::mysql::executed;

/// The whole verb's time.
const BOUND: Duration = Duration::from_secs(5);
/// So long it waits for the roles to settle; the rest is for the file.
const ROLES: Duration = Duration::from_millis(3500);
/// Then nothing is begun that cannot be done in time.
const FILE: Duration = Duration::from_millis(4500);
/// For the new primary's answer.
const ANSWER: Duration = Duration::from_secs(1);
/// For telling the others, once all is done.
const TELL: Duration = Duration::from_millis(300);

/// What the verb has done.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether the file was cut; with `--dry-run`, whether it would be.
    cut: bool,
    /// Nothing was changed since that was asked for.
    dry_run: bool,
    /// The row of the decision (`src/core/rewind.rs`); none where it was a cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<&'static str>,
    /// In words.
    text: String,
    /// The binary log file.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    /// Its length after the cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    /// What was taken back.
    #[serde(skip_serializing_if = "GtidSet::is_empty")]
    gtids: GtidSet,
    /// The copy of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    copy: Option<PathBuf>,
    /// What else the operator should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip)]
    exit: Exit,
}

impl Report {
    /// The exit code.
    #[must_use]
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let warnings: String = self.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
        format!("{}\n{warnings}", self.text)
    }

    fn left(leave: Leave, dry_run: bool) -> Self {
        let exit = match leave.kind {
            Kind::Nothing => Exit::Done,
            Kind::Refused => Exit::Refused,
            Kind::ZooKeeper => Exit::ZooKeeperUnreachable,
            Kind::Mysql => Exit::MysqlUnreachable,
        };
        let text = format!("nothing was changed: {}", leave.why);
        let (row, warnings) = (Some(leave.row), Vec::new());
        Self { cut: false, dry_run, row, text, file: None, at: None, gtids: GtidSet::new(), copy: None, warnings, exit }
    }

    fn done(done: Done, file: &Path, primary: &str, dry_run: bool) -> Self {
        let Done { cut, copy } = done;
        let would = if dry_run { "would be" } else { "were" };
        let kept = copy.as_ref().map(|copy| format!("; a copy is in {}", copy.display())).unwrap_or_default();
        let text = format!(
            "{} transactions that were in flight {would} taken back, since {primary} took over without them: {} ({} cut at {}){kept}",
            cut.count,
            cut.gtids,
            file.display(),
            cut.at
        );
        let (at, gtids, file) = (Some(cut.at), cut.gtids, Some(file.to_owned()));
        Self { cut: true, dry_run, row: None, text, file, at, gtids, copy, warnings: Vec::new(), exit: Exit::Done }
    }
}

/// Does what is to be done before mysqld starts.
pub async fn prestart(config: &Config, dry_run: bool) -> Report {
    let start = Instant::now();
    if !config.rejoin.rewind {
        return Report::left(Leave::nothing("L1", "rejoin.rewind is false"), dry_run);
    }
    let asked = Arc::new(config.clone());
    // Not ended by the timeout, but by the end of this process, which follows: a disk that hangs keeps the lock until then.
    match timeout_at(start + BOUND, work(asked, dry_run, start)).await {
        Ok(report) => report,
        Err(_) => Report {
            exit: Exit::Unknown,
            ..Report::left(
                Leave::refused(
                    "X1",
                    format!("the disk did not answer within {BOUND:?}: whether the file was cut is not known"),
                ),
                dry_run,
            )
        },
    }
}

async fn work(config: Arc<Config>, dry_run: bool, start: Instant) -> Report {
    let state_dir = config.state_dir.clone();
    let found = match beside(move || find(&state_dir)).await {
        Ok(scene) => Arc::new(scene),
        Err(leave) => return Report::left(leave, dry_run),
    };
    let decided = rewound(&config, &found, dry_run, start).await;
    let (mut report, tree) = match decided {
        Ok((done, primary, tree)) => (Report::done(done, &found.file, &primary, dry_run), Some(tree)),
        Err(leave) => (Report::left(leave, dry_run), None),
    };
    if dry_run {
        return report;
    }
    // Last, and whatever was decided: mysqld starts now.
    let state_dir = config.state_dir.clone();
    if let Err(leave) = beside(move || found.note_start(&state_dir)).await {
        report.warnings.push(leave.why);
    }
    if let Some(tree) = tree
        && let Err(warning) = tell(&config, &tree, &report).await
    {
        report.warnings.push(warning);
    }
    report
}

/// Everything between finding the file and the start.
async fn rewound(
    config: &Config,
    scene: &Arc<Scene>,
    dry_run: bool,
    start: Instant,
) -> Result<(Done, String, Tree), Leave> {
    let (site, state_dir, cluster) = (scene.clone(), config.state_dir.clone(), config.cluster.clone());
    let open: Open = beside(move || site.examine(&state_dir, &cluster)).await?;
    let (tree, primary, ensemble) = settled(config, &scene.seen, &open.wrote, start + ROLES).await?;
    let executed = ask(config, &primary).await?;
    let (site, state_dir) = (scene.clone(), config.state_dir.clone());
    let at = clock::wall().0.replace(':', "");
    let done = beside(move || {
        let keep = Keep { state_dir: &state_dir, at: &at, dry_run };
        site.take_back(&open, &executed, &ensemble, keep, &|| start.elapsed() > FILE)
    })
    .await?;
    Ok((done, primary.name, tree))
}

/// Waits for another server to take over; as long as it may come by itself, and no longer than until `end`.
async fn settled(
    config: &Config,
    seen: &LastSeen,
    wrote: &Wrote,
    end: Instant,
) -> Result<(Tree, NewPrimary, Arc<Ensemble>), Leave> {
    let unreachable = |why: String| Leave { row: "C1", kind: Kind::ZooKeeper, why };
    let mut tree = match timeout_at(end, session::open(config)).await {
        Ok(Ok(tree)) => tree,
        Ok(Err((_, why))) => return Err(unreachable(why)),
        Err(_) => {
            return Err(unreachable("ZooKeeper does not answer, so that it is not known who is the primary".into()));
        }
    };
    let may_move = MayMove(config.failover.mode == Mode::Automatic && config.heartbeat.exit_grace.is_zero());
    loop {
        let ensemble = tree.now();
        let found = match ensemble.complete {
            true => roles(&ensemble, &config.name, seen, wrote, may_move),
            false => Roles::Unsettled(unreachable("the connection to ZooKeeper was lost".into())),
        };
        let leave = match found {
            Roles::Settled(primary) => return Ok((tree, primary, ensemble)),
            Roles::Never(leave) => return Err(leave),
            Roles::Unsettled(leave) => leave,
        };
        if timeout_at(end, tree.changed()).await.is_err() {
            return Err(leave);
        }
    }
}

/// What the new primary has, from its server.
async fn ask(config: &Config, primary: &NewPrimary) -> Result<GtidSet, Leave> {
    let fault = |why: String| Leave {
        row: "C7",
        kind: Kind::Mysql,
        why: format!("{} at {}: {why}", primary.name, primary.address),
    };
    let target = own_target(config).at(&primary.address).map_err(|error| fault(error.to_string()))?;
    let found = executed::read(&target, ANSWER).await.map_err(|error| fault(error.to_string()))?;
    if found.server_uuid != primary.server_uuid || found.read_only {
        return Err(fault("it is another server than topology names, or takes no writes".into()));
    }
    Ok(found.executed)
}

/// Tells the others, for whoever looks for these transactions.
async fn tell(config: &Config, tree: &Tree, report: &Report) -> Result<(), String> {
    let incident = Incident {
        at: clock::wall(),
        kind: Reason::Rewound,
        subject: config.name.clone(),
        noticed_by: config.name.clone(),
        detail: report.text.clone(),
    };
    let write = tree.write(Op::Create(Node::NewIncident, Record::Incident(incident)));
    match tokio::time::timeout(TELL, write).await {
        Ok(crate::zookeeper::writer::Outcome::Done { .. }) => Ok(()),
        other => Err(format!("the others could not be told: {other:?}")),
    }
}

/// Work on the disk.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> Result<T, Leave> + Send + 'static) -> Result<T, Leave> {
    match spawn_blocking(work).await {
        Ok(done) => done,
        // A broken invariant: the work has ended where it stood, before the cut.
        Err(error) => Err(Leave::refused("X2", format!("a fault of this program: {error}"))),
    }
}
