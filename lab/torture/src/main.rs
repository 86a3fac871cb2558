//! The command `make torture`; see the library.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use posthaste_testkit::{PgVersion, ran, receivers::OpenSearch};
use posthaste_torture::bugs::BUGS;
use posthaste_torture::history::Kind;
use posthaste_torture::run::{State, commit};
use posthaste_torture::transfers::{self, ExecutorOptions, Fault, Outcome, execute};
use posthaste_torture::{
    BugHunt, BugReport, CaptureOptions, Counts, Environment, Plan, RelayOptions, Report,
    WorkerOptions, capture, relay, work,
};

/// Kills, cuts, crashes and promotes everything around posthaste while it works, and checks the
/// history of it.
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
    /// A worker process of a run.
    #[command(hide = true)]
    Work(WorkerOptions),
    /// A relay process of a run.
    #[command(hide = true)]
    Relay(RelayOptions),
    /// A capture process of a run.
    #[command(hide = true)]
    Capture(CaptureOptions),
    /// An executor process of transfers.
    #[command(hide = true)]
    Execute(ExecutorOptions),
    /// Make transfers over accounts in OpenSearch, while their executors are killed, held still and
    /// cut off.
    Transfers(TransferOptions),
}

#[derive(Debug, Args)]
struct TransferOptions {
    /// How many.
    #[arg(long, default_value_t = 10_000)]
    transfers: usize,
    /// Over how many accounts.
    #[arg(long, default_value_t = 100)]
    accounts: usize,
    /// Processes at once.
    #[arg(long, default_value_t = 4)]
    executors: usize,
    /// What each of them has under way.
    #[arg(long, default_value_t = 64)]
    at_once: usize,
    /// How often each fault strikes.
    #[arg(long, default_value_t = 12)]
    faults: usize,
    /// What chance begins with.
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Debug, Args)]
struct RunOptions {
    /// SIGKILL of worker processes.
    #[arg(long, default_value_t = 200)]
    kills: u64,
    /// Immediate stops of the server.
    #[arg(long, default_value_t = 50)]
    crashes: u64,
    /// Terminated sessions.
    #[arg(long, default_value_t = 200)]
    terminations: u64,
    /// Connections that are reset.
    #[arg(long, default_value_t = 50)]
    cuts: u64,
    /// Connections that are half open.
    #[arg(long, default_value_t = 50)]
    half_opens: u64,
    /// Worker processes that are stopped for a while, links that stall and logs nobody reads.
    #[arg(long, default_value_t = 50)]
    freezes: u64,
    /// Answers to COMMIT that are lost.
    #[arg(long, default_value_t = 50)]
    half_answers: u64,
    /// Connections of workers that carry everything late.
    #[arg(long, default_value_t = 30)]
    late_answers: u64,
    /// Promotions of a lagging replica.
    #[arg(long, default_value_t = 10)]
    promotions: u64,
    /// Of each fault of captures: SIGKILL, a process that is held still, connections that are
    /// reset, those that are half open, and SIGKILL of the Redis of one.
    #[arg(long, default_value_t = 30)]
    capture_faults: u64,
    /// Rounds that share them.
    #[arg(long, default_value_t = 10)]
    rounds: u64,
    /// SIGKILL of relay processes.
    #[arg(long, default_value_t = 50)]
    relay_kills: u64,
    /// Connections of relays to receivers' servers that are reset.
    #[arg(long, default_value_t = 50)]
    relay_cuts: u64,
    /// Connections of relays to receivers' servers that are half open.
    #[arg(long, default_value_t = 50)]
    relay_half_opens: u64,
    /// SIGKILL of a Redis that keeps what it answers for.
    #[arg(long, default_value_t = 50)]
    redis_kills: u64,
    /// A Redis that forgets everything, behind a route that waits for its receiver.
    #[arg(long, default_value_t = 50)]
    redis_losses: u64,
    /// A Redis that has no room and drops nothing.
    #[arg(long, default_value_t = 50)]
    redis_fulls: u64,
    /// SIGKILL of a RabbitMQ.
    #[arg(long, default_value_t = 50)]
    rabbitmq_kills: u64,
    /// Answers to COMMIT that are lost to producers beside relays.
    #[arg(long, default_value_t = 50)]
    relay_half_answers: u64,
    /// Connections of relays to the database that carry everything late.
    #[arg(long, default_value_t = 30)]
    relay_late_answers: u64,
    /// Rounds of relays, which share those.
    #[arg(long, default_value_t = 5)]
    relay_rounds: u64,
    /// Faults of each kind that strike in rounds in which there is little to do.
    #[arg(long, default_value_t = 6)]
    idle_faults: u64,
    /// Rounds in which there is little to do, which share those.
    #[arg(long, default_value_t = 2)]
    idle_rounds: u64,
    /// Steps of the server's clock.
    #[arg(long, default_value_t = 24)]
    clock_steps: u64,
    /// Promotions of a replica whose clock is another one; twice as many workers are killed.
    #[arg(long, default_value_t = 4)]
    clock_promotions: u64,
    /// Rounds on servers with clocks of their own, which share those.
    #[arg(long, default_value_t = 2)]
    clock_rounds: u64,
    /// The server of these rounds, such as pg15; one more round is played on each of the others
    /// that are installed.
    #[arg(long, default_value = "pg15")]
    server: String,
    /// No rounds on other servers.
    #[arg(long)]
    alone: bool,
    /// What chance begins with.
    #[arg(long)]
    seed: Option<u64>,
    /// Forget a run that was interrupted.
    #[arg(long)]
    fresh: bool,
    /// Show that every bug of the list is noticed, instead.
    #[arg(long)]
    bugs: bool,
    /// Only bugs whose name contains this.
    #[arg(long, requires = "bugs")]
    only: Option<String>,
    /// State and logs.
    #[arg(long, default_value = "target/torture")]
    folder: PathBuf,
    /// Where reports are kept.
    #[arg(long, default_value = "docs/reports")]
    reports: PathBuf,
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
    let mut state = State::resume(&folder, plan(options)?, &commit())?;
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
            "round {number} of {:?}, {:?}{}{}: PostgreSQL {}, {} faults, {} jobs, {} runs, \
             {} of them repeats, {:.0} s",
            round.processes,
            round.pace,
            if round.hostile { ", hostile" } else { "" },
            if round.clocked { ", clocks" } else { "" },
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

fn plan(options: &RunOptions) -> anyhow::Result<Plan> {
    let mut counts: Counts = [
        (Kind::Kill, options.kills),
        (Kind::Crash, options.crashes),
        (Kind::Termination, options.terminations),
        (Kind::Cut, options.cuts),
        (Kind::HalfOpen, options.half_opens),
        (Kind::Freeze, options.freezes),
        (Kind::Stall, options.freezes),
        (Kind::Unread, options.freezes),
        (Kind::HalfAnswer, options.half_answers),
        (Kind::Late, options.late_answers),
        (Kind::Promotion, options.promotions),
    ]
    .into();
    counts.extend(Kind::OF_CAPTURES.map(|kind| (kind, options.capture_faults)));
    let of_relays: Counts = [
        (Kind::RelayKill, options.relay_kills),
        (Kind::RelayCut, options.relay_cuts),
        (Kind::RelayHalfOpen, options.relay_half_opens),
        (Kind::RedisKill, options.redis_kills),
        (Kind::RedisLoss, options.redis_losses),
        (Kind::RedisFull, options.redis_fulls),
        (Kind::RabbitMqKill, options.rabbitmq_kills),
        (Kind::HalfAnswer, options.relay_half_answers),
        (Kind::Late, options.relay_late_answers),
    ]
    .into();
    let server = server(&options.server)?;
    let others: Vec<PgVersion> = PgVersion::PROMISED
        .into_iter()
        .filter(|other| {
            !options.alone && options.rounds > 0 && *other != server && other.bin().is_ok()
        })
        .collect();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..) >> 16);
    let plan = Plan::new(seed, &counts, options.rounds, server, &others);
    let of_clocks: Counts = [
        (Kind::ClockStep, options.clock_steps),
        (Kind::Promotion, options.clock_promotions),
        (Kind::Kill, 2 * options.clock_promotions),
    ]
    .into();
    let of_idle = [Kind::Kill, Kind::Termination, Kind::Cut, Kind::Late];
    let of_idle: Counts = of_idle.map(|kind| (kind, options.idle_faults)).into();
    Ok(plan
        .with_relays(&of_relays, options.relay_rounds, server)
        .with_idle(&of_idle, options.idle_rounds, server)
        .with_clocks(&of_clocks, options.clock_rounds, server))
}

fn server(name: &str) -> anyhow::Result<PgVersion> {
    let mut all = PgVersion::PROMISED.into_iter();
    all.find(|version| version.name() == name)
        .with_context(|| format!("no such server: {name}"))
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
