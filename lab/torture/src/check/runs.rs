//! Checks what handlers received and did: H4, H7, H8, times and attempts.

use std::collections::BTreeMap;

use super::book::{Book, Job, takes_jobs};
use super::hands::Hands;
use super::{Judge, Rule};
use crate::history::{Fault, How, JobBehavior, Kind, Moment, Run};
use crate::worker::backoff;

/// The tolerance in microseconds: clocks count microseconds, and Postgres rounds to them.
const ROUNDED: Moment = 1_000;
/// The number of jobs that a worker process may have claimed when it dies: of three queues, four
/// handlers each, a queue before them, and jobs that ended and were not acknowledged yet. The queue
/// is as long as the handlers need for 20 ms; each of them writes to the disk twice, which takes at
/// least 5 ms.
const IN_HAND: u64 = 3 * (4 + 16 + 4);
/// The number of jobs that may have ended while a replica lagged: it receives nothing until 20 to
/// 120 jobs have ended, and then until its primary is dead.
const LAGGED: u64 = 300;
const PLACES: u64 = 3;

pub(super) fn judge(book: &Book<'_>, judge: &mut Judge) {
    let mut hands = Hands::of(book.history);
    for (key, job) in &book.jobs {
        followed(book, *key, job, judge, &mut hands);
        for (at, run) in job.runs.iter().enumerate() {
            times(book, *key, &job.runs[..at], run, judge);
            attempts(book, *key, &job.runs[..at], run, judge);
            backed_off(book, *key, job.runs[..at].last(), run, judge);
            let is_same = run.args == job.intent.args;
            judge.must(Rule::H7, is_same, *key, "were run with other arguments");
        }
        if job.intent.behavior == JobBehavior::Complete {
            judge.must(
                Rule::H4,
                job.effects <= 1,
                *key,
                "had their effect more than once",
            );
        }
    }
    judge.verdict.load.repeats = hands.repeats();
    let what = "were repeated: more than the lost workers can have had in hand";
    judge.must(Rule::H4, hands.can_hold(in_hand), 0, what);
    fences(book, judge);
}

/// Records the runs that no outcome requested; each needs a fault that explains it.
fn followed<'h>(
    book: &Book<'h>,
    key: i64,
    job: &Job<'_>,
    judge: &mut Judge,
    hands: &mut Hands<'h>,
) {
    for pair in job.runs.windows(2) {
        let (before, next) = (pair[0], pair[1]);
        let was_asked_for = before.ended.is_some_and(|(how, at)| {
            let again = matches!(
                how,
                How::Again | How::Later | How::Unconfirmed | How::Ambiguous
            );
            again && at <= next.began
        });
        if was_asked_for {
            continue;
        }
        let taken = book.excuses(&before.worker, before.began, next.began);
        let late = book.delays(&next.worker, before.began, next.began);
        let is_excused = hands.again(taken.chain(late));
        let what = match before.ended {
            Some((_, at)) if at <= next.began => {
                "were run again after they had ended, and nothing had happened to their worker"
            }
            _ => "were run by two at once, and nothing had happened to the first",
        };
        judge.must(Rule::H4, is_excused, key, what);
    }
}

/// The number of runs that a fault may repeat.
fn in_hand(fault: &Fault) -> u64 {
    match fault.kind {
        Kind::Kill | Kind::HalfOpen | Kind::Freeze | Kind::Stall | Kind::Unread => IN_HAND,
        Kind::Crash => IN_HAND * PLACES,
        Kind::Promotion => IN_HAND * PLACES + LAGGED,
        _ => 0,
    }
}

fn times(book: &Book<'_>, key: i64, earlier: &[&Run], run: &Run, judge: &mut Judge) {
    let intent = book.jobs[&key].intent;
    let was_rescheduled = earlier
        .iter()
        .any(|earlier| was_told(book, earlier, How::Later, run.began));
    let (since, due) = match intent.behavior {
        JobBehavior::Snooze(until) if was_rescheduled => {
            (earlier.last().map(|run| run.began), until)
        }
        _ => (None, intent.due),
    };
    let since = since.unwrap_or(book.jobs[&key].meant_at);
    // For some seconds after a step back, a process may schedule jobs by the earlier clock.
    let ahead = book
        .clock
        .furthest(book.clock.in_force_since(since), run.began);
    let what = "were run before they were due";
    judge.must(Rule::Due, run.began + ahead + ROUNDED >= due, key, what);
    let is_alive = intent.behavior != JobBehavior::Expire;
    judge.must(Rule::Due, is_alive, key, "were run after they had expired");
}

