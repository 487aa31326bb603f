//! Sockets: reads the head of a request, writes the answer, closes. One request a connection.
//!
//! Whoever asks may be slow, broken or hostile, and neither memory nor anybody else's answer may depend on it:
//!
//! | bad input | what becomes of it |
//! | --- | --- |
//! | a head that does not come in time | 408, closed |
//! | a head that is too large, or has too many lines | 431, closed |
//! | no HTTP | 400, closed |
//! | another version of HTTP than 1.0 and 1.1 | 505, closed |
//! | a body | never read into memory: drained for a moment after the answer, so that the answer arrives |
//! | an answer that nobody reads | given up after the same time |
//! | more connections than [`Limits::connections`] | the oldest goes: whoever asks in earnest has been answered within milliseconds |
//!
//! All of it runs on one thread with a runtime of its own ([`crate::agent`] starts it), so that no flood delays the decision loop.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::answer::{Answer, METHODS};

/// What one connection, and all of them together, may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many may be open at once.
    pub connections: usize,
    /// For the head to come, and again for the answer to be taken.
    pub time: Duration,
}

/// The largest head, in bytes.
const HEAD: usize = 8192;
/// The most lines of a head.
const LINES: usize = 64;
/// How much memory a connection takes at first.
const FIRST: usize = 512;
/// For how long what is left of a request is thrown away after the answer.
const DRAIN: Duration = Duration::from_secs(1);
/// Between two tries to listen.
const AGAIN: Duration = Duration::from_secs(2);

/// Who answers: method and target → answer. Must not block.
pub type Handler = Arc<dyn Fn(&str, &str) -> Answer + Send + Sync>;

/// Serves at the address that `listen` names, now and after every change; none: nowhere. `who` stands in every answer, so that
/// `check` knows an agent when it meets one. Ends with the sender of `listen`.
pub async fn serve(mut listen: watch::Receiver<Option<String>>, who: String, limits: Limits, handler: Handler) {
    let who: Arc<str> = who.into();
    let mut complained = None;
    loop {
        let address = listen.borrow_and_update().clone();
        let Some(address) = address else {
            if listen.changed().await.is_err() {
                return;
            }
            continue;
        };
        match TcpListener::bind(&address).await {
            Ok(listener) => {
                complained = None;
                info!(event = "http", address, "answers HTTP");
                tokio::select! {
                    // It goes before the next one is bound, which may be the same port.
                    () = accept(listener, &who, limits, &handler) => {}
                    changed = listen.changed() => if changed.is_err() { return },
                }
            }
            Err(error) => {
                // Once for each address: it is tried again for as long as it takes.
                if complained.as_ref() != Some(&address) {
                    warn!(
                        event = "http_failed", address, %error,
                        "cannot listen for HTTP: load balancers and monitoring get no answer; free the port or change http.listen and \
                         reload. Tried again every {} s; nothing else waits for it", AGAIN.as_secs()
                    );
                    complained = Some(address);
                }
                tokio::select! {
                    () = sleep(AGAIN) => {}
                    changed = listen.changed() => if changed.is_err() { return },
                }
            }
        }
    }
}

async fn accept(listener: TcpListener, who: &Arc<str>, limits: Limits, handler: &Handler) {
    let mut open = Open::new(limits.connections);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (who, handler) = (who.clone(), handler.clone());
                let task = tokio::spawn(async move { converse(stream, &who, limits.time, &handler).await });
                open.admit(task.abort_handle());
            }
            // No file descriptor is left, as a rule: an error of one connection would have been its own.
            Err(error) => {
                warn!(event = "http_failed", %error, "a connection could not be accepted");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The open connections, oldest first.
struct Open {
    most: usize,
    tasks: VecDeque<AbortHandle>,
}

impl Open {
    fn new(most: usize) -> Self {
        Self { most: most.max(1), tasks: VecDeque::new() }
    }

    fn admit(&mut self, task: AbortHandle) {
        while self.tasks.front().is_some_and(AbortHandle::is_finished) {
            self.tasks.pop_front();
        }
        if self.tasks.len() >= self.most {
            self.tasks.retain(|task| !task.is_finished());
        }
        if self.tasks.len() >= self.most
            && let Some(oldest) = self.tasks.pop_front()
        {
            oldest.abort();
        }
        self.tasks.push_back(task);
    }
}

/// One request and its answer.
async fn converse(mut stream: TcpStream, who: &str, limit: Duration, handler: &Handler) {
    let answer = match timeout(limit, head(&mut stream)).await {
        Ok(Some(Ok((method, target)))) => handler(&method, &target),
        Ok(Some(Err(answer))) => answer,
        // Whoever connects and says nothing, or goes away, gets nothing.
        Ok(None) => return,
        Err(_) => Answer::line(408, format!("no complete request within {} s", limit.as_secs_f64())),
    };
    let bytes = written(&answer, who);
    if !matches!(timeout(limit, stream.write_all(&bytes)).await, Ok(Ok(()))) {
        return;
    }
    // Closed with something unread the kernel would reset the connection, and the answer might be lost.
    if stream.shutdown().await.is_ok() {
        let _ = timeout(DRAIN, drain(&mut stream)).await;
    }
}

/// Method and target, or the answer to what is none; none where the connection ended before.
async fn head(stream: &mut TcpStream) -> Option<Result<(String, String), Answer>> {
    // Nothing is allocated for who says nothing.
    stream.readable().await.ok()?;
    let mut bytes = Vec::with_capacity(FIRST);
    loop {
        if bytes.len() >= HEAD {
            return Some(Err(Answer::line(431, format!("the head of the request has more than {HEAD} bytes"))));
        }
        let before = bytes.len();
        let room = (HEAD - before) as u64;
        if (&mut *stream).take(room).read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        // One byte at a time, a head must not be parsed at each of them.
        if before == 0 || bytes[before..].contains(&b'\n') {
            match parsed(&bytes) {
                Ok(None) => {}
                Ok(Some(request)) => return Some(Ok(request)),
                Err(answer) => return Some(Err(answer)),
            }
        }
    }
}

/// None where more is to come.
fn parsed(bytes: &[u8]) -> Result<Option<(String, String)>, Answer> {
    let mut lines = [httparse::EMPTY_HEADER; LINES];
    let mut request = httparse::Request::new(&mut lines);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => Ok(None),
        Ok(httparse::Status::Complete(_)) => {
            Ok(request.method.zip(request.path).map(|(m, t)| (m.to_owned(), t.to_owned())))
        }
        Err(httparse::Error::TooManyHeaders) => {
            Err(Answer::line(431, format!("the head of the request has more than {LINES} lines")))
        }
        Err(httparse::Error::Version) => Err(Answer::line(505, "HTTP 1.0 and 1.1 are understood")),
        Err(error) => Err(Answer::line(400, format!("this is no HTTP request: {error}"))),
    }
}

async fn drain(stream: &mut TcpStream) {
    let mut waste = [0; 2048];
    while matches!(stream.read(&mut waste).await, Ok(read) if read > 0) {}
}

fn written(answer: &Answer, who: &str) -> Vec<u8> {
    let Answer { status, media_type, body, .. } = answer;
    let allow = if answer.allow { format!("Allow: {METHODS}\r\n") } else { String::new() };
    let head = format!(
        "HTTP/1.1 {status} {}\r\nServer: {who}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         {allow}Connection: close\r\n\r\n",
        phrase(*status),
        body.len(),
    );
    let mut bytes = head.into_bytes();
    if answer.with_body {
        bytes.extend_from_slice(body.as_bytes());
    }
    bytes
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Internal Server Error",
    }
}
