//! The view of `posthaste top` on a database. Converts snapshots to lines, without IO or a clock.

use std::collections::BTreeMap;

use posthaste_observe::format::age;
use posthaste_observe::{Snapshot, Thresholds, findings};
use ratatui::style::Stylize as _;
use ratatui::text::Line;
use serde::Serialize;

use super::labels::holder_kind;
use crate::terminal::escape_name;
use crate::thresholds::urgent_lines;

/// Totals of completed jobs by queue. `at` is a time in seconds from an arbitrary start.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompletedTotals {
    pub(crate) at: f64,
    pub(crate) queues: BTreeMap<String, i64>,
}

impl CompletedTotals {
    pub(crate) fn new(snapshot: &Snapshot, at: f64) -> Self {
        let mut queues = BTreeMap::new();
        for of in &snapshot.counters.jobs {
            *queues.entry(of.queue.clone()).or_default() += of.completed_total;
        }
        Self { at, queues }
    }

    /// Returns completed jobs per second since `then`, `None` if the queue is new or no time has
    /// passed.
    fn rate_since(&self, then: &Self, queue: &str) -> Option<f64> {
        let seconds = self.at - then.at;
        let (before, now) = (then.queues.get(queue)?, self.queues.get(queue)?);
        // The totals of a restored store start again.
        let jobs = if now >= before { now - before } else { *now };
        (seconds > 0.0).then(|| jobs as f64 / seconds)
    }
}

/// A row of one queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct QueueRow {
    pub(crate) queue: String,
    /// How long the next job has been waiting.
    pub(crate) late_seconds: Option<f64>,
    /// Whether the waiting jobs have a worker.
    pub(crate) is_worked: bool,
    pub(crate) is_paused: bool,
    pub(crate) completed_a_second: Option<f64>,
    pub(crate) available: i64,
    pub(crate) running: i64,
    pub(crate) scheduled: i64,
    pub(crate) retrying: i64,
    pub(crate) dead: i64,
    pub(crate) expired: i64,
}

/// A relay or a synced table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TransportRow {
    pub(crate) what: String,
    pub(crate) state: String,
    pub(crate) lag_seconds: Option<f64>,
}

/// A holder of rows that VACUUM cannot remove. The oldest one is first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct HolderRow {
    pub(crate) holder: String,
    pub(crate) transactions: i64,
    pub(crate) seconds: Option<f64>,
}

/// The maximum number of findings above the queues.
const MAX_FINDINGS: usize = 5;
/// The width of a queue's name in columns.
const NAME_COLUMNS: usize = 24;

/// The content of the screen.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Frame {
    pub(crate) completed_a_second: Option<f64>,
    pub(crate) findings: Vec<posthaste_observe::Finding>,
    pub(crate) queues: Vec<QueueRow>,
    pub(crate) carried: Vec<TransportRow>,
    pub(crate) horizon: Vec<HolderRow>,
    pub(crate) segments_sealed: i64,
}

