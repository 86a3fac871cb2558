//! A process that makes transfers, reports the end of each, and recovers those of other processes.

use std::io::Write as _;
use std::time::Duration;

use clap::Args;
use futures_util::stream::{self, TryStreamExt as _};
use posthaste_elastic::two_phase::{Coordinator, Failure};
use tokio::time::sleep;

use super::{BETWEEN, GRACE, account, coordinator, some_transfer};

/// The timeout for an answer. Longer than a pause of the process: otherwise it would abandon its
/// requests when it resumes, and never act on outdated state.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// One transfer in this many is abandoned by its own process while it is made.
const REGRETTED: usize = 16;

/// Options of the executor process.
#[derive(Debug, Args)]
pub struct ExecutorOptions {
    /// URL of the server, or of a link to it
    #[arg(long)]
    pub url: String,
    /// Seed of the transfers
    #[arg(long)]
    pub seed: u64,
    /// Number of accounts
    #[arg(long)]
    pub accounts: usize,
    /// Number of the first transfer
    #[arg(long)]
    pub first: usize,
    /// Step between transfers of this process
    #[arg(long)]
    pub step: usize,
    /// Number at which transfers end
    #[arg(long)]
    pub end: usize,
    /// Number of concurrent transfers
    #[arg(long)]
    pub at_once: usize,
}

/// Makes its transfers, and ends.
pub async fn execute(options: ExecutorOptions) -> anyhow::Result<()> {
    let coordinator = &coordinator(&options.url, TIME_LIMIT)?;
    // Its link may be down at first, and a transfer would be abandoned at once.
    while coordinator.open(&account(0), 0).await.is_err() {
        sleep(Duration::from_millis(50)).await;
    }
    let options = &options;
    let numbers = (options.first..options.end).step_by(options.step);
    let transfers = stream::iter(numbers.map(anyhow::Ok));
    let transfers = transfers.try_for_each_concurrent(options.at_once, |at| async move {
        one(coordinator, options, at).await
    });
    tokio::select! {
        done = transfers => done,
        () = coordinator.recover_always(GRACE, BETWEEN) => Ok(()),
    }
}

async fn one(
    coordinator: &Coordinator,
    options: &ExecutorOptions,
    at: usize,
) -> anyhow::Result<()> {
    let transfer = some_transfer(options.seed, options.accounts, at)?;
    say(&format!("began {at}"))?;
    let regret = async {
        match at % REGRETTED {
            0 => {
                sleep(Duration::from_millis(fastrand::u64(0..60))).await;
                Some(coordinator.roll_back(transfer.id().as_str()).await)
            }
            _ => None,
        }
    };
    let (made, regretted) = tokio::join!(coordinator.run(&transfer), regret);
    say(&format!("ended {at} {}", claim(&made)))?;
    let told = match regretted {
        Some(Ok(())) => "rolled-back",
        Some(Err(Failure::Committed)) => "finished",
        _ => return Ok(()),
    };
    Ok(say(&format!("ended {at} {told}"))?)
}

/// What a caller may conclude from the result.
fn claim(made: &Result<(), Failure>) -> &'static str {
    match made {
        Ok(()) => "finished",
        Err(Failure::RolledBack(_)) => "rolled-back",
        // No other process makes this transfer.
        Err(failure) if failure.may_have_moved_by_this_call() => "open",
        Err(_) => "unmoved",
    }
}

/// Writes a complete line at once: a process that is killed leaves at most one incomplete line, at
/// the end.
fn say(line: &str) -> std::io::Result<()> {
    std::io::stdout().write_all(format!("{line}\n").as_bytes())
}
