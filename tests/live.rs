//! The agent on real servers: each test one of the conditions that the product exists for, with a client writing all
//! the while and both servers' `super_read_only` probed every 10 ms.
//!
//! Semi-sync is switched on by hand by the harness, so that "acknowledged" means "received by a replica".

mod live_cases {
    pub(crate) mod bad_days;
    pub(crate) mod crashes;
    pub(crate) mod leaving;
    pub(crate) mod operator;
    pub(crate) mod partitions;
    pub(crate) mod restarts;
    pub(crate) mod switches;
}
mod scene;
mod support;
