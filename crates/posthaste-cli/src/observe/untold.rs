//! Which alerts fire, and which beginnings and ends are still to be printed and enqueued, each once
//! and in order. No IO and no clock.

use std::collections::{BTreeMap, VecDeque};

use posthaste_observe::{Finding, Kind};

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
    firing: BTreeMap<(Kind, String), Finding>,
    events: VecDeque<Event>,
    /// How many of the events, from the front, are printed.
    printed: usize,
    next: u64,
}

impl Untold {
    /// What fires now. How many events were left out because nobody could be told for too long.
    pub(crate) fn fires(&mut self, now: Vec<Finding>) -> usize {
        let now: BTreeMap<_, _> = now
            .into_iter()
            .map(|one| ((one.kind, one.subject.clone()), one))
            .collect();
        let before = std::mem::replace(&mut self.firing, now);
        let begun = self
            .firing
            .iter()
            .filter(|(key, _)| !before.contains_key(*key));
        let begun: Vec<Finding> = begun.map(|(_, finding)| finding.clone()).collect();
        for finding in begun {
            self.add(What::Begins, finding);
        }
        for (key, finding) in before {
            if !self.firing.contains_key(&key) {
                self.add(What::Ends, finding);
            }
        }
        let surplus = self.events.len().saturating_sub(MOST);
        self.events.drain(..surplus);
        self.printed = self.printed.saturating_sub(surplus);
        surplus
    }

    /// Another process has told that these began: they are not told again.
    pub(crate) fn resume(&mut self, firing: Vec<Finding>) {
        let firing = firing.into_iter();
        self.firing
            .extend(firing.map(|one| ((one.kind, one.subject.clone()), one)));
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
    use std::time::Duration;

    use posthaste_observe::Alerts;

    use super::*;

    fn late(queues: &[&str]) -> Vec<Finding> {
        let queues = queues.iter();
        let mut alerts = Alerts::new(Duration::from_secs(1));
        alerts.resume(queues.map(|queue| (Kind::QueueLate, (*queue).to_owned())));
        alerts.update(0.0, Vec::new())
    }

    /// Everything that can be told now, where enqueues go well for so many.
    fn told(untold: &mut Untold, mut enqueues: usize) -> (Vec<String>, Vec<String>) {
        let line = |event: &Event| {
            let (number, what) = (event.number, event.what.name());
            format!("{number} {what} {}", event.finding.subject)
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
        untold.fires(late(&["mail"]));
        assert_eq!(told(&mut untold, 0), (vec!["0 begins mail".into()], vec![]));
        untold.fires(late(&["mail"]));
        assert_eq!(told(&mut untold, 0), (vec![], vec![]), "it is printed once");
        untold.fires(late(&["post"]));
        let (printed, enqueued) = told(&mut untold, 1);
        assert_eq!(printed, ["1 begins post", "2 ends mail"]);
        assert_eq!(enqueued, ["0 begins mail"], "the oldest is told first");
        assert_eq!((untold.owed(), untold.firing().len()), (2, 1));
        untold.fires(late(&["post"]));
        let (printed, enqueued) = told(&mut untold, 9);
        assert!(printed.is_empty(), "{printed:?}");
        assert_eq!(enqueued, ["1 begins post", "2 ends mail"]);
        untold.fires(vec![]);
        assert_eq!(told(&mut untold, 9).1, ["3 ends post"]);
        assert_eq!((untold.owed(), untold.firing().len()), (0, 0));
    }

    #[test]
    fn an_alert_that_another_process_told_is_not_told_again_and_its_end_is() {
        let mut untold = Untold::default();
        untold.resume(late(&["mail", "post"]));
        untold.fires(late(&["mail", "post"]));
        assert_eq!(told(&mut untold, 9), (vec![], vec![]));
        untold.fires(late(&["post"]));
        assert_eq!(told(&mut untold, 9).1, ["0 ends mail"]);
    }

    #[test]
    fn nothing_is_enqueued_before_it_is_printed() {
        let mut untold = Untold::default();
        untold.fires(late(&["mail"]));
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
            left_out += untold.fires(late(queues));
            told(&mut untold, 0);
        }
        assert_eq!((left_out, untold.owed()), (3, MOST));
        assert_eq!(untold.to_enqueue().map(|event| event.number), Some(3));
        assert_eq!(untold.to_print(), None);
    }
}
