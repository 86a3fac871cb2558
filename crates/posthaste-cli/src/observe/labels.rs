//! Label values, whose number is limited: clients choose names.

use std::collections::{BTreeMap, BTreeSet};

use posthaste::HolderKind;

/// The maximum number of queues with a separate label.
const MAX_QUEUES: usize = 200;
/// The maximum number of names, tags or priorities of a queue with a separate label.
const MAX_VALUES_PER_QUEUE: usize = 100;
/// The label of all others.
const OTHER_LABEL: &str = "other";

/// Options for additional labels.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ExtraLabels {
    /// Also count jobs of this queue by tag (repeatable)
    #[arg(long = "tags-of", value_name = "QUEUE")]
    pub(crate) tags_of: Vec<String>,

    /// Also count jobs of this queue by priority (repeatable)
    #[arg(long = "priorities-of", value_name = "QUEUE")]
    pub(crate) priorities_of: Vec<String>,

    /// Exclude jobs with this tag from alerts; a trailing * matches any text (repeatable)
    #[arg(long = "exempt-tag", value_name = "TAG")]
    pub(crate) exempt: Vec<String>,
}

/// The values of labels. The first values seen have a separate label for good, so that a counter
/// never falls because of a new name.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    queues: BTreeSet<String>,
    others: BTreeMap<(&'static str, String), BTreeSet<String>>,
    relays: BTreeSet<(String, String)>,
}

impl Labels {
    /// Returns the label of a queue.
    pub(crate) fn queue(&mut self, queue: &str) -> String {
        admit_label(&mut self.queues, MAX_QUEUES, queue)
    }

    /// Returns the label of a value of a queue, such as a `name`.
    pub(crate) fn value(&mut self, kind: &'static str, queue: &str, value: &str) -> String {
        let known = self.others.entry((kind, queue.to_owned())).or_default();
        admit_label(known, MAX_VALUES_PER_QUEUE, value)
    }

    /// Records that a queue has a relay to this destination.
    pub(crate) fn has_relay(&mut self, queue: &str, destination: &str) {
        if self.relays.len() < MAX_QUEUES {
            self.relays
                .insert((queue.to_owned(), destination.to_owned()));
        }
    }

    /// Returns all recorded relays, by queue and destination.
    pub(crate) fn relays(&self) -> Vec<(String, String)> {
        self.relays.iter().cloned().collect()
    }
}

fn admit_label(known: &mut BTreeSet<String>, most: usize, value: &str) -> String {
    if known.contains(value) {
        return value.to_owned();
    }
    if known.len() >= most {
        return OTHER_LABEL.to_owned();
    }
    known.insert(value.to_owned());
    value.to_owned()
}

/// Returns the label value of a kind of holder.
pub(super) fn holder_kind(kind: HolderKind) -> &'static str {
    match kind {
        HolderKind::Prepared => "prepared",
        HolderKind::Replica => "replica",
        HolderKind::Slot => "slot",
        _ => "transaction",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_names_after_the_first_hundred_of_a_queue_share_one_label() {
        let mut labels = Labels::default();
        let all: Vec<String> = (0..150)
            .map(|n| labels.value("name", "mail", &format!("n{n}")))
            .collect();
        assert_eq!(all[99], "n99");
        assert_eq!(all[100], OTHER_LABEL);
        assert_eq!(labels.value("name", "mail", "n7"), "n7");
        assert_eq!(labels.value("name", "other queue", "n149"), "n149");
        for n in 0..MAX_QUEUES {
            labels.queue(&format!("q{n}"));
        }
        assert_eq!(labels.queue("one more"), OTHER_LABEL);
        assert_eq!(labels.queue("q0"), "q0");
    }
}
