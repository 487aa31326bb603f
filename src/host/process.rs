//! The mysqld process behind a unix socket: found by its peer credentials, watched and killed through a pidfd.
//!
//! A pid alone names whoever has it now; a pidfd names one process for ever, so that neither the watch nor the kill
//! can hit a stranger that got the number later. The peer credentials of a connected socket are those of the process
//! that called `listen()`: mysqld itself, also when a wrapper or `mysqld_safe` started it. Where systemd opened the
//! socket (socket activation) they are those of pid 1, and inside another PID namespace they are 0; both are refused,
//! and `fencing.mysqld_pid_file` is the way in.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Why the process could not be found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// Nobody listens on the socket, or it is not there.
    #[error("nobody listens on {socket}: {source}; is mysqld running, and is mysql.socket its socket?", socket = socket.display())]
    NobodyListens {
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The listener is there and is not a process that may be watched as mysqld.
    #[error("the process behind {socket} cannot be told ({why}); set fencing.mysqld_pid_file to mysqld's pid_file", socket = socket.display())]
    NotTold {
        /// The socket.
        socket: PathBuf,
        /// What is in the way.
        why: String,
    },
    /// `fencing.mysqld_pid_file` does not lead to a process.
    #[error("no mysqld by fencing.mysqld_pid_file {path}: {why}", path = path.display())]
    PidFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// One life of mysqld.
#[derive(Debug)]
pub struct Mysqld {
    pid: Pid,
    started: u64,
    pidfd: AsyncFd<OwnedFd>,
}

impl Mysqld {
    /// The process that listens on `socket`. Never waits; must run within tokio.
    ///
    /// # Errors
    /// See [`FindError`].
    pub fn behind(socket: &Path) -> Result<Self, FindError> {
        let not_told = |why: String| FindError::NotTold { socket: socket.to_owned(), why };
        let pid = listener(socket)?.ok_or_else(|| not_told("it lives in another PID namespace".into()))?;
        if pid.is_init() {
            return Err(not_told("systemd opened the socket for it".into()));
        }
        let found = Self::open(pid).map_err(|error| not_told(format!("pid {}: {error}", pid.as_raw_nonzero())))?;
        // The pid may have passed to another process between the two calls. Whoever has it now is held by the pidfd;
        // if it still is the listener, it is the right one.
        if listener(socket)? != Some(pid) || found.has_exited() {
            return Err(not_told("it was replaced while we looked".into()));
        }
        Ok(found)
    }

    /// The process named in mysqld's own pid file (`fencing.mysqld_pid_file`). Must run within tokio.
    ///
    /// # Errors
    /// [`FindError::PidFile`]: unreadable, no number, or the process is no mysqld.
    pub fn by_pid_file(path: &Path) -> Result<Self, FindError> {
        let wrong = |why: String| FindError::PidFile { path: path.to_owned(), why };
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let pid = text.trim().parse().ok().and_then(Pid::from_raw).filter(|pid| !pid.is_init());
        let pid = pid.ok_or_else(|| wrong(format!("'{}' is no pid", text.trim())))?;
        let found = Self::open(pid).map_err(|error| wrong(format!("pid {}: {error}", pid.as_raw_nonzero())))?;
        // A pid file outlives a crash, and its number may belong to anybody by now.
        if !is_mysqld(pid) {
            return Err(wrong(format!("pid {} is no mysqld", pid.as_raw_nonzero())));
        }
        Ok(found)
    }

    fn open(pid: Pid) -> io::Result<Self> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let started = start_ticks(pid)?;
        #[expect(
            deprecated,
            reason = "its replacement is unsafe; an OwnedFd keeps its descriptor, which is all that is asked"
        )]
        let pidfd = AsyncFd::with_interest(pidfd, Interest::READABLE)?;
        Ok(Self { pid, started, pidfd })
    }

    /// Its pid, for messages.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Names this life of the server: boot, start and pid (interleaving 7; the start alone counts in 10 ms).
    #[must_use]
    pub fn incarnation(&self, boot_id: &str) -> String {
        format!("{boot_id}/{}/{}", self.started, self.pid())
    }

    /// Whether it has exited. A process that is a zombie has: no thread of it runs any more.
    #[must_use]
    pub fn has_exited(&self) -> bool {
        let mut fds = [PollFd::new(self.pidfd.get_ref(), PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(ready) if ready > 0)
    }

    /// Returns when it has exited; at once where it already has.
    pub async fn exited(&self) {
        // The readiness of a pidfd never goes away, so that it need not be cleared. An error means that the runtime
        // is shutting down; to report an exit then would be wrong, so wait for the end.
        if self.pidfd.readable().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// SIGKILL. That it was sent is not that it is dead: wait for [`Mysqld::exited`].
    ///
    /// # Errors
    /// The right to do so is missing. A process that is gone already is no error.
    pub fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(self.pidfd.get_ref(), Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => {
                let text = format!(
                    "SIGKILL to mysqld (pid {}): {error}; the agent must run as root or as mysqld's user",
                    self.pid()
                );
                Err(io::Error::new(io::Error::from(error).kind(), text))
            }
        }
    }
}

