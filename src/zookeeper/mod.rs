//! The tree in ZooKeeper: the only user of the client crate.
//!
//! What lives here: the session ([`session`], on clients that `engine` starts and ends), where records stand and how they are written down ([`tree`]), the view
//! that follows them ([`viewer`]), transactions ([`writer`]), the lease while we hold it ([`lease_keeper`]), our own
//! name among the agents ([`name`]) and the bounded lists that nobody decides by ([`archive`]). What may not: a
//! decision (the core decides; here it is read and written), and anything that the client side alone has no need for
//! (this module is also built without the feature `agent`): the clock is passed in.
//!
//! Three rules hold everywhere: every call has a limit of its own, because the crate queues without bound while it is
//! disconnected; a write without an answer is *unknown*, never failed; and nothing is read back without a `sync`
//! ahead of it, because the member that answers need not be the one that was asked before.

pub mod archive;
mod contents;
mod engine;
pub mod lease_keeper;
pub mod name;
mod reads;
mod removal;
pub mod session;
pub mod tree;
pub mod viewer;
pub mod writer;

/// Reads the one clock that decisions use ([`crate::core::time`]).
pub type Clock = fn() -> crate::core::time::Moment;
