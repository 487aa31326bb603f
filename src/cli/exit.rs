//! The exit codes: what a script may conclude from how a verb ended.

use std::process::ExitCode;

/// How a verb ended. The numbers are part of the contract (section 2) and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// 0: done, or healthy.
    Done = 0,
    /// 1: the answer is no. A check failed, the cluster is unhealthy, or a switch was tried and undone.
    No = 1,
    /// 2: the command line or the configuration cannot work. Nothing was tried.
    Usage = 2,
    /// 3: ZooKeeper cannot be reached.
    ZooKeeperUnreachable = 3,
    /// 4: MySQL cannot be reached.
    MysqlUnreachable = 4,
    /// 5: refused by a safety rule. Nothing was touched.
    Refused = 5,
    /// 6: the outcome is unknown. Look at `status` before trying again.
    Unknown = 6,
}

impl Exit {
    /// The number the process ends with.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// A verb's end where a safety rule has refused it before anything was touched.
#[must_use]
pub fn refused(why: impl Into<String>) -> (Exit, String) {
    (Exit::Refused, format!("refused, nothing was touched: {}\n", why.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_contract() {
        use Exit::{Done, MysqlUnreachable, No, Refused, Unknown, Usage, ZooKeeperUnreachable};
        let all = [Done, No, Usage, ZooKeeperUnreachable, MysqlUnreachable, Refused, Unknown];
        assert_eq!(all.map(Exit::code), [0, 1, 2, 3, 4, 5, 6]);
    }
}
