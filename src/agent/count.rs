//! Role changes as the metrics count them: each once, by the agent where it ended.

use crate::core::reason::Reason;
use crate::core::records::Progress;
use crate::core::view::View;
use crate::http::tally::Tally;

/// What was counted already. A process counts what it has seen begin, so nothing at its first sight.
#[derive(Debug, Default)]
pub struct RoleChanges {
    /// The newest epoch seen opened.
    epoch: Option<u64>,
    /// The last planned switch seen, and how far it had come.
    switch: Option<(String, Progress)>,
}

impl RoleChanges {
    /// Takes in what was seen now.
    pub fn note(&mut self, view: &View, tally: &Tally) {
        if !view.ensemble.complete {
            return;
        }
        let first = self.epoch.is_none();
        self.note_epoch(view, tally);
        self.note_switch(view, tally, first);
    }

    /// An epoch counts once its primary is named, by that primary's agent.
    fn note_epoch(&mut self, view: &View, tally: &Tally) {
        let topology = view.ensemble.topology.record();
        let Some(topology) = topology.filter(|topology| topology.primary.is_some()) else {
            self.epoch.get_or_insert(topology.map_or(0, |topology| topology.epoch.saturating_sub(1)));
            return;
        };
        let before = self.epoch.replace(topology.epoch);
        if before.is_none_or(|before| before >= topology.epoch) || topology.primary.as_ref() != Some(&view.own.name) {
            return;
        }
        match topology.reason {
            Reason::Switchover => tally.switchovers.add("done"),
            Reason::Adopted | Reason::Bootstrap => {}
            reason => tally.failovers.add(reason.code()),
        }
    }

    /// One that was refused or undone counts at the agent that it was to take the role from.
    fn note_switch(&mut self, view: &View, tally: &Tally, first: bool) {
        let request = view.ensemble.switchover.record();
        let now = request.map(|request| (request.operation.clone(), request.progress));
        if std::mem::replace(&mut self.switch, now.clone()) == now || first {
            return;
        }
        let Some(request) = request.filter(|request| request.from == view.own.name && !request.after_loss) else {
            return;
        };
        match request.progress {
            Progress::Refused => tally.switchovers.add("refused"),
            Progress::Undone => tally.switchovers.add("undone"),
            Progress::Requested | Progress::Released | Progress::Done => {}
        }
    }
}
