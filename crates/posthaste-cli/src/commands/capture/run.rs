//! `posthaste capture run`: captures until it is stopped, or until existing changes are captured.

use std::fmt;

use anyhow::anyhow;
use futures_util::future::join_all;
use posthaste_capture::Until;
use posthaste_observe::format::pluralize;
use serde::Serialize;

use crate::captures::{self, CaptureSelection, StartedCapture};
use crate::database::Database;
use crate::signals::Signals;
use crate::terminal::Terminal;

/// Run captures until stopped; a second process waits until the first has ended
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    which: CaptureSelection,

    /// Exit after capturing everything that was committed before the start
    #[arg(long)]
    once: bool,
}

impl Arguments {
    pub(super) fn is_long_running(&self) -> bool {
        !self.once
    }
}

/// The result of a capture.
#[derive(Serialize)]
struct CapturedTotals {
    capture: String,
    events: u64,
    problem: Option<String>,
    #[serde(skip)]
    is_direct: bool,
}

#[derive(Serialize)]
struct AllCaptured<'a> {
    captures: &'a [CapturedTotals],
}

impl fmt::Display for CapturedTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let did = match self.is_direct {
            true => format!("{} sent", pluralize(self.events, "event", "events")),
            false => format!("{} enqueued", pluralize(self.events, "job", "jobs")),
        };
        write!(f, "{}: {did}", self.capture)?;
        match &self.problem {
            Some(problem) => write!(f, "; it stopped: {problem}"),
            None => Ok(()),
        }
    }
}

pub(super) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let captures = arguments.which.read()?;
    let until = match arguments.once {
        true => Until::Caught,
        false => Until::Stopped,
    };
    let mut started = captures::start(captures, database.address(), until)?;
    for one in started.iter().filter(|_| !arguments.once) {
        one.print_started(terminal)?;
    }
    let ended = {
        // With a single capture, its problem becomes the error of the command.
        let others = started.len() > 1;
        let all = started.iter_mut();
        let all = join_all(all.map(|one| wait_for_end(one, others, terminal, signals)));
        tokio::select! {
            ended = all => ended,
            error = database.wait_until_gone() => return Err(error),
        }
    };
    if arguments.once {
        terminal.print_results(&ended, "no captures")?;
        signals.fail_if_signalled()?;
    } else {
        let captures = &ended;
        terminal.print_event_line("captured", &AllCaptured { captures })?;
    }
    match ended
        .into_iter()
        .find_map(|one| Some((one.capture, one.problem?)))
    {
        Some((capture, problem)) => Err(anyhow!("capture {capture}: {problem}")),
        None => Ok(()),
    }
}

/// Waits until a capture has ended. The other captures continue.
async fn wait_for_end(
    one: &mut StartedCapture,
    others: bool,
    terminal: &Terminal,
    signals: &Signals,
) -> CapturedTotals {
    let ended = tokio::select! {
        ended = one.running.ended() => ended,
        () = signals.stop_token().cancelled() => {
            one.running.stop();
            one.running.ended().await
        }
    };
    let problem = ended.err().map(|error| error.to_string());
    if let Some(problem) = &problem
        && others
        && !signals.stop_token().is_cancelled()
    {
        terminal.print_remark(&format!("capture {}: {problem}", one.name));
    }
    CapturedTotals {
        capture: one.name.clone(),
        events: one.running.status().events,
        problem,
        is_direct: one.is_direct(),
    }
}