impl Frame {
    /// Makes the frame of a snapshot, with rates since `then`.
    pub(crate) fn new(
        snapshot: &Snapshot,
        now: &CompletedTotals,
        then: Option<&CompletedTotals>,
        thresholds: &Thresholds,
    ) -> Self {
        let unworked = snapshot.queues_without_worker(thresholds);
        let empty = |queue: &str| QueueRow {
            queue: queue.to_owned(),
            late_seconds: None,
            is_worked: true,
            is_paused: false,
            completed_a_second: then.and_then(|then| now.rate_since(then, queue)),
            available: 0,
            running: 0,
            scheduled: 0,
            retrying: 0,
            dead: 0,
            expired: 0,
        };
        let mut queues = BTreeMap::<&str, QueueRow>::new();
        for queue in &snapshot.counters.paused {
            let line = queues.entry(queue).or_insert_with(|| empty(queue));
            line.is_paused = true;
        }
        for of in &snapshot.counters.jobs {
            let line = queues.entry(&of.queue).or_insert_with(|| empty(&of.queue));
            line.available += of.available + of.blocked + of.quarantined;
            line.running += of.running + of.awaiting;
            line.scheduled += of.scheduled;
            line.retrying += of.retrying;
            line.dead += of.dead + of.discarded;
            line.expired += of.expired;
        }
        for oldest in &snapshot.counters.oldest {
            if let Some(line) = queues.get_mut(&*oldest.queue) {
                let late = line.late_seconds.unwrap_or_default();
                line.late_seconds = Some(late.max(oldest.seconds));
                line.is_worked = !unworked.contains(&*oldest.queue);
            }
        }
        let late = |queue: &str| queues.get(queue).and_then(|line| line.late_seconds);
        let relays = snapshot.relays.iter().map(|relay| TransportRow {
            what: format!("{} to {}", relay.queue, relay.destination),
            state: relay.state.to_string(),
            lag_seconds: late(&relay.queue),
        });
        let syncs = snapshot.syncs.iter().map(|sync| TransportRow {
            what: format!("sync {}", sync.name),
            state: match sync.failing_seconds() {
                Some(_) => "failing".into(),
                None => "up".into(),
            },
            lag_seconds: sync.lag_seconds(),
        });
        let carried = relays.chain(syncs).collect();
        let mut kinds = BTreeMap::<&str, HolderRow>::new();
        for holder in snapshot.holders.iter().filter(|one| !one.is_by_slot) {
            let Some(transactions) = holder.transactions else {
                continue;
            };
            let kind = holder_kind(holder.kind);
            let row = kinds.entry(kind).or_insert_with(|| HolderRow {
                holder: kind.to_owned(),
                transactions,
                seconds: None,
            });
            row.transactions = row.transactions.max(transactions);
            row.seconds = row
                .seconds
                .into_iter()
                .chain(holder.seconds)
                .reduce(f64::max);
        }
        let mut horizon: Vec<HolderRow> = kinds.into_values().collect();
        horizon.sort_by_key(|row| std::cmp::Reverse(row.transactions));
        let mut queues: Vec<QueueRow> = queues.into_values().collect();
        // The latest queue is first; of equally late queues the longer one.
        queues.sort_by(|one, other| {
            let late = |line: &QueueRow| line.late_seconds.unwrap_or(-1.0);
            let by_late = late(other).total_cmp(&late(one));
            by_late.then(other.available.cmp(&one.available))
        });
        let rates = queues.iter().map(|line| line.completed_a_second);
        Self {
            completed_a_second: rates.flatten().reduce(|one, other| one + other),
            findings: findings(snapshot, thresholds),
            queues,
            carried,
            horizon,
            segments_sealed: snapshot.segments.sealed,
        }
    }

