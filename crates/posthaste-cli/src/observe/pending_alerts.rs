//! Tracks which alerts fire, and which events must still be printed and enqueued, each once and in
//! order. No IO and no clock.

use std::collections::{BTreeMap, VecDeque};

use posthaste_observe::{Finding, Kind};

/// The maximum number of events that wait while notifications fail; the oldest are dropped.
const MAX_EVENTS: usize = 1000;

/// Whether an alert begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Begins,
    Ends,
}

impl Change {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Begins => "begins",
            Self::Ends => "ends",
        }
    }
}

/// An alert that began or ended, with the finding at its beginning.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AlertEvent {
    /// A sequence number of this process, from 0.
    pub(crate) number: u64,
    pub(crate) what: Change,
    pub(crate) finding: Finding,
}

/// The firing alerts and their events. An event is printed, then enqueued, and is removed after
/// both.
#[derive(Debug, Default)]
pub(crate) struct PendingAlertEvents {
    firing: BTreeMap<(Kind, String), Finding>,
    events: VecDeque<AlertEvent>,
    /// The number of printed events, counted from the front.
    printed: usize,
    next: u64,
}

impl PendingAlertEvents {
    /// Replaces the firing alerts. Returns how many events were dropped because notifications
    /// failed for too long.
    pub(crate) fn replace_firing(&mut self, now: Vec<Finding>) -> usize {
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
            self.push_event(Change::Begins, finding);
        }
        for (key, finding) in before {
            if !self.firing.contains_key(&key) {
                self.push_event(Change::Ends, finding);
            }
        }
        let surplus = self.events.len().saturating_sub(MAX_EVENTS);
        self.events.drain(..surplus);
        self.printed = self.printed.saturating_sub(surplus);
        surplus
    }

    /// Adds alerts whose beginning another process has notified: it is not notified again.
    pub(crate) fn resume(&mut self, firing: Vec<Finding>) {
        let firing = firing.into_iter();
        self.firing
            .extend(firing.map(|one| ((one.kind, one.subject.clone()), one)));
    }

    fn push_event(&mut self, what: Change, finding: Finding) {
        self.events.push_back(AlertEvent {
            number: self.next,
            what,
            finding,
        });
        self.next += 1;
    }

    /// Returns the firing alerts.
    pub(crate) fn firing(&self) -> impl ExactSizeIterator<Item = &Finding> {
        self.firing.values()
    }

    /// Returns the next event to print.
    pub(crate) fn to_print(&self) -> Option<&AlertEvent> {
        self.events.get(self.printed)
    }

    /// Records that the event of [`to_print`](Self::to_print) is printed.
    pub(crate) fn mark_printed(&mut self) {
        self.printed += 1;
    }

    /// Returns the next event to enqueue; it has been printed.
    pub(crate) fn to_enqueue(&self) -> Option<&AlertEvent> {
        self.events.front().filter(|_| self.printed > 0)
    }

    /// Records that the event of [`to_enqueue`](Self::to_enqueue) is enqueued, or need not be.
    pub(crate) fn mark_enqueued(&mut self) {
        self.printed = self.printed.saturating_sub(1);
        self.events.pop_front();
    }

    /// Returns how many events are printed and not yet enqueued.
    pub(crate) fn undelivered(&self) -> usize {
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

    /// Prints all events and enqueues at most this many; returns the lines of both.
    fn deliver(
        pending: &mut PendingAlertEvents,
        mut enqueues: usize,
    ) -> (Vec<String>, Vec<String>) {
        let line = |event: &AlertEvent| {
            let (number, what) = (event.number, event.what.name());
            format!("{number} {what} {}", event.finding.subject)
        };
        let (mut printed, mut enqueued) = (Vec::new(), Vec::new());
        while let Some(event) = pending.to_print() {
            printed.push(line(event));
            pending.mark_printed();
        }
        while let Some(event) = pending.to_enqueue().filter(|_| enqueues > 0) {
            enqueued.push(line(event));
            pending.mark_enqueued();
            enqueues -= 1;
        }
        (printed, enqueued)
    }

    #[test]
    fn each_alert_event_is_delivered_once_in_order_despite_failures() {
        let mut pending = PendingAlertEvents::default();
        pending.replace_firing(late(&["mail"]));
        assert_eq!(
            deliver(&mut pending, 0),
            (vec!["0 begins mail".into()], vec![])
        );
        pending.replace_firing(late(&["mail"]));
        assert_eq!(
            deliver(&mut pending, 0),
            (vec![], vec![]),
            "it is printed once"
        );
        pending.replace_firing(late(&["post"]));
        let (printed, enqueued) = deliver(&mut pending, 1);
        assert_eq!(printed, ["1 begins post", "2 ends mail"]);
        assert_eq!(enqueued, ["0 begins mail"], "the oldest is delivered first");
        assert_eq!((pending.undelivered(), pending.firing().len()), (2, 1));
        pending.replace_firing(late(&["post"]));
        let (printed, enqueued) = deliver(&mut pending, 9);
        assert!(printed.is_empty(), "{printed:?}");
        assert_eq!(enqueued, ["1 begins post", "2 ends mail"]);
        pending.replace_firing(vec![]);
        assert_eq!(deliver(&mut pending, 9).1, ["3 ends post"]);
        assert_eq!((pending.undelivered(), pending.firing().len()), (0, 0));
    }

    #[test]
    fn alerts_sent_by_another_process_are_not_repeated_but_resolved() {
        let mut pending = PendingAlertEvents::default();
        pending.resume(late(&["mail", "post"]));
        pending.replace_firing(late(&["mail", "post"]));
        assert_eq!(deliver(&mut pending, 9), (vec![], vec![]));
        pending.replace_firing(late(&["post"]));
        assert_eq!(deliver(&mut pending, 9).1, ["0 ends mail"]);
    }

    #[test]
    fn alert_events_are_printed_before_they_are_enqueued() {
        let mut pending = PendingAlertEvents::default();
        pending.replace_firing(late(&["mail"]));
        assert_eq!(pending.to_enqueue(), None);
        pending.mark_printed();
        assert!(pending.to_enqueue().is_some());
    }

    #[test]
    fn pending_alert_events_are_bounded_by_dropping_the_oldest() {
        let mut pending = PendingAlertEvents::default();
        let mut left_out = 0;
        for n in 0..MAX_EVENTS + 3 {
            let queues: &[&str] = if n % 2 == 0 { &["mail"] } else { &[] };
            left_out += pending.replace_firing(late(queues));
            deliver(&mut pending, 0);
        }
        assert_eq!((left_out, pending.undelivered()), (3, MAX_EVENTS));
        assert_eq!(pending.to_enqueue().map(|event| event.number), Some(3));
        assert_eq!(pending.to_print(), None);
    }
}
