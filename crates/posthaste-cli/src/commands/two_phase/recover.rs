//! `posthaste two-phase recover`: finishes transactions that other processes have left open.

use std::fmt;
use std::time::Duration;

use posthaste_elastic::two_phase::{Coordinator, Failure, Recovered, Stuck};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::list::StuckRow;
use crate::failure;
use crate::options::{parse_duration, parse_duration_between};
use crate::signals::Signals;
use crate::terminal::Terminal;

/// The time without a change of state after which a transaction needs attention.
const STUCK_AFTER: Duration = Duration::from_secs(3600);
/// Time between two reports of such transactions.
const LOG_STUCK_EVERY: Duration = Duration::from_secs(600);

/// Finish transactions that other processes left open; any number of processes can run it
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Exit after one pass over the transactions that are due
    #[arg(long)]
    once: bool,

    /// Recover only transactions that have been due for longer than this; the programs that created
    /// newer ones may still be finishing them
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    older_than: Duration,

    /// Time between passes
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        value_parser = parse_duration_between(1, 86_400)
    )]
    every: Duration,
}

impl Arguments {
    pub(super) fn is_long_running(&self) -> bool {
        !self.once
    }
}

/// The result of a pass.
#[derive(Serialize)]
struct PassResult {
    finished: usize,
    rolled_back: usize,
    open: Vec<OpenTransactions>,
    /// Transactions whose state has not changed for an hour.
    stuck: Vec<StuckRow>,
    /// Why they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_read: Option<String>,
}

#[derive(Serialize)]
struct OpenTransactions {
    id: String,
    why: String,
}

impl PassResult {
    fn new(recovered: Recovered, stuck: Result<Vec<Stuck>, Failure>) -> Self {
        let open = recovered
            .open
            .into_iter()
            .map(|(id, failure)| OpenTransactions {
                id,
                why: failure::redact(&failure.to_string()),
            });
        // The recovery succeeded even if the stuck transactions could not be read.
        let (stuck, not_read) = match stuck {
            Ok(stuck) => (stuck.into_iter().map(StuckRow).collect(), None),
            Err(failure) => (Vec::new(), Some(failure::redact(&failure.to_string()))),
        };
        Self {
            finished: recovered.finished,
            rolled_back: recovered.rolled_back,
            open: open.collect(),
            stuck,
            not_read,
        }
    }

    fn has_news(&self) -> bool {
        let reported = self.finished + self.rolled_back + self.open.len() + self.stuck.len();
        reported > 0 || self.not_read.is_some()
    }
}

impl fmt::Display for PassResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            finished,
            rolled_back,
            ..
        } = self;
        write!(
            f,
            "{finished} finished, {rolled_back} rolled back, {} still open",
            self.open.len()
        )?;
        for open in &self.open {
            write!(f, "\n{}: {}", open.id, open.why)?;
        }
        for stuck in &self.stuck {
            write!(f, "\nstuck for an hour: {stuck}")?;
        }
        if let Some(why) = &self.not_read {
            write!(
                f,
                "\ntransactions stuck for an hour could not be listed: {why}"
            )?;
        }
        Ok(())
    }
}

pub(super) async fn run(
    arguments: &Arguments,
    coordinator: &Coordinator,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let grace = arguments.older_than;
    let stop = signals.stop_token();
    let mut named: Option<Instant> = None;
    if !arguments.once {
        terminal.report_event("recovering", "recovering; Ctrl-C stops", &json!({}))?;
    }
    loop {
        let is_long_running = || !stop.is_cancelled();
        let pass = async {
            let recovered = coordinator.recover_while(grace, is_long_running).await?;
            let is_time = named.is_none_or(|named| named.elapsed() >= LOG_STUCK_EVERY);
            let stuck = match is_time && is_long_running() {
                true => coordinator.list_stuck(STUCK_AFTER).await,
                false => Ok(Vec::new()),
            };
            anyhow::Ok((is_time, PassResult::new(recovered, stuck)))
        };
        match pass.await {
            Ok((_, pass)) if arguments.once => {
                terminal.print_result(&pass, &pass)?;
                signals.fail_if_signalled()?;
                return match pass.not_read {
                    Some(_) => anyhow::bail!("transactions stuck for an hour could not be listed."),
                    None => Ok(()),
                };
            }
            Ok((is_time, pass)) => {
                if pass.has_news() {
                    terminal.print_outcome("pass", &pass, &pass)?;
                }
                if is_time && pass.not_read.is_none() {
                    named = Some(Instant::now());
                }
            }
            Err(error) if arguments.once => return Err(error),
            // The server may become available again, or an operator may repair the index.
            Err(error) => terminal.print_remark(&format!(
                "nothing was recovered: {}",
                failure::error_line(&error)
            )),
        }
        // Random, so that processes that started together do not stay in step.
        let pause = arguments.every.mul_f64(0.5 + fastrand::f64());
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_reports_progress_despite_a_failed_listing() {
        let recovered = Recovered {
            finished: 7,
            ..Recovered::default()
        };
        let pass = PassResult::new(recovered, Err(Failure::Moving));
        assert!(pass.has_news());
        let text = pass.to_string();
        assert!(text.starts_with("7 finished, "), "{text}");
        assert!(text.contains("an hour could not be listed: "), "{text}");
    }
}
