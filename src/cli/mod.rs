//! The verbs: arguments, rendering, exit codes. What may not live here: a decision about roles (the core's), and a
//! connection of its own kind (ZooKeeper's and MySQL's modules have those).

pub mod args;
pub mod exit;
