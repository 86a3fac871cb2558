//! Reads what operators request and how much log is unconfirmed, while sending continues.

use std::sync::Arc;
use std::time::Instant;

use super::{DirectRun, EventPath};
use crate::copying::RequestedCopy;
use crate::error::Error;
use crate::lsn::Lsn;
use crate::session::{STATUS_INTERVAL, keep_alive_while};

/// The operators' requests, and the log after a mark.
pub(super) struct PollResult {
    is_paused: bool,
    requested: Option<RequestedCopy>,
    unconfirmed: u64,
    done: Lsn,
}

impl DirectRun<'_, '_> {
    /// Begins to read, once a second. It uses the connection of the marks, whose transactions no
    /// other statement may enter.
    pub(super) fn begin_poll(&mut self) {
        let is_idle = self.polling.is_empty() && self.marking.is_none();
        if !is_idle || self.is_store_lost || self.polled_at.elapsed() < STATUS_INTERVAL {
            return;
        }
        self.polled_at = Instant::now();
        let (store, done) = (Arc::clone(&self.session.store), self.marked.done);
        self.polling.spawn(async move {
            let (is_paused, requested) = store.read_requests().await?;
            let unconfirmed = store.unconfirmed_bytes(done).await?;
            Ok(PollResult {
                is_paused,
                requested,
                unconfirmed,
                done,
            })
        });
    }

    /// Applies what was read. An error ends the session unless events are sent without the store.
    /// Not while the destination accepts nothing either: a server that shuts down would wait.
    pub(super) async fn apply_poll(
        &mut self,
        polled: Result<PollResult, Error>,
    ) -> Result<(), Error> {
        let poll = match (polled, self.path) {
            (Ok(poll), _) => poll,
            (Err(error), EventPath::Direct) if !self.policy.is_silent() => {
                self.lose_store(&error);
                return Ok(());
            }
            (Err(error), _) => return Err(error),
        };
        (self.has_polled, self.is_paused) = (true, poll.is_paused);
        if matches!(self.path, EventPath::Direct) && self.in_flight.is_some() {
            let (now, unconfirmed) = (self.began.elapsed(), poll.unconfirmed);
            self.spills_next |= self.policy.is_log_too_long(now, unconfirmed, poll.done);
        }
        self.switch_copy(poll.requested).await
    }

    /// Waits for what is being read.
    pub(super) async fn finish_polling(&mut self) -> Result<(), Error> {
        let polling = &mut self.polling;
        let next = async { Ok(polling.join_next().await) };
        match keep_alive_while(&mut self.session.feed, next).await? {
            Some(Ok(polled)) => self.apply_poll(polled).await,
            Some(Err(error)) => Err(Error::lost(error.to_string())),
            None => Ok(()),
        }
    }
}
