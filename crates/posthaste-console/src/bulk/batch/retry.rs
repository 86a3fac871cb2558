//! Retry: walks by due time, which does not change when jobs are moved to another segment, then
//! through quarantined jobs. A job that was tried after the action began is not retried again.

use std::collections::HashSet;

use jiff::Timestamp;
use posthaste::State;

use super::{Batch, job_ids};
use crate::action::Step;
use crate::store::{self, StoreError};
use crate::window::Cursor;

/// Jobs of one read that were enqueued before the action began, and the position of the next read.
struct RetryRead {
    ids: Vec<i64>,
    next: Option<Cursor>,
}

impl Batch<'_> {
    pub(super) async fn retry(&self) -> Result<Step, StoreError> {
        let place = self.action.place.as_deref();
        let place = place.and_then(|place| place.parse().ok());
        let met = match place.unwrap_or_else(|| self.first_place()) {
            Cursor::Due(at, id) => self.read_due(at, id).await?,
            Cursor::InFlight(below) => self.read_quarantined(below).await?,
            _ => RetryRead {
                ids: Vec::new(),
                next: None,
            },
        };
        let ids = self.not_tried_since(met.ids).await?;
        let jobs = match ids.is_empty() {
            true => 0,
            false => {
                let runs = [State::Available, State::Blocked, State::Quarantined];
                let now = self.session.jobs()?.retry(&job_ids(&ids)).await?;
                now.iter().filter(|(_, state)| runs.contains(state)).count()
            }
        };
        Ok(Step {
            jobs,
            is_over: met.next.is_none(),
            place: met.next.map(|place| place.to_string()),
            ..self.step_without_effect()
        })
    }

    fn first_place(&self) -> Cursor {
        match self.filter.state {
            Some(State::Quarantined) => Cursor::InFlight(i64::MAX),
            _ => Cursor::FIRST_DUE,
        }
    }

    async fn read_due(&self, at: Timestamp, id: i64) -> Result<RetryRead, StoreError> {
        let limit = i64::try_from(self.limit).unwrap_or(i64::MAX);
        let found = store::read_due(self.session, (at, id), &self.filter, limit).await?;
        let last = found.jobs.last().map(|job| job.place.clone());
        let is_full = found.jobs.len() >= self.limit;
        let end = found.end.filter(|_| found.is_bounded);
        let next = match last.filter(|_| is_full) {
            Some(last) => Some(last),
            None => end.map(|(at, id)| Cursor::Due(at, id)),
        };
        let after = match self.filter.state {
            None => Some(Cursor::InFlight(i64::MAX)),
            Some(_) => None,
        };
        let old = found.jobs.iter();
        let old = old.filter(|job| job.enqueued_at <= self.action.started_at);
        Ok(RetryRead {
            ids: old.map(|job| job.id).collect(),
            next: next.or(after),
        })
    }

    async fn read_quarantined(&self, below: i64) -> Result<RetryRead, StoreError> {
        let found = store::quarantined_below(self.session, below, &self.filter, self.limit).await?;
        let is_full = found.len() >= self.limit;
        let last = found.last().filter(|_| is_full);
        let old = found.iter();
        let old = old.filter(|(_, enqueued_at)| *enqueued_at <= self.action.started_at);
        Ok(RetryRead {
            ids: old.map(|(id, _)| *id).collect(),
            next: last.map(|(id, _)| Cursor::InFlight(*id)),
        })
    }

    async fn not_tried_since(&self, ids: Vec<i64>) -> Result<Vec<i64>, StoreError> {
        if ids.is_empty() {
            return Ok(ids);
        }
        let tried = store::tried_since(self.session, &ids, self.action.started_at).await?;
        let tried: HashSet<i64> = tried.into_iter().collect();
        Ok(ids.into_iter().filter(|id| !tried.contains(id)).collect())
    }
}
