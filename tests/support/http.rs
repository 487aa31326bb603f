//! What the agents say over HTTP: requests as bytes, answers as they come.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::host::Host;

/// The port of `http.listen` on every host.
const PORT: u16 = 8008;

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    /// The status code.
    pub(crate) code: u16,
    /// The body.
    pub(crate) body: String,
}

impl Said {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("no JSON ({error}): {}", self.body))
    }

    /// Reads an answer to its end.
    pub(crate) async fn read(mut stream: TcpStream) -> Result<Self, String> {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| format!("no answer: {text:?}"))?;
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Ok(Self { code: code.ok_or_else(|| format!("no status: {head}"))?, body: body.to_owned() })
    }
}

/// A connection to the agent of `host`.
pub(crate) async fn open_connection(host: &Host) -> Result<TcpStream, String> {
    TcpStream::connect((host.address, PORT)).await.map_err(|error| error.to_string())
}

/// GET, within two seconds.
pub(crate) async fn ask(host: &Host, target: &str) -> Result<Said, String> {
    let exchange = async {
        let mut stream = open_connection(host).await?;
        let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", host.name);
        stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        Said::read(stream).await
    };
    let answer = tokio::time::timeout(Duration::from_secs(2), exchange).await;
    answer.unwrap_or_else(|_| Err("no answer within 2 s".into())).map_err(|error| format!("{}: {error}", host.name))
}
