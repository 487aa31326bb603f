//! What the operator decides, since the product rightly does not.

use std::time::Duration;

use super::checks::wait_for;
use super::cluster::Cluster;
use super::host::Kind;
use super::network::MYSQL_PORT;

impl Cluster {
    /// A write that was in flight when its server was killed (never acknowledged) may be there after the restart, as a
    /// transaction that no other server has: the product then keeps that server out until an operator decides. Here
    /// the operator says that it may stay: the primary gets empty transactions of these names. How many there were.
    pub(crate) async fn absolve(&self, old: &str, primary: &str) -> usize {
        let primary = self.host(primary);
        let of_primary: String = primary.value("SELECT @@global.gtid_executed").await;
        let extra: String =
            self.host(old).value(&format!("SELECT GTID_SUBTRACT(@@global.gtid_executed, '{of_primary}')")).await;
        let all = single_gtids(&extra);
        for gtid in &all {
            let named = format!("SET gtid_next = '{gtid}'");
            primary.execute(&[&named, "BEGIN", "COMMIT", "SET gtid_next = AUTOMATIC"]).await;
        }
        all.len()
    }

    /// Waits until the server of `old` follows `primary`, as far as its agent says. A mysqld that a fence had to kill is started
    /// again, as systemd would; where it is kept out for transactions of its own, it is absolved. How many those were.
    pub(crate) async fn takes_back(&self, old: &str, primary: &str, limit: Duration) -> usize {
        let mut absolved = 0;
        wait_for(&format!("{old} follows {primary}"), limit, async || {
            if !self.host(old).is_running(Kind::Mysqld) {
                self.start_mysqld(old).await;
            }
            let topology = self.tree.get("topology").await?.ok_or("there is no topology")?;
            if topology["primary"] == primary && topology["members"][old]["state"] == "READ" {
                return Ok(());
            }
            let agent = self.tree.get(&format!("agents/{old}")).await?.ok_or("its agent is missing")?;
            if topology["primary"] == primary && agent["reason"] == "diverged" {
                absolved += self.absolve(old, primary).await;
            }
            Err(format!("{topology}; {agent}"))
        })
        .await;
        absolved
    }
}

/// How long a copy of the whole primary may take.
const CLONE: Duration = Duration::from_secs(60);

impl Cluster {
    /// Rebuilds the server of `host` from `primary` with the CLONE plugin: all that it had is gone. mysqld ends by itself
    /// when the copy is complete; whoever keeps it running starts it again. An error where the copy did not come about.
    ///
    /// CLONE is refused under `super_read_only` (seen on 9.7), so that is lifted, `read_only` alone stays: its agent, which would
    /// fence it for that, is not to run.
    pub(crate) async fn rebuild(&self, host: &str, primary: &str) -> Result<(), String> {
        use mysql_async::prelude::Queryable;
        let (host, donor) = (self.host(host), format!("{}:{MYSQL_PORT}", self.host(primary).address));
        let mut conn = host.connect(false).await?;
        let copy = async {
            conn.query_drop("SET GLOBAL super_read_only = OFF").await?;
            conn.query_drop(format!("SET GLOBAL clone_valid_donor_list = '{donor}'")).await?;
            conn.query_drop(format!(
                "CLONE INSTANCE FROM 'agent'@'{}':{MYSQL_PORT} IDENTIFIED BY 'agent-secret'",
                self.host(primary).address
            ))
            .await
        };
        // 3707: cloned, and nobody there to restart it.
        const SHUT_DOWN: u16 = 3707;
        match tokio::time::timeout(CLONE, copy).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(mysql_async::Error::Server(error))) if error.code == SHUT_DOWN => Ok(()),
            Ok(Err(error)) => Err(format!("cloning {primary} to {}: {error}", host.name)),
            Err(_) => Err(format!("cloning {primary} to {} took longer than {CLONE:?}", host.name)),
        }
    }
}

/// `uuid:1:5-7,uuid:…` one by one.
fn single_gtids(set: &str) -> Vec<String> {
    let mut all = Vec::new();
    for part in set.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let mut words = part.split(':');
        let uuid = words.next().unwrap_or_default();
        for interval in words {
            let (first, last) = interval.split_once('-').unwrap_or((interval, interval));
            let (first, last): (u64, u64) = (first.parse().expect("a number"), last.parse().expect("a number"));
            all.extend((first..=last).map(|number| format!("{uuid}:{number}")));
        }
    }
    all
}