/// Who called `listen()` on the socket; none where this PID namespace has no number for it.
fn listener(socket: &Path) -> Result<Option<Pid>, FindError> {
    let nobody = |error: Errno| FindError::NobodyListens { socket: socket.to_owned(), source: error.into() };
    // Never waits: a frozen server on which clients hammer has a full queue, in which a blocking connect hangs, and with
    // it the guard's one thread.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(nobody)?;
    // Ends without a handshake: mysqld counts it as an aborted connect, which is harmless (a unix socket has no host
    // that max_connect_errors could block).
    match SocketAddrUnix::new(socket).and_then(|address| connect(&stream, &address)) {
        Ok(()) => {}
        Err(Errno::AGAIN) => {
            return Err(FindError::NotTold {
                socket: socket.to_owned(),
                why: "its queue of new connections is full".into(),
            });
        }
        Err(error) => return Err(nobody(error)),
    }
    match socket_peercred(&stream) {
        Ok(credentials) => Ok(Some(credentials.pid)),
        Err(error) => Err(FindError::NotTold { socket: socket.to_owned(), why: error.to_string() }),
    }
}

/// Field 22 of `/proc/PID/stat`: clock ticks after boot.
fn start_ticks(pid: Pid) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
    // The second field is the command in parentheses and may hold spaces and parentheses itself.
    let after = stat.rsplit_once(") ").map(|(_, after)| after).unwrap_or_default();
    after
        .split(' ')
        .nth(19)
        .and_then(|ticks| ticks.parse().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no start time in /proc/PID/stat"))
}

/// By its command line, since builds started through a loader or renamed packages differ in all else.
fn is_mysqld(pid: Pid) -> bool {
    fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()))
        .is_ok_and(|line| String::from_utf8_lossy(&line).contains("mysqld"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::process::{Child, Command, Stdio};

    /// Ends with the test, also a failing one.
    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn sleeper() -> Sleeper {
        Sleeper(Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap())
    }

    fn watch(child: &Sleeper) -> Mysqld {
        Mysqld::open(Pid::from_child(&child.0)).unwrap()
    }

    #[tokio::test]
    async fn finds_who_listens() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let _listener = UnixListener::bind(&socket).unwrap();
        let found = Mysqld::behind(&socket).unwrap();
        assert_eq!(found.pid(), i32::try_from(std::process::id()).unwrap());
        assert!(!found.has_exited());
    }

    #[tokio::test]
    async fn a_socket_without_listener_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        assert!(matches!(Mysqld::behind(&socket), Err(FindError::NobodyListens { .. })));
        drop(UnixListener::bind(&socket).unwrap());
        assert!(matches!(Mysqld::behind(&socket), Err(FindError::NobodyListens { .. })));
    }

    /// Nobody accepts, and the queue is full: a connect that waits would hang here for ever.
    #[tokio::test]
    async fn a_full_queue_is_said_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let address = SocketAddrUnix::new(&socket).unwrap();
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let client = || {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let client = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
            connect(&client, &address).map(|()| client)
        };
        let mut waiting = Vec::new();
        while let Ok(client) = client() {
            waiting.push(client);
        }
        let error = Mysqld::behind(&socket).unwrap_err().to_string();
        assert!(error.contains("queue of new connections is full"), "{error}");
    }

    #[tokio::test]
    async fn kill_is_followed_by_the_exit_and_can_be_repeated() {
        let mut child = sleeper();
        let watched = watch(&child);
        watched.kill().unwrap();
        watched.exited().await;
        assert!(watched.has_exited());
        child.0.wait().unwrap();
        watched.kill().unwrap();
        watched.exited().await;
    }

    #[tokio::test]
    async fn a_stale_pid_file_does_not_lead_to_a_stranger() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let child = sleeper();
        for (text, part) in
            [(child.0.id().to_string(), "is no mysqld"), ("x".into(), "is no pid"), ("1".into(), "is no pid")]
        {
            fs::write(&path, text).unwrap();
            let error = Mysqld::by_pid_file(&path).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[tokio::test]
    async fn two_lives_have_two_names() {
        let (first, own) = (sleeper(), Pid::from_raw(i32::try_from(std::process::id()).unwrap()).unwrap());
        assert_ne!(watch(&first).incarnation("boot"), Mysqld::open(own).unwrap().incarnation("boot"));
    }
}
