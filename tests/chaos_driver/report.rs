//! The figures of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Everything that is counted.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Rounds that came to their end.
    pub(crate) rounds: u32,
    /// Faults by kind.
    pub(crate) faults: BTreeMap<String, u32>,
    /// Role changes that nobody had asked for.
    pub(crate) failovers: u32,
    /// Planned switches that changed the role.
    pub(crate) switches: u32,
    /// Planned switches that were refused or undone.
    pub(crate) refused: u32,
    /// Writes that a server said OK to.
    pub(crate) acknowledged: usize,
    /// Of those, the ones that are missing.
    pub(crate) lost: usize,
    /// How long two servers took writes at once.
    pub(crate) two_writers: Duration,
    /// The same within the second that a thawed host has.
    pub(crate) thawed: Duration,
    /// The same while an agent was gone and no guard stood by.
    pub(crate) unguarded: Duration,
    /// Servers that came back with transactions of their own and were rebuilt.
    pub(crate) rebuilt: u32,
    /// How often the ensemble stood still with all its members up, and its leader was restarted.
    pub(crate) stood_still: u32,
    /// Rounds that did not heal.
    pub(crate) unhealed: u32,
    /// The longest healing after the last fault of a round had ended.
    pub(crate) longest_healing: Duration,
}

impl Figures {
    /// Whether every promise was kept.
    pub(crate) fn all_kept(&self) -> bool {
        self.lost == 0 && self.two_writers.is_zero() && self.unhealed == 0
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<String> = self.faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let ms = |length: Duration| length.as_millis();
        write!(
            out,
            "{} rounds, {} faults ({}); {} failovers, {} planned switches ({} more refused or undone); {} acknowledged writes, \
             {} lost; {} ms with two writers ({} ms of thawed hosts within their second, {} ms of servers whose agent was gone \
             without a guard); {} servers rebuilt for transactions of their own; {} times ZooKeeper stood still and its leader was restarted; longest healing {:.1} s; {} unhealed",
            self.rounds,
            self.faults.values().sum::<u32>(),
            kinds.join(", "),
            self.failovers,
            self.switches,
            self.refused,
            self.acknowledged,
            self.lost,
            ms(self.two_writers),
            ms(self.thawed),
            ms(self.unguarded),
            self.rebuilt,
            self.stood_still,
            self.longest_healing.as_secs_f64(),
            self.unhealed,
        )
    }
}
