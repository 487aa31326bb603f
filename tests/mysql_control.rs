//! The actions, the fence and the probes against real servers. `MYSQLD` (with `MYSQLD_TEMPLATE`, an initialised data folder) or what `tests/servers` has
//! put under `target/servers`. Every test starts the servers that it needs, on loopback, and ends them.

#![allow(clippy::unwrap_used)] // a test ends by it

#[path = "mysql_control/control.rs"]
mod control;
#[path = "mysql_control/fence.rs"]
mod fence;
#[path = "mysql_control/fence_budget.rs"]
mod fence_budget;
#[path = "mysql_control/interleavings.rs"]
mod interleavings;
#[path = "mysql_control/panic.rs"]
mod panic;
#[path = "mysql_control/prestart.rs"]
mod prestart;
#[path = "mysql_control/probe.rs"]
mod probe;
#[path = "mysql_control/server.rs"]
mod server;
#[path = "mysql_control/shut_out.rs"]
mod shut_out;
#[path = "mysql_control/stop.rs"]
mod stop;
