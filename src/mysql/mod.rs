//! MySQL: reading a server and changing it.
//!
//! | module | does |
//! | --- | --- |
//! | [`connect`], [`fault`] | connections with a limit on every statement, errors that say what to do |
//! | [`wording`] | what differs between versions; servers that are not for us |
//! | [`facts`] | one complete reading of a server; changes nothing |
//! | [`probe`] | the heartbeat: single tries and what each showed |
//! | [`blockers`] | who holds a statement up, in words |
//! | [`control`] | executes the decisions' actions ([`follow`], [`open`], [`close`], `events` hold the larger ones) |
//! | [`accounts`] | shuts a member out by its replication account, and lets it in again |
//! | `binlog` | where replicas begin to read |
//! | [`executed`] | what another server has, asked once |
//! | [`grants`] | what our account may do, by itself and by its roles |
//! | [`leave`] | a server leaves the product's care |
//! | `semisync` | both sides of semi-synchronous replication |
//! | [`fence`] | makes our server read-only whatever it takes, on connections of its own |
//! | [`stop`] | the same before mysqld is stopped, with another end |
//!
//! What may not live here: decisions (they are in [`crate::core`]) and ZooKeeper. This is the only user of the MySQL
//! client crate, and no type of that crate leaves it. From [`crate::host`] the clock and the mysqld process are used, for the last
//! rung of the ladder.

pub mod accounts;
mod binlog;
pub mod blockers;
pub mod close;
pub mod connect;
pub mod control;
mod events;
pub mod executed;
pub mod facts;
pub mod fault;
pub mod fence;
pub mod follow;
pub mod grants;
pub mod leave;
pub mod open;
pub mod probe;
mod semisync;
pub mod stop;
pub mod wording;
