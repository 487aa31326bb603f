//! The verbs: arguments, rendering, exit codes. What may not live here: a decision about roles (the core's), and a
//! connection of its own kind (ZooKeeper's and MySQL's modules have those).

pub mod args;
pub mod bootstrap;
pub mod check;
pub mod exit;
pub mod fence;
pub mod leave;
mod listens;
mod loss;
pub mod pause;
pub mod prestart;
pub mod prestop;
pub mod promote;
pub mod remove;
pub mod rewind;
pub mod session;
pub mod status;

use std::io::IsTerminal;
use std::process::ExitCode;

use args::{Cli, ConfigVerb, PromoteArgs, Verb};
use clap::Parser;
use exit::Exit;
use serde::Serialize;
use tracing_subscriber::filter::LevelFilter;

use crate::config::{self, Config};
use crate::host::clock;

/// Parses the command line, runs the verb, gives its exit code.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version are no faults; all else is usage (2), which is clap's own code.
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() };
        }
    };
    let config = match config::load(&cli.config) {
        Ok(config) => config,
        Err(faults) => {
            eprintln!("{faults}");
            return unusable(&cli, &faults.first());
        }
    };
    let mut builder = match cli.verb {
        // One thread: it is to take next to nothing, and it waits for nothing that blocks.
        Verb::Guard => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = match builder.worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let text = format!("the runtime cannot be started: {error}");
            eprintln!("{text}");
            return unusable(&cli, &text);
        }
    };
    let code = runtime.block_on(verb(cli, config));
    // Tasks that hang (a stopped mysqld) must not keep a verb from ending.
    runtime.shutdown_background();
    code
}

/// Nothing could be tried. A monitor is told on stdout, in its own codes.
fn unusable(cli: &Cli, why: &str) -> ExitCode {
    if !matches!(&cli.verb, Verb::Check(args) if args.nagios) {
        return Exit::Usage.into();
    }
    let (code, line) = check::unknown(why);
    print!("{line}");
    ExitCode::from(code)
}

async fn verb(cli: Cli, config: Config) -> ExitCode {
    let json = cli.json;
    match cli.verb {
        Verb::Run => serve(&config, crate::agent::run::run(config.clone(), &cli.config)).await,
        Verb::Guard => serve(&config, crate::guard::run::run(config.clone(), &cli.config)).await,
        Verb::Check(args) => {
            let report = check::check(&config).await;
            if args.nagios {
                let (code, line) = report.nagios();
                print!("{line}");
                return ExitCode::from(code);
            }
            show(json, &report, || report.text());
            report.exit().into()
        }
        Verb::Status(args) => status_verb(&config, json, args.watch).await,
        Verb::History(args) => history_verb(&config, json, args.last.get()).await,
        Verb::Promote(args) => promote_verb(&config, json, &args, false).await,
        Verb::Config(ConfigVerb::Show) => {
            show(json, &config.masked(), || config.masked_yaml());
            Exit::Done.into()
        }
        Verb::Pause(args) => {
            let mut tree = match session::open(&config).await {
                Ok(tree) => tree,
                Err(end) => return fail(end),
            };
            let reason = args.reason.as_deref().unwrap_or_default();
            answer(json, pause::pause(&config, &mut tree, args.length, reason).await)
        }
        Verb::Resume => match session::open(&config).await {
            Ok(mut tree) => answer(json, pause::resume(&config, &mut tree).await),
            Err(end) => fail(end),
        },
        Verb::Fence => {
            let done = fence::fence(&config).await;
            match done.exit() {
                Exit::Done => show(json, &done, || done.text.clone()),
                exit => return fail((exit, done.text)),
            }
            Exit::Done.into()
        }
        Verb::Prestart(args) => {
            let report = prestart::prestart(&config, args.dry_run).await;
            if json || report.exit() == Exit::Done {
                show(json, &report, || report.text());
            } else {
                eprint!("{}", report.text());
            }
            report.exit().into()
        }
        Verb::Prestop => answer(json, prestop::prestop(&config).await),
        Verb::Leave => answer(json, leave::leave(&config).await),
        Verb::Unfence => answer(json, fence::unfence(&config)),
        Verb::Bootstrap => answer(json, bootstrap::bootstrap(&config).await),
        Verb::Remove(args) => answer(json, remove::remove(&config, &args.name).await),
        Verb::Handover => promote_verb(&config, json, &PromoteArgs::to_the_best(), true).await,
        Verb::Rejoin(_) | Verb::Route => {
            eprintln!(
                "this verb is not in force in this version; nothing was done (see the README, \"Not yet in force\")"
            );
            Exit::Usage.into()
        }
    }
}

