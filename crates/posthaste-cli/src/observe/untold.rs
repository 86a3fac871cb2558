//! What fires, and what is still to be told of it: each beginning and each end once, in order. No
//! IO and no clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::alerts::{Alert, Finding};

/// While nobody can be told at most this many are kept; the oldest are left out.
const MOST: usize = 1000;

/// Whether an alert begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Begins,
    Ends,
}

impl What {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Begins => "begins",
            Self::Ends => "ends",
        }
    }
}

/// An alert that began or ended, with what was found at its beginning.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    /// Of this process, from 0.
    pub(crate) number: u64,
    pub(crate) what: What,
    pub(crate) finding: Finding,
}

/// What fires now. An event is printed and then enqueued, and waits until each has gone well.
#[derive(Debug, Default)]
pub(crate) struct Untold {
    firing: BTreeMap<(Alert, String), Finding>,
    /// Of these, what a process before this one has told of: it fires until it is known whether it
    /// still does.
    resumed: BTreeSet<(Alert, String)>,
    events: VecDeque<Event>,
    /// How many of the events, from the front, are printed.
    printed: usize,
    next: u64,
}

impl Untold {
    /// A process before this one has told that these begin, and not that they end.
    pub(crate) fn resume(&mut self, told: impl IntoIterator<Item = Finding>) {
        for one in told {
            let key = (one.alert, one.queue.clone());
            self.resumed.insert(key.clone());
            self.firing.insert(key, one);
        }
    }

    /// What was found now: it is what fires from here on, whoever has yet to be told. Before it was
    /// looked at for as long as an alert must last, nothing that was resumed is known to have
    /// ended. How many events were left out because nobody could be told for too long.
    pub(crate) fn found(&mut self, found: Vec<Finding>, has_lasted: bool) -> usize {
        let found = found.into_iter();
        let mut now: BTreeMap<_, _> = found
            .map(|one| ((one.alert, one.queue.clone()), one))
            .collect();
        let before = std::mem::take(&mut self.firing);
        if has_lasted {
            self.resumed.clear();
        }
        for key in &self.resumed {
            if let Some(finding) = before.get(key) {
                now.entry(key.clone()).or_insert_with(|| finding.clone());
            }
        }
        for (key, finding) in &now {
            if !before.contains_key(key) {
                self.add(What::Begins, finding.clone());
            }
        }
        for (key, finding) in before {
            if !now.contains_key(&key) {
                self.add(What::Ends, finding);
            }
        }
        self.firing = now;
        let surplus = self.events.len().saturating_sub(MOST);
        self.events.drain(..surplus);
        self.printed = self.printed.saturating_sub(surplus);
        surplus
    }

    fn add(&mut self, what: What, finding: Finding) {
        self.events.push_back(Event {
            number: self.next,
            what,
            finding,
        });
        self.next += 1;
    }

    /// What fires.
    pub(crate) fn firing(&self) -> impl ExactSizeIterator<Item = &Finding> {
        self.firing.values()
    }

    /// The next event to be printed.
    pub(crate) fn to_print(&self) -> Option<&Event> {
        self.events.get(self.printed)
    }

    /// The one that [`to_print`](Self::to_print) named is printed.
    pub(crate) fn is_printed(&mut self) {
        self.printed += 1;
    }

    /// The next event to be enqueued, which is printed already.
    pub(crate) fn to_enqueue(&self) -> Option<&Event> {
        self.events.front().filter(|_| self.printed > 0)
    }

    /// The one that [`to_enqueue`](Self::to_enqueue) named is enqueued, or need not be.
    pub(crate) fn is_enqueued(&mut self) {
        self.printed = self.printed.saturating_sub(1);
        self.events.pop_front();
    }

    /// How many events are printed and not yet enqueued.
    pub(crate) fn owed(&self) -> usize {
        self.printed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(alert: Alert, queue: &str) -> Finding {
        Finding {
            alert,
            queue: queue.into(),
            value: 1.0,
            limit: 0.0,
        }
    }

    fn expired(queues: &[&str]) -> Vec<Finding> {
        let queues = queues.iter();
        queues.map(|queue| finding(Alert::Expired, queue)).collect()
    }

    /// Everything that can be told now, where enqueues go well for so many.
    fn told(untold: &mut Untold, mut enqueues: usize) -> (Vec<String>, Vec<String>) {
        let line = |event: &Event| {
            let (number, what) = (event.number, event.what.name());
            format!("{number} {what} {}", event.finding.queue)
        };
        let (mut printed, mut enqueued) = (Vec::new(), Vec::new());
        while let Some(event) = untold.to_print() {
            printed.push(line(event));
            untold.is_printed();
        }
        while let Some(event) = untold.to_enqueue().filter(|_| enqueues > 0) {
            enqueued.push(line(event));
            untold.is_enqueued();
            enqueues -= 1;
        }
        (printed, enqueued)
    }

    #[test]
    fn each_beginning_and_each_end_is_told_once_and_in_order_however_often_telling_fails() {
        let mut untold = Untold::default();
        untold.found(expired(&["mail"]), true);
        assert_eq!(told(&mut untold, 0), (vec!["0 begins mail".into()], vec![]));
        untold.found(expired(&["mail"]), true);
        assert_eq!(told(&mut untold, 0), (vec![], vec![]), "it is printed once");
        untold.found(expired(&["post"]), true);
        let (printed, enqueued) = told(&mut untold, 1);
        assert_eq!(printed, ["1 begins post", "2 ends mail"]);
        assert_eq!(enqueued, ["0 begins mail"], "the oldest is told first");
        assert_eq!((untold.owed(), untold.firing().len()), (2, 1));
        untold.found(expired(&["post"]), true);
        let (printed, enqueued) = told(&mut untold, 9);
        assert!(printed.is_empty(), "{printed:?}");
        assert_eq!(enqueued, ["1 begins post", "2 ends mail"]);
        untold.found(vec![], true);
        assert_eq!(told(&mut untold, 9).1, ["3 ends post"]);
        assert_eq!((untold.owed(), untold.firing().len()), (0, 0));
    }

    #[test]
    fn what_was_told_before_ends_once_it_is_known_to_have_ended_and_begins_no_second_time() {
        let mut untold = Untold::default();
        untold.resume(expired(&["mail", "post"]));
        untold.found(vec![], false);
        untold.found(expired(&["post"]), false);
        assert_eq!(told(&mut untold, 9), (vec![], vec![]));
        assert_eq!(untold.firing().len(), 2);
        untold.found(expired(&["post"]), true);
        assert_eq!(told(&mut untold, 9).1, ["0 ends mail"]);
        untold.found(vec![], true);
        assert_eq!(told(&mut untold, 9).1, ["1 ends post"]);
    }

    #[test]
    fn nothing_is_enqueued_before_it_is_printed() {
        let mut untold = Untold::default();
        untold.found(expired(&["mail"]), true);
        assert_eq!(untold.to_enqueue(), None);
        untold.is_printed();
        assert!(untold.to_enqueue().is_some());
    }

    #[test]
    fn of_more_than_a_thousand_that_nobody_was_told_the_oldest_are_left_out() {
        let mut untold = Untold::default();
        let mut left_out = 0;
        for n in 0..MOST + 3 {
            let queues: &[&str] = if n % 2 == 0 { &["mail"] } else { &[] };
            left_out += untold.found(expired(queues), true);
            told(&mut untold, 0);
        }
        assert_eq!((left_out, untold.owed()), (3, MOST));
        assert_eq!(untold.to_enqueue().map(|event| event.number), Some(3));
        assert_eq!(untold.to_print(), None);
    }
}
