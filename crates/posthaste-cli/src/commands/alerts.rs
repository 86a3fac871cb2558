//! `posthaste alerts`: polls the store and reports which findings begin and end.

mod notified;

use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use deadpool_postgres::Client;
use posthaste_observe::format::{age, pluralize};
use posthaste_observe::{Alerts, Finding, History, Snapshot, Thresholds, findings};
use serde_json::{Value, json};

use crate::cached_connection::{self, CachedConnection, READ_TIMEOUT};
use crate::database::Database;
use crate::failure::CommandExit;
use crate::observe::alerts::{AlertScope, alert_line};
use crate::observe::pending_alerts::{AlertEvent, Change, PendingAlertEvents};
use crate::signals::Signals;
use crate::terminal::{Terminal, escape_control};
use crate::thresholds;

/// Report when an error or warning of 'posthaste doctor' begins and when it ends
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    scope: AlertScope,

    /// Enqueue a job posthaste.alert in this queue for each alert that begins or ends; a route can
    /// send it by mail or to a webhook. Requires the role posthaste_worker
    #[arg(long, value_name = "QUEUE")]
    notify: Option<String>,

    /// Watch for the time of --lasting, then exit; exit code 3 if an alert is firing
    #[arg(long)]
    once: bool,
}

/// The store is read this many times during `--lasting`, at most once per second.
const READS_PER_LASTING: u32 = 20;

struct AlertWatch<'a> {
    arguments: &'a Arguments,
    connection: CachedConnection,
    terminal: &'a Terminal,
    thresholds: Thresholds,
    history: History,
    alerts: Alerts,
    pending: PendingAlertEvents,
    /// Whether the notifications of other processes were read.
    is_resumed: bool,
    begun: Instant,
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let scope = &arguments.scope;
    let lasting = scope.lasting;
    let mut watch = AlertWatch {
        arguments,
        connection: CachedConnection::new(database.address()),
        terminal,
        thresholds: scope.thresholds(thresholds::read()?),
        history: History::default(),
        alerts: Alerts::new(lasting),
        pending: PendingAlertEvents::default(),
        is_resumed: false,
        begun: Instant::now(),
    };
    let Some(first) = watch.poll_until(signals).await else {
        return watch.log_undelivered();
    };
    first?;
    let text = match arguments.once {
        true => format!("watching for {}", age(lasting.as_secs_f64())),
        false => "watching; Ctrl-C stops".to_owned(),
    };
    terminal.report_event("watching", &text, &json!({}))?;
    let mut ticks =
        tokio::time::interval((lasting / READS_PER_LASTING).max(Duration::from_secs(1)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        tokio::select! {
            () = signals.stop_token().cancelled() => return watch.log_undelivered(),
            error = database.wait_until_gone() => return Err(error),
            _ = ticks.tick() => {}
        }
        let Some(polled) = watch.poll_until(signals).await else {
            return watch.log_undelivered();
        };
        match polled {
            Ok(()) => {}
            Err(error) if arguments.once => return Err(error),
            // Readings and pending notifications are retained until the database is available
            // again.
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(error, "alerts could not be evaluated");
            }
        }
        if arguments.once && watch.history.covers(lasting) {
            if terminal.is_json() {
                let firing: Vec<&Finding> = watch.pending.firing().collect();
                terminal.print_json(&firing)?;
            }
            return match watch.pending.firing().len() {
                0 => Ok(()),
                firing => Err(firing_exit(pluralize(firing, "alert.", "alerts."))),
            };
        }
    }
}

/// Returns an error with the exit code 3, as `posthaste doctor` does.
fn firing_exit(line: String) -> anyhow::Error {
    CommandExit { code: 3, line }.into()
}

impl Arguments {
    /// Whether it runs until it is stopped.
    pub(crate) fn is_long_running(&self) -> bool {
        !self.once
    }
}

