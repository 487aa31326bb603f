//! `check`: whether load balancers and monitoring get an answer at `http.listen`.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::agent::http::who;
use crate::config::{Config, HostPort};

/// For somebody's answer.
const LIMIT: Duration = Duration::from_secs(2);
/// The most of an answer that is looked at.
const MOST: u64 = 2048;

/// Whether all is well, what was found, and the mend.
pub(super) type Found = (bool, String, &'static str);

const TAKEN: &str = "end that program, or give http.listen another port and reload the agent";

/// Asks at the address, and where nobody is there whether this host could listen at it.
pub(super) async fn http(config: &Config) -> Found {
    let Some(address) = &config.http.listen else {
        return (true, "http.listen is off: load balancers and monitoring get no answer".to_owned(), "");
    };
    let note = match only_this_host(address) {
        true => " (this host only: load balancers on other hosts need an address of this host in http.listen)",
        false => "",
    };
    match timeout(LIMIT, server_at(&to_ask(address))).await {
        Ok(Ok(server)) if server.as_deref() == Some(who(&config.cluster, &config.name).as_str()) => {
            (true, format!("the agent answers at {address}{note}"), "")
        }
        Ok(Ok(Some(other))) => (false, format!("{address} is taken: `{other}` answers there"), TAKEN),
        Ok(Ok(None)) | Err(_) => (false, format!("{address} is taken by a program that is not this agent"), TAKEN),
        Ok(Err(_)) => could_listen(address, note).await,
    }
}

async fn could_listen(address: &HostPort, note: &str) -> Found {
    match TcpListener::bind(address.to_string()).await {
        Ok(_) => (true, format!("nobody listens at {address} yet: the agent will{note}"), ""),
        Err(error) if error.kind() == ErrorKind::AddrInUse => (false, format!("{address} is taken"), TAKEN),
        Err(error) => (
            false,
            format!("this host cannot listen at {address}: {error}"),
            "give http.listen an address of this host and a port from 1024 on",
        ),
    }
}

fn only_this_host(address: &HostPort) -> bool {
    address.host == "localhost" || address.host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Who listens on all addresses is asked at a loopback one.
fn to_ask(address: &HostPort) -> String {
    let host = match address.host.parse() {
        Ok(IpAddr::V4(all)) if all.is_unspecified() => "127.0.0.1".to_owned(),
        Ok(IpAddr::V6(all)) if all.is_unspecified() => "::1".to_owned(),
        _ => address.host.clone(),
    };
    HostPort { host, port: address.port }.to_string()
}

/// What names itself there; none where it is no HTTP, or has no name.
async fn server_at(address: &str) -> std::io::Result<Option<String>> {
    let mut stream = TcpStream::connect(address).await?;
    let mut answer = Vec::new();
    let said = async {
        stream.write_all(b"GET /liveness HTTP/1.0\r\n\r\n").await?;
        stream.take(MOST).read_to_end(&mut answer).await
    };
    // It is there, whatever it says.
    let _ = said.await;
    let text = String::from_utf8_lossy(&answer);
    Ok(text.lines().find_map(|line| line.strip_prefix("Server: ")).map(|name| name.trim_end().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening_at(address: &str) -> Config {
        let text = format!(
            "cluster: orders\nname: db1\nzookeeper: {{hosts: ['zk1:2181']}}\nmysql: {{user: agent, password: a, advertise: \
             'db1:3306', replication: {{user: repl, password: b}}}}\nfailover: {{durability: lossless}}\nhttp: {{listen: \
             '{address}'}}\n"
        );
        crate::config::parse(&text, "agent.yaml", &|_| None).unwrap()
    }

    /// Somebody who says this to whoever asks, and hangs up.
    async fn somebody(says: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 64]).await;
                let _ = stream.write_all(says.as_bytes()).await;
            }
        });
        address
    }

    #[tokio::test]
    async fn who_is_there_is_told_apart() {
        let ours = format!("HTTP/1.1 503 Service Unavailable\r\nServer: {}\r\n\r\n", who("orders", "db1"));
        for (says, good, expected) in [
            (ours.leak() as &str, true, "the agent answers"),
            ("HTTP/1.1 200 OK\r\nServer: mysql-ha-agent/0.1.0 (users/db9)\r\n\r\n", false, "(users/db9)"),
            ("HTTP/1.1 200 OK\r\n\r\n", false, "not this agent"),
            ("SSH-2.0-OpenSSH\r\n", false, "not this agent"),
        ] {
            let found = http(&listening_at(&somebody(says).await)).await;
            assert!(found.0 == good && found.1.contains(expected), "{says}: {found:?}");
            assert_eq!(found.2.is_empty(), good, "{found:?}");
        }
    }

    #[tokio::test]
    async fn nobody_is_there() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let found = http(&listening_at(&free)).await;
        assert!(found.0 && found.1.contains("this host only"), "{found:?}");
        // 192.0.2.0/24 is for documentation: nobody's address.
        let found = http(&listening_at("192.0.2.1:8008")).await;
        assert!(!found.0, "{found:?}");
        assert!(http(&listening_at("off")).await.0);
    }

    #[test]
    fn which_addresses_others_reach() {
        for (address, expected) in [
            ("127.0.0.1:8008", true),
            ("127.9.9.9:8008", true),
            ("[::1]:8008", true),
            ("localhost:8008", true),
            ("0.0.0.0:8008", false),
            ("10.0.0.11:8008", false),
            ("db1.example.org:8008", false),
        ] {
            assert_eq!(only_this_host(&address.parse().unwrap()), expected, "{address}");
        }
        assert_eq!(to_ask(&"0.0.0.0:8008".parse().unwrap()), "127.0.0.1:8008");
        assert_eq!(to_ask(&"[::]:8008".parse().unwrap()), "[::1]:8008");
    }
}
