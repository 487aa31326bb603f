//! `bootstrap`: the first start of a cluster in which nothing replicates yet, or of one whose `topology` is lost while all its
//! servers are read-only. This host's server becomes the primary.
//!
//! It writes one thing: a `topology` in which nobody takes writes and this server was the last that did. What follows is the agents'
//! ordinary work: the last writer with its data needs nobody's vote (design, interleaving 13). Others join as they replicate from it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::exit::{Exit, refused};
use super::session::{self, Tree};
use crate::agent::run::own_target;
use crate::config::Config;
use crate::core::action::{Op, Path, Purpose, Record, Write};
use crate::core::gtid::GtidSet;
use crate::core::reason::Reason;
use crate::core::records::{
    AgentRecord, Durability, DurabilityMode, Member, MemberState, Mode, ServerRecord, Terms, Topology,
};
use crate::core::view::{Ensemble, IoThread, Node, ServerFacts};
use crate::host::clock;
use crate::mysql::connect::Line;
use crate::mysql::facts::{self, Reading};
use crate::zookeeper::writer::Outcome;

/// One statement's limit.
const LIMIT: Duration = Duration::from_secs(5);
/// How long the agent may take to make the server the primary: a lease of before may have to run out first.
const TAKES_OVER: Duration = Duration::from_secs(60);

/// Makes this host's server the primary of a cluster that has none; the answer for people and the exit code.
pub async fn bootstrap(config: &Config) -> (Exit, String) {
    match begun(config).await {
        Ok(text) => (Exit::Done, text),
        Err(end) => end,
    }
}

async fn begun(config: &Config) -> Result<String, (Exit, String)> {
    let mut tree = session::open(config).await?;
    let facts = read(config).await?;
    let topology = first(config, &tree.now(), &facts).map_err(refused)?;
    let ops = vec![Op::Create(Path::Topology, Record::Topology(Box::new(topology)))];
    match tree.writer.commit(&Write { purpose: Purpose::Adopt, ops }).await {
        Outcome::Done { .. } => {}
        Outcome::Rejected { why, .. } => return Err(refused(format!("somebody was faster ({why}): see 'status'"))),
        Outcome::NotDone { why } => return Err((Exit::ZooKeeperUnreachable, format!("{why}; nothing was touched\n"))),
        Outcome::Unknown { why } => {
            return Err((Exit::Unknown, format!("no answer from ZooKeeper ({why}): see 'status'\n")));
        }
    }
    taken_over(config, &mut tree).await
}

async fn read(config: &Config) -> Result<ServerFacts, (Exit, String)> {
    let mut line = Line::new(own_target(config));
    match facts::once(&mut line, &config.heartbeat.schema, LIMIT).await {
        Ok(Reading::Facts(facts)) => Ok(*facts),
        Ok(Reading::Unsupported(why)) => Err(refused(why)),
        Err(fault) => Err((Exit::MysqlUnreachable, format!("{fault}\n"))),
    }
}

