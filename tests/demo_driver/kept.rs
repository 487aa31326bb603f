//! `--keep`: the cluster goes on after the command has returned.
//!
//! Two processes: the **front** is what the shell waits for; it shows what the **keeper**, its child in a process group of its
//! own, prints. Everything that is started is bound to the keeper and ends with it, however that ends. When the story has
//! held the keeper prints [`KEPT`], the front returns, and the keeper stays as the hosts' "systemd": it starts again what was
//! killed. Should the front be gone before that, the keeper ends too.

use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::interrupt::Interrupt;
use super::screen::Screen;
use crate::support::{Cluster, Kind, Stage, repository};

/// In the environment of the keeper: "terminal" when the front's output is one.
pub(crate) const KEEPER: &str = "MYSQL_HA_DEMO_KEEPER";

/// Ends the front's part. No text has this byte.
const KEPT: &str = "\0";

/// How long something that was killed stays away: long enough for a failover to be seen, as with systemd's `RestartSec=5`.
const RESTART: Duration = Duration::from_secs(5);

/// The front: the exit code.
#[expect(clippy::zombie_processes, reason = "a keeper that stays outlives the front; init reaps it")]
pub(crate) fn front(interrupt: &Interrupt, terminal: bool) -> i32 {
    let (output, writer) = std::io::pipe().expect("a pipe can be made");
    let mut keeper = start_keeper(writer, terminal);
    // What the keeper's end of this pipe says when it is closed: the front is gone, or gives up.
    let bond = keeper.stdin.take();
    let ours = interrupt.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime can be built");
        runtime.block_on(ours.raised());
        drop(bond);
    });
    let kept = copy(output);
    if kept {
        return 0;
    }
    let code = keeper.wait().ok().and_then(|status| status.code()).unwrap_or(1);
    if interrupt.is_raised() { 130 } else { code }
}

fn start_keeper(output: PipeWriter, terminal: bool) -> Child {
    let program = std::env::current_exe().expect("a program knows its own file");
    let errors = output.try_clone().expect("a pipe can be shared");
    let mut command = Command::new(program);
    // Both outputs into the pipe: a keeper that held the caller's own would keep `tests/demo --keep | tee log` from ending.
    command.stdin(Stdio::piped()).stdout(output).stderr(errors).process_group(0);
    command.env(KEEPER, if terminal { "terminal" } else { "lines" });
    command.spawn().unwrap_or_else(|error| panic!("cannot start the keeper: {error}"))
}

/// Shows what the keeper prints, until it says that it stays (true) or ends (false).
fn copy(mut output: PipeReader) -> bool {
    let mut bytes = [0; 4096];
    loop {
        let count = match output.read(&mut bytes) {
            Ok(0) | Err(_) => return false,
            Ok(count) => count,
        };
        let (text, kept) = match bytes[..count].iter().position(|byte| KEPT.as_bytes().contains(byte)) {
            Some(end) => (&bytes[..end], true),
            None => (&bytes[..count], false),
        };
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text).and_then(|()| out.flush());
        if kept {
            return true;
        }
    }
}

/// In the keeper: ends it when the front is gone before [`stay`].
pub(crate) fn end_with_front(interrupt: &Interrupt) -> std::sync::Arc<std::sync::atomic::AtomicBool> {
    let staying = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (ours, stays) = (interrupt.clone(), staying.clone());
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        if !stays.load(std::sync::atomic::Ordering::SeqCst) {
            ours.raise(130);
        }
    });
    staying
}

/// In the keeper: prints the commands, lets the front return, and starts again what is killed, until it is interrupted.
pub(crate) async fn stay(screen: &Screen, cluster: &Cluster, stage: &Stage) {
    write_commands(cluster, stage.folder());
    screen.print(&commands(stage.folder()));
    screen.print(KEPT);
    let kinds = [Kind::Zookeeper, Kind::Mysqld, Kind::Agent];
    let watched = cluster.hosts.iter().flat_map(|host| kinds.map(|kind| (host, kind)));
    let each = watched.map(|(host, kind)| async move {
        let mut looks = tokio::time::interval(Duration::from_millis(200));
        loop {
            looks.tick().await;
            if !host.is_running(kind) {
                tokio::time::sleep(RESTART).await;
                host.start(kind);
            }
        }
    });
    futures_util::future::join_all(each).await;
}

/// For each host a script that runs the agent's binary there, and one with a MySQL client.
fn write_commands(cluster: &Cluster, folder: &Path) {
    for host in &cluster.hosts {
        let line: Vec<String> =
            cluster.verb_line(&host.name, &["$@"]).iter().map(|word| format!("\"{word}\"")).collect();
        write_script(&folder.join(&host.name), &format!("exec {}", line.join(" ")));
        let client = repository().join("target/servers/bin/mysql");
        let line = format!("exec \"{}\" -uroot -S \"{}\" \"$@\"", client.display(), host.socket().display());
        write_script(&folder.join(format!("{}-mysql", host.name)), &line);
    }
}

fn write_script(path: &Path, line: &str) {
    let written = std::fs::write(path, format!("#!/bin/sh\n{line}\n"))
        .and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)));
    written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

fn commands(folder: &Path) -> String {
    let folder = std::env::current_dir().ok().and_then(|here| folder.strip_prefix(here).ok()).unwrap_or(folder);
    let at = folder.display();
    format!(
        "
The cluster is left running. For every host there is a command that runs mysql-ha-agent on it:

  {at}/db1 status                      who is primary, and why
  {at}/db1 status --watch              the same, live
  {at}/db1 promote db2 --dry-run       what a planned switch would do
  {at}/db1 promote db2                 a planned switch
  {at}/db1 history                     past role changes with their phases
  kill -9 $(cat {at}/demo/db1/mysqld.pid)
                                       an unplanned one, if db1 is the primary; started again after {restart} s
  {at}/db1-mysql -e 'SELECT COUNT(*) FROM app.t'
                                       a MySQL client as root
  tail -f {at}/demo/db1/agent.log      what its agent says (also mysqld.log, zookeeper.log)

The demo's client has stopped. What a server had not yet answered when it was killed (a heartbeat of its agent, say) it may
bring back as a transaction that no other server has: `status` then names it, and keeps that server out of everything.

End it, with everything that belongs to it:

  kill {pid}
",
        restart = RESTART.as_secs(),
        pid = std::process::id(),
    )
}
