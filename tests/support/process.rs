//! Processes of a cluster: started so that none outlives the test, ended by pid.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// What may happen to a process when the test's own process ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bond {
    /// Killed by the kernel with it, even when that was killed itself.
    Bound,
    /// Goes on (`tests/demo --keep`).
    Free,
}

/// A running or ended child in a process group of its own.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts `program` with `arguments` (inside the namespaces of the process `namespace`, if any) with both
    /// outputs appended to `log`.
    pub(crate) fn start(bond: Bond, namespace: Option<u32>, program: &Path, arguments: &[String], log: &Path) -> Self {
        // Everything below ends in an `exec`, so that the child's pid is the program's own.
        let mut words: Vec<String> = Vec::new();
        if bond == Bond::Bound {
            words.extend(["setpriv", "--pdeathsig", "KILL"].map(String::from));
        }
        if let Some(pid) = namespace {
            words.push("nsenter".into());
            words.extend(super::network::enter(pid));
        }
        words.push(program.display().to_string());
        words.extend_from_slice(arguments);
        let open = || {
            File::options()
                .create(true)
                .append(true)
                .open(log)
                .unwrap_or_else(|error| panic!("cannot open the log {}: {error}", log.display()))
        };
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(open()).stderr(open()).process_group(0);
        Self { child: spawn_in_nursery(command) }
    }

    /// The process's id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended yet.
    pub(crate) fn is_running(&mut self) -> bool {
        self.exit_status().is_none()
    }

    /// How it ended, if it has.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("waiting for an own child cannot fail")
    }

    /// Sends `signal` to the whole group; nothing happens when the process has ended (its id may be another's by now).
    pub(crate) fn signal(&mut self, signal: Signal) {
        if self.is_running() {
            // It may end between the look and the signal: it stays a zombie of ours then, so the id is still its own.
            let _ = kill_process_group(Pid::from_child(&self.child), signal);
        }
    }

    /// SIGKILL, also where it is stopped, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }

    /// SIGTERM, and waits for the end; panics when `limit` passes first.
    pub(crate) async fn terminate(&mut self, what: &str, limit: Duration) -> ExitStatus {
        self.signal(Signal::TERM);
        let since = Instant::now();
        loop {
            if let Some(status) = self.exit_status() {
                return status;
            }
            assert!(since.elapsed() < limit, "{what} (pid {}) did not end within {limit:?} of SIGTERM", self.pid());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The kernel sends the parent-death signal when the *thread* that forked ends, and threads of an async runtime come and
/// go. So one thread, which lives as long as the process, forks every child.
fn spawn_in_nursery(command: Command) -> Child {
    type Order = (Command, mpsc::Sender<std::io::Result<Child>>);
    static NURSERY: OnceLock<Mutex<mpsc::Sender<Order>>> = OnceLock::new();
    let nursery = NURSERY.get_or_init(|| {
        let (sender, orders) = mpsc::channel::<Order>();
        std::thread::Builder::new()
            .name("nursery".into())
            .spawn(move || {
                for (mut command, reply) in orders {
                    let _ = reply.send(command.spawn());
                }
            })
            .expect("one more thread can be started");
        Mutex::new(sender)
    });
    let name = command.get_program().to_os_string();
    let (reply, answer) = mpsc::channel();
    nursery.lock().unwrap_or_else(PoisonError::into_inner).send((command, reply)).expect("the nursery never ends");
    answer
        .recv()
        .expect("the nursery answers every order")
        .unwrap_or_else(|error| panic!("cannot start {}: {error}", name.display()))
}

/// Runs a short command to its end and returns its output; panics with its words when it fails.
pub(crate) fn command(words: &[&str]) -> String {
    let output = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("cannot start {}: {error}", words[0]));
    assert!(
        output.status.success(),
        "`{}` failed ({}): {}{}",
        words.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
