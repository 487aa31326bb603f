//! The decision table's rows, one file for each situation. A row looks at the case and either decides or passes.
//! The order in which they are asked stands in [`super::table`].

pub mod adoption;
pub mod durability;
pub mod operator;
pub mod outage;
pub mod primary;
pub mod race;
pub mod replica;
pub mod safety;
pub mod switchover;
