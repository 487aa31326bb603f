//! Rules for texts: names, paths, identifiers. Each says what is wrong and how to mend it.

/// What is wrong, and the mend.
type Verdict = Result<(), (String, String)>;

fn unless(good: bool, text: &str, why: &str, mend: &str) -> Verdict {
    if good { Ok(()) } else { Err((format!("`{text}` {why}"), mend.to_owned())) }
}

/// 1 to 64 of `allowed`, and nothing that ZooKeeper or a file system takes for the folder itself.
fn is_name(text: &str, allowed: fn(&u8) -> bool) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| allowed(&b)) && text != "." && text != ".."
}

fn name_byte(b: &u8) -> bool {
    b.is_ascii_alphanumeric() || b"._-".contains(b)
}

pub(super) fn any(_: &str) -> Verdict {
    Ok(())
}

pub(super) fn cluster(text: &str) -> Verdict {
    let good = is_name(text, |b| name_byte(b) && !b.is_ascii_uppercase());
    unless(good, text, "is no cluster name", "use 1 to 64 lower-case letters, digits, `.`, `_` or `-`")
}

/// Stands in ZooKeeper paths and in file names.
pub(super) fn name(text: &str) -> Verdict {
    unless(is_name(text, name_byte), text, "is no agent name", "use 1 to 64 letters, digits, `.`, `_` or `-`")
}

pub(super) fn tag(text: &str) -> Verdict {
    unless(is_name(text, name_byte), text, "is no tag name", "use 1 to 64 letters, digits, `.`, `_` or `-`")
}

pub(super) fn root(text: &str) -> Verdict {
    let nodes = text.strip_prefix('/').unwrap_or_default();
    let good = text == "/"
        || (text.starts_with('/')
            && nodes.split('/').all(|n| !n.is_empty() && n != "." && n != "..")
            && !text.contains(char::is_control));
    unless(good, text, "is no ZooKeeper path", "write it from the root and without a slash at its end: /mysql-ha")?;
    let own = nodes.split('/').next() != Some("zookeeper");
    unless(own, text, "is ZooKeeper's own", "choose another parent, for example /mysql-ha")
}

pub(super) fn path(text: &str) -> Verdict {
    unless(text.starts_with('/'), text, "is no absolute path", "write it from the root, with a leading slash")
}

pub(super) fn host(text: &str) -> Verdict {
    let good = text.parse::<std::net::IpAddr>().is_ok() || super::address::host_name(text).is_ok();
    unless(good, text, "is no host", "write a name or an IP address; the port stands in mysql.port")
}

/// Longer account names are refused by MySQL.
pub(super) fn user(text: &str) -> Verdict {
    unless(text.chars().count() <= 32, text, "has more than 32 characters", "MySQL allows 32: rename the account")
}

/// Stands unquoted in statements, and a name with more in it has no purpose here.
pub(super) fn schema(text: &str) -> Verdict {
    let good =
        is_name(text, |b| b.is_ascii_alphanumeric() || b"_$".contains(b)) && !text.bytes().all(|b| b.is_ascii_digit());
    unless(good, text, "is no plain schema name", "use 1 to 64 letters, digits, `_` or `$`, not digits alone")
}

pub(super) fn unit(text: &str) -> Verdict {
    let good = !text.starts_with('-') && !text.contains(|c: char| c == '/' || c.is_whitespace());
    unless(good, text, "is no systemd unit", "write its name, for example mysql.service")
}
