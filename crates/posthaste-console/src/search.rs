//! Reads a page of jobs: place after place, window after window, until the page is full or the time
//! limit has passed.

use std::time::{Duration, Instant};

use deadpool_postgres::Pool;
use posthaste::State;
use posthaste_observe::Sums;

use crate::filter::Filter;
use crate::redact::Redactor;
use crate::store::{self, JobRow, Session, StoreError};
use crate::window::{Cursor, FIRST_WINDOW_PAGES, MAX_WINDOW_PAGES};

/// Time after which no other window is read.
const MAX_SEARCH_TIME: Duration = Duration::from_millis(600);
/// Claims of each segment that are read for running jobs of a page, the newest first. A segment has
/// one for each run until it is truncated.
const MAX_CLAIMS_PER_SEGMENT: i64 = 20_000;
/// Jobs of one window whose arguments are searched.
const MAX_SEARCHED_JOBS: usize = 500;

/// The result of a search.
#[derive(Default)]
pub(crate) struct SearchResult {
    pub(crate) jobs: Vec<JobRow>,
    /// The start of the next page; `None` after the last one.
    pub(crate) next: Option<Cursor>,
    /// Whether the search ended at its time limit, so there may be more.
    pub(crate) is_cut: bool,
    /// Whether the place at which this page begins no longer exists.
    pub(crate) is_gone: bool,
    /// A sentence about the part that was not read; empty if everything was.
    pub(crate) lacks: &'static str,
    pub(crate) took: Duration,
}

/// A search for the jobs of a page.
pub(crate) struct JobSearch<'a> {
    pub(crate) filter: &'a Filter,
    /// The number of jobs in each state, so that places without any are skipped; `None` if that is
    /// unknown.
    pub(crate) sums: Option<&'a Sums>,
    pub(crate) secrets: &'a Redactor,
    pub(crate) at: Option<Cursor>,
    /// Whether only jobs that are due later are listed, the next first.
    pub(crate) is_by_due: bool,
    pub(crate) limit: usize,
}

