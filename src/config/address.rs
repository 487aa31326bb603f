//! `host:port`, the one form in which addresses are written.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// A host name or IP address with a port. IPv6 addresses are written in brackets: `[::1]:3306`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port, never 0.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Text that is no `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressFault(pub String);

impl FromStr for HostPort {
    type Err = AddressFault;

    fn from_str(text: &str) -> Result<Self, AddressFault> {
        let fault = |why: &str| AddressFault(format!("`{text}` {why}"));
        if text.contains("//") {
            return Err(fault("is a URL"));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| fault("has no port"))?;
        let bracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let host = match bracketed {
            Some(inner) if inner.parse::<Ipv6Addr>().is_ok() => inner,
            Some(_) => return Err(fault("has no IPv6 address between its brackets")),
            None if host.contains(':') => return Err(fault("is an IPv6 address without brackets")),
            None => host_name(host).map_err(fault)?,
        };
        Ok(Self { host: host.to_owned(), port: tcp_port(port).ok_or_else(|| fault("has no port from 1 to 65535"))? })
    }
}

/// A host name or IPv4 address, as far as it can be judged without resolving it.
///
/// # Errors
/// Why it cannot be one, to be put after the text.
pub(super) fn host_name(host: &str) -> Result<&str, &'static str> {
    if host.is_empty() {
        Err("has no host")
    } else if host.len() > 253 {
        Err("has a host name of more than 253 characters")
    } else if !host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
        // No host name may hold `_`, but container networks have and resolve such names.
        Err("has a host with characters other than letters, digits, `-`, `.` and `_`")
    } else {
        Ok(host)
    }
}

/// Digits alone: `u16::from_str` would take `+3306`.
fn tcp_port(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().filter(|port| *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_is_written() {
        for text in ["db1:3306", "10.0.0.1:1", "zk-1.example_x.org:65535", "[::1]:2181", "[fe80::1:2]:9"] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_refused_and_why() {
        for (text, why) in [
            ("db1", "no port"),
            ("db1:", "1 to 65535"),
            ("db1:0", "1 to 65535"),
            ("db1:65536", "1 to 65535"),
            ("db1:+80", "1 to 65535"),
            (":3306", "no host"),
            ("::1:3306", "without brackets"),
            ("[db1]:3306", "no IPv6 address"),
            ("db 1:3306", "characters"),
            ("tcp://db1:3306", "URL"),
            ("a/b:3306", "characters"),
        ] {
            let fault = text.parse::<HostPort>().unwrap_err().to_string();
            assert!(fault.contains(why), "{text}: {fault}");
        }
    }
}
