//! The checker: decides whether a history is permitted. A pure function of the logs, without
//! servers, clocks or randomness.

mod book;
mod captured;
mod clock;
mod hands;
mod keys;
mod ordering;
mod prompt;
mod relayed;
mod resumed;
mod runs;
#[cfg(test)]
mod tests;
mod ticks;
mod transactions;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::history::{COPY, History, Kind};
use book::Book;

/// A guarantee that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Rule {
    /// Every committed job ended as it had to.
    H1,
    /// No effect of a rolled back transaction or savepoint exists.
    H2,
    /// A transaction whose COMMIT was not answered exists completely or not at all.
    H3,
    /// A completed job is run again only if a process or a claim was lost, and an effect within
    /// `complete_in` happens once.
    H4,
    /// Jobs of an ordering key run one at a time, in the order in which they were committed.
    H5,
    /// Nothing remains that still needs to be done.
    H6,
    /// Arguments arrive as they were given.
    H7,
    /// A fence belongs to one worker, and to one run of a job.
    H8,
    /// Nothing is run before it is due or its back-off is over, or after it expired.
    Due,
    /// Attempts are counted: each failed one once, and otherwise only the death of a worker.
    Attempts,
    /// A unique key is held by one job at a time.
    Unique,
    /// A delivery id names one job, and a job keeps it.
    Identity,
    /// No process of another site runs or sends anything on a copy of the server.
    Copied,
    /// Everything committed into an outbox is captured: without gaps, in commit order, under one
    /// ID, and as one job.
    Captured,
    /// On an idle system due jobs begin immediately, on a busy one soon after a clock stepped.
    Prompt,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 15] = [
        Self::H1,
        Self::H2,
        Self::H3,
        Self::H4,
        Self::H5,
        Self::H6,
        Self::H7,
        Self::H8,
        Self::Due,
        Self::Attempts,
        Self::Unique,
        Self::Identity,
        Self::Copied,
        Self::Captured,
        Self::Prompt,
    ];

    /// The guarantee in one sentence.
    pub fn promise(self) -> &'static str {
        match self {
            Self::H1 => "every committed job ended as it had to",
            Self::H2 => "nothing that was rolled back was run or kept",
            Self::H3 => "what was not answered happened as a whole or not at all",
            Self::H4 => {
                "done jobs ran again only where a worker or a claim was lost, messages arrived \
                 again only where an answer may have been, and never more than these had in hand; \
                 effects within complete_in happened once"
            }
            Self::H5 => {
                "jobs of an ordering key ran one at a time, in the order in which they were \
                 committed, and an ordered relay's messages arrived in it"
            }
            Self::H6 => "nothing was left undone, no key held",
            Self::H7 => "arguments arrived as they were given",
            Self::H8 => "a fence had one worker and one run of a job",
            Self::Due => {
                "nothing ran before it was due, before its back-off was over or after it had \
                 expired"
            }
            Self::Attempts => {
                "attempts were counted; only the death of a worker may add or lose one"
            }
            Self::Unique => "a unique key was held by one job at a time",
            Self::Identity => "a delivery id named one job, and a job kept it",
            Self::Copied => "no copy of the server ran or sent a job",
            Self::Captured => {
                "what was committed into an outbox was captured, in the order of commits, under \
                 one id, as one job, unless a gap was named"
            }
            Self::Prompt => {
                "on an idle system what was due was begun at once, and soon after a clock had \
                 stepped"
            }
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// A description.
    pub what: String,
    /// The number of jobs.
    pub jobs: u64,
    /// Some of their keys.
    pub some: Vec<i64>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rule,
            what,
            jobs,
            some,
        } = self;
        write!(f, "{rule}: {jobs} jobs {what} (such as {some:?})")
    }
}

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Jobs that producers tried to enqueue.
    pub meant: u64,
    /// Those of them whose transaction committed.
    pub committed: u64,
    /// … rolled back, savepoints included.
    pub rolled_back: u64,
    /// … was not answered.
    pub ambiguous: u64,
    /// … had a unique key that another job held.
    pub absorbed: u64,
    /// Committed on a server that died, after the position up to which its replica had received.
    pub lost_with_the_primary: u64,
    /// Runs of handlers.
    pub runs: u64,
    /// Those of them that no outcome requested.
    pub repeats: u64,
}

