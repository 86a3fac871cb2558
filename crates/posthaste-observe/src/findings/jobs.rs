//! Findings about dead and expired jobs, and about periodic jobs.

use std::collections::BTreeMap;

use posthaste::State;

use crate::facts::{FailedPeriodicJob, FailingJobs, GivenUpJobs};
use crate::finding::{Finding, Kind};
use crate::format::{count, one_line, pluralize};
use crate::snapshot::Snapshot;
use crate::thresholds::Thresholds;

/// Jobs of a state that are counted at most.
const MAX_COUNTED_JOBS: i64 = 1_000;

pub(super) fn findings(snapshot: &Snapshot, thresholds: &Thresholds) -> Vec<Finding> {
    let given_up = snapshot
        .given_up
        .iter()
        .map(|one| given_up_finding(snapshot, one));
    let uncounted = snapshot.counters.is_partial.then(uncounted_jobs_finding);
    given_up
        .chain(failing_jobs_findings(snapshot, thresholds))
        .chain(snapshot.periodic.iter().map(periodic_job_finding))
        .chain(uncounted)
        .collect()
}

fn uncounted_jobs_finding() -> Finding {
    Finding::new(
        Kind::JobsUncounted,
        "Many jobs were enqueued at once and are not counted yet: the numbers of waiting jobs are \
         too low.",
        "A worker that does maintenance counts them within seconds to minutes; until then \
         'SELECT * FROM posthaste.counts()' counts them exactly, which takes as long as reading \
         them.",
    )
}

fn periodic_job_finding(one: &FailedPeriodicJob) -> Finding {
    let (name, error) = (one_line(&one.name, 80), one_line(&one.error, 160));
    let summary = format!("Periodic job {name} is not enqueued: {error}");
    let remedy = "Correct its row in posthaste.periodic, whose column error has the reason. It is \
                  then retried at once, otherwise every ten minutes.";
    Finding::new(Kind::PeriodicFailing, summary, remedy).about(&one.name, 0)
}

/// Returns one finding for each queue. A queue without waiting jobs has none that will be retried.
fn failing_jobs_findings(snapshot: &Snapshot, thresholds: &Thresholds) -> Vec<Finding> {
    let mut queues: BTreeMap<&str, (&FailingJobs, i64)> = BTreeMap::new();
    let often = snapshot.failing_jobs.iter();
    for one in often.filter(|one| one.attempts >= thresholds.failing_job) {
        queues.entry(&one.queue).or_insert((one, 0)).1 += one.jobs;
    }
    let sums = snapshot.sums_by_queue();
    queues.retain(|queue, _| sums.get(queue).is_some_and(|sums| sums.due() > 0));
    let queues = queues.into_values();
    queues
        .map(|(most, jobs)| failing_jobs_finding(most, jobs))
        .collect()
}

fn failing_jobs_finding(most: &FailingJobs, jobs: i64) -> Finding {
    let name = one_line(&most.queue, 80);
    let error = most.error.as_ref();
    let error = error.map_or_else(String::new, |error| format!(": {}", one_line(error, 160)));
    let retried = pluralize(jobs, "job", "jobs");
    let times = count(most.attempts);
    let summary =
        format!("Queue {name} keeps retrying {retried}, one after {times} failed attempts{error}");
    let remedy = "Fix the cause, or cancel them. Otherwise they fail until they have used up their \
                  attempts.";
    Finding::new(Kind::JobsFailing, summary, remedy).about(&most.queue, jobs)
}

fn given_up_finding(snapshot: &Snapshot, one: &GivenUpJobs) -> Finding {
    let name = one_line(&one.queue, 80);
    let jobs = match one.jobs {
        1 => "1 job".to_owned(),
        MAX_COUNTED_JOBS.. => format!("{} jobs or more", count(MAX_COUNTED_JOBS)),
        jobs => format!("{} jobs", count(jobs)),
    };
    let sums = snapshot.sums_where(|counter| counter.queue == one.queue);
    let finding = match one.state {
        State::Expired => Finding::new(
            Kind::JobsExpired,
            format!(
                "Queue {name}: {jobs} expired in the last hour before a worker claimed them ({} \
                 expired in total).",
                count(sums.expired)
            ),
            "Find out why the queue was late, then redrive or delete them.",
        ),
        _ => {
            let error = one.error.as_ref();
            let error =
                error.map_or_else(String::new, |error| format!(": {}", one_line(error, 160)));
            Finding::new(
                Kind::JobsDead,
                format!(
                    "Queue {name}: {jobs} failed permanently in the last hour ({} dead in total)\
                     {error}",
                    count(sums.dead)
                ),
                "They used up their attempts. Fix the cause, then redrive them.",
            )
        }
    };
    finding.about(&one.queue, one.jobs).since(one.since)
}
