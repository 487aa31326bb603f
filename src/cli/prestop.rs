//! `prestop`: before mysqld is stopped on this host (`ExecStop=` of its unit, `packaging/mysql-ha-stop.conf`). Neither ZooKeeper nor a
//! running agent is needed, no marker is set and nothing is persisted: the next start of mysqld knows nothing of it.
//!
//! The process is found through the socket alone. A pid file may be stale while a unit stops, and this ends what it has found.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::exit::Exit;
use crate::agent::watcher;
use crate::config::Config;
use crate::config::sections::Endpoint;
use crate::core::records::DurabilityMode;
use crate::host::process::{FindError, Mysqld};
use crate::mysql::stop::Stop;

/// The ladder's time, all rungs together. A shutdown is held up no longer than by this and two looks.
const BUDGET: Duration = Duration::from_secs(5);

/// Makes this host's server ready to be told to end.
pub async fn prestop(config: &Config) -> (Exit, String) {
    let mysqld = match &config.mysql.endpoint {
        Endpoint::Socket(socket) => match Mysqld::behind(socket) {
            Ok(mysqld) => Some(Arc::new(mysqld)),
            Err(FindError::NobodyListens { .. }) => return (Exit::Done, "mysqld is not running\n".to_owned()),
            Err(_) => None,
        },
        Endpoint::Tcp(_) => None,
    };
    let (_found, watched) = watch::channel(mysqld);
    let may_wait = config.failover.durability == DurabilityMode::Lossless;
    let (stop, report) = watcher::fence(config, watched).before_stop(BUDGET, may_wait).await;
    let trouble =
        if report.trouble.is_empty() { String::new() } else { format!(" (held up by: {})", report.trouble.join("; ")) };
    match stop {
        Stop::Ready => {
            (Exit::Done, format!("no commit waits for an acknowledgement: mysqld can be stopped{trouble}\n"))
        }
        Stop::Gone => (Exit::Done, "mysqld is not running any more\n".to_owned()),
        Stop::Killed(why) => {
            let text = format!("mysqld was killed, since an orderly end would have answered OK: {why}{trouble}\n");
            (Exit::Done, text)
        }
        Stop::NotSafe(why) => {
            let text = format!(
                "mysqld was left as it is; an orderly end may answer OK to commits nobody has: {why}{trouble}\n"
            );
            (Exit::MysqlUnreachable, text)
        }
    }
}
