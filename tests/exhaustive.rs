//! The protocol of design section 2, searched exhaustively.

#[path = "exhaustive/ensemble.rs"]
mod ensemble;
#[path = "exhaustive/faults.rs"]
mod faults;
#[path = "exhaustive/mysql.rs"]
mod mysql;
#[path = "exhaustive/promises.rs"]
mod promises;
#[path = "exhaustive/proof.rs"]
mod proof;
#[path = "exhaustive/race.rs"]
mod race;
#[path = "exhaustive/role.rs"]
mod role;
#[path = "exhaustive/rules.rs"]
mod rules;
#[path = "exhaustive/search.rs"]
mod search;
#[path = "exhaustive/step.rs"]
mod step;
#[path = "exhaustive/symmetry.rs"]
mod symmetry;
#[path = "exhaustive/sync_set.rs"]
mod sync_set;
#[path = "exhaustive/time.rs"]
mod time;
#[path = "exhaustive/world.rs"]
mod world;

use rules::Scope;
use search::holds;

#[test]
fn small() {
    holds(&Scope::small());
}
