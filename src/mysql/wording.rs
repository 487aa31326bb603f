//! What differs between versions of MySQL, and which servers are not for us.
//!
//! Managed are MySQL 8.0 from .26 on, 8.4 and 9.x: the first release that speaks of sources and replicas throughout.
//! Percona Server is one of them. MariaDB shares the protocol and has other GTIDs; a member of a replication group is
//! governed by that group, and two masters over one server would fight.

use std::fmt;

/// `@@version`, compared by its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u16, pub u16, pub u16);

impl Version {
    /// The oldest version that is managed.
    pub const OLDEST: Version = Version(8, 0, 26);

    /// Reads `8.0.36-28.1`, `9.7.4`, `8.4.0-commercial`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self(next()?, next()?, next()?))
    }

    /// The statement that names the newest binary log file. 8.2 brought the new one, 8.4 removed the old one.
    #[must_use]
    pub fn binary_log_status(self) -> &'static str {
        if self >= Version(8, 2, 0) { "SHOW BINARY LOG STATUS" } else { "SHOW MASTER STATUS" }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Which of the two generations of semi-sync plugins a server has loaded; their variables are named after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SemiSync {
    /// `rpl_semi_sync_source`, `rpl_semi_sync_replica`: since 8.0.26, the only one in 9.x.
    New,
    /// `rpl_semi_sync_master`, `rpl_semi_sync_slave`.
    Old,
}

impl SemiSync {
    /// The prefix of the source side's variables and status.
    #[must_use]
    pub fn source(self) -> &'static str {
        match self {
            Self::New => "rpl_semi_sync_source",
            Self::Old => "rpl_semi_sync_master",
        }
    }

    /// The prefix of the replica side's variables and status.
    #[must_use]
    pub fn replica(self) -> &'static str {
        match self {
            Self::New => "rpl_semi_sync_replica",
            Self::Old => "rpl_semi_sync_slave",
        }
    }

    /// What the source side's variables call a replica.
    #[must_use]
    pub fn replica_word(self) -> &'static str {
        match self {
            Self::New => "replica",
            Self::Old => "slave",
        }
    }
}

/// What decides whether a server is for us.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flavor {
    /// `@@version`.
    pub version: String,
    /// `@@version_comment`.
    pub comment: String,
    /// `@@gtid_mode`.
    pub gtid_mode: String,
    /// `@@log_bin`.
    pub log_bin: bool,
    /// `@@log_replica_updates`.
    pub log_replica_updates: bool,
    /// Member of a replication group that is not OFFLINE.
    pub group_member: bool,
    /// Replication channels other than the default one.
    pub channels: Vec<String>,
}

impl Flavor {
    /// Whether version and comment are those of MariaDB, which does not know most of what else we ask for.
    #[must_use]
    pub fn is_mariadb(&self) -> bool {
        [&self.version, &self.comment].iter().any(|text| text.to_ascii_lowercase().contains("mariadb"))
    }

    /// Why this server cannot be managed and what to do; none where it can.
    #[must_use]
    pub fn unsupported(&self) -> Option<String> {
        let old = Version::parse(&self.version).is_none_or(|version| version < Version::OLDEST);
        Some(if self.is_mariadb() {
            format!(
                "this is MariaDB ({}), whose GTIDs are of another kind; point mysql.* to a MySQL server",
                self.version
            )
        } else if old {
            format!("MySQL {} is older than {}; upgrade the server", self.version, Version::OLDEST)
        } else if self.group_member {
            "this server is a member of a replication group, which elects its primary itself; use the one or the other: \
             STOP GROUP_REPLICATION and start asynchronous replication, or do without this agent"
                .to_owned()
        } else if self.gtid_mode != "ON" {
            format!(
                "gtid_mode is {}; set gtid_mode=ON and enforce_gtid_consistency=ON on all servers (online: OFF, \
                 OFF_PERMISSIVE, ON_PERMISSIVE, ON, one step at a time)",
                self.gtid_mode
            )
        } else if !self.log_bin {
            "the binary log is off; remove skip_log_bin from the server's file and restart it".to_owned()
        } else if !self.log_replica_updates {
            "log_replica_updates is OFF: once promoted, this server could not hand on what it received; set it to ON in \
             the server's file and restart it"
                .to_owned()
        } else if !self.channels.is_empty() {
            format!(
                "there are replication channels besides the default one ({}); a server of a replica set has one source: \
                 STOP REPLICA and RESET REPLICA ALL FOR CHANNEL each of them",
                self.channels.join(", ")
            )
        } else {
            return None;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Flavor {
        Flavor {
            version: "8.0.36-28.1".into(),
            comment: "Percona Server (GPL)".into(),
            gtid_mode: "ON".into(),
            log_bin: true,
            log_replica_updates: true,
            ..Flavor::default()
        }
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert!(Version::parse("8.0.26").unwrap() < Version::parse("8.0.100-x").unwrap());
        assert!(Version::parse("8.4.0-commercial").unwrap() < Version::parse("9.7.4").unwrap());
        assert_eq!(Version::parse("unknown"), None);
        assert_eq!(Version(8, 0, 40).binary_log_status(), "SHOW MASTER STATUS");
        assert_eq!(Version(9, 7, 4).binary_log_status(), "SHOW BINARY LOG STATUS");
    }

    #[test]
    fn servers_that_are_not_for_us_are_told_what_to_do() {
        assert_eq!(good().unsupported(), None);
        let cases = [
            (Flavor { version: "11.4.2-MariaDB".into(), ..good() }, "MariaDB"),
            (Flavor { version: "8.0.25".into(), ..good() }, "upgrade"),
            (Flavor { version: "?".into(), ..good() }, "upgrade"),
            (Flavor { group_member: true, ..good() }, "STOP GROUP_REPLICATION"),
            (Flavor { gtid_mode: "OFF_PERMISSIVE".into(), ..good() }, "gtid_mode=ON"),
            (Flavor { log_bin: false, ..good() }, "skip_log_bin"),
            (Flavor { log_replica_updates: false, ..good() }, "log_replica_updates"),
            (Flavor { channels: vec!["other".into()], ..good() }, "other"),
        ];
        for (flavor, part) in cases {
            let text = flavor.unsupported().unwrap();
            assert!(text.contains(part), "{text}");
        }
    }
}
