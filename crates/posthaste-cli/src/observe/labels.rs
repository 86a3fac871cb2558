//! Values of labels, of which there are never more than so many: who enqueues chooses names.

use std::collections::{BTreeMap, BTreeSet};

use posthaste::HolderKind;

/// Queues with labels of their own.
const QUEUES: usize = 200;
/// Names, tags or priorities of a queue with labels of their own.
const OF_A_QUEUE: usize = 100;
/// All others.
const OTHER: &str = "other";

/// Queues of which more than names is asked.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Asked {
    /// Count the jobs of this queue by their tags too. May be given many times
    #[arg(long = "tags-of", value_name = "QUEUE")]
    pub(crate) tags_of: Vec<String>,

    /// Count the jobs of this queue by their priorities too. May be given many
    /// times
    #[arg(long = "priorities-of", value_name = "QUEUE")]
    pub(crate) priorities_of: Vec<String>,

    /// Leave jobs with this tag out of alerts; a * at its end stands for any
    /// text. May be given many times
    #[arg(long = "exempt-tag", value_name = "TAG")]
    pub(crate) exempt: Vec<String>,
}

/// Values that were seen first keep their labels, so that a counter never falls because a name
/// came that sorts before it.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    queues: BTreeSet<String>,
    others: BTreeMap<(&'static str, String), BTreeSet<String>>,
    relays: BTreeSet<(String, String)>,
}

impl Labels {
    /// The label of a queue.
    pub(crate) fn queue(&mut self, queue: &str) -> String {
        admit(&mut self.queues, QUEUES, queue)
    }

    /// The label of what a queue has of this kind, such as a `name`.
    pub(crate) fn of(&mut self, kind: &'static str, queue: &str, value: &str) -> String {
        let known = self.others.entry((kind, queue.to_owned())).or_default();
        admit(known, OF_A_QUEUE, value)
    }

    /// A queue has a relay to this destination.
    pub(crate) fn has_relay(&mut self, queue: &str, destination: &str) {
        if self.relays.len() < QUEUES {
            self.relays
                .insert((queue.to_owned(), destination.to_owned()));
        }
    }

    /// The relays that there were, by queue and destination.
    pub(crate) fn relays(&self) -> Vec<(String, String)> {
        self.relays.iter().cloned().collect()
    }
}

fn admit(known: &mut BTreeSet<String>, most: usize, value: &str) -> String {
    if known.contains(value) {
        return value.to_owned();
    }
    if known.len() >= most {
        return OTHER.to_owned();
    }
    known.insert(value.to_owned());
    value.to_owned()
}

/// The word for a kind of holder in labels.
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
            .map(|n| labels.of("name", "mail", &format!("n{n}")))
            .collect();
        assert_eq!(all[99], "n99");
        assert_eq!(all[100], OTHER);
        assert_eq!(labels.of("name", "mail", "n7"), "n7");
        assert_eq!(labels.of("name", "other queue", "n149"), "n149");
        for n in 0..QUEUES {
            labels.queue(&format!("q{n}"));
        }
        assert_eq!(labels.queue("one more"), OTHER);
        assert_eq!(labels.queue("q0"), "q0");
    }
}
