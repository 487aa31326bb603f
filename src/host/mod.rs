//! The host: its clocks, the mysqld process, the agent's own files.
//!
//! What lives here: [`clock`] (moments, wall time, boot and instance ids), [`process`] (the mysqld behind a socket:
//! found, watched, killed), [`state_dir`] (what outlives a restart, one `run` at a time), [`datadir`] and [`rewind`] (a stopped
//! mysqld's files, and what is kept for `prestart`), [`lease_file`] (the lease as the guard
//! sees it), [`presence`] (whether agent and guard live, and what the guard says), [`notify`] (what systemd is told), [`beside`] (work on
//! files for those who may not wait). What may not: decisions, MySQL's protocol, ZooKeeper. System calls go through `rustix`;
//! [`memory`] (what stays in it) has the only unsafe code of the program.

pub mod beside;
pub mod clock;
pub mod datadir;
pub mod lease_file;
pub mod limits;
pub mod memory;
pub mod notify;
pub mod presence;
pub mod process;
pub mod rewind;
pub mod state_dir;
