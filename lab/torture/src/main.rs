//! The command `make torture`; see the library.

mod options;

use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use options::{RunOptions, server};
use posthaste_testkit::{ran, receivers::OpenSearch};
use posthaste_torture::bugs::BUGS;
use posthaste_torture::run::{State, commit};
use posthaste_torture::transfers::{self, ExecutorOptions, Fault, Outcome, execute};
use posthaste_torture::{
    BugHunt, BugReport, CaptureOptions, Environment, RelayOptions, Report, WorkerOptions, capture,
    relay, work,
};

/// Inject faults into everything around posthaste while it runs, and check the recorded history
#[derive(Debug, Parser)]
#[command(about, args_conflicts_with_subcommands = true)]
struct CommandLine {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    run: RunOptions,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Run a worker process
    #[command(hide = true)]
    Work(WorkerOptions),
    /// Run a relay process
    #[command(hide = true)]
    Relay(RelayOptions),
    /// Run a capture process
    #[command(hide = true)]
    Capture(CaptureOptions),
    /// Run an executor process of transfers
    #[command(hide = true)]
    Execute(ExecutorOptions),
    /// Make transfers between accounts in OpenSearch, while their executors are killed, paused and
    /// disconnected
    Transfers(TransferOptions),
}

#[derive(Debug, Args)]
struct TransferOptions {
    /// Number of transfers
    #[arg(long, default_value_t = 10_000)]
    transfers: usize,
    /// Number of accounts
    #[arg(long, default_value_t = 100)]
    accounts: usize,
    /// Number of executor processes
    #[arg(long, default_value_t = 4)]
    executors: usize,
    /// Number of concurrent transfers per process
    #[arg(long, default_value_t = 64)]
    at_once: usize,
    /// Number of faults of each kind
    #[arg(long, default_value_t = 12)]
    faults: usize,
    /// What chance begins with.
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let outcome = runtime
        .context("a runtime")
        .and_then(|runtime| runtime.block_on(obey(CommandLine::parse())));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("torture: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn obey(line: CommandLine) -> anyhow::Result<()> {
    match line.role {
        Some(Role::Work(options)) => work(options).await,
        Some(Role::Relay(options)) => relay(options).await,
        Some(Role::Capture(options)) => capture(options).await,
        Some(Role::Execute(options)) => execute(options).await,
        Some(Role::Transfers(options)) => transfer(&options).await,
        None if line.run.bugs => catch(&line.run).await,
        None => torture(&line.run).await,
    }
}

async fn torture(options: &RunOptions) -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    std::fs::create_dir_all(&options.folder)?;
    let folder = options.folder.canonicalize()?;
    if options.fresh {
        State::forget(&folder)?;
    }
    let mut state = State::resume(&folder, options.plan()?, &commit())?;
    eprintln!(
        "torture: seed {}, {} rounds, {} of them done",
        state.plan.seed,
        state.plan.rounds.len(),
        state.rounds.len()
    );
    while state.missing() > 0 {
        let number = state.rounds.len() + 1;
        let round = state.next(&folder, &program).await?;
        eprintln!(
            "round {number} of {:?}, {:?}{}{}{}: PostgreSQL {}, {} faults, {} jobs, {} runs, \
             {} of them repeats, {:.0} s",
            round.processes,
            round.pace,
            if round.hostile { ", hostile" } else { "" },
            if round.clocked { ", clocks" } else { "" },
            if round.fails_over { ", failovers" } else { "" },
            round.server,
            round.faults.values().sum::<u64>(),
            round.load.committed,
            round.load.runs,
            round.load.repeats,
            round.seconds
        );
        let findings = round.findings.iter().map(ToString::to_string);
        for line in findings.chain(round.oddities.iter().cloned()) {
            eprintln!("  {line}");
        }
    }
    let report = Report::of(&state)?;
    let kept = report.keep(&options.reports)?;
    State::forget(&folder)?;
    eprintln!("wrote {} after {:.0} s", kept.display(), report.seconds);
    if !report.passed {
        bail!("rules were broken; the logs are in {}", folder.display());
    }
    Ok(())
}

async fn transfer(options: &TransferOptions) -> anyhow::Result<()> {
    let server = tokio::task::block_in_place(|| OpenSearch::start_optimised(&[]))?;
    let plan = transfers::Plan {
        seed: options.seed.unwrap_or_else(|| fastrand::u64(..) >> 16),
        transfers: options.transfers,
        accounts: options.accounts,
        executors: options.executors,
        at_once: options.at_once,
        faults: Fault::value_variants()
            .iter()
            .map(|fault| (*fault, options.faults))
            .collect(),
    };
    let seed = plan.seed;
    let program = std::env::current_exe()?;
    let outcome = transfers::play(&plan, server.port(), &program, None).await;
    let outcome = outcome.with_context(|| format!("seed {seed}"))?;
    let Outcome {
        load,
        faults,
        findings,
        seconds,
    } = outcome;
    eprintln!(
        "transfers: seed {seed}, {} over {} accounts in {seconds:.0} s: {load:?}; {faults:?}",
        plan.transfers, plan.accounts
    );
    for finding in &findings {
        eprintln!("  {finding}");
    }
    ran::count("two-phase-transfers", plan.transfers as u64);
    // If nearly all were refused, the run proves nothing.
    ensure!(
        load.finished * 4 > plan.transfers,
        "only {} were finished",
        load.finished
    );
    ensure!(findings.is_empty(), "{} rules were broken", findings.len());
    Ok(())
}

/// Enough jobs to trigger every bug.
const BUG_JOBS: u64 = 600;

async fn catch(options: &RunOptions) -> anyhow::Result<()> {
    let only = options.only.as_deref().unwrap_or_default();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..) >> 16);
    let server = server(&options.server)?;
    std::fs::create_dir_all(&options.folder)?;
    let environment = Environment {
        folder: options.folder.canonicalize()?.join("bug"),
        program: std::env::current_exe()?,
    };
    let mut bug_hunt = Vec::new();
    eprintln!("torture: seed {seed}");
    for bug in BUGS.iter().filter(|bug| bug.name.contains(only)) {
        let outcome = bug.play(&environment, server, seed, BUG_JOBS).await?;
        let (name, seconds) = (bug.name, outcome.seconds);
        match &outcome.by {
            Some(how) => eprintln!("caught   {name:<55} {seconds:>5.1} s  {how}"),
            None => eprintln!(
                "SLIPPED  {name:<55} {seconds:>5.1} s  {:?}",
                outcome.round.findings
            ),
        }
        bug_hunt.push(BugHunt {
            name: name.into(),
            caught: outcome.by,
            seconds,
        });
    }
    let slipped: Vec<&str> = bug_hunt
        .iter()
        .filter(|bug| bug.caught.is_none())
        .map(|bug| &*bug.name)
        .collect();
    let caught = bug_hunt.len() - slipped.len();
    eprintln!("{caught} bugs caught, {} slipped through", slipped.len());
    // A partial run proves nothing about the other bugs.
    if only.is_empty() {
        let report = BugReport::of(commit(), seed, server.name(), &bug_hunt)?;
        eprintln!("wrote {}", report.keep(&options.reports)?.display());
    }
    ensure!(slipped.is_empty(), "these slipped through: {slipped:?}");
    Ok(())
}
