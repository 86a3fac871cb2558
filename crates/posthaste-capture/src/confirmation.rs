//! The place up to which the server may remove its log. Pure.

use std::collections::VecDeque;

use crate::lsn::Lsn;

/// A standby copies a slot with its confirmed place, but may lack the mark that was written before:
/// after a failover the slot would be ahead of the mark. The server streams a failover slot only as
/// far as its `synchronized_standby_slots` have received, so a place is confirmed once the stream
/// has passed its mark.
#[derive(Debug, Default)]
pub(crate) struct Confirmation {
    confirmed: Lsn,
    streamed: Lsn,
    /// Places that are done, each with the place that the stream must pass first.
    held: VecDeque<(Lsn, Lsn)>,
}

impl Confirmation {
    pub(crate) fn new(confirmed: Lsn) -> Self {
        Self {
            confirmed,
            ..Self::default()
        }
    }

    pub(crate) fn confirmed_lsn(&self) -> Lsn {
        self.confirmed
    }

    /// Confirms everything before `done`, whose mark is in the log before `after`.
    pub(crate) fn confirm(&mut self, done: Lsn, after: Option<Lsn>) {
        match after {
            Some(after) => {
                self.held.push_back((done, after));
                self.confirm_passed();
            }
            None => self.confirmed = self.confirmed.max(done),
        }
    }

    /// The stream has reached this place; returns whether that confirms more.
    pub(crate) fn advance_stream_to(&mut self, place: Lsn) -> bool {
        self.streamed = self.streamed.max(place);
        self.confirm_passed()
    }

    /// Whether a place is done and not confirmed.
    pub(crate) fn has_unconfirmed(&self) -> bool {
        !self.held.is_empty()
    }

    fn confirm_passed(&mut self) -> bool {
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
    fn positions_are_confirmed_at_once_if_the_slot_does_not_fail_over() {
        let mut confirmation = Confirmation::new(Lsn(3));
        for (done, confirmed) in [(5, 5), (4, 5), (9, 9)] {
            confirmation.confirm(Lsn(done), None);
            assert_eq!(confirmation.confirmed_lsn(), Lsn(confirmed));
        }
    }

    #[test]
    fn positions_are_confirmed_after_the_stream_passes_their_mark() {
        let mut confirmation = Confirmation::new(Lsn(3));
        confirmation.confirm(Lsn(5), Some(Lsn(20)));
        confirmation.confirm(Lsn(8), Some(Lsn(30)));
        assert_eq!(confirmation.confirmed_lsn(), Lsn(3));
        assert!(!confirmation.advance_stream_to(Lsn(19)));
        assert!(confirmation.advance_stream_to(Lsn(20)));
        assert_eq!(confirmation.confirmed_lsn(), Lsn(5));
        assert!(confirmation.has_unconfirmed());
        assert!(!confirmation.advance_stream_to(Lsn(29)));
        // The stream may pass the mark before the mark is known.
        assert!(confirmation.advance_stream_to(Lsn(40)));
        confirmation.confirm(Lsn(12), Some(Lsn(40)));
        assert_eq!(confirmation.confirmed_lsn(), Lsn(12));
        assert!(!confirmation.has_unconfirmed());
    }
}
