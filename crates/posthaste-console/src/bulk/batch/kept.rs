//! Redrive and delete: walks from the job that was given up first to the last one given up before
//! the action began. A redriven job that dies again is newer than that, so no later batch meets it.

use jiff::Timestamp;
use posthaste::State;

use super::{Batch, numbers};
use crate::action::{Kind, Step};
use crate::store::{self, StoreError};
use crate::window::{Cursor, KEPT};

impl Batch<'_> {
    pub(super) async fn kept(&self) -> Result<Step, StoreError> {
        let mut here = self.here();
        let Some(Cursor::Kept(state, at, id)) = self.kept_place() else {
            return Ok(Step {
                is_over: true,
                ..here
            });
        };
        let until = self.action.started_at;
        let (session, filter) = (self.session, &self.filter);
        let found = store::next_kept(session, state, (at, id), until, filter, self.limit).await?;
        here.jobs = match (found.ids.is_empty(), self.action.kind) {
            (true, _) => 0,
            (false, Kind::Delete) => store::delete_kept(session, &found.ids).await?,
            (false, _) => session.jobs()?.redrive(&numbers(&found.ids)).await?.len(),
        };
        let next = match found.next {
            Some((at, id)) => Some(Cursor::Kept(state, at, id)),
            None => self.next_state(state),
        };
        here.is_over = next.is_none();
        here.place = next.map(|place| place.to_string());
        Ok(here)
    }

    /// Returns the current position, or the first one.
    fn kept_place(&self) -> Option<Cursor> {
        match &self.action.place {
            Some(place) => place.parse().ok(),
            None => self.first_of(self.filter.state.unwrap_or(KEPT[0])),
        }
    }

    fn first_of(&self, state: State) -> Option<Cursor> {
        let since = self.filter.since_at().unwrap_or(Timestamp::UNIX_EPOCH);
        Some(Cursor::Kept(state, since, -1))
    }

    /// Returns the first position in the next state; `None` if the filter selects one state, or
    /// after the last.
    fn next_state(&self, state: State) -> Option<Cursor> {
        if self.filter.state.is_some() {
            return None;
        }
        let at = KEPT.iter().position(|one| *one == state)?;
        self.first_of(*KEPT.get(at + 1)?)
    }
}
