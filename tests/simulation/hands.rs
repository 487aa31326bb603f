//! Actions on MySQL, as `src/mysql` carries them out.

use std::collections::BTreeSet;

use mysql_ha_agent::core::action::{MysqlAction, MysqlKind};
use mysql_ha_agent::core::gtid::GtidSet;
use mysql_ha_agent::core::view::Failure;

use super::mysqld::{Replication, address, uuid};
use super::world::World;

/// A statement on a silent server is given up after this, milliseconds.
const STEP: u64 = 1000;

/// What one look at an action under way shows.
enum Done {
    NotYet,
    Yes,
    Diverged(GtidSet),
    Failed(String),
}

fn host_of(at: &str) -> usize {
    (0..9).find(|host| address(*host) == at).unwrap()
}

impl World {
    /// One tick of the MySQL lane.
    pub(crate) fn act(&mut self, i: usize) {
        let Some(doing) = &self.agents[i].doing else { return };
        if self.t < doing.ready {
            return;
        }
        let (action, started) = (doing.action.clone(), doing.started);
        let done = match (self.servers[i].up, self.servers[i].frozen) {
            (false, _) => Done::Failed("connection refused".into()),
            (true, true) if self.t - started < STEP => Done::NotYet,
            (true, true) => Done::Failed("no answer in time".into()),
            _ => self.look(i, &action, started),
        };
        let kind = action.kind();
        let now = self.now(i);
        let begun = now - std::time::Duration::from_millis(self.t - started);
        let server = &mut self.agents[i].server;
        if !matches!(done, Done::NotYet) {
            server.action_returns(now);
        }
        let why = match done {
            Done::NotYet => return,
            Done::Failed(why) => {
                server.failure = Some(Failure { kind, why: why.clone(), at: now, touched: true });
                Some(why)
            }
            Done::Yes | Done::Diverged(_) => {
                server.failure = None;
                server.done = Some((kind, now));
                server.accounts_changed(&action, begun, now);
                if let MysqlAction::FenceRemote { server_uuid, .. } = &action {
                    server.fenced_remote = Some((server_uuid.clone(), begun));
                }
                match kind {
                    MysqlKind::Close => server.closed_for_switch(),
                    MysqlKind::Open | MysqlKind::Follow => server.lift_fence(now),
                    _ => {}
                }
                self.hosts[i].fenced = server.fenced;
                if let Done::Diverged(extra) = done {
                    server.errant = extra;
                } else if kind == MysqlKind::Follow {
                    server.errant = GtidSet::new();
                }
                None
            }
        };
        if kind != MysqlKind::WaitApplied {
            self.say(i, format!("mysql {kind:?}: {}", why.as_deref().unwrap_or("done")));
        }
        if self.servers[i].answers() {
            self.read_facts(i);
        }
        self.agents[i].doing = None;
        self.agents[i].dirty = true;
    }

