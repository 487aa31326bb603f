//! Connections to the servers under test.

use std::path::Path;
use std::time::Duration;

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, OptsBuilder};

use super::network::MYSQL_PORT;

/// Why a statement did not give an answer, in words.
pub(crate) type Failure = String;

/// Connects as root through the socket: works whatever is cut off on the network, and under `offline_mode`.
pub(crate) async fn connect_root(socket: &Path) -> Result<Conn, Failure> {
    let options = OptsBuilder::default().user(Some("root")).socket(socket.to_str());
    connect(options, Duration::from_secs(2)).await
}

/// Connects as the applications do, over TCP.
pub(crate) async fn connect_app(address: std::net::Ipv4Addr) -> Result<Conn, Failure> {
    connect_app_at(address, MYSQL_PORT).await
}

/// The same at another port: what a load balancer leads to.
pub(crate) async fn connect_app_at(address: std::net::Ipv4Addr, port: u16) -> Result<Conn, Failure> {
    let options = OptsBuilder::default()
        .ip_or_hostname(address.to_string())
        .tcp_port(port)
        .prefer_socket(false)
        .user(Some("app"))
        .pass(Some("app-secret"));
    connect(options, Duration::from_millis(500)).await
}

async fn connect(options: OptsBuilder, limit: Duration) -> Result<Conn, Failure> {
    // The library has no limit of its own: a frozen server accepts and says nothing.
    match tokio::time::timeout(limit, Conn::new(options)).await {
        Ok(Ok(conn)) => Ok(conn),
        Ok(Err(error)) => Err(format!("cannot connect: {error}")),
        Err(_) => Err(format!("cannot connect within {limit:?}")),
    }
}

/// The rows of one statement, on a new connection of root.
pub(crate) async fn query<T: FromRow + Send + 'static>(socket: &Path, sql: &str) -> Result<Vec<T>, Failure> {
    let mut conn = connect_root(socket).await?;
    let limit = Duration::from_secs(20);
    match tokio::time::timeout(limit, conn.query(sql)).await {
        Ok(Ok(rows)) => {
            // A connection that is merely dropped stays open until a background task has said good-bye.
            let _ = conn.disconnect().await;
            Ok(rows)
        }
        Ok(Err(error)) => Err(format!("`{sql}`: {error}")),
        Err(_) => Err(format!("`{sql}`: no answer within {limit:?}")),
    }
}
