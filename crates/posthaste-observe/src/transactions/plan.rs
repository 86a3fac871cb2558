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
    /// The transaction, slot or replica.
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
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn policy(text: &str) -> Policy {
        let table: toml::Table = toml::from_str(text).unwrap();
        serde_json::from_value(serde_json::to_value(table).unwrap()).unwrap()
    }

    /// All steps, a minute apart.
    fn strict() -> Policy {
        policy("[[rule]]\nwarn = '1m'\ncancel = '2m'\nterminate = '3m'")
    }

    fn session(pid: i32, seconds: f64) -> Seen {
        let mut holder = Holder::default();
        holder.pid = Some(pid);
        holder.role = Some("app".into());
        holder.state = Some("active".into());
        holder.seconds = Some(seconds);
        holder.transactions = Some(10);
        holder.transaction_start = Some(UNIX_EPOCH + Duration::from_secs(pid as u64));
        Seen {
            server: "primary".into(),
            holder,
            queue_tables: 0,
            has_enqueued: false,
            is_oldest: true,
            has_feedback: None,
        }
    }

    fn steps(all: &[Seen], policy: &Policy, past: &Past, at: u64) -> Vec<Step> {
        let plan = plan(all, policy, past, Duration::from_secs(at));
        plan.decisions.iter().map(|one| one.step).collect()
    }

    /// The steps that are taken while a transaction of this age stays for so many passes.
    fn taken(one: &Seen, policy: &Policy, passes: usize) -> Vec<Step> {
        let mut past = Past::default();
        let mut all = Vec::new();
        for _ in 0..passes {
            past.observe(
                std::slice::from_ref(one),
                &["primary".into()],
                Duration::ZERO,
            );
            let steps = steps(std::slice::from_ref(one), policy, &past, 0);
            for step in &steps {
                past.taken(one.key(), *step);
            }
            all.extend(steps);
        }
        all
    }

    #[test]
    fn steps_are_taken_one_by_one_and_once() {
        use Step::{Cancel, Terminate, Warn};
        let ages = [
            (59.0, vec![]),
            (60.0, vec![Warn]),
            (120.0, vec![Warn, Cancel]),
            (9_999.0, vec![Warn, Cancel, Terminate]),
        ];
        for (age, expected) in ages {
            assert_eq!(taken(&session(1, age), &strict(), 5), expected, "{age}");
        }
    }

    #[test]
    fn idle_sessions_are_terminated_without_a_cancel() {
        let mut one = session(1, 9_999.0);
        one.holder.state = Some("idle in transaction".into());
        let expected = [Step::Warn, Step::Terminate];
        assert_eq!(taken(&one, &strict(), 5), expected);
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let allowed = "[[rule]]\nuser = 'app'\n[[rule]]\nterminate = '1s'";
        assert_eq!(taken(&session(1, 9_999.0), &policy(allowed), 3), []);
        let other = "[[rule]]\nuser = 'other'\n[[rule]]\nterminate = '1s'";
        let expected = [Step::Terminate];
        assert_eq!(taken(&session(1, 9_999.0), &policy(other), 3), expected);
    }

    #[test]
    fn harmless_transactions_are_only_warned_about() {
        let mut one = session(1, 9_999.0);
        one.holder.transactions = None;
        assert_eq!(taken(&one, &strict(), 5), [Step::Warn]);
        let rules = "[[rule]]\nharmless = true\nterminate = '1m'";
        assert_eq!(taken(&one, &policy(rules), 5), [Step::Terminate]);
        one.has_enqueued = true;
        assert_eq!(taken(&one, &strict(), 5).len(), 3);
    }

    #[test]
    fn superusers_are_acted_on_only_where_a_rule_names_them() {
        let mut one = session(1, 9_999.0);
        one.holder.is_superuser = true;
        assert_eq!(taken(&one, &strict(), 5), [Step::Warn]);
        let pattern = "[[rule]]\nuser = 'ap*'\nterminate = '1m'";
        assert_eq!(taken(&one, &policy(pattern), 5), []);
        let named = "[[rule]]\nuser = 'app'\nterminate = '1m'";
        assert_eq!(taken(&one, &policy(named), 5), [Step::Terminate]);
    }

    #[test]
    fn prepared_transactions_slots_and_replicas_are_never_acted_on() {
        for kind in [HolderKind::Prepared, HolderKind::Slot, HolderKind::Replica] {
            let mut one = session(1, 9_999.0);
            one.holder.kind = kind;
            assert_eq!(taken(&one, &strict(), 5), [Step::Warn], "{kind:?}");
        }
    }

    #[test]
    fn an_unread_slot_is_warned_about_although_its_age_is_unknown() {
        let mut slot = session(1, 0.0);
        slot.holder.kind = HolderKind::Slot;
        slot.holder.seconds = None;
        assert_eq!(taken(&slot, &strict(), 3), [Step::Warn]);
        slot.holder.is_read = true;
        assert_eq!(taken(&slot, &strict(), 3), []);
    }

    #[test]
    fn a_clock_that_jumps_ahead_makes_no_transaction_older() {
        let (mut past, policy) = (Past::default(), strict());
        let young = [session(1, 1.0)];
        past.observe(&young, &["primary".into()], Duration::ZERO);
        let jumped = [session(1, 3_600.0)];
        past.observe(&jumped, &["primary".into()], Duration::from_secs(5));
        assert_eq!(steps(&jumped, &policy, &past, 5), []);
        assert_eq!(steps(&jumped, &policy, &past, 60), [Step::Warn]);
    }

    #[test]
    fn another_transaction_under_the_same_pid_begins_anew() {
        let (mut past, policy) = (Past::default(), strict());
        let mut one = [session(1, 60.0)];
        past.taken(one[0].key(), Step::Warn);
        assert_eq!(steps(&one, &policy, &past, 0), []);
        one[0].holder.transaction_start = Some(UNIX_EPOCH);
        assert_eq!(steps(&one, &policy, &past, 0), [Step::Warn]);
    }

    #[test]
    fn an_ended_transaction_is_forgotten_once_its_server_answers() {
        let mut past = Past::default();
        let one = [session(1, 60.0)];
        past.observe(&one, &["primary".into()], Duration::ZERO);
        past.taken(one[0].key(), Step::Warn);
        past.observe(&[], &[], Duration::from_secs(5));
        assert!(past.has_taken(&one[0].key()));
        past.observe(&[], &["primary".into()], Duration::from_secs(10));
        assert!(!past.has_taken(&one[0].key()));
    }

    #[test]
    fn terminations_within_a_minute_are_bounded() {
        let mut past = Past::default();
        let policy = policy("[[rule]]\nterminate = '1m'");
        let all: Vec<Seen> = (1..=5).map(|pid| session(pid, 9_999.0)).collect();
        let first = plan(&all, &policy, &past, Duration::ZERO);
        assert_eq!((first.decisions.len(), first.postponed), (3, 2));
        for _ in 0..3 {
            past.terminated(Duration::ZERO);
        }
        assert_eq!(steps(&all, &policy, &past, 59), []);
        past.observe(&all, &[], Duration::from_secs(60));
        assert_eq!(steps(&all, &policy, &past, 60).len(), 3);
    }
}
