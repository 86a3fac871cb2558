//! Events that are written or sent together. Pure.

use crate::event::Event;
use crate::lsn::Lsn;
use crate::mark::Mark;
use crate::position::Position;

/// The most events and bytes of a batch; a single larger event is a batch too.
const MAX_EVENTS: usize = 500;
const MAX_BYTES: usize = 4 << 20;
/// A mark is written after this much log without an event, in bytes.
pub(crate) const MARK_AFTER_BYTES: u64 = 16 << 20;

/// Events that were read and are not marked.
#[derive(Debug)]
pub(crate) struct Batch {
    events: Vec<Event>,
    /// The position of the last event.
    last: Position,
    bytes: usize,
    xids: Vec<u32>,
    mark: Mark,
    /// Everything before this place is done once the events are.
    end: Lsn,
}

impl Batch {
    pub(crate) fn new(mark: Mark) -> Self {
        Self {
            events: Vec::new(),
            last: mark.position,
            bytes: 0,
            xids: Vec::new(),
            mark,
            end: mark.done,
        }
    }

    /// Adds an event of this transaction.
    pub(crate) fn add(&mut self, xid: u32, event: Event) {
        if self.xids.last() != Some(&xid) {
            self.xids.push(xid);
        }
        self.bytes += event.job_bytes();
        self.last = event.position;
        self.events.push(event);
    }

    /// Ends the transaction that was read last.
    pub(crate) fn end_transaction(&mut self, end: Lsn) {
        self.end = self.end.max(end);
    }

    /// The log was read up to this place, and no transaction is open.
    pub(crate) fn advance_to(&mut self, end: Lsn) {
        if self.events.is_empty() {
            self.end_transaction(end);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.events.len() >= MAX_EVENTS || self.bytes >= MAX_BYTES
    }

    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    pub(crate) fn xids(&self) -> &[u32] {
        &self.xids
    }

    /// The approximate size of its jobs in bytes.
    pub(crate) fn job_bytes(&self) -> usize {
        self.bytes
    }

    /// The place up to which everything is done once the events are.
    pub(crate) fn end_lsn(&self) -> Lsn {
        self.end
    }

    /// Bytes of log that were read and are not marked.
    pub(crate) fn unmarked_bytes(&self) -> u64 {
        self.end.0.saturating_sub(self.mark.done.0)
    }

    pub(crate) fn is_mark_due(&self) -> bool {
        self.unmarked_bytes() >= MARK_AFTER_BYTES
    }

    /// The mark that counts these events.
    pub(crate) fn next_mark(&self) -> Mark {
        Mark {
            position: self.last,
            done: self.end,
        }
    }

    /// Starts the next batch after this one is done.
    pub(crate) fn clear(&mut self) {
        self.mark = self.next_mark();
        self.events.clear();
        self.xids.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use uuid::Uuid;

    use super::Batch;
    use crate::event::Event;
    use crate::lsn::Lsn;
    use crate::mark::Mark;
    use crate::position::Position;

    fn event(commit: u64, record: u64) -> Event {
        Event {
            id: Uuid::nil(),
            name: "n".into(),
            key: None,
            headers: Vec::new(),
            body: Bytes::new(),
            at: jiff::Timestamp::UNIX_EPOCH,
            position: Position {
                commit: Lsn(commit),
                record: Lsn(record),
                row: 0,
            },
            row: None,
        }
    }

    #[test]
    fn a_slot_is_confirmed_up_to_whole_transactions_only() {
        let mut batch = Batch::new(Mark::default());
        batch.add(1, event(9, 5));
        // Full in the midst of the transaction.
        let mark = batch.next_mark();
        assert_eq!((mark.done, mark.position.record), (Lsn(0), Lsn(5)));
        batch.clear();
        batch.add(1, event(9, 6));
        batch.end_transaction(Lsn(10));
        let mark = batch.next_mark();
        assert_eq!((mark.done, mark.position.record), (Lsn(10), Lsn(6)));
    }

    #[test]
    fn keepalives_confirm_nothing_while_events_are_pending() {
        let mut batch = Batch::new(Mark::default());
        batch.add(1, event(9, 5));
        batch.end_transaction(Lsn(10));
        batch.advance_to(Lsn(90));
        assert_eq!(batch.next_mark().done, Lsn(10));
        batch.clear();
        batch.advance_to(Lsn(90));
        let mark = batch.next_mark();
        assert_eq!((mark.done, mark.position.commit), (Lsn(90), Lsn(9)));
    }

    #[test]
    fn batches_list_each_transaction_once() {
        let mut batch = Batch::new(Mark::default());
        for xid in [7, 7, 8] {
            batch.add(xid, event(9, 5));
        }
        assert_eq!(batch.xids(), [7, 8]);
    }

    #[test]
    fn a_batch_ends_with_its_five_hundredth_event() {
        let mut batch = Batch::new(Mark::default());
        for _ in 0..499 {
            batch.add(1, event(9, 5));
        }
        assert!(!batch.is_full());
        batch.add(1, event(9, 6));
        assert!(batch.is_full());
    }
}
