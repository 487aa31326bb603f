//! Rooms (`zone`): S leaves out the primary's room while enough members in other rooms acknowledge (promise 8). Then whatever
//! is acknowledged is outside, and the members outside are a quorum of S by themselves when the room is lost.
//!
//! | interleaving | rule |
//! | --- | --- |
//! | a member in the primary's room acknowledges first, the room is lost, and its vote with it | it leaves S as any other member does, in the safe order: asked, confirmed by its own agent, a heartbeat acknowledged by the others since ([`super::durability`]) |
//! | the only replica elsewhere is lost: every commit would wait | as soon as too few elsewhere acknowledge, or an acknowledgement is missing for a period of `degrade`, the members in the primary's room join S (more members need more votes), and commits go on |
//! | a replica elsewhere comes and goes, and S with it | who has joined stays for T after enough are back |
//! | the primary moves to another room | the rooms are seen from the new primary: its own members leave, those of the old room join when they are back |
//! | k is to be raised to more than acknowledge elsewhere, and who could give the rest is left out | counted with the k that the file asks for: they join, then it is raised |
//! | a member's room is not known (no `zone`, or its agent is gone) | it is neither counted elsewhere nor left out |

use std::time::Duration;

use super::durability::{able, primary};
use crate::core::case::Case;
use crate::core::memory::Memory;

/// Whether enough members of S in other rooms acknowledge, now and by what has been counted.
#[must_use]
pub(super) fn enough_elsewhere(case: &Case<'_>, memory: &Memory) -> bool {
    let Some(topology) = primary(case) else { return false };
    let durability = &topology.record.durability;
    let elsewhere =
        able(case, durability).filter(|name| case.in_another_room(name) && !durability.retiring.contains(name)).count();
    // Who is to be counted for a larger k has to join before it can be raised.
    let k = durability.k().max(case.view.own.sync_replicas);
    let (missing, _) = memory.degrade.in_a_row();
    missing == 0 && u32::try_from(elsewhere).is_ok_and(|elsewhere| elsewhere >= k)
}

/// Whether that has been so for longer than `granted`.
pub(super) fn settled(case: &Case<'_>, memory: &mut Memory, elsewhere: bool, granted: Duration) -> bool {
    if !elsewhere {
        memory.elsewhere = None;
        return false;
    }
    case.now.since(*memory.elsewhere.get_or_insert(case.now)) > granted
}
