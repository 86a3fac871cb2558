//! The supervisor of long transactions: polls the primary and its followers, decides by rules, and
//! acts if it is configured to.

mod act;
mod server;
mod settings;
mod timeouts;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use deadpool_postgres::Client;
use posthaste_observe::transactions::{
    self, Action, Decision, LongTransaction, ObservedHolder, Outcome, Policy, Step, StepHistory,
    plan_steps,
};
use serde::Serialize;

use crate::connect::Address;
use crate::file::TXWATCH_SECTION;
use crate::terminal::Terminal;
use server::Server;
pub(crate) use settings::read;
pub(crate) use timeouts::{Timeouts, set_role_timeouts};

/// Polls all servers, and remembers readings and actions.
pub(crate) struct Supervisor {
    policy: Policy,
    servers: Vec<Server>,
    past: StepHistory,
    begun: Instant,
    /// The session that holds the advisory lock while this process may act: one process acts at a
    /// time.
    recorder: Option<Client>,
    is_past_read: bool,
}

/// The result of one pass over all servers.
#[derive(Debug, Default, Serialize)]
pub(crate) struct PassReport {
    /// Transactions that have reached an age of their rule, whether or not this pass acted on them.
    pub(crate) findings: Vec<LongTransaction>,
    pub(crate) actions: Vec<Action>,
    /// Tables with dead rows that cannot be removed: `primary: 1204 dead rows in public.account`.
    pub(crate) dead_rows: Vec<String>,
    /// Failures of this pass to read or act, one sentence each.
    pub(crate) problems: Vec<String>,
}

impl Supervisor {
    pub(crate) fn new(primary: &Address, policy: Policy) -> anyhow::Result<Self> {
        let mut servers = vec![Server::new("primary".to_owned(), primary.clone())];
        for (at, url) in policy.followers.iter().enumerate() {
            let number = at + 1;
            let address = Address::parse(url);
            let address =
                address.with_context(|| format!("{TXWATCH_SECTION}: follower {number}"))?;
            let name = format!("follower {number} ({})", address.host_and_port());
            servers.push(Server::new(name, address));
        }
        Ok(Self {
            policy,
            servers,
            past: StepHistory::default(),
            begun: Instant::now(),
            recorder: None,
            is_past_read: false,
        })
    }

    /// Checks the servers and the rights before the first pass, so that a misconfiguration ends the
    /// command.
    pub(crate) async fn check_servers(&mut self) -> anyhow::Result<()> {
        let primary = self.servers.first().context("there is no primary")?;
        let client = primary.address().connect().await?;
        act::check_rights(&client, self.policy.act).await
    }

    /// Reads every server once and takes the steps that are due.
    pub(crate) async fn run_pass(&mut self, terminal: &Terminal) -> PassReport {
        let mut pass = PassReport::default();
        let (mut all, mut answered) = (Vec::new(), Vec::new());
        let watched = self.servers.len() - 1;
        for server in &mut self.servers {
            match server.read().await {
                Ok(reading) => {
                    answered.push(server.name().to_owned());
                    pass.problems
                        .extend(server.problems(&reading, watched, terminal));
                    let name = server.name();
                    let dead_rows = reading.dead_rows.iter();
                    pass.dead_rows
                        .extend(dead_rows.map(|rows| format!("{name}: {rows}")));
                    all.extend(reading.transactions);
                }
                Err(error) => pass.problems.push(server.record_failure(&error)),
            }
        }
        let now = self.begun.elapsed();
        self.past.observe(&all, &answered, now);
        if let Err(error) = self.prepare_to_act().await {
            pass.problems.push(format!(
                "txwatch cannot act: {}",
                crate::failure::error_line(&error)
            ));
        }
        self.take_steps(&all, now, &mut pass).await;
        pass.findings = self.long_transactions(&all);
        pass
    }

    /// Acquires the lock and reads the steps of earlier processes. A dry run writes nothing and
    /// needs no lock.
    async fn prepare_to_act(&mut self) -> anyhow::Result<()> {
        if !self.policy.act {
            return Ok(());
        }
        if let Some(client) = &self.recorder
            && !client.is_closed()
        {
            return Ok(());
        }
        self.recorder = None;
        let primary = self.servers.first().context("there is no primary")?;
        let client = primary.address().connect().await?;
        act::acquire_lock(&client).await?;
        if !self.is_past_read {
            for (key, step) in act::read_past_steps(&client).await? {
                self.past.record_step(key, step);
            }
            self.is_past_read = true;
        }
        self.recorder = Some(client);
        Ok(())
    }

    async fn take_steps(&mut self, all: &[ObservedHolder], now: Duration, pass: &mut PassReport) {
        let plan = plan_steps(all, &self.policy, &self.past, now);
        if plan.postponed > 0 {
            tracing::warn!(
                transactions = plan.postponed,
                "too many transactions to terminate within a minute; the rest wait"
            );
            let postponed = plan.postponed;
            pass.problems
                .push(format!("{postponed} terminations wait for the next minute"));
        }
        for decision in plan.decisions {
            let outcome = self.execute_step(&decision).await;
            act::log_step(&decision, &outcome);
            // A step that was not recorded is retried in the next pass.
            if !matches!(outcome, Outcome::Failed(_)) {
                self.past.record_step(decision.seen.key(), decision.step);
            }
            if decision.step == Step::Terminate && outcome == Outcome::Done {
                self.past.record_termination(now);
            }
            pass.actions
                .push(transactions::describe_action(&decision, &outcome));
        }
    }

    async fn execute_step(&self, decision: &Decision<'_>) -> Outcome {
        if !self.policy.act {
            return Outcome::DryRun;
        }
        let server = self
            .servers
            .iter()
            .find(|one| one.name() == decision.seen.server);
        match (&self.recorder, server.and_then(Server::client)) {
            (Some(recorder), Some(client)) => act::execute_step(recorder, client, decision).await,
            _ => Outcome::Failed("another process acts, or a connection was lost".to_owned()),
        }
    }

    /// Returns all transactions that have reached the first age of their rule.
    fn long_transactions(&self, all: &[ObservedHolder]) -> Vec<LongTransaction> {
        let is_reported = |one: &&ObservedHolder| self.past.has_step(&one.key());
        all.iter()
            .filter(is_reported)
            .map(transactions::describe_transaction)
            .collect()
    }

    pub(crate) fn interval(&self) -> Duration {
        self.policy.every
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        !self.policy.act
    }

    /// Runs in the background of `posthaste up` until the process ends.
    pub(crate) async fn run_in_background(mut self, terminal: Terminal) {
        let mut passes = tokio::time::interval(self.interval());
        passes.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            passes.tick().await;
            self.run_pass(&terminal).await;
        }
    }
}

/// Makes a supervisor by `[txwatch]` for `posthaste up`, `None` if the file lacks that section.
pub(crate) fn supervisor_in_file(
    path: &Path,
    primary: &Address,
    terminal: &Terminal,
) -> anyhow::Result<Option<Supervisor>> {
    let Some(policy) = settings::read_section(path)? else {
        return Ok(None);
    };
    let supervisor = Supervisor::new(primary, policy)?;
    let mode = match supervisor.is_dry_run() {
        true => "dry run",
        false => "acting",
    };
    terminal.report_event(
        "watching_transactions",
        &format!("watching long transactions ({mode})"),
        &serde_json::json!({ "dry_run": supervisor.is_dry_run() }),
    )?;
    Ok(Some(supervisor))
}
