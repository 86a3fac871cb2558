//! `posthaste txwatch`: finds long transactions on the primary and its followers, and ends them as
//! configured.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;

use crate::database::Database;
use crate::failure::CommandExit;
use crate::file::DEFAULT_FILE;
use crate::options::parse_duration;
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::transaction_watch::{self, PassReport, Supervisor, Timeouts, set_role_timeouts};

/// Watch long transactions on the primary and its followers: warn about them, and cancel or
/// terminate them if [txwatch] in posthaste.toml allows it
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// File with the rules in its table [txwatch]; without the table, txwatch only warns
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    config: PathBuf,

    /// Read all servers once, act if the rules allow it, and exit; exit code 3 if there is a
    /// finding
    #[arg(long)]
    once: bool,

    /// Print what would be done without doing it, even if the file sets act = true
    #[arg(long)]
    dry_run: bool,

    /// Print statements that set timeouts for this role, with what each does not cover
    #[arg(long, value_name = "ROLE", conflicts_with = "once")]
    timeouts: Option<String>,

    /// Timeout to set, with --timeouts
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    longest: Duration,

    /// Set the timeouts instead of only printing the statements
    #[arg(long, requires = "timeouts")]
    apply: bool,
}

impl Arguments {
    /// Whether the command runs until it is stopped.
    pub(crate) fn is_long_running(&self) -> bool {
        !self.once && self.timeouts.is_none()
    }
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    if let Some(role) = &arguments.timeouts {
        return print_or_set_timeouts(arguments, role, database, terminal).await;
    }
    let mut policy = transaction_watch::read(&arguments.config)?;
    policy.act &= !arguments.dry_run;
    let mut supervisor = Supervisor::new(database.address(), policy)?;
    supervisor.check_servers().await?;
    if arguments.once {
        let pass = supervisor.run_pass(terminal).await;
        return print_pass(&pass, terminal);
    }
    let mode = match supervisor.is_dry_run() {
        true => "dry run: nothing is cancelled or terminated",
        false => "acting by the rules of [txwatch]",
    };
    terminal.report_event(
        "watching",
        &format!("watching transactions; {mode}; Ctrl-C stops"),
        &serde_json::json!({ "dry_run": supervisor.is_dry_run() }),
    )?;
    let mut passes = tokio::time::interval(supervisor.interval());
    passes.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = signals.stop_token().cancelled() => return Ok(()),
            error = database.wait_until_gone() => return Err(error),
            _ = passes.tick() => {}
        }
        let pass = tokio::select! {
            () = signals.stop_token().cancelled() => return Ok(()),
            pass = supervisor.run_pass(terminal) => pass,
        };
        for action in &pass.actions {
            terminal.print_event_line("action", action)?;
        }
    }
}

/// Prints the findings of one pass.
fn print_pass(pass: &PassReport, terminal: &Terminal) -> anyhow::Result<()> {
    let mut lines: Vec<String> = pass.findings.iter().map(|one| one.text.clone()).collect();
    if !pass.findings.is_empty() {
        lines.extend(pass.dead_rows.iter().cloned());
    }
    lines.extend(pass.actions.iter().map(|one| one.text.clone()));
    lines.extend(pass.problems.iter().cloned());
    if lines.is_empty() {
        lines.push("No transaction has been open for too long.".to_owned());
    }
    terminal.print_result(lines.join("\n"), pass)?;
    let line = match (pass.findings.len(), pass.problems.len()) {
        (0, 0) => return Ok(()),
        (0, _) => "a server could not be read, or an action failed.".to_owned(),
        (1, _) => "1 transaction has been open for too long.".to_owned(),
        (many, _) => format!("{many} transactions have been open for too long."),
    };
    Err(CommandExit { code: 3, line }.into())
}

async fn print_or_set_timeouts(
    arguments: &Arguments,
    role: &str,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    if arguments.longest.is_zero() {
        bail!("--longest: must be more than 0.");
    }
    let client = database.address().connect().await?;
    let version = "SELECT pg_catalog.current_setting('server_version_num')::integer";
    let version = client.query_typed_one(version, &[]).await?.try_get(0)?;
    let timeouts = Timeouts::new(role, arguments.longest, version);
    if arguments.apply {
        set_role_timeouts(&client, &timeouts).await?;
    }
    terminal.print_result(&timeouts, &timeouts)
}
