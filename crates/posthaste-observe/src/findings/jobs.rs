//! Findings about jobs that were given up, and about periodic jobs.

use posthaste::State;

use crate::facts::{FailedPeriodic, GivenUp};
use crate::finding::{Finding, Kind};
use crate::format::{count, plain};
use crate::snapshot::Snapshot;

/// No more of a state are counted.
const COUNTED: i64 = 1_000;

pub(super) fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    let given_up = snapshot.given_up.iter().map(|one| given_up(snapshot, one));
    given_up
        .chain(snapshot.periodic.iter().map(periodic))
        .collect()
}

fn periodic(one: &FailedPeriodic) -> Finding {
    let (name, error) = (plain(&one.name, 80), plain(&one.error, 160));
    let summary = format!("Periodic job {name} is not enqueued: {error}");
    let remedy = "Correct its row in posthaste.periodic, whose column error has the reason. It is \
                  tried again at once, and otherwise every ten minutes.";
    Finding::new(Kind::PeriodicFailing, summary, remedy).about(&one.name, 0)
}

fn given_up(snapshot: &Snapshot, one: &GivenUp) -> Finding {
    let name = plain(&one.queue, 80);
    let jobs = match one.jobs {
        1 => "1 job".to_owned(),
        COUNTED.. => format!("{} jobs or more", count(COUNTED)),
        jobs => format!("{} jobs", count(jobs)),
    };
    let sums = snapshot.sums_of(|counter| counter.queue == one.queue);
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
            let error = error.map_or_else(String::new, |error| format!(": {}", plain(error, 160)));
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
