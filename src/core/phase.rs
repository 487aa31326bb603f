//! The numbers of reasons, for those who can only draw numbers: `mysql_ha_phase_code`. Fixed for ever; the README lists them.

use super::reason::Reason;

/// The number of a reason. A new reason gets the next one; none is ever used again.
#[must_use]
pub fn phase_code(reason: Reason) -> u16 {
    match reason {
        Reason::Unknown => 0,
        Reason::Starting => 1,
        Reason::Adopted => 2,
        Reason::Bootstrap => 3,
        Reason::MysqlDown => 4,
        Reason::MysqlSilent => 5,
        Reason::AgentLost => 6,
        Reason::ZookeeperLost => 7,
        Reason::Switchover => 8,
        Reason::SwitchoverUndone => 9,
        Reason::SwitchoverRefused => 10,
        Reason::Primary => 11,
        Reason::Degraded => 12,
        Reason::TransactionsLost => 13,
        Reason::DurabilityChanged => 14,
        Reason::OldPrimaryUnfenced => 15,
        Reason::Following => 16,
        Reason::NoZookeeper => 17,
        Reason::Failsafe => 18,
        Reason::FrozenEarly => 19,
        Reason::UnreadableRecord => 20,
        Reason::WaitingForAdoption => 21,
        Reason::NoWritableServer => 22,
        Reason::TwoWritableServers => 23,
        Reason::NothingFollows => 24,
        Reason::DuplicateUuid => 25,
        Reason::Unsupported => 26,
        Reason::WritableWithoutLease => 27,
        Reason::LeaseLost => 28,
        Reason::AgentRestarted => 29,
        Reason::StrayMaster => 30,
        Reason::Unhealthy => 31,
        Reason::Racing => 32,
        Reason::AnotherLeads => 33,
        Reason::NoQuorum => 34,
        Reason::BehindWatermark => 35,
        Reason::Fetching => 36,
        Reason::CatchingUp => 37,
        Reason::TooFarBehind => 38,
        Reason::NeverPromoted => 39,
        Reason::ApplierBroken => 40,
        Reason::HeldBack => 41,
        Reason::Settling => 42,
        Reason::Paused => 43,
        Reason::PromotedByHand => 44,
        Reason::Forced => 45,
        Reason::FencedByHand => 46,
        Reason::NotAutomatic => 47,
        Reason::WaitingOldLease => 48,
        Reason::Opening => 49,
        Reason::WaitingForPrimary => 50,
        Reason::Repointing => 51,
        Reason::Diverged => 52,
        Reason::Blocked => 53,
        Reason::ReadOnlyByHand => 54,
        Reason::NotMember => 55,
        Reason::ReplicationBroken => 56,
        Reason::AgentStopped => 57,
        Reason::ShutOut => 58,
        Reason::MemberJoined => 59,
        Reason::Fenced => 60,
        Reason::Rewound => 61,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_used_twice() {
        let numbers: std::collections::BTreeSet<u16> = Reason::ALL.iter().map(|reason| phase_code(*reason)).collect();
        assert_eq!(numbers.len(), Reason::ALL.len());
        assert!(!numbers.contains(&0));
    }

    /// Dashboards and alerts that people have keep their meaning.
    #[test]
    fn numbers_that_were_given_stay() {
        for (reason, number) in [
            (Reason::Starting, 1),
            (Reason::Primary, 11),
            (Reason::Following, 16),
            (Reason::NoQuorum, 34),
            (Reason::Fenced, 60),
        ] {
            assert_eq!(phase_code(reason), number, "{reason}");
        }
    }

    /// The list in the README is the code's, whole and exact.
    #[test]
    fn the_readme_lists_them() {
        let readme = include_str!("../../README.md");
        let list = readme.split("<!-- phase codes -->").nth(1).expect("the README has the list between its marks");
        let listed: Vec<(u16, &str)> = list
            .split(|c: char| c.is_whitespace() || c == ',' || c == '`')
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .chunks(2)
            .map(|pair| (pair[0].parse().expect("a number"), pair[1]))
            .collect();
        let mut all: Vec<(u16, &str)> = Reason::ALL.iter().map(|reason| (phase_code(*reason), reason.code())).collect();
        all.push((0, Reason::Unknown.code()));
        all.sort_unstable();
        assert_eq!(listed, all);
    }
}
