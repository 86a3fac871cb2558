//! Events that are to be written or sent together. Pure.

use crate::event::Event;
use crate::lsn::Lsn;
use crate::mark::Mark;
use crate::position::Position;

/// A batch is not larger, unless one event is.
const EVENTS: usize = 500;
const BYTES: usize = 4 << 20;
/// Log without an event of ours is passed in the marks when there is this much of it.
pub(crate) const UNMARKED: u64 = 16 << 20;

/// What was read and is not marked.
#[derive(Debug)]
pub(crate) struct Batch {
    events: Vec<Event>,
    /// Of the last event.
    last: Position,
    bytes: usize,
    xids: Vec<u32>,
    mark: Mark,
    /// All before is done once the events are.
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

    /// An event of this transaction.
    pub(crate) fn add(&mut self, xid: u32, event: Event) {
        if self.xids.last() != Some(&xid) {
            self.xids.push(xid);
        }
        self.bytes += event.bytes();
        self.last = event.position;
        self.events.push(event);
    }

    /// The transaction that was read ended here.
    pub(crate) fn commit(&mut self, end: Lsn) {
        self.end = self.end.max(end);
    }

    /// The log was read up to here, and no transaction is open in what was read.
    pub(crate) fn pass(&mut self, end: Lsn) {
        if self.events.is_empty() {
            self.commit(end);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.events.len() >= EVENTS || self.bytes >= BYTES
    }

    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    pub(crate) fn xids(&self) -> &[u32] {
        &self.xids
    }

    /// About as many bytes as its jobs have.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Up to here all is read, and done once the events are.
    pub(crate) fn end(&self) -> Lsn {
        self.end
    }

    /// How much was read that is not marked.
    pub(crate) fn unmarked(&self) -> u64 {
        self.end.0.saturating_sub(self.mark.done.0)
    }

    pub(crate) fn is_mark_due(&self) -> bool {
        self.unmarked() >= UNMARKED
    }

    /// The mark that counts these events.
    pub(crate) fn next_mark(&self) -> Mark {
        Mark {
            position: self.last,
            done: self.end,
        }
    }

    /// They are done.
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
        batch.commit(Lsn(10));
        let mark = batch.next_mark();
        assert_eq!((mark.done, mark.position.record), (Lsn(10), Lsn(6)));
    }

    #[test]
    fn a_keepalive_passes_nothing_while_events_are_in_hand() {
        let mut batch = Batch::new(Mark::default());
        batch.add(1, event(9, 5));
        batch.commit(Lsn(10));
        batch.pass(Lsn(90));
        assert_eq!(batch.next_mark().done, Lsn(10));
        batch.clear();
        batch.pass(Lsn(90));
        let mark = batch.next_mark();
        assert_eq!((mark.done, mark.position.commit), (Lsn(90), Lsn(9)));
    }

    #[test]
    fn each_transaction_of_a_batch_is_looked_for() {
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
