//! `host:port`, the one way in which the file names a TCP endpoint.

use std::fmt;
use std::str::FromStr;

/// Text that is no `host:port`, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressFault(String);

/// A host (name, IPv4 or IPv6 address) and a port. IPv6 is written in brackets: `[2001:db8::1]:3306`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Host name or IP address, without brackets.
    pub host: String,
    /// 1 to 65535.
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

impl FromStr for HostPort {
    type Err = AddressFault;

    /// Reads `host:port`; the error is one sentence with the mend.
    fn from_str(text: &str) -> Result<Self, AddressFault> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                rest.split_once("]:").filter(|(host, _)| host.parse::<std::net::Ipv6Addr>().is_ok()).ok_or_else(
                    || AddressFault(format!("{text:?} is not [IPv6 address]:port: write it as in [2001:db8::1]:3306")),
                )?
            }
            None => {
                text.rsplit_once(':').ok_or_else(|| AddressFault(format!("{text:?} has no port: write host:port")))?
            }
        };
        if host.contains(':') && !text.starts_with('[') {
            return Err(AddressFault(format!(
                "{text:?} is ambiguous: put an IPv6 address in brackets, as in [2001:db8::1]:3306"
            )));
        }
        host_name(host)?;
        match port.parse::<u16>() {
            Ok(port) if port > 0 => Ok(Self { host: host.to_owned(), port }),
            _ => Err(AddressFault(format!("{port:?} in {text:?} is no port: write a number from 1 to 65535"))),
        }
    }
}

/// Whether `host` can be a host name or an IP address.
///
/// # Errors
/// One sentence with the mend.
pub(super) fn host_name(host: &str) -> Result<(), AddressFault> {
    if host.is_empty() {
        return Err(AddressFault("the host is missing".to_owned()));
    }
    // Underscores are not allowed in host names but common in container networks, where they resolve.
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if host.len() <= 253 && (host.chars().all(fits) || host.parse::<std::net::Ipv6Addr>().is_ok()) {
        return Ok(());
    }
    Err(AddressFault(format!("{host:?} is no host name: use letters, digits, '.', '-' and '_', or an IP address")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_the_same() {
        for text in ["db1:3306", "10.0.0.1:1", "[2001:db8::1]:65535", "my_host.example.org:3306"] {
            assert_eq!(text.parse::<HostPort>().map(|a| a.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, part) in [
            ("db1", "no port"),
            ("db1:", "no port"),
            ("db1:0", "1 to 65535"),
            ("db1:65536", "1 to 65535"),
            ("db1:mysql", "1 to 65535"),
            (":3306", "host is missing"),
            ("2001:db8::1:3306", "brackets"),
            ("[db1]:3306", "[IPv6 address]:port"),
            ("[::1]3306", "[IPv6 address]:port"),
            ("mysql://db1:3306", "brackets"),
            ("db 1:3306", "no host name"),
        ] {
            let fault = text.parse::<HostPort>().expect_err(text).to_string();
            assert!(fault.contains(part), "{text}: {fault}");
        }
    }
}
