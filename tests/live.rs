//! The agent on real servers: each test one of the conditions that the product exists for, with a client writing all
//! the while and both servers' `super_read_only` probed every 10 ms.
//!
//! In `lossless` the agents switch semi-sync on; a test begins when every replica acknowledges.

mod live_cases {
    pub(crate) mod accounts;
    pub(crate) mod backups;
    pub(crate) mod bad_days;
    pub(crate) mod balancers;
    pub(crate) mod crashes;
    pub(crate) mod durability;
    pub(crate) mod frozen;
    pub(crate) mod guard;
    pub(crate) mod hosts;
    pub(crate) mod http;
    pub(crate) mod leaving;
    pub(crate) mod losses;
    pub(crate) mod networks;
    pub(crate) mod operator;
    pub(crate) mod outages;
    pub(crate) mod partitions;
    pub(crate) mod replicas;
    pub(crate) mod restarts;
    pub(crate) mod rewinds;
    pub(crate) mod rooms;
    pub(crate) mod shut_out;
    pub(crate) mod storage;
    pub(crate) mod switches;
    pub(crate) mod terms;
}
mod scene;
mod support;
