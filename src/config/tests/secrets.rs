//! The three forms of a secret, and that none of them shows it.

use super::super::SecretOrigin;
use super::{least_with, read};

#[test]
fn the_three_forms_give_the_secret() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let path = file.to_str().unwrap();
    for (content, secret) in
        [("from-file\n", "from-file"), ("from-file", "from-file"), (" a b \r\n", " a b "), ("x\n\n", "x\n")]
    {
        std::fs::write(&file, content).unwrap();
        let config = read(&least_with("password: hunter2", &format!("password_file: {path}"))).unwrap();
        assert_eq!(config.mysql.password.reveal(), secret);
        assert_eq!(config.mysql.password.origin(), &SecretOrigin::File(path.into()));
    }
    let config = read(&least_with("password: hunter2", "password_env: SET")).unwrap();
    assert_eq!(config.mysql.password.reveal(), "from-env");
    let config = read(&least_with("password: hunter2", "password: 'hunter2'")).unwrap();
    assert_eq!(config.mysql.password.reveal(), "hunter2");
}

#[test]
fn a_form_that_gives_nothing_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "\n").unwrap();
    let empty = format!("password_file: {}", empty.display());
    for (form, key, what) in [
        ("password_file: /nowhere/password", "mysql.password_file", "cannot be read"),
        (empty.as_str(), "mysql.password_file", "is empty"),
        ("password_env: UNSET", "mysql.password_env", "not set"),
        ("password: ''", "mysql.password", "is empty"),
        ("password:", "mysql.password", "not text"),
        ("password: 12345", "mysql.password", "not text"),
    ] {
        let faults = read(&least_with("password: hunter2", form)).unwrap_err();
        assert_eq!(faults.faults.len(), 1, "{faults}");
        let fault = &faults.faults[0];
        assert_eq!((fault.line, fault.key.as_str()), (Some(7), key), "{faults}");
        assert!(fault.what.contains(what), "{faults}");
        assert!(!faults.to_string().contains("12345"), "{faults}");
    }
}

#[test]
fn a_replication_password_that_mysql_cannot_take_is_a_fault() {
    let long = "x".repeat(33);
    let faults = read(&least_with("password: hunter3", &format!("password: {long}"))).unwrap_err();
    assert_eq!((faults.faults[0].line, faults.faults[0].key.as_str()), (Some(11), "mysql.replication.password"));
    assert!(!faults.to_string().contains(&long), "{faults}");
    assert!(read(&least_with("password: hunter3", &format!("password: {}", "x".repeat(32)))).is_ok());
}

#[test]
fn no_output_shows_one() {
    let config = read(&least_with("password: hunter3", "password_env: SET")).unwrap();
    for text in [format!("{config:?}"), config.masked_yaml()] {
        assert!(!text.contains("hunter2") && !text.contains("from-env"), "{text}");
    }
}
