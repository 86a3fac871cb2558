//! Up to where the server may forget its log. Pure.

use std::collections::VecDeque;

use crate::lsn::Lsn;

/// A standby has its copy of a slot as it was confirmed, and may lack the mark that was written
/// before: after a failover the slot would be ahead of the mark. The server streams a slot that it
/// synchronizes no further than its `synchronized_standby_slots` are, so a place is confirmed once
/// the stream has passed the mark.
#[derive(Debug, Default)]
pub(crate) struct Confirmation {
    confirmed: Lsn,
    streamed: Lsn,
    /// What is done, and the place that the stream must have passed.
    held: VecDeque<(Lsn, Lsn)>,
}

impl Confirmation {
    pub(crate) fn new(confirmed: Lsn) -> Self {
        Self {
            confirmed,
            ..Self::default()
        }
    }

    pub(crate) fn confirmed(&self) -> Lsn {
        self.confirmed
    }

    /// All before this place is done, and marked before the other one.
    pub(crate) fn confirm(&mut self, done: Lsn, after: Option<Lsn>) {
        match after {
            Some(after) => {
                self.held.push_back((done, after));
                self.release();
            }
            None => self.confirmed = self.confirmed.max(done),
        }
    }

    /// The stream has come to here; whether more is confirmed by that.
    pub(crate) fn stream(&mut self, place: Lsn) -> bool {
        self.streamed = self.streamed.max(place);
        self.release()
    }

    /// Whether something is done that is not confirmed yet.
    pub(crate) fn is_held(&self) -> bool {
        !self.held.is_empty()
    }

    fn release(&mut self) -> bool {
        let was = self.confirmed;
        while let Some((done, after)) = self.held.front()
            && *after <= self.streamed
        {
            self.confirmed = self.confirmed.max(*done);
            self.held.pop_front();
        }
        self.confirmed > was
    }
}

#[cfg(test)]
mod tests {
    use super::Confirmation;
    use crate::lsn::Lsn;

    #[test]
    fn a_place_is_confirmed_at_once_where_the_slot_does_not_fail_over() {
        let mut confirmation = Confirmation::new(Lsn(3));
        for (done, confirmed) in [(5, 5), (4, 5), (9, 9)] {
            confirmation.confirm(Lsn(done), None);
            assert_eq!(confirmation.confirmed(), Lsn(confirmed));
        }
    }

    #[test]
    fn a_place_is_confirmed_once_the_stream_has_passed_its_mark() {
        let mut confirmation = Confirmation::new(Lsn(3));
        confirmation.confirm(Lsn(5), Some(Lsn(20)));
        confirmation.confirm(Lsn(8), Some(Lsn(30)));
        assert_eq!(confirmation.confirmed(), Lsn(3));
        assert!(!confirmation.stream(Lsn(19)));
        assert!(confirmation.stream(Lsn(20)));
        assert_eq!(confirmation.confirmed(), Lsn(5));
        assert!(confirmation.is_held());
        assert!(!confirmation.stream(Lsn(29)));
        // The stream may be there before the mark is known to be.
        assert!(confirmation.stream(Lsn(40)));
        confirmation.confirm(Lsn(12), Some(Lsn(40)));
        assert_eq!(confirmation.confirmed(), Lsn(12));
        assert!(!confirmation.is_held());
    }
}
