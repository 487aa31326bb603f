//! The target of a request.

use crate::core::duration;
use crate::core::serving::Wish;

/// Path and query of a target; also of one in absolute form (`http://host/path`), which every server has to take.
#[must_use]
pub fn split(target: &str) -> (&str, &str) {
    let local = match target.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            rest.find('/').map_or("/", |at| &rest[at..])
        }
        _ => target,
    };
    local.split_once('?').unwrap_or((local, ""))
}

/// What `lag=5s&tag_rack=a` asks for. A key that is not known is refused: `lga=5s`, passed over, would send readers to a
/// replica that lags.
///
/// # Errors
/// What is wrong, and what to write.
pub fn wish(query: &str) -> Result<Wish, String> {
    let mut wish = Wish::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (key, value) = (decoded(key)?, decoded(value)?);
        let twice = match key.strip_prefix("tag_") {
            Some(tag) if !tag.is_empty() => wish.tags.insert(tag.to_owned(), value).is_some(),
            _ if key == "lag" => {
                let lag = duration::parse(&value).map_err(|fault| format!("lag: {fault}"))?;
                wish.lag.replace(lag).is_some()
            }
            _ => return Err(format!("`{key}` is not known: write lag=5s, or tag_<name>=<value>")),
        };
        if twice {
            return Err(format!("`{key}` is given twice: write it once"));
        }
    }
    Ok(wish)
}

/// `%2F` and `+` as what they stand for.
fn decoded(text: &str) -> Result<String, String> {
    let fault = || format!("`{text}` is not encoded as a query has to be: write % and two hexadecimal digits");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16)).ok_or_else(fault);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).map_err(|_| fault())?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| fault())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn targets_are_split() {
        for (target, expected) in [
            ("/primary", ("/primary", "")),
            ("/replica?lag=5s", ("/replica", "lag=5s")),
            ("/replica?", ("/replica", "")),
            ("http://db1:8008/replica?lag=5s", ("/replica", "lag=5s")),
            ("http://db1:8008", ("/", "")),
            ("/a?b=http://c/d", ("/a", "b=http://c/d")),
            ("*", ("*", "")),
            ("", ("", "")),
        ] {
            assert_eq!(split(target), expected, "{target}");
        }
    }

    #[test]
    fn what_is_asked_of_a_replica() {
        let all = wish("lag=1500ms&tag_rack=a%20b&tag_use=c+d").unwrap();
        assert_eq!(all.lag, Some(Duration::from_millis(1500)));
        let tags: Vec<(&str, &str)> = all.tags.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(tags, [("rack", "a b"), ("use", "c d")]);
        assert_eq!(wish("").unwrap(), Wish::default());
        assert_eq!(wish("&lag=0&").unwrap().lag, Some(Duration::ZERO));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (query, says) in [
            ("lga=5s", "not known"),
            ("lag", "lag"),
            ("lag=5", "5s"),
            ("lag=-5s", "whole number"),
            ("lag=5s&lag=6s", "twice"),
            ("tag_=x", "not known"),
            ("tag_a=1&tag_a=2", "twice"),
            ("lag=%zz", "%"),
            ("tag_a=%f", "%"),
            ("tag_a=%ff", "%"),
            ("tag_a=%+1", "%"),
        ] {
            let fault = wish(query).unwrap_err();
            assert!(fault.contains(says), "{query}: {fault}");
        }
    }

    proptest! {
        #[test]
        fn no_target_panics(target in ".{0,60}") {
            let (_, query) = split(&target);
            let _ = wish(query);
        }
    }
}
