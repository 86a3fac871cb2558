//! Decides which steps are due for transactions. No IO, and no clock except the time that is passed
//! in.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use posthaste::{Holder, HolderKind};
use serde::Serialize;

use super::rule::{Policy, Rule};

/// A step against one transaction, the mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Write a line to the log.
    Warn,
    /// Cancel the running statement.
    Cancel,
    /// Terminate the session.
    Terminate,
}

impl Step {
    /// Returns the step as it is recorded.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::Cancel => "cancel",
            Self::Terminate => "terminate",
        }
    }
}

/// A transaction, slot or replica on one server, and its cost.
#[derive(Clone, Debug)]
pub struct ObservedHolder {
    /// `primary`, or the name of a follower.
    pub server: String,
    /// The transaction, slot or replica; its query without literals.
    pub holder: Holder,
    /// The number of queue tables that it has locked and that cannot be truncated until it ends.
    pub queue_tables: i64,
    /// Whether it has enqueued jobs, so that its segment cannot be sealed.
    pub has_enqueued: bool,
    /// Whether no other on this server holds back more rows.
    pub is_oldest: bool,
    /// For a follower: whether it reports its readers to the primary, which retains rows for them.
    pub has_feedback: Option<bool>,
}

/// The identity of a transaction over time. A process id may be used again, with another start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HolderKey {
    /// The server.
    pub server: String,
    /// The process id, for a session.
    pub pid: Option<i32>,
    /// The name, for a prepared transaction or a slot.
    pub name: Option<String>,
    /// When the transaction began.
    pub start: Option<SystemTime>,
}

/// A step that is due.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'a> {
    /// The transaction.
    pub seen: &'a ObservedHolder,
    /// The step.
    pub step: Step,
    /// The rule that decided, 1 for the first.
    pub rule: usize,
    /// The age of the transaction.
    pub age: Duration,
}

/// Earlier observations and steps. Times are those of a monotonic clock.
#[derive(Debug, Default)]
pub struct StepHistory {
    first_seen: HashMap<HolderKey, FirstSighting>,
    steps: HashMap<HolderKey, Step>,
    terminations: Vec<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct FirstSighting {
    at: Duration,
    age: Duration,
}

/// The decisions, and how many terminations are postponed.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The steps that are due.
    pub decisions: Vec<Decision<'a>>,
    /// Terminations that the limit of one minute postpones.
    pub postponed: usize,
}

impl ObservedHolder {
    /// Returns its identity.
    pub fn key(&self) -> HolderKey {
        HolderKey {
            server: self.server.clone(),
            pid: self.holder.pid.filter(|_| self.is_session()),
            name: self.holder.name.clone(),
            start: self.holder.transaction_start,
        }
    }

    /// Returns whether it is a session, which can be cancelled and terminated.
    pub fn is_session(&self) -> bool {
        self.holder.kind == HolderKind::Session
    }

    /// Returns whether it holds back vacuum, or space of a queue.
    pub fn is_harmful(&self) -> bool {
        self.holder.transactions.is_some() || self.queue_tables > 0 || self.has_enqueued
    }

    fn may_be_acted_on(&self, rule: &Rule) -> bool {
        let holder = &self.holder;
        self.is_session()
            && holder.transaction_start.is_some()
            && (self.is_harmful() || rule.acts_on_harmless())
            && (!holder.is_superuser || rule.names_role(holder.role.as_deref()))
    }
}

impl StepHistory {
    /// Records a step of this or an earlier process.
    pub fn record_step(&mut self, key: HolderKey, step: Step) {
        let known = self.steps.entry(key).or_insert(step);
        *known = step.max(*known);
    }

    /// Returns whether a step was taken.
    pub fn has_step(&self, key: &HolderKey) -> bool {
        self.steps.contains_key(key)
    }

    /// Records that a session was terminated at this time.
    pub fn record_termination(&mut self, now: Duration) {
        self.terminations.push(now);
    }

    /// Returns the age by the server's clock, limited to the time that passed on this machine since
    /// it was first seen. A clock that jumps ahead makes no transaction older.
    fn age(&self, one: &ObservedHolder, now: Duration) -> Option<Duration> {
        let age = Duration::try_from_secs_f64(one.holder.seconds?).ok()?;
        let Some(first) = self.first_seen.get(&one.key()) else {
            return Some(age);
        };
        Some(age.min(first.age + now.saturating_sub(first.at)))
    }

    /// Records new transactions, and removes those that have ended on the servers that answered.
    pub fn observe(&mut self, all: &[ObservedHolder], answered: &[String], now: Duration) {
        for one in all {
            let age = one.holder.seconds.unwrap_or_default();
            let age = Duration::try_from_secs_f64(age).unwrap_or_default();
            let sighting = FirstSighting { at: now, age };
            self.first_seen.entry(one.key()).or_insert(sighting);
        }
        let there: HashSet<HolderKey> = all.iter().map(ObservedHolder::key).collect();
        let stays = |key: &HolderKey| there.contains(key) || !answered.contains(&key.server);
        self.first_seen.retain(|key, _| stays(key));
        self.steps.retain(|key, _| stays(key));
        let minute = Duration::from_secs(60);
        self.terminations
            .retain(|at| now.saturating_sub(*at) < minute);
    }
}

/// Returns the step that is due for each transaction. Each gets at most one step, and a later one
/// only after a milder one.
pub fn plan_steps<'a>(
    all: &'a [ObservedHolder],
    policy: &Policy,
    past: &StepHistory,
    now: Duration,
) -> Plan<'a> {
    let mut room = policy
        .terminations_per_minute
        .saturating_sub(past.terminations.len());
    let mut plan = Plan {
        decisions: Vec::new(),
        postponed: 0,
    };
    for one in all {
        let Some((number, rule)) = policy.rule_for(&one.holder) else {
            continue;
        };
        let Some(age) = past.age(one, now).or_else(|| age_of_abandoned_slot(one)) else {
            continue;
        };
        let Some(step) = due_step(one, rule, age, past.steps.get(&one.key()).copied()) else {
            continue;
        };
        if step == Step::Terminate {
            if room == 0 {
                plan.postponed += 1;
                continue;
            }
            room -= 1;
        }
        plan.decisions.push(Decision {
            seen: one,
            step,
            rule: number,
            age,
        });
    }
    plan
}

/// Returns the largest age for a slot that holds rows and has no reader. PostgreSQL does not record
/// since when a slot or a replica holds rows, so holding them is enough for a warning.
fn age_of_abandoned_slot(one: &ObservedHolder) -> Option<Duration> {
    let holder = &one.holder;
    let is_abandoned = holder.kind == HolderKind::Slot && !holder.is_read;
    (is_abandoned && holder.transactions.is_some()).then_some(Duration::MAX)
}

fn due_step(one: &ObservedHolder, rule: &Rule, age: Duration, taken: Option<Step>) -> Option<Step> {
    let may_act = one.may_be_acted_on(rule);
    // Between two statements there is nothing to cancel.
    let is_active = one.holder.state.as_deref() == Some("active");
    let steps = [
        (Step::Warn, rule.warn, true),
        (Step::Cancel, rule.cancel, may_act && is_active),
        (Step::Terminate, rule.terminate, may_act),
    ];
    steps.into_iter().find_map(|(step, after, is_possible)| {
        let is_due = is_possible && after.is_some_and(|after| age >= after);
        (is_due && taken.is_none_or(|taken| step > taken)).then_some(step)
    })
}

#[cfg(test)]
mod tests;