    /// Returns the lines of the screen. If there are more than `rows`, the least late queues are
    /// left out and counted. The chosen queue is always shown.
    pub(crate) fn lines(
        &self,
        title: &str,
        rows: usize,
        chosen: Option<&str>,
    ) -> Vec<Line<'static>> {
        let sum = |of: fn(&QueueRow) -> i64| self.queues.iter().map(of).sum::<i64>();
        let sums = format!(
            "{} available, {} running, {} scheduled, {} retrying; {} completed a second",
            sum(|line| line.available),
            sum(|line| line.running),
            sum(|line| line.scheduled),
            sum(|line| line.retrying),
            rate_text(self.completed_a_second)
        );
        let mut lines = vec![Line::from(escape_name(title)), Line::from(sums)];
        let urgent = urgent_lines(&self.findings);
        let shown = urgent.iter().take(MAX_FINDINGS.min(rows / 6));
        lines.extend(shown.map(|line| finding_line(line)));
        let mut below: Vec<String> = Vec::new();
        for one in &self.carried {
            let lag = one.lag_seconds.map_or("-".to_owned(), age);
            below.push(escape_name(&format!(
                "{}: {}, lag {lag}",
                one.what, one.state
            )));
        }
        if self.segments_sealed > 0 {
            below.push(format!(
                "full segments waiting to be truncated: {}",
                self.segments_sealed
            ));
        }
        // Holders that began just now are normal.
        let pins = self.horizon.iter().filter(|row| !row.is_new());
        let pins: Vec<String> = pins.map(HolderRow::text).collect();
        if !pins.is_empty() {
            below.push(format!("VACUUM waits for: {}", pins.join("; ")));
        }
        lines.push(Line::default());
        lines.push(Line::from(header_text()).reversed());
        // At least two rows remain, for the latest queue and the count of the others.
        let taken = lines.len() + below.len() + usize::from(!below.is_empty());
        let room = rows.saturating_sub(taken).max(2);
        let shown = match self.queues.len() {
            many if many > room => room - 1,
            all => all,
        };
        let is_chosen = |line: &QueueRow| Some(&*line.queue) == chosen;
        let at = self.queues.iter().position(is_chosen).unwrap_or(0);
        let seen = self.queues.iter().skip((at + 1).saturating_sub(shown));
        lines.extend(seen.take(shown).map(|line| line.line(is_chosen(line))));
        if shown < self.queues.len() {
            lines.push(format!("and {} queues more", self.queues.len() - shown).into());
        }
        if !below.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(below.into_iter().map(Line::from));
        lines.truncate(rows);
        lines
    }
}

fn finding_line(text: &str) -> Line<'static> {
    let line = Line::from(escape_name(text));
    match text.starts_with("ERROR ") {
        true => line.bold().red(),
        false => line,
    }
}

fn header_text() -> String {
    format!(
        "{:NAME_COLUMNS$}  {:>8}  {:>9}  {:>10}  {:>8}  {:>9}  {:>8}  {:>7}  {:>7}",
        "queue",
        "late",
        "completed",
        "available",
        "running",
        "scheduled",
        "retrying",
        "dead",
        "expired"
    )
}

impl QueueRow {
    fn line(&self, is_chosen: bool) -> Line<'static> {
        let late = self.late_seconds.map_or("-".to_owned(), age);
        let rate = self.completed_a_second;
        let rate = rate.map_or("-".to_owned(), |rate| format!("{rate:.1}/s"));
        let mark = match (self.is_paused, self.is_worked) {
            (true, true) => "  paused",
            (true, false) => "  paused, no worker",
            (false, true) => "",
            (false, false) => "  no worker",
        };
        let chosen = if is_chosen { "> " } else { "" };
        let mut line = Line::from(format!("{chosen}{}", escape_name(&self.queue)));
        // A character may be two columns wide.
        let blank = NAME_COLUMNS.saturating_sub(line.width());
        line.push_span(format!(
            "{:blank$}  {late:>8}  {rate:>9}  {:>10}  {:>8}  {:>9}  {:>8}  {:>7}  {:>7}{mark}",
            "",
            self.available,
            self.running,
            self.scheduled,
            self.retrying,
            self.dead,
            self.expired
        ));
        match is_chosen {
            true => line.bold(),
            false => line,
        }
    }
}

impl HolderRow {
    fn is_new(&self) -> bool {
        self.seconds.is_some_and(|seconds| seconds < 1.0)
    }

    fn text(&self) -> String {
        let (holder, transactions) = (escape_name(&self.holder), self.transactions);
        let since = self
            .seconds
            .map(|seconds| format!("open for {}, ", age(seconds)));
        let since = since.unwrap_or_default();
        format!("{holder} ({since}{transactions} transactions old)")
    }
}

fn rate_text(jobs: Option<f64>) -> String {
    jobs.map_or("-".to_owned(), |jobs| format!("{jobs:.1}"))
}

#[cfg(test)]
mod tests;
