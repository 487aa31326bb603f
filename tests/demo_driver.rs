//! The program behind `tests/demo`: three hosts, a failover and a planned switch under a client, and what they cost.
//!
//! Ends with 0 only if everything that the product promises held; with 1 if not, 2 for a wrong option, and like any
//! program that was interrupted otherwise. `MYSQL_HA_AGENT` is the agent's binary (else `target/release/mysql-ha-agent`).

mod demo_driver {
    pub(crate) mod interrupt;
    pub(crate) mod kept;
    pub(crate) mod live;
    pub(crate) mod report;
    pub(crate) mod screen;
    pub(crate) mod story;
}
#[allow(dead_code, reason = "the tests' way to begin and end is not the demo's")]
mod scene;
mod support;

use std::io::IsTerminal as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use demo_driver::interrupt::Interrupt;
use demo_driver::screen::Screen;
use demo_driver::{kept, story};
use support::{Cluster, Stage};

fn main() {
    let keep = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [option] if option == "--keep" => true,
        other => {
            eprintln!("unknown: {}. Usage: tests/demo [--keep]", other.join(" "));
            std::process::exit(2);
        }
    };
    let interrupt = Interrupt::listen();
    let terminal = std::io::stdout().is_terminal();
    let keeper = std::env::var(kept::KEEPER).ok();
    let code = match keeper {
        None if keep => kept::front(&interrupt, terminal),
        None => perform(&interrupt, Screen::new(terminal), None),
        Some(output) => {
            let staying = kept::end_with_front(&interrupt);
            perform(&interrupt, Screen::new(output == "terminal"), Some(staying))
        }
    };
    std::process::exit(code);
}

/// Runs everything on a stage of its own; the exit code. `staying`: to be set when the cluster is to be left running.
fn perform(interrupt: &Interrupt, screen: Screen, staying: Option<Arc<AtomicBool>>) -> i32 {
    report_panics(interrupt.clone(), screen.clone());
    let mut places = Vec::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let (places, screen, staying) = (&mut places, &screen, staying.as_deref());
        support::run("demo", async move |stage: Stage| {
            places.extend([stage.folder().to_owned(), stage.sockets().to_owned()]);
            tokio::select! {
                code = demo(screen, &stage, staying) => code,
                code = interrupt.raised() => {
                    screen.leave_table();
                    screen.print("\ninterrupted: ending everything\n");
                    code
                }
            }
        })
    }));
    if interrupt.is_raised() {
        remove(&places);
    }
    outcome.unwrap_or(1)
}

async fn demo(screen: &Screen, stage: &Stage, staying: Option<&AtomicBool>) -> i32 {
    screen.print(INTRODUCTION);
    let cluster: Cluster = story::set_up(screen, stage).await;
    let verdicts = story::play(screen, &cluster).await;
    screen.print(&format!("\n{}\n", verdicts.text()));
    if !verdicts.all_held() {
        screen.print("Not everything held: see above.\n");
        return 1;
    }
    if let Some(staying) = staying {
        staying.store(true, Ordering::SeqCst);
        kept::stay(screen, &cluster, stage).await;
    }
    0
}

const INTRODUCTION: &str = "
A MySQL primary with two replicas, each under an agent. The primary's mysqld is killed while a client writes;
another server takes over; the old primary returns as a replica; a planned switch gives the role back.

";

/// A panic of the harness is how the demo says what went wrong: in words, without the place in the source.
fn report_panics(interrupt: Interrupt, screen: Screen) {
    std::panic::set_hook(Box::new(move |panic| {
        // What is pulled away under a running step complains.
        if interrupt.is_raised() {
            return;
        }
        screen.leave_table();
        let payload = panic.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
        eprintln!("\nThe demo failed: {}", text.unwrap_or("for an unknown reason"));
    }));
}

/// After an interruption, when all threads have ended: a copy that was under way may have gone on after the stage was cleared.
fn remove(places: &[PathBuf]) {
    for place in places {
        let _ = std::fs::remove_dir_all(place);
    }
}
