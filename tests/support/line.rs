//! One connection of the writer to one server, kept open and opened again when lost. A server that hangs holds up its own
//! line alone.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::sync::{OwnedRwLockReadGuard, mpsc, oneshot};

use super::host::Host;
use super::sql::connect_app;
use super::writer::{Log, Outcome, Write, entries};

/// A write to be made.
pub(super) struct Order {
    /// The row's id.
    pub(super) id: u64,
    /// Who waits for the answer, unless he has gone on.
    pub(super) reply: oneshot::Sender<Answer>,
    /// Held until the write is over: shows that one is in flight.
    pub(super) open: OwnedRwLockReadGuard<()>,
}

/// What the worker is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// OK.
    Acknowledged,
    /// Anything else, also when nothing was sent for want of a connection.
    Other,
}

/// A line; closed when dropped.
pub(super) struct Line(mpsc::Sender<Order>);

impl Line {
    /// Opens a line to a host's server.
    pub(super) fn open(host: &Host, log: &Log, timeout: Duration) -> Self {
        let (sender, orders) = mpsc::channel(1);
        let task = Task { host: host.name.clone(), address: host.address, log: log.clone(), timeout, conn: None };
        tokio::spawn(task.work(orders));
        Self(sender)
    }

    /// Hands an order over; false while the line still has one before it.
    pub(super) fn send(&self, order: Order) -> bool {
        self.0.try_send(order).is_ok()
    }
}

struct Task {
    host: String,
    address: Ipv4Addr,
    log: Log,
    timeout: Duration,
    conn: Option<Conn>,
}

impl Task {
    async fn work(mut self, mut orders: mpsc::Receiver<Order>) {
        loop {
            // A connection that was cut while it was idle is noticed by a ping, not by the first write after a switch.
            let idle = Duration::from_millis(if self.conn.is_some() { 250 } else { 20 });
            match tokio::time::timeout(idle, orders.recv()).await {
                Ok(Some(order)) => self.write(order).await,
                Ok(None) => return,
                Err(_) => self.keep_open().await,
            }
        }
    }

    async fn keep_open(&mut self) {
        self.conn = match self.conn.take() {
            None => connect_app(self.address).await.ok(),
            Some(mut conn) => {
                let alive = tokio::time::timeout(Duration::from_millis(500), conn.ping()).await;
                matches!(alive, Ok(Ok(()))).then_some(conn)
            }
        };
    }

    async fn write(&mut self, Order { id, reply, open }: Order) {
        if self.conn.is_none() {
            self.conn = connect_app(self.address).await.ok();
        }
        let Some(mut conn) = self.conn.take() else {
            let _ = reply.send(Answer::Other);
            return;
        };
        let write = Write { host: self.host.clone(), sent: Instant::now(), outcome: Outcome::Unknown };
        entries(&self.log).insert(id, write);
        let answer =
            tokio::time::timeout(self.timeout, conn.query_drop(format!("INSERT INTO app.t (id) VALUES ({id})"))).await;
        let (outcome, usable) = match answer {
            Ok(Ok(())) => (Outcome::Acknowledged(Instant::now()), true),
            Ok(Err(error)) => (judge(&error), !error.is_fatal()),
            Err(_) => (Outcome::Unknown, false),
        };
        if let Some(write) = entries(&self.log).get_mut(&id) {
            write.outcome = outcome;
        }
        if usable {
            self.conn = Some(conn);
        }
        drop(open);
        // The worker may have gone on to another primary.
        let acknowledged = matches!(outcome, Outcome::Acknowledged(_));
        let _ = reply.send(if acknowledged { Answer::Acknowledged } else { Answer::Other });
    }
}

/// Only an error that is given before anything is done makes a write certain to be nowhere.
fn judge(error: &mysql_async::Error) -> Outcome {
    const READ_ONLY: u16 = 1290;
    const READ_ONLY_TRANSACTION: u16 = 1836;
    const OFFLINE: u16 = 3032;
    match error {
        mysql_async::Error::Server(error) if [READ_ONLY, READ_ONLY_TRANSACTION, OFFLINE].contains(&error.code) => {
            Outcome::Failed
        }
        _ => Outcome::Unknown,
    }
}
