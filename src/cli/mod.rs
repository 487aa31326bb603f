//! The command line: verbs, their options, and how they end.

pub mod args;
pub mod exit;