/// Checks that a counted attempt was followed by its back-off, unless the clock jumped.
fn backed_off(book: &Book<'_>, key: i64, before: Option<&&Run>, run: &Run, judge: &mut Judge) {
    let intent = book.jobs[&key].intent;
    let (Some(before), JobBehavior::Fail(_) | JobBehavior::Exhaust) = (before, intent.behavior)
    else {
        return;
    };
    let Some((How::Again, at)) = before.ended else {
        return;
    };
    let failures = u32::try_from(before.attempt).unwrap_or(0);
    let least = backoff(book.clock.is_own()).after(failures, 0.0);
    let least = Moment::try_from(least.as_micros()).unwrap_or(0);
    let is_excused = || {
        let mut excuses = book.excuses(&before.worker, before.began, run.began);
        book.clock.jumped(at, run.began) || excuses.next().is_some()
    };
    let is_vain = run.attempt == before.attempt;
    let is_over = is_vain || run.began + ROUNDED >= at + least || is_excused();
    let what = "were tried again before their back-off was over";
    judge.must(Rule::Due, is_over, key, what);
}

/// Whether the store must know how a run ended: no fault hit its worker, its claim or the server
/// until the acknowledgement was due.
fn was_told(book: &Book<'_>, run: &Run, how: How, until: Moment) -> bool {
    run.ended.is_some_and(|(ended, _)| ended == how)
        && !book
            .excuses(&run.worker, run.began, until)
            .any(|fault| fault.until >= run.began)
}

/// Checks that a failed attempt is counted once. A worker's death may count one (of a job that ran
/// alone), and may lose one (whose end was not acknowledged); a promotion may lose all that the
/// replica had not received.
fn attempts(book: &Book<'_>, key: i64, earlier: &[&Run], run: &Run, judge: &mut Judge) {
    let failed = earlier.iter().filter(|run| {
        run.ended
            .is_some_and(|(how, _)| matches!(how, How::Again | How::Unconfirmed | How::Ambiguous))
    });
    // If the clock stepped back, the job could not back off and no attempt is counted.
    let (vain, failed): (Vec<&&Run>, Vec<&&Run>) = failed.partition(|run| {
        run.ended
            .is_some_and(|(_, at)| book.clock.is_unfollowed(at))
    });
    let vain = i64::try_from(vain.len()).unwrap_or(i64::MAX);
    let failed = i64::try_from(failed.len()).unwrap_or(i64::MAX);
    // A worker may have died with it at any time, also before its handler began.
    let since = book.jobs[&key].meant_at;
    let faults = || {
        let faults = book.history.faults.iter();
        faults.filter(move |fault| fault.until >= since && fault.from <= run.began)
    };
    let deaths = faults().filter(|fault| takes_jobs(fault.kind));
    let deaths = i64::try_from(deaths.count()).unwrap_or(i64::MAX);
    let is_forgotten = faults().any(|fault| fault.kind == Kind::Promotion);
    let least = if is_forgotten { 0 } else { failed - deaths };
    let is_counted = (least..=failed + vain + deaths).contains(&i64::from(run.attempt));
    let what = "came with a wrong number of attempts";
    judge.must(Rule::Attempts, is_counted, key, what);
}

fn fences(book: &Book<'_>, judge: &mut Judge) {
    let mut workers: BTreeMap<&str, &str> = BTreeMap::new();
    let mut runs: BTreeMap<(i64, &str), u64> = BTreeMap::new();
    for run in &book.history.runs {
        let worker = workers.entry(&run.fence).or_insert(&run.worker);
        let what = "were handed to two workers under one fence";
        judge.must(Rule::H8, *worker == run.worker, run.key, what);
        let times = runs.entry((run.key, &run.fence)).or_default();
        *times += 1;
        let what = "were handed out twice under one fence";
        judge.must(Rule::H8, *times == 1, run.key, what);
    }
}
