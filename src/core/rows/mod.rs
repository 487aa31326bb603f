//! The decision table's rows, one file for each situation. A row looks at the case and either decides or passes.
//! The order in which they are asked stands in [`super::table`].

pub mod adoption;
pub mod durability;
pub mod lead;
pub mod operator;
pub mod outage;
pub mod primary;
pub mod race;
pub mod replica;
pub mod rooms;
pub mod safety;
pub mod shut_out;
pub mod switchover;
pub mod terms;

use super::action::{Op, Path, Record};
use super::case::Case;
use super::reason::Reason;
use super::records::Incident;

/// Writes down what this agent has noticed.
fn incident(case: &Case<'_>, kind: Reason, subject: &str, detail: String) -> Op {
    let at = case.view.wall.clone();
    let record = Incident { at, kind, subject: subject.to_owned(), noticed_by: case.me().to_owned(), detail };
    Op::Create(Path::NewIncident, Record::Incident(record))
}
