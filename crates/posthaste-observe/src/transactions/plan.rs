//! Which steps are due for transactions: no IO and no clock but the one passed in.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use posthaste::{Holder, HolderKind};
use serde::Serialize;

use super::rule::{Policy, Rule};

/// A step against one transaction, the mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A line in the log.
    Warn,
    /// The running statement is cancelled.
    Cancel,
    /// The session is terminated.
    Terminate,
}

impl Step {
    /// As it is recorded.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::Cancel => "cancel",
            Self::Terminate => "terminate",
        }
    }
}

/// A transaction, slot or replica on one server, and what it costs.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `primary`, or the name of a follower.
    pub server: String,
    /// The transaction, slot or replica; its query without literals.
    pub holder: Holder,
    /// Tables of queues that it has locked, which cannot be truncated meanwhile.
    pub queue_tables: i64,
    /// It has enqueued jobs, so its segment cannot be sealed.
    pub has_enqueued: bool,
    /// No other on this server keeps more rows.
    pub is_oldest: bool,
    /// Of a follower: it reports its readers to the primary, which keeps rows for them.
    pub has_feedback: Option<bool>,
}

/// One transaction in the course of time: a pid comes again, with another start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The server.
    pub server: String,
    /// Of a session.
    pub pid: Option<i32>,
    /// Of a prepared transaction or a slot.
    pub name: Option<String>,
    /// When the transaction began.
    pub start: Option<SystemTime>,
}

/// A step that is due.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'a> {
    /// The transaction.
    pub seen: &'a Seen,
    /// The step.
    pub step: Step,
    /// The rule that decided, 1 for the first.
    pub rule: usize,
    /// How old the transaction is.
    pub age: Duration,
}

/// Earlier sightings and steps. Times are those of a clock that never steps.
#[derive(Debug, Default)]
pub struct Past {
    first_seen: HashMap<Key, Sighting>,
    steps: HashMap<Key, Step>,
    terminations: Vec<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Sighting {
    at: Duration,
    age: Duration,
}

/// Decisions, and whether terminations wait because there were too many within a minute.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The steps that are due.
    pub decisions: Vec<Decision<'a>>,
    /// Terminations that wait for the next minute.
    pub postponed: usize,
}

impl Seen {
    /// What it is known by.
    pub fn key(&self) -> Key {
        Key {
            server: self.server.clone(),
            pid: self.holder.pid.filter(|_| self.is_session()),
            name: self.holder.name.clone(),
            start: self.holder.transaction_start,
        }
    }

    /// It is a session, which can be cancelled and terminated.
    pub fn is_session(&self) -> bool {
        self.holder.kind == HolderKind::Session
    }

    /// It keeps rows, or space of a queue.
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

impl Past {
    /// A step of this or an earlier process.
    pub fn taken(&mut self, key: Key, step: Step) {
        let known = self.steps.entry(key).or_insert(step);
        *known = step.max(*known);
    }

    /// Whether a step was taken.
    pub fn has_taken(&self, key: &Key) -> bool {
        self.steps.contains_key(key)
    }

    /// A session was terminated at this time.
    pub fn terminated(&mut self, now: Duration) {
        self.terminations.push(now);
    }

    /// The age by the server's clock, as far as time that passed here confirms it: a clock that
    /// jumps ahead makes no transaction older.
    fn age(&self, one: &Seen, now: Duration) -> Option<Duration> {
        let age = Duration::try_from_secs_f64(one.holder.seconds?).ok()?;
        let Some(first) = self.first_seen.get(&one.key()) else {
            return Some(age);
        };
        Some(age.min(first.age + now.saturating_sub(first.at)))
    }

    /// Remembers transactions that are new, and forgets those that have ended on the servers that
    /// answered.
    pub fn observe(&mut self, all: &[Seen], answered: &[String], now: Duration) {
        for one in all {
            let age = one.holder.seconds.unwrap_or_default();
            let age = Duration::try_from_secs_f64(age).unwrap_or_default();
            let sighting = Sighting { at: now, age };
            self.first_seen.entry(one.key()).or_insert(sighting);
        }
        let there: HashSet<Key> = all.iter().map(Seen::key).collect();
        let stays = |key: &Key| there.contains(key) || !answered.contains(&key.server);
        self.first_seen.retain(|key, _| stays(key));
        self.steps.retain(|key, _| stays(key));
        let minute = Duration::from_secs(60);
        self.terminations
            .retain(|at| now.saturating_sub(*at) < minute);
    }
}

/// The step that is due for each transaction: at most one step each, the next after the one before.
pub fn plan<'a>(all: &'a [Seen], policy: &Policy, past: &Past, now: Duration) -> Plan<'a> {
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
        let Some(age) = past.age(one, now).or_else(|| ageless(one)) else {
            continue;
        };
        let Some(step) = due(one, rule, age, past.steps.get(&one.key()).copied()) else {
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

/// Postgres does not record since when a slot or a replica holds rows: that it does is enough for a
/// warning, if nobody reads the slot.
fn ageless(one: &Seen) -> Option<Duration> {
    let holder = &one.holder;
    let is_abandoned = holder.kind == HolderKind::Slot && !holder.is_read;
    (is_abandoned && holder.transactions.is_some()).then_some(Duration::MAX)
}

fn due(one: &Seen, rule: &Rule, age: Duration, taken: Option<Step>) -> Option<Step> {
    let may_act = one.may_be_acted_on(rule);
    // There is nothing to cancel between two statements.
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