/// A service until its end, with its log. `service` has not begun yet, as no future has before it is awaited.
async fn serve(config: &Config, service: impl Future<Output = (Exit, String)>) -> ExitCode {
    let level = LevelFilter::from_level(config.log.level);
    crate::agent::log::start(level, &config.cluster, &config.name);
    let (exit, text) = service.await;
    if !text.is_empty() {
        tracing::error!(event = "ended", code = exit.code(), "{text}");
    }
    exit.into()
}

fn show(json: bool, value: &impl Serialize, text: impl FnOnce() -> String) {
    if json {
        match serde_json::to_string_pretty(value) {
            Ok(json) => println!("{json}"),
            Err(error) => eprintln!("the answer cannot be written as JSON: {error}"),
        }
    } else {
        print!("{}", text());
    }
}

/// A verb's answer that is a text: to stdout where it was done, else to stderr.
fn answer(json: bool, (exit, text): (Exit, String)) -> ExitCode {
    if exit != Exit::Done {
        return fail((exit, text));
    }
    #[derive(Serialize)]
    struct Said<'a> {
        done: &'a str,
    }
    show(json, &Said { done: text.trim_end() }, || text.clone());
    exit.into()
}

fn fail((exit, text): (Exit, String)) -> ExitCode {
    eprintln!("{}", text.trim_end());
    exit.into()
}

async fn status_verb(config: &Config, json: bool, watch: bool) -> ExitCode {
    let mut tree = match session::open(config).await {
        Ok(tree) => tree,
        Err((exit, text)) => {
            return fail((exit, format!("{text}\n{}", session::in_words(session::may_write_for(config)))));
        }
    };
    let mut as_of = clock::wall();
    let clears = watch && !json && std::io::stdout().is_terminal();
    loop {
        let seen = tree.now();
        let status = crate::core::status::status(&config.cluster, &seen, &session::ages(config));
        let newest = if seen.complete { tree.writer.history(1).await.unwrap_or_default() } else { Vec::new() };
        let status = status.with_newest(newest.last());
        if clears {
            print!("\x1b[H\x1b[2J");
        }
        if seen.complete {
            as_of = clock::wall();
        } else if !json {
            // Else the last table would stand there as if it were true.
            println!("ZOOKEEPER CANNOT BE USED at this moment; what follows is as of {}", as_of.0);
        }
        if seen.complete || !json {
            show(json, &status, || status::text(&status));
        }
        if !watch {
            return status::exit(&status).into();
        }
        tree.changed().await;
    }
}

async fn history_verb(config: &Config, json: bool, last: usize) -> ExitCode {
    let tree = match session::open(config).await {
        Ok(tree) => tree,
        Err(end) => return fail(end),
    };
    match tree.writer.history(last).await {
        Ok(records) => {
            show(json, &records, || status::history_text(&records));
            Exit::Done.into()
        }
        Err(why) => fail((Exit::ZooKeeperUnreachable, format!("the history cannot be read: {why}"))),
    }
}

/// `handover`: only where this host's server is the primary.
async fn promote_verb(config: &Config, json: bool, args: &PromoteArgs, handover: bool) -> ExitCode {
    if args.allow_newer {
        return fail((Exit::Usage, "--allow-newer is not in force in this version; nothing was done".to_owned()));
    }
    let mut tree = match session::open(config).await {
        Ok(tree) => tree,
        Err(end) => return fail(end),
    };
    let own = match crate::agent::run::own(config, "promote", false) {
        Ok(own) => own,
        Err(error) => return fail((Exit::Usage, format!("this host cannot be examined: {error}"))),
    };
    let plan = promote::plan(&own, &tree.now(), args.name.as_deref(), args.allow_data_loss);
    if handover && plan.from.as_deref() != Some(config.name.as_str()) {
        return answer(
            json,
            (Exit::Done, format!("{} is not the primary: there is nothing to hand over\n", config.name)),
        );
    }
    if args.dry_run {
        show(json, &plan, || plan.text());
        return if plan.refused.is_some() { Exit::Refused.into() } else { Exit::Done.into() };
    }
    if plan.refused.is_some() {
        return fail((Exit::Refused, plan.text()));
    }
    if plan.forced {
        // Before anything is done, for the log of whoever has typed it.
        eprint!("{}", plan.text());
    }
    let (exit, text) = promote::promote(&mut tree, &plan, args.timeout).await;
    if exit != Exit::Done {
        return fail((exit, text));
    }
    #[derive(Serialize)]
    struct Switched<'a> {
        from: &'a Option<String>,
        to: &'a Option<String>,
    }
    show(json, &Switched { from: &plan.from, to: &plan.to }, || text);
    exit.into()
}
