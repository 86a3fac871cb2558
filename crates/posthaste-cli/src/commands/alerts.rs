//! `posthaste alerts`: looks at queues again and again, and says when one fails.

mod told;

use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use deadpool_postgres::Client;
use serde_json::{Value, json};

use crate::database::Database;
use crate::failure::Ended;
use crate::kept::{self, Kept, WITHIN};
use crate::observe::alerts::{Asked, Finding, History, Limits, Reading, Scope};
use crate::observe::untold::{Event, Untold};
use crate::signals::Signals;
use crate::terminal::{Terminal, tame};

/// Say when a queue fails: too few jobs are completed, too many wait, or one has expired
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Look at this queue only. May be given many times
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,

    /// Leave out jobs with this tag; a * at its end stands for any text. May be given many times
    #[arg(long = "exempt-tag", value_name = "TAG")]
    exempt: Vec<String>,

    #[command(flatten)]
    asked: Asked,

    /// Enqueue a job `posthaste.alert` in this queue for each alert that begins or ends: a route
    /// takes it to mail or a webhook. Needs the role posthaste_worker
    #[arg(long, value_name = "QUEUE")]
    notify: Option<String>,

    /// Look for as long as --lasting says, then end: exit code 3 if anything is wrong then
    #[arg(long)]
    once: bool,
}

/// This many looks while something lasts, at most one a second.
const LOOKS: u32 = 20;

/// The one that looks.
struct Watch<'a> {
    arguments: &'a Arguments,
    kept: Kept,
    terminal: &'a Terminal,
    scope: Scope,
    limits: Limits,
    history: History,
    untold: Untold,
    /// It is known what was told by a process before this one.
    is_resumed: bool,
    /// Names the jobs of this process, so that one whose enqueue had no answer is there once.
    id: uuid::Uuid,
    begun: Instant,
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let limits = arguments.asked.limits();
    let lasting = limits.lasting;
    let mut watch = Watch {
        arguments,
        kept: Kept::at(database.address()),
        terminal,
        scope: Scope {
            queues: arguments.queues.clone(),
            exempt: arguments.exempt.clone(),
        },
        limits,
        history: History::default(),
        untold: Untold::default(),
        is_resumed: false,
        id: uuid::Uuid::new_v4(),
        begun: Instant::now(),
    };
    let Some(first) = watch.look_until(signals).await else {
        return watch.stopped();
    };
    first?;
    terminal.event("looking", "looking; Ctrl-C stops", &json!({}))?;
    let mut looks = tokio::time::interval((lasting / LOOKS).max(Duration::from_secs(1)));
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    looks.tick().await;
    loop {
        tokio::select! {
            () = signals.stop().cancelled() => return watch.stopped(),
            error = database.gone() => return Err(error),
            _ = looks.tick() => {}
        }
        let Some(looked) = watch.look_until(signals).await else {
            return watch.stopped();
        };
        match looked {
            Ok(()) => {}
            Err(error) if arguments.once => return Err(error),
            // It comes back: what was read and what is to be told is kept.
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(error, "the alerts could not be looked at");
            }
        }
        if arguments.once && watch.history.has_lasted(lasting) {
            if terminal.is_json() {
                let firing: Vec<&Finding> = watch.untold.firing().collect();
                terminal.document(&firing)?;
            }
            return match watch.untold.firing().len() {
                0 => Ok(()),
                1 => Err(ended("1 alert".into())),
                many => Err(ended(format!("{many} alerts"))),
            };
        }
    }
}

/// As `posthaste doctor` ends where something is wrong.
fn ended(line: String) -> anyhow::Error {
    Ended { code: 3, line }.into()
}

impl Arguments {
    /// Whether it looks until somebody stops it.
    pub(crate) fn goes_on(&self) -> bool {
        !self.once
    }
}

impl Watch<'_> {
    /// None: it was asked to stop meanwhile.
    async fn look_until(&mut self, signals: &Signals) -> Option<anyhow::Result<()>> {
        tokio::select! {
            looked = tokio::time::timeout(WITHIN, self.look()) => {
                Some(looked.unwrap_or_else(|_| Err(anyhow!("the database does not answer"))))
            }
            () = signals.stop().cancelled() => None,
        }
    }

    async fn look(&mut self) -> anyhow::Result<()> {
        let client = self.kept.take().await;
        let client = client.context("the database could not be read")?;
        self.look_by(&client).await?;
        self.kept.keep(client);
        Ok(())
    }

    async fn look_by(&mut self, client: &Client) -> anyhow::Result<()> {
        if let Some(notify) = &self.arguments.notify
            && !self.is_resumed
        {
            let told = told::told(client, notify).await;
            let told = told.context("what was told before could not be read")?;
            let ours = told
                .into_iter()
                .filter(|one| self.scope.is_about(&one.queue) && self.limits.judge(one));
            self.untold.resume(ours);
            self.is_resumed = true;
        }
        let mut jobs = posthaste::Client::new(posthaste::Unnamed(client));
        let counters = kept::bounded(client, async { Ok(jobs.counters().await?) }).await;
        let counters = counters.context("the database could not be read")?;
        let reading = Reading {
            at: self.begun.elapsed().as_secs_f64(),
            queues: self.scope.watched(&counters),
        };
        self.history.add(reading, self.limits.lasting);
        let has_lasted = self.history.has_lasted(self.limits.lasting);
        let found = self.history.findings(&self.limits);
        let left_out = self.untold.found(found, has_lasted);
        if left_out > 0 {
            tracing::warn!(
                jobs = left_out,
                "alerts were never enqueued: too many were owed"
            );
        }
        while let Some(event) = self.untold.to_print() {
            let what = event.what.name();
            let printed = match self.terminal.is_json() {
                // With --once, what fires at the end is one document.
                true => self.terminal.line(what, &said(event)?),
                false => {
                    let line = format!("{what}: {}", event.finding);
                    self.terminal.print(&tame(&line))
                }
            };
            // A full disk holds up no job.
            if let Err(error) = printed {
                let (error, alert) = (format!("{error:#}"), event.finding.to_string());
                tracing::warn!(error, alert, "an alert could not be printed");
            }
            self.untold.is_printed();
        }
        while let Some(event) = self.untold.to_enqueue() {
            if let Some(notify) = &self.arguments.notify {
                let key = format!("posthaste.alert:{}:{}", self.id, event.number);
                told::tell(client, notify, event, &key)
                    .await
                    .context("an alert could not be enqueued, and is at the next look")?;
            }
            self.untold.is_enqueued();
        }
        Ok(())
    }

    /// What nobody will be told of is said before it ends.
    fn stopped(&self) -> anyhow::Result<()> {
        match self.untold.owed() {
            0 => {}
            jobs => tracing::warn!(jobs, "stops, and could not enqueue the last alerts"),
        }
        ensure!(!self.arguments.once, "stopped.");
        Ok(())
    }
}

/// What programs are told of it.
fn said(event: &Event) -> anyhow::Result<Value> {
    let mut said = serde_json::to_value(&event.finding)?;
    let Some(fields) = said.as_object_mut() else {
        bail!("a finding is no object");
    };
    fields.insert("text".into(), json!(event.finding.to_string()));
    Ok(said)
}