impl JobSearch<'_> {
    pub(crate) async fn run(&self, pool: &Pool) -> Result<SearchResult, StoreError> {
        let session = Session::begin_read(pool).await?;
        let started = Instant::now();
        let mut found = self
            .search_places(&session, started, Some(MAX_CLAIMS_PER_SEGMENT))
            .await?;
        found.took = started.elapsed();
        session.commit().await?;
        Ok(found)
    }

    /// Searches within the caller's transaction, with all running jobs.
    pub(crate) async fn run_in(&self, session: &Session) -> Result<SearchResult, StoreError> {
        let started = Instant::now();
        let mut found = self.search_places(session, started, None).await?;
        found.took = started.elapsed();
        Ok(found)
    }

    async fn search_places(
        &self,
        session: &Session,
        started: Instant,
        claims: Option<i64>,
    ) -> Result<SearchResult, StoreError> {
        let mut found = SearchResult::default();
        let mut places = match self.is_by_due {
            true => vec![Cursor::FIRST_DUE],
            false => store::all_places(session).await?,
        };
        if let Some(at) = &self.at {
            let Some(here) = places.iter().position(|place| place.is_in_same_table(at)) else {
                found.is_gone = true;
                return Ok(found);
            };
            places.drain(..here);
            places[0] = at.clone();
        }
        for place in places.into_iter().filter(|place| self.may_match(place)) {
            let mut here = Some(place);
            let mut pages = FIRST_WINDOW_PAGES;
            while let Some(place) = here {
                if started.elapsed() > MAX_SEARCH_TIME {
                    found.next = Some(place);
                    found.is_cut = true;
                    return Ok(found);
                }
                let before = found.jobs.len();
                here = match (&place, claims) {
                    (Cursor::Running(_), Some(claims)) => {
                        self.read_running(session, &place, claims, &mut found)
                            .await?
                    }
                    _ => {
                        self.read_window(session, &place, pages, None, &mut found)
                            .await?
                    }
                };
                if found.jobs.len() == before {
                    pages = (2 * pages).min(MAX_WINDOW_PAGES);
                }
                if found.jobs.len() > self.limit {
                    found.jobs.truncate(self.limit);
                    found.next = found.jobs.last().map(|job| job.place.clone());
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    /// Returns whether a place may hold a matching job.
    fn may_match(&self, place: &Cursor) -> bool {
        let has_worker = matches!(
            place,
            Cursor::Running(_) | Cursor::InFlight(_) | Cursor::Completed(_)
        );
        if self.filter.worker.is_some() && !has_worker {
            return false;
        }
        let is_there = |state| self.sums.is_none_or(|sums| sums.in_state(state) > 0);
        match self.filter.state {
            None if matches!(place, Cursor::GivenUp(..) | Cursor::Completed(_)) => false,
            None => WAITING_STATES
                .into_iter()
                .any(|state| place.may_hold(state) && is_there(state)),
            // An expired job counts in its previous state until a worker finds it.
            Some(State::Expired) => place.may_hold(State::Expired),
            // No counter includes completed jobs that are kept.
            Some(State::Completed) => place.may_hold(State::Completed),
            Some(state) => place.may_hold(state) && is_there(state),
        }
    }

    /// Reads running jobs of this many claims of each segment. If that takes too long, the list has
    /// no running jobs.
    async fn read_running(
        &self,
        session: &Session,
        place: &Cursor,
        claims: i64,
        found: &mut SearchResult,
    ) -> Result<Option<Cursor>, StoreError> {
        session.set_savepoint().await?;
        match self
            .read_window(session, place, 0, Some(claims), found)
            .await
        {
            Err(StoreError::Late(_)) => {
                session.rollback_to_savepoint().await?;
                found.lacks = "Running jobs are missing: reading them took longer than two \
                               seconds.";
                Ok(None)
            }
            read => {
                if store::has_more_claims(session, claims).await? {
                    found.lacks = "The list has the running jobs of the newest 20,000 claims of a \
                                   segment, and long-running jobs.";
                }
                read
            }
        }
    }

    /// Reads one window, and returns the next position in this place.
    async fn read_window(
        &self,
        session: &Session,
        place: &Cursor,
        pages: i64,
        claims: Option<i64>,
        found: &mut SearchResult,
    ) -> Result<Option<Cursor>, StoreError> {
        let room = self.limit + 1 - found.jobs.len();
        let wanted = if self.filter.text.is_some() {
            MAX_SEARCHED_JOBS
        } else {
            room
        };
        let limit = i64::try_from(wanted).unwrap_or(i64::MAX);
        let (mut jobs, on) = match place {
            Cursor::Running(_) | Cursor::InFlight(_) => (
                store::read_by_id(session, place, self.filter, limit, claims).await?,
                None,
            ),
            Cursor::Slot(slot, before) => {
                let from = before.window_start(pages);
                let jobs =
                    store::read_slot(session, *slot, from, *before, self.filter, limit).await?;
                (jobs, (from.page > 0).then_some(Cursor::Slot(*slot, from)))
            }
            Cursor::GivenUp(state, at, id) => {
                let read =
                    store::read_given_up(session, *state, (*at, *id), self.filter, limit).await?;
                let end = read.end.filter(|_| read.is_bounded);
                (
                    read.jobs,
                    end.map(|(at, id)| Cursor::GivenUp(*state, at, id)),
                )
            }
            Cursor::Completed(below) => {
                let found = store::read_completed(session, *below, self.filter, limit).await?;
                let end = found.end.filter(|_| found.is_bounded);
                (found.jobs, end.map(|(_, id)| Cursor::Completed(id)))
            }
            Cursor::Due(at, id) => {
                let due = store::read_due(session, (*at, *id), self.filter, limit).await?;
                let end = due.end.filter(|_| due.is_bounded);
                (due.jobs, end.map(|(at, id)| Cursor::Due(at, id)))
            }
        };
        let next = match jobs.len() >= wanted {
            true => jobs.last().map(|job| job.place.clone()),
            false => on,
        };
        if let Some(text) = &self.filter.text {
            jobs.retain(|job| self.arguments_contain(job, text));
        }
        found.jobs.append(&mut jobs);
        Ok(next)
    }

    /// Returns whether a text is in the arguments that are shown. Hidden values are not searched,
    /// so a search cannot reveal them.
    fn arguments_contain(&self, job: &JobRow, text: &str) -> bool {
        let kwargs = job.kwargs.as_deref().unwrap_or_default();
        self.secrets
            .searchable_text(kwargs)
            .to_lowercase()
            .contains(&text.to_lowercase())
    }
}

const WAITING_STATES: [State; 7] = [
    State::Available,
    State::Blocked,
    State::Running,
    State::Scheduled,
    State::Retrying,
    State::Awaiting,
    State::Quarantined,
];
