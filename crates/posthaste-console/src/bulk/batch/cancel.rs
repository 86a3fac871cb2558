//! Cancel: walks through the places that hold jobs, in the order of the list, and cancels the jobs
//! that were enqueued before the action began. Jobs move between places, so passes repeat until one
//! meets no job.

use std::collections::HashSet;

use posthaste::State;

use super::{Batch, job_ids};
use crate::action::Step;
use crate::search::{JobSearch, SearchResult};
use crate::store::{self, StoreError};

/// The most passes over all places: another session may hold locks on the remaining jobs and not
/// release them.
const MAX_PASSES: i32 = 50;

impl Batch<'_> {
    pub(super) async fn cancel(&self) -> Result<Step, StoreError> {
        let place = self.action.place.as_deref();
        let search = JobSearch {
            filter: &self.filter,
            sums: None,
            secrets: self.secrets,
            at: place.and_then(|place| place.parse().ok()),
            is_by_due: false,
            limit: self.limit,
        };
        let found = search.run_in(self.session).await?;
        let ids = self.jobs_to_cancel(&found).await?;
        let (mut done, mut are_left) = (0, false);
        if !ids.is_empty() {
            let met = self.session.jobs()?.cancel(&job_ids(&ids)).await?;
            let is = |wanted: State| {
                met.iter()
                    .filter(move |(_, state)| *state == wanted)
                    .count()
            };
            done = is(State::Cancelled) + is(State::Running);
            // One call locks a limited number of lanes.
            are_left = is(State::Available) > 0 && done > 0;
        }
        Ok(match are_left {
            true => Step {
                jobs: done,
                pass_jobs: self.action.pass_jobs + to_i64(done),
                ..self.step_without_effect()
            },
            false => self.next_step(&found, done),
        })
    }

    /// Returns the jobs that were enqueued before the action began and are not being cancelled yet.
    async fn jobs_to_cancel(&self, found: &SearchResult) -> Result<Vec<i64>, StoreError> {
        let old = found.jobs.iter();
        let old = old.filter(|job| job.enqueued_at <= self.action.started_at);
        let running = old.clone().filter(|job| job.state == State::Running);
        let running: Vec<i64> = running.map(|job| job.id).collect();
        let asked: HashSet<i64> = match running.is_empty() {
            true => HashSet::new(),
            false => {
                let asked = store::being_cancelled(self.session, &running).await?;
                asked.into_iter().collect()
            }
        };
        Ok(old
            .map(|job| job.id)
            .filter(|id| !asked.contains(id))
            .collect())
    }

    fn next_step(&self, found: &SearchResult, done: usize) -> Step {
        let pass_jobs = self.action.pass_jobs + to_i64(done);
        if let Some(next) = &found.next {
            return Step {
                jobs: done,
                place: Some(next.to_string()),
                passes: self.action.passes,
                pass_jobs,
                is_over: false,
            };
        }
        let passes = self.action.passes + 1;
        // If the place was truncated, jobs may have moved from it unseen.
        let is_whole = pass_jobs == 0 && !found.is_gone;
        Step {
            jobs: done,
            place: None,
            passes,
            pass_jobs: 0,
            is_over: is_whole || passes >= MAX_PASSES,
        }
    }
}

fn to_i64(jobs: usize) -> i64 {
    i64::try_from(jobs).unwrap_or(i64::MAX)
}