impl std::ops::AddAssign for Load {
    fn add_assign(&mut self, other: Self) {
        self.meant += other.meant;
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.ambiguous += other.ambiguous;
        self.absorbed += other.absorbed;
        self.lost_with_the_primary += other.lost_with_the_primary;
        self.runs += other.runs;
        self.repeats += other.repeats;
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// How often each rule was checked.
    pub examined: BTreeMap<Rule, u64>,
    /// Violations; empty if there are none.
    pub findings: Vec<Finding>,
    /// The counts.
    pub load: Load,
}

/// Checks a history.
pub fn check(history: &History) -> Verdict {
    let book = Book::of(history);
    let mut judge = Judge::default();
    work(&book, &mut judge);
    judge.told()
}

fn work(book: &Book<'_>, judge: &mut Judge) {
    transactions::judge(book, judge);
    runs::judge(book, judge);
    ordering::judge(book, judge);
    keys::judge(book, judge);
    ticks::judge(book, judge);
    copied(book.history, judge);
    captured::judge(book.history, judge);
    judge.verdict.load.runs = book.history.runs.len() as u64;
}

/// Checks that each run was on the original, if there was a copy.
fn copied(history: &History, judge: &mut Judge) {
    if !history.faults.iter().any(|fault| fault.kind == Kind::Copy) {
        return;
    }
    for run in &history.runs {
        let of_copy = run.worker.split('.').next() == Some(COPY);
        judge.must(Rule::Copied, !of_copy, run.key, "were run in a copy");
    }
}

/// Checks a history of workers with little load: as [`check()`], and also how long they took to
/// wake up.
pub fn check_idle(history: &History) -> Verdict {
    let book = Book::of(history);
    let mut judge = Judge::default();
    work(&book, &mut judge);
    prompt::judge(&book, &mut judge);
    judge.told()
}

/// Checks a history of workers whose server's clock stepped: as [`check()`], and also how long it
/// took until work continued.
pub fn check_clocked(history: &History) -> Verdict {
    let book = Book::of(history);
    let mut judge = Judge::default();
    work(&book, &mut judge);
    resumed::judge(&book, &mut judge);
    judge.told()
}

/// Checks a history of relays: arrivals at receivers count as runs. Holders of unique keys are not
/// checked: an arrival is seen later than it happened, and the key is free by then.
pub fn check_relays(history: &History) -> Verdict {
    let book = Book::of(history);
    let mut judge = Judge::default();
    transactions::judge(&book, &mut judge);
    relayed::judge(&book, &mut judge);
    ordering::judge_messages(&book, &mut judge);
    keys::identity(&book, &mut judge);
    copied(history, &mut judge);
    captured::judge(history, &mut judge);
    judge.verdict.load.runs = history.runs.len() as u64;
    judge.told()
}

/// Collects the results of the rules.
#[derive(Default)]
struct Judge {
    verdict: Verdict,
    wrong: BTreeMap<(Rule, &'static str), Vec<i64>>,
}

impl Judge {
    /// Checks a rule for a job.
    fn must(&mut self, rule: Rule, holds: bool, key: i64, else_: &'static str) {
        *self.verdict.examined.entry(rule).or_default() += 1;
        if !holds {
            self.wrong.entry((rule, else_)).or_default().push(key);
        }
    }

    fn told(mut self) -> Verdict {
        for ((rule, what), keys) in self.wrong {
            self.verdict.findings.push(Finding {
                rule,
                what: what.to_owned(),
                jobs: keys.len() as u64,
                some: keys.into_iter().take(5).collect(),
            });
        }
        self.verdict
    }
}
