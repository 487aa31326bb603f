//! The live table: the servers as ZooKeeper, the agents and the client see them now.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::screen::Screen;
use crate::support::{Cluster, Kind, Outcome, Writer, Written};

/// Between two looks.
const ROUND: Duration = Duration::from_millis(150);

/// Draws the table until dropped. Shows dashes for what is not there yet; never fails, since it decides nothing.
pub(crate) async fn show(screen: &Screen, cluster: &Cluster, writer: &OnceLock<Writer>) {
    if !screen.is_terminal() {
        return std::future::pending().await;
    }
    let mut rounds = tokio::time::interval(ROUND);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        let topology = cluster.tree.get("topology").await.ok().flatten().unwrap_or_default();
        let agents = cluster.tree.children("agents").await.unwrap_or_default();
        let written = writer.get().map(Writer::so_far);
        let mut lines = vec![String::new(), header(&topology)];
        for host in &cluster.hosts {
            let agent = agents.get(&host.name).cloned().unwrap_or_default();
            let running = host.is_running(Kind::Mysqld);
            lines.push(server_line(&host.name, running, &topology, &agent, written.as_ref()));
        }
        lines.push(written.as_ref().map_or_else(|| "  client  not yet".into(), client_line));
        screen.draw(lines);
    }
}

fn header(topology: &Value) -> String {
    let epoch = topology["epoch"].as_u64().map_or_else(|| "-".into(), |epoch| epoch.to_string());
    format!(
        "\x1b[1m  {:<6}  {:<8} {:<11} {:<8} {:>7} {:>7}   {}\x1b[0m",
        "server",
        "mysqld",
        "state",
        "role",
        "writes",
        "lag",
        format_args!("agent (epoch {epoch})")
    )
}

fn server_line(name: &str, running: bool, topology: &Value, agent: &Value, written: Option<&Written>) -> String {
    let state = topology["members"][name]["state"].as_str().unwrap_or("-");
    let lag =
        agent["server"]["lag_ms"].as_u64().map_or_else(|| "-".into(), |ms| format!("{:.1} s", ms as f64 / 1000.0));
    let writes = written.map_or(0, |written| written.acknowledged_by(name));
    format!(
        "  {name:<6}  {:<8} {state:<11} {:<8} {writes:>7} {lag:>7}   {}",
        if running { "running" } else { "killed" },
        agent["role"].as_str().unwrap_or("-"),
        agent["detail"].as_str().unwrap_or("not running"),
    )
}

/// Of the client: how much, how fast, and since when nothing.
fn client_line(written: &Written) -> String {
    let now = Instant::now();
    let times = written.writes.values().filter_map(|write| match write.outcome {
        Outcome::Acknowledged(at) => Some(at),
        _ => None,
    });
    let (mut count, mut recent, mut last) = (0_u32, 0_u32, None);
    for at in times {
        count += 1;
        recent += u32::from(now.saturating_duration_since(at) < Duration::from_secs(1));
        last = last.max(Some(at));
    }
    let silent = last.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
    format!(
        "  client  {count} writes acknowledged, {recent} in the last second, the newest {silent:.2} s ago; longest gap {:.0} ms",
        written.longest_gap().length().as_secs_f64() * 1000.0
    )
}