    fn look(&mut self, i: usize, action: &MysqlAction, started: u64) -> Done {
        let over = |limit: std::time::Duration| u128::from(self.t - started) >= limit.as_millis();
        match action {
            MysqlAction::StopIo => {
                self.servers[i].replica_enabled = false;
                self.stop_io(i);
                Done::Yes
            }
            MysqlAction::StartApplier => {
                if let Some(channel) = &mut self.servers[i].channel {
                    channel.sql = true;
                }
                Done::Yes
            }
            MysqlAction::WaitApplied { set, limit } => {
                let applied = self.servers[i].executed.gtids().contains(set);
                if applied || over(*limit) { Done::Yes } else { Done::NotYet }
            }
            MysqlAction::Fetch { from, set, limit } => {
                let late = over(*limit);
                let received = self.servers[i].received().contains(set);
                if received || late {
                    self.stop_io(i);
                    return Done::Yes;
                }
                let source = host_of(from);
                if self.purged == Some(source) {
                    self.stop_io(i);
                    return Done::Failed("the source has purged it".into());
                }
                if !self.servers[i].channel.as_ref().is_some_and(|channel| channel.source == source && channel.io) {
                    // The agents' own account where ours is locked.
                    let own = self.servers[i].user.clone();
                    let locked = self.servers[source].locked.contains_key(&own);
                    self.servers[i].point_at(source, if locked { "agent" } else { &own });
                }
                Done::NotYet
            }
            MysqlAction::Follow { address, server_uuid, acknowledge } => {
                self.follow(i, host_of(address), server_uuid, &GtidSet::new(), *acknowledge)
            }
            MysqlAction::FollowTarget { address, server_uuid, final_set, acknowledge } => {
                self.follow(i, host_of(address), server_uuid, final_set, *acknowledge)
            }
            MysqlAction::Acknowledge { on } => {
                let server = &mut self.servers[i];
                server.replica_enabled = *on;
                if let Some(channel) = server.channel.as_mut().filter(|channel| channel.io) {
                    (channel.connected, channel.acknowledges, channel.let_in) = (false, *on, None);
                }
                Done::Yes
            }
            MysqlAction::AwaitAcknowledgements { count } => {
                for tx in self.servers[i].wait_for(*count) {
                    self.acknowledge(i, tx);
                }
                Done::Yes
            }
            MysqlAction::CommitMarker => {
                let _ = self.servers[i].commit(self.t, false);
                Done::Yes
            }
            MysqlAction::ForgetSource => {
                let server = &mut self.servers[i];
                if !server.executed.gtids().contains(&server.received()) {
                    return Done::Failed("not everything received is applied".into());
                }
                server.channel = None;
                Done::Yes
            }
            MysqlAction::Open { not_after, acknowledgements } => {
                let server = &mut self.servers[i];
                if server.channel.is_some() && !server.executed.gtids().contains(&server.received()) {
                    return Done::Failed("not everything received is applied".into());
                }
                let now = self.now(i);
                // The source is forgotten later: nothing more is received from it.
                self.stop_io(i);
                let server = &mut self.servers[i];
                if *acknowledgements > 0 {
                    server.acknowledgements = *acknowledgements;
                }
                server.offline = false;
                if now > *not_after {
                    return Done::Failed("too late".into());
                }
                (server.super_read_only, server.closing) = (false, false);
                Done::Yes
            }
            MysqlAction::Close { limit } => {
                let late = over(*limit);
                let server = &mut self.servers[i];
                server.closing = true;
                if server.waiting.is_empty() {
                    (server.super_read_only, server.closing) = (true, false);
                    Done::Yes
                } else if late {
                    server.closing = false;
                    Done::Failed("commits wait".into())
                } else {
                    Done::NotYet
                }
            }
            MysqlAction::Reach { address, limit } => {
                let other = host_of(address);
                let answers = self.reaches(i, other) && self.servers[other].answers();
                match (answers, over(*limit)) {
                    (true, _) => Done::Yes,
                    (false, true) => Done::Failed("no answer in time".into()),
                    (false, false) => Done::NotYet,
                }
            }
            MysqlAction::FenceRemote { address, server_uuid, limit, acknowledged } => {
                let late = over(*limit);
                let old = host_of(address);
                assert_eq!(uuid(old), *server_uuid);
                if self.outages.account_refused {
                    return Done::Failed("access denied".into());
                }
                if self.reaches(i, old) && self.servers[old].answers() {
                    let server = &mut self.servers[old];
                    // Nothing new, and what waits still gets its acknowledgements, for half of the time.
                    if *acknowledged && !over(*limit / 2) && !server.waiting.is_empty() {
                        server.closing = true;
                        return Done::NotYet;
                    }
                    server.closing = false;
                    server.go_offline();
                    if server.waiting.is_empty() {
                        server.super_read_only = true;
                        return Done::Yes;
                    }
                }
                if late {
                    // The statement that waits is killed, or ends with its connection. One of its own agent's, on a server that
                    // this one never reached, does not.
                    self.servers[old].closing &= !self.reaches(i, old);
                    return Done::Failed("no answer in time".into());
                }
                Done::NotYet
            }
            MysqlAction::ShutOut { .. } | MysqlAction::LetIn { .. } if self.servers[i].super_read_only => {
                Done::Failed("read-only".into())
            }
            MysqlAction::ShutOut { member, users } => self.shut_out(i, member, users),
            MysqlAction::LetIn { member } => {
                self.servers[i].locked.retain(|_, of| of != member);
                Done::Yes
            }
            MysqlAction::FlushBinaryLog
            | MysqlAction::PersistReadOnly
            | MysqlAction::CreateHeartbeatTable
            | MysqlAction::EndClientConnections => Done::Yes,
        }
    }

    /// Locks, then ends what stands, then looks again.
    fn shut_out(&mut self, i: usize, member: &str, users: &BTreeSet<String>) -> Done {
        for user in users {
            self.servers[i].locked.insert(user.clone(), member.to_owned());
        }
        let mut none = true;
        for server in &mut self.servers {
            let theirs = |channel: &&mut Replication| channel.source == i && users.contains(&channel.user);
            let channel = server.channel.as_mut().filter(theirs).filter(|channel| channel.let_in.is_some());
            if let Some(channel) = channel {
                (channel.connected, channel.let_in, none) = (false, None, false);
            }
        }
        if none { Done::Yes } else { Done::NotYet }
    }

    fn stop_io(&mut self, i: usize) {
        if let Some(channel) = &mut self.servers[i].channel {
            (channel.io, channel.connected, channel.let_in) = (false, false, None);
        }
    }

    fn follow(&mut self, i: usize, primary: usize, server_uuid: &str, promised: &GtidSet, acknowledge: bool) -> Done {
        assert_eq!(uuid(primary), server_uuid);
        if !self.reaches(i, primary) || !self.servers[primary].answers() {
            return Done::Failed("cannot connect".into());
        }
        // As `mysql::follow`: read-only first, which does not come while a commit waits.
        if !self.servers[i].super_read_only && !self.servers[i].waiting.is_empty() {
            return Done::Failed("commits wait".into());
        }
        let server = &mut self.servers[i];
        (server.super_read_only, server.offline, server.closing) = (true, false, false);
        let mut own = self.servers[i].received().subtract(promised);
        if self.servers[i].channel.as_ref().is_some_and(|channel| channel.source == primary) {
            own = own.subtract(&format!("{server_uuid}:1-9999999").parse().unwrap());
        }
        let extra = own.subtract(&self.servers[primary].executed.gtids());
        if !extra.is_empty() {
            return Done::Diverged(extra);
        }
        let server = &mut self.servers[i];
        server.acknowledgements = 0;
        server.replica_enabled = acknowledge;
        let user = server.user.clone();
        server.point_at(primary, &user);
        Done::Yes
    }
}
