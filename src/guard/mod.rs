//! `mysql-ha-agent guard`: the third party on the host. It fences the server when the agent's lease ends unrenewed, whatever
//! became of the agent.
//!
//! | module | holds |
//! | --- | --- |
//! | [`crate::core::guard`] | every decision, pure (rows G0 to G12) |
//! | [`run`] | the loop: look, decide, ask, fence; signals; what is logged |
//! | [`sight`] | the files it looks at: lease, marker |
//!
//! It reads the lease's end from the file that the agent writes ([`crate::host::lease_file`]), holds the two connections of a
//! fence of its own open and climbs the same ladder as the agent ([`crate::mysql::fence`]). It has no ZooKeeper session, no
//! HTTP and one thread, so that next to nothing of what can stop an agent stops it, and it takes a few megabytes.
//! Nothing on its way to a fence waits for a disk: the marker is read on a thread beside and waited for briefly
//! ([`crate::host::beside`]); what it tells stands in `run_dir`, which is memory; log lines come after the fence.
//!
//! # The interleavings, and the rule against each
//!
//! 1. **The agent is restarted in time.** The file outlives it and its lease is valid until its end (G2); the new process
//!    renews it. Nothing happens.
//! 2. **The agent is killed, hangs, or cannot reach ZooKeeper.** From `until − fencing.budget` on the guard fences (G6), never
//!    before; by `until` the server is read-only or dead. Where the agent lives it does the same at the same moment: two
//!    ladders at once say the same statements twice and spare each other's.
//! 3. **Host frozen and thawed** (agent, guard and mysqld, or suspend). The guard reads the file first and the clock
//!    (`CLOCK_BOOTTIME`) after, so that a freeze in between can only make a lease look older. The ladder past the end takes
//!    0.9 s at the most ([`crate::core::fencing::time_for`]).
//! 4. **A renewal arrives while the guard fences** (a hanging agent goes on in the last moment). Before it kills sessions or the
//!    process the fence looks at the file again and gives up where a lease holds: the agent may have opened the server
//!    again, and its commits wait a moment for replicas that the first rung has cut off (seen: mysqld killed 0.3 s after its
//!    lease was renewed). What was closed by then the agent finds read-only, with a lease that
//!    holds and the guard's word that it was fenced, and opens it again (P6). Without the word it would count as set by hand, and
//!    stay closed. The guard says it in its own file, before the fence ("under way") and after it; how the agent takes it, and
//!    why neither can be left out, stands in [`crate::core::fenced`]. It takes its word back when it sees the server take writes.
//! 5. **Something reopens the server after the deadline** (interleaving 14 of the design: a statement of a frozen agent, an
//!    operator, a script). As long as no lease holds, the guard asks every [`run::LOOK`] and fences again (G10).
//! 6. **The agent opens before its lease is in the file.** The guard would close it again. So the agent's tasks learn of a
//!    lease only after the file has it (`agent::renewal::mirror`): a server is opened under a lease that the guard has seen.
//! 7. **Adoption**: the server takes writes before there is any lease. It is not marked as managed yet (G4); the agent
//!    writes the marker (`state_dir/member.json`) only after the first lease is in the file. An agent that dies between
//!    the two leaves its server unguarded, like one that was never adopted; the winner's fence over the network is left.
//! 8. **The guard starts and finds no file, or one of another boot.** A moment of another boot means nothing. A managed
//!    server that takes writes without a lease of this boot is fenced at once (G10): an agent that is just starting would do the
//!    same (S4), and a host that was rebooted comes up read-only because `super_read_only` is persisted; so nobody is helped
//!    by a delay, and a second primary may be open already.
//! 9. **The file is torn, empty, deleted, truncated, replaced, unreadable.** What was read last stays in force until its end: a
//!    lease that was granted is granted. The file is opened by its name at each look, and a living agent makes a
//!    missing one anew with its next renewal. A guard that *starts* while the file is missing is in case 8; a lease the agent
//!    cannot write (a full `/run` at its very start) counts as none for the same reason: nobody else can be told.
//! 10. **The lease was released** (planned switch, orderly end) or lost for certain (another took it): the file says
//!     "none". The server is read-only by then; if it is not, it is fenced (G10).
//! 11. **mysqld restarts.** The process is found again through the socket; the new one comes up read-only (persisted). One that
//!     has exited needs no fence.
//! 12. **The server does not answer.** After the end of a lease, not yet seen read-only or dead since: it was open
//!     under that lease, so it is fenced without a word, at the last by SIGKILL (G6, G7). Without such a lease a hanging
//!     server is left alone: most of them are replicas (G8). What was proven is kept in the guard's own file, so that a
//!     restarted guard does not kill a hanging replica for a lease of last month.
//! 13. **The password was rotated.** Open connections stay as they are; SIGHUP gives new ones the new password. A
//!     guard that is refused when a lease ends can only kill the process, and does.
//! 14. **This server is not under our care** (no marker, `server_uuid` of another, `failover.mode: observe`, `leave`): never
//!     touched (G1, G4, G5). The marker is read anew before each fence.
//! 15. **Paused** (G3): the agent that acknowledges a pause writes it into the lease file.
//! 16. **A replica.** It is read-only: nothing to do (G11). Its semi-sync is left alone, else an outage of ZooKeeper would block
//!     every commit (interleaving 6 of the design).
//! 17. **The guard is killed or stopped.** Nothing happens: it holds nothing that others need. The agent says that it
//!     is missing (`agents/<name>`, `status`, `check`), and sees it by a lock ([`crate::host::presence`]).
//! 18. **The guard hangs.** It cannot tell by itself: systemd's watchdog restarts it.
//! 19. **ZooKeeper is lost as a whole, and replicas acknowledge** (`failover.failsafe`). The file holds the later of the lease's end and
//!     that of the last acknowledged heartbeat; each one moves it, as renewals do. To the guard it is a lease like any other.

pub mod run;
pub mod sight;
