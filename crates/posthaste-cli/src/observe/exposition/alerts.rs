//! The metrics that the Prometheus alert rules read.

use posthaste_observe::{Finding, Kind, Snapshot};

use super::{Labels, Metric, MetricList, Series};

/// Makes the metrics from a snapshot without exempt jobs, and from its findings.
pub(crate) fn alerts(snapshot: &Snapshot, found: &[Finding], labels: &mut Labels) -> Vec<Metric> {
    let mut all = MetricList::default();
    add_watched_queues(&mut all, snapshot, labels);
    add_findings(&mut all, found, labels);
    all.0
}

fn add_watched_queues(all: &mut MetricList, snapshot: &Snapshot, labels: &mut Labels) {
    let (mut completed, mut lengths) = (Series::new(), Series::new());
    for (queue, sums) in snapshot.sums_by_queue() {
        let key = vec![("queue", labels.queue(queue))];
        *completed.entry(key.clone()).or_default() += sums.done as f64;
        *lengths.entry(key).or_default() += sums.due() as f64;
    }
    let name = "posthaste_watched_completed_total";
    let help = "Completed jobs, without those of exempt tags.";
    all.metric(name, "counter", help, &completed);
    let help = "Jobs that are due and not completed, without those of exempt tags.";
    all.metric("posthaste_watched_length", "gauge", help, &lengths);
}

/// Adds the findings. Each kind has a series without a subject, so that its alerts end.
fn add_findings(all: &mut MetricList, found: &[Finding], labels: &mut Labels) {
    let key = |kind: Kind, subject: String| {
        let (id, level) = (kind.id().to_owned(), kind.level().as_str().to_owned());
        vec![("id", id), ("level", level), ("subject", subject)]
    };
    let kinds = Kind::ALL.iter();
    let mut series: Series = kinds.map(|kind| (key(*kind, String::new()), 0.0)).collect();
    for one in found {
        let subject = match one.kind.has_lasting_subject() && !one.subject.is_empty() {
            true => labels.value("subject", one.kind.id(), &one.subject),
            false => String::new(),
        };
        *series.entry(key(one.kind, subject)).or_default() += 1.0;
    }
    let help = "Current findings, by ID, level and subject.";
    all.metric("posthaste_findings", "gauge", help, &series);
}