/// The first `topology`, or why there is not to be one.
fn first(config: &Config, ensemble: &Ensemble, facts: &ServerFacts) -> Result<Topology, String> {
    match &ensemble.topology {
        Node::Absent => {}
        Node::Here(seen) => {
            let primary = seen.record.primary.as_deref().unwrap_or("nobody at this moment");
            return Err(format!("the cluster is there already (primary: {primary}): see 'status'"));
        }
        Node::Unreadable { why, .. } => return Err(format!("there is a node topology, and it cannot be read: {why}")),
    }
    let own = ensemble.agents.get(&config.name).ok_or("this host's agent does not run: start it first")?;
    if own.record.server.as_ref().is_none_or(|server| server.server_uuid != facts.server_uuid) {
        return Err("the agent of this name does not watch this server: is 'name' unique?".to_owned());
    }
    if config.failover.mode == Mode::Observe {
        return Err("failover.mode is observe: this agent changes nothing".to_owned());
    }
    if config.failover.priority == 0 || own.record.fenced_by_hand || ensemble.pause.here().is_some() {
        return Err(
            "nobody would be promoted: failover.priority is 0, the server is fenced by hand, or a pause is in force"
                .to_owned(),
        );
    }
    if let Some(lease) =
        ensemble.lease.record().filter(|lease| lease.opened && !lease.released && lease.name != config.name)
    {
        return Err(format!(
            "{} held the last lease and has not given it up: its server may take writes still; start its agent, or 'bootstrap' there",
            lease.name
        ));
    }
    if let Some(channel) = facts.channel.as_ref().filter(|channel| channel.io == IoThread::Yes) {
        return Err(format!("this server replicates from {}, which lives: that one is the primary", channel.source));
    }
    let mut others = ensemble.agents.values().map(|seen| &seen.record).filter(|agent| agent.name != config.name);
    if let Some(why) = others.find_map(|agent| stands_in_the_way(agent, facts)) {
        return Err(why);
    }
    let member = Member {
        address: config.mysql.advertise.to_string(),
        server_uuid: facts.server_uuid.clone(),
        state: MemberState::Read,
    };
    let terms = Terms { durability: config.failover.durability, sync_replicas: config.failover.sync_replicas };
    Ok(Topology {
        format: Topology::FORMAT,
        cluster: config.cluster.clone(),
        // The claim makes it one more. No epoch comes twice where the cluster ran before.
        epoch: ensemble.lease.record().map_or(0, |lease| lease.epoch + 1),
        primary: None,
        since: clock::wall(),
        reason: Reason::Bootstrap,
        members: BTreeMap::from([(config.name.clone(), member)]),
        last_writer: Some(config.name.clone()),
        // Nobody acknowledges yet: what is acknowledged is here alone.
        durability: Durability {
            degraded: terms.durability == DurabilityMode::Lossless,
            ..Durability::without_members(terms)
        },
        handover: None,
        forced: None,
        kept_since: None,
        lost: GtidSet::new(),
    })
}

/// Whether another server takes writes, or holds what this one does not.
fn stands_in_the_way(agent: &AgentRecord, facts: &ServerFacts) -> Option<String> {
    let Some(server): Option<&ServerRecord> = agent.server.as_ref() else {
        return Some(format!(
            "the agent of {} has not seen its server yet: wait for it, or stop that agent",
            agent.name
        ));
    };
    if let Some(source) = server.source.as_ref().filter(|source| source.io_running) {
        let ours = source.server_uuid.as_deref() == Some(facts.server_uuid.as_str());
        if !ours {
            return Some(format!("the server of {} replicates from {}, which lives", agent.name, source.address));
        }
    }
    if server.writable {
        return Some(format!("the server of {} takes writes: make it read-only, or let it be the primary", agent.name));
    }
    let more = server.received().subtract(&facts.received());
    (!more.is_empty()).then(|| {
        format!(
            "the server of {} holds {} transactions that this one does not have ({more}): 'bootstrap' there, or rebuild it",
            agent.name,
            more.count()
        )
    })
}

/// Waits for the agent to do its part.
async fn taken_over(config: &Config, tree: &mut Tree) -> Result<String, (Exit, String)> {
    let primary = |ensemble: &Ensemble| {
        let topology = ensemble.topology.record()?;
        (topology.primary.as_deref() == Some(config.name.as_str())).then_some(topology.epoch)
    };
    match tree.wait(TAKES_OVER, primary).await {
        Some(epoch) => Ok(format!(
            "{} is the primary of '{}' in epoch {epoch}; other servers join as they replicate from {}\n",
            config.name, config.cluster, config.mysql.advertise
        )),
        None => Err((
            Exit::Unknown,
            format!(
                "the cluster is recorded, and {} is not its primary after {} s: 'status' says what it waits for\n",
                config.name,
                TAKES_OVER.as_secs()
            ),
        )),
    }
}