impl AlertWatch<'_> {
    /// Polls once; `None` if the command was stopped.
    async fn poll_until(&mut self, signals: &Signals) -> Option<anyhow::Result<()>> {
        tokio::select! {
            polled = tokio::time::timeout(READ_TIMEOUT, self.poll()) => {
                Some(polled.unwrap_or_else(|_| Err(anyhow!("the database does not answer"))))
            }
            () = signals.stop_token().cancelled() => None,
        }
    }

    async fn poll(&mut self) -> anyhow::Result<()> {
        let client = self.connection.take_or_connect().await;
        let client = client.context("the database could not be read")?;
        self.poll_with(&client).await?;
        self.connection.put_back(client);
        Ok(())
    }

    async fn poll_with(&mut self, client: &Client) -> anyhow::Result<()> {
        self.resume(client).await?;
        let snapshot = cached_connection::read_bounded(client, async {
            let mut snapshot = Snapshot::read(client).await?;
            snapshot.read_syncs(client).await?;
            Ok(snapshot)
        });
        let snapshot = snapshot.await.context("the database could not be read")?;
        let firing = self.update_alerts(snapshot);
        let left_out = self.pending.replace_firing(firing);
        if left_out > 0 {
            tracing::warn!(
                jobs = left_out,
                "alert notifications were dropped: too many were pending"
            );
        }
        while let Some(event) = self.pending.to_print() {
            let what = event.what.name();
            let printed = match self.terminal.is_json() {
                // With --once, the alerts that fire at the end are printed as one document.
                true => self.terminal.print_event_line(what, &event_json(event)?),
                false => self.terminal.print(&escape_control(&event_text(event))),
            };
            // If printing fails, for example on a full disk, notification jobs are enqueued anyway.
            if let Err(error) = printed {
                let (error, alert) = (format!("{error:#}"), event_text(event));
                tracing::warn!(error, alert, "an alert could not be printed");
            }
            self.pending.mark_printed();
        }
        while let Some(event) = self.pending.to_enqueue() {
            if let Some(notify) = &self.arguments.notify {
                notified::enqueue_notification(client, notify, event)
                    .await
                    .context(
                        "an alert notification could not be enqueued; it is tried again at \
                              the next poll",
                    )?;
            }
            self.pending.mark_enqueued();
        }
        Ok(())
    }

    /// Returns the alerts that fire with this snapshot.
    fn update_alerts(&mut self, mut snapshot: Snapshot) -> Vec<Finding> {
        let (scope, at) = (&self.arguments.scope, self.begun.elapsed().as_secs_f64());
        snapshot.leave_out_tags(&scope.exempt);
        self.history
            .add(at, scope.completed_totals(&snapshot), scope.lasting);
        snapshot.rates = self.history.rates(scope.lasting);
        // The queue of notification jobs is exempt.
        let is_carrier = |one: &Finding| Some(&one.subject) == self.arguments.notify.as_ref();
        let mut found = findings(&snapshot, &self.thresholds);
        found.retain(|one| scope.includes(one.kind, &one.subject) && !is_carrier(one));
        self.alerts.update(at, found)
    }

    /// Reads once which alerts other processes have notified, to notify their ends.
    async fn resume(&mut self, client: &Client) -> anyhow::Result<()> {
        let Some(notify) = self.arguments.notify.as_ref().filter(|_| !self.is_resumed) else {
            return Ok(());
        };
        let open = notified::read_firing(client, notify).await;
        let mut open = open.context("earlier alert notifications could not be read")?;
        let scope = &self.arguments.scope;
        open.retain(|(kind, subject)| scope.can_judge_end(*kind, subject, &self.thresholds));
        self.alerts.resume(open);
        let at = self.begun.elapsed().as_secs_f64();
        self.pending.resume(self.alerts.update(at, Vec::new()));
        self.is_resumed = true;
        Ok(())
    }

    /// Logs notifications that cannot be delivered before the process ends.
    fn log_undelivered(&self) -> anyhow::Result<()> {
        match self.pending.undelivered() {
            0 => {}
            jobs => tracing::warn!(
                jobs,
                "stopping; the last alert notifications could not be \
                                          enqueued"
            ),
        }
        ensure!(!self.arguments.once, "stopped.");
        Ok(())
    }
}

/// Returns the event as JSON.
fn event_json(event: &AlertEvent) -> anyhow::Result<Value> {
    let mut fields = serde_json::to_value(&event.finding)?;
    let Some(object) = fields.as_object_mut() else {
        bail!("a finding is not an object");
    };
    object.insert("text".into(), json!(event_text(event)));
    Ok(fields)
}

/// Returns the event as text.
fn event_text(event: &AlertEvent) -> String {
    let finding = &event.finding;
    match event.what {
        Change::Begins => format!("begins: {}", alert_line(finding)),
        Change::Ends => {
            let subject = match finding.subject.as_str() {
                "" => String::new(),
                subject => format!(" ({subject})"),
            };
            format!("ends: {}{subject}", finding.kind.id())
        }
    }
}
