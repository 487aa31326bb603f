//! The sockets under good and bad input: right status, bounded memory, nobody's answer depends on somebody else.

use std::sync::Arc;
use std::time::Duration;

use mysql_ha_agent::http::answer::Answer;
use mysql_ha_agent::http::server::{Limits, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

const PATIENCE: Duration = Duration::from_secs(30);

/// A server that says what it was asked.
struct Served {
    address: String,
    listen: watch::Sender<Option<String>>,
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

async fn served(limits: Limits) -> Served {
    let address = free_address();
    let (listen, address_of) = watch::channel(Some(address.clone()));
    let handler = Arc::new(|method: &str, target: &str| match target {
        "/" => Answer::line(200, format!("{method} {target}")),
        "/large" => Answer::line(200, "x".repeat(4_000_000)),
        _ => Answer { allow: true, with_body: method != "HEAD", ..Answer::line(503, "no") },
    });
    tokio::spawn(serve(address_of, "agent (orders/db1)".to_owned(), limits, handler));
    listens(&address).await;
    Served { address, listen }
}

async fn listens(address: &str) {
    let connected = async {
        while TcpStream::connect(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, connected).await.expect("somebody listens");
}

fn limits(connections: usize, time: Duration) -> Limits {
    Limits { connections, time }
}

fn usual() -> Limits {
    limits(64, Duration::from_secs(5))
}

/// Sends, and reads to the end. The status, and everything.
async fn exchange(address: &str, bytes: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // Who is answered in mid-sentence may find the connection closed.
    let _ = stream.write_all(bytes).await;
    read(&mut stream).await
}

async fn read(stream: &mut TcpStream) -> (u16, String) {
    let mut all = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await.expect("an end comes");
    let text = String::from_utf8_lossy(&all).into_owned();
    let code = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|code| code.parse().ok());
    (code.unwrap_or(0), text)
}

#[tokio::test]
async fn an_answer_and_the_end_of_the_connection() {
    let server = served(usual()).await;
    let (code, text) = exchange(&server.address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(code, 200);
    for part in ["Server: agent (orders/db1)\r\n", "Content-Length: 6\r\n", "Connection: close\r\n", "\r\n\r\nGET /\n"]
    {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    let (code, text) = exchange(&server.address, b"HEAD /no HTTP/1.0\r\n\r\n").await;
    assert_eq!(code, 503);
    assert!(text.contains("Content-Length: 3\r\n") && text.contains("Allow: ") && text.ends_with("\r\n\r\n"), "{text}");
    let (_, text) = exchange(&server.address, b"GET /large HTTP/1.1\r\n\r\n").await;
    assert!(text.len() > 4_000_000);
}

#[tokio::test]
async fn malformed_and_huge_requests_get_the_right_status() {
    let server = served(usual()).await;
    let long = [b"GET /".as_slice(), &[b'a'; 20_000], b" HTTP/1.1\r\n\r\n"].concat();
    let header = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'a'; 1_000_000], b"\r\n\r\n"].concat();
    let lines = [b"GET / HTTP/1.1\r\n".to_vec(), b"X: y\r\n".repeat(200), b"\r\n".to_vec()].concat();
    let body = [b"POST / HTTP/1.1\r\nContent-Length: 3000000\r\n\r\n".as_slice(), &[b'a'; 3_000_000]].concat();
    for (what, bytes, expected) in [
        ("garbage", b"\x16\x03\x01\x02\x00\x01\x00".as_slice(), 400),
        ("no HTTP", b"hello, is anybody there?\r\n\r\n", 400),
        ("a header without a name", b"GET / HTTP/1.1\r\n: x\r\n\r\n", 400),
        ("a NUL", b"GET /\0 HTTP/1.1\r\n\r\n", 400),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("a long target", &long, 431),
        ("a long header", &header, 431),
        ("many headers", &lines, 431),
        ("a body", &body, 200),
        ("two requests at once", b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", 200),
    ] {
        let (code, text) = exchange(&server.address, bytes).await;
        assert_eq!(code, expected, "{what}: {text}");
    }
    let (code, _) = exchange(&server.address, b"GET / HTTP/1.1\r\n\r\n").await;
    assert_eq!(code, 200, "it still answers");
}

#[tokio::test]
async fn in_pieces_and_too_slow() {
    let server = served(limits(64, Duration::from_millis(500))).await;
    let mut stream = TcpStream::connect(&server.address).await.unwrap();
    for byte in b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" {
        stream.write_all(&[*byte]).await.unwrap();
    }
    assert_eq!(read(&mut stream).await.0, 200, "one byte at a time");

    let mut stream = TcpStream::connect(&server.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let (code, text) = read(&mut stream).await;
    assert_eq!(code, 408, "a head that does not end: {text}");

    // Reads nothing of a large answer: it is given up, and the connection with it.
    let mut deaf = TcpStream::connect(&server.address).await.unwrap();
    deaf.write_all(b"GET /large HTTP/1.1\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (_, text) = read(&mut deaf).await;
    assert!(text.len() < 4_000_000, "it was sent whole: {}", text.len());
}

/// Slow ones beyond all bounds: whoever asks in earnest is answered at once, while they all still stand there.
#[tokio::test]
async fn the_oldest_goes_when_there_are_too_many() {
    let server = served(limits(16, PATIENCE)).await;
    let mut slow = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(&server.address).await.unwrap();
        stream.write_all(b"GET / HT").await.unwrap();
        slow.push(stream);
        let (code, _) = exchange(&server.address, b"GET / HTTP/1.1\r\n\r\n").await;
        assert_eq!(code, 200, "beside {} slow ones", slow.len());
    }
    // The first was dropped, the last is still heard.
    let mut rest = Vec::new();
    let _ = slow[0].read_to_end(&mut rest).await;
    assert!(rest.is_empty());
    let last = slow.last_mut().unwrap();
    last.write_all(b"TP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(read(last).await.0, 200);
}

/// Within the bound all are answered, however long they have stood there.
#[tokio::test]
async fn a_thousand_open_connections_are_all_answered() {
    let server = served(limits(1100, PATIENCE)).await;
    let mut open = Vec::new();
    for _ in 0..1000 {
        open.push(TcpStream::connect(&server.address).await.unwrap());
    }
    assert_eq!(exchange(&server.address, b"GET / HTTP/1.1\r\n\r\n").await.0, 200);
    for stream in &mut open {
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!(read(stream).await.0, 200);
    }
}

/// A port that is taken stops nothing, and is taken over once it is free; a reload moves to another, or ends it.
#[tokio::test]
async fn the_address_changes_and_a_taken_port_is_waited_for() {
    let server = served(usual()).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let wanted = taken.local_addr().unwrap().to_string();
    server.listen.send_replace(Some(wanted.clone()));
    gone(&server.address).await;
    drop(taken);
    listens(&wanted).await;
    assert_eq!(exchange(&wanted, b"GET / HTTP/1.1\r\n\r\n").await.0, 200);
    server.listen.send_replace(None);
    gone(&wanted).await;
    server.listen.send_replace(Some(server.address.clone()));
    listens(&server.address).await;
}

async fn gone(address: &str) {
    let refused = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("nobody listens any more");
}
