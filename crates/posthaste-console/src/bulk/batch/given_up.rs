//! Redrive and delete: walks from the job that was given up first to the last one given up before
//! the action began. A redriven job that dies again is newer than that, so no later batch meets it.

use jiff::Timestamp;
use posthaste::State;

use super::{Batch, job_ids};
use crate::action::{Kind, Step};
use crate::store::{self, StoreError};
use crate::window::{Cursor, GIVEN_UP_STATES};

impl Batch<'_> {
    pub(super) async fn redrive_or_delete(&self) -> Result<Step, StoreError> {
        let mut here = self.step_without_effect();
        let Some(Cursor::GivenUp(state, at, id)) = self.current_place() else {
            return Ok(Step {
                is_over: true,
                ..here
            });
        };
        let until = self.action.started_at;
        let (session, filter) = (self.session, &self.filter);
        let found =
            store::next_given_up(session, state, (at, id), until, filter, self.limit).await?;
        here.jobs = match (found.ids.is_empty(), self.action.kind) {
            (true, _) => 0,
            (false, Kind::Delete) => store::delete_given_up(session, &found.ids).await?,
            (false, _) => session.jobs()?.redrive(&job_ids(&found.ids)).await?.len(),
        };
        let next = match found.next {
            Some((at, id)) => Some(Cursor::GivenUp(state, at, id)),
            None => self.first_place_after(state),
        };
        here.is_over = next.is_none();
        here.place = next.map(|place| place.to_string());
        Ok(here)
    }

    /// Returns the current position, or the first one.
    fn current_place(&self) -> Option<Cursor> {
        match &self.action.place {
            Some(place) => place.parse().ok(),
            None => self.first_place_of(self.filter.state.unwrap_or(GIVEN_UP_STATES[0])),
        }
    }

    fn first_place_of(&self, state: State) -> Option<Cursor> {
        let since = self.filter.since_at().unwrap_or(Timestamp::UNIX_EPOCH);
        Some(Cursor::GivenUp(state, since, -1))
    }

    /// Returns the first position in the next state; `None` if the filter selects one state, or
    /// after the last.
    fn first_place_after(&self, state: State) -> Option<Cursor> {
        if self.filter.state.is_some() {
            return None;
        }
        let at = GIVEN_UP_STATES.iter().position(|one| *one == state)?;
        self.first_place_of(*GIVEN_UP_STATES.get(at + 1)?)
    }
}
