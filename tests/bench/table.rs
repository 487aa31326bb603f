//! The tables, in Markdown.

use crate::cases::{Case, Run};
use crate::rest::Rest;

/// The value below which this share of the values lies (nearest rank).
fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "small and not negative"
    )]
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
}

fn row(name: &str, mut values: Vec<f64>, targets: &str) {
    let [median, p90, max] = [0.5, 0.9, 1.0].map(|share| percentile(&mut values, share));
    println!("| {name} | {median:.0} | {p90:.0} | {max:.0} | {targets} |");
}

/// The gap and its phases.
pub(crate) fn print_case(case: Case, runs: &[Run]) {
    let Some(first) = runs.first() else { return };
    println!("\n| {case}, {} runs, ms | median | p90 | max | wanted |\n| --- | ---: | ---: | ---: | --- |", runs.len());
    let targets = case.targets().map(|(median, max)| format!("median ≤ {median:.0}, max ≤ {max:.0}"));
    row("**client's write gap**", runs.iter().map(|run| run.gap).collect(), &targets.unwrap_or_default());
    for (at, (name, _)) in first.phases.iter().enumerate() {
        row(&name.replace('_', " "), runs.iter().map(|run| run.phases[at].1).collect(), "");
    }
    let lost: usize = runs.iter().map(|run| run.lost).sum();
    let overlaps = runs.iter().filter(|run| run.overlap).count();
    println!("\nAcknowledged writes lost: {lost}. Runs in which two servers took writes at once: {overlaps}.");
}

/// The agent at rest.
pub(crate) fn print_rest(rest: &Rest) {
    println!(
        "\n| agent at rest, {:.0} s | resident MB | % of a core | renewals | its guard, resident MB |\n\
         | --- | ---: | ---: | ---: | ---: |",
        rest.length.as_secs_f64()
    );
    for (at, agent) in rest.agents.iter().enumerate() {
        let role = if at == 0 { "primary" } else { "replica" };
        #[allow(clippy::cast_precision_loss, reason = "for people")]
        let [mb, guard] = [agent.resident_kb, agent.guard_kb].map(|kb| kb as f64 / 1024.0);
        println!("| {} ({role}) | {mb:.1} | {:.2} | {} | {guard:.1} |", agent.name, agent.cpu * 100.0, agent.renewals);
    }
    let renewals: u64 = rest.agents.iter().map(|agent| agent.renewals).sum();
    println!(
        "\nTransactions of the ensemble meanwhile: {} for {renewals} renewals. Wanted: ≤ 20 MB, < 1 %, ≤ 1 transaction each; the guard ≤ 5 MB.",
        rest.transactions
    );
}
