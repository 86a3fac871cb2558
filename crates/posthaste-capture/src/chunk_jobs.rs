//! The jobs of a chunk, made while the server writes the previous ones. Pure.

use posthaste::NewJob;

use crate::event::Event;
use crate::handed_rows::HandedRows;
use crate::mark::EventCounts;

pub(crate) struct ChunkJobs<'a, E> {
    events: E,
    queue: &'a str,
    pub(crate) handed: HandedRows,
    pub(crate) counts: EventCounts,
    /// Why a row cannot become a job. No job follows, and none may be kept.
    pub(crate) problem: Option<String>,
}

impl<'a, E: Iterator<Item = Result<Event, String>>> ChunkJobs<'a, E> {
    pub(crate) fn new(events: E, queue: &'a str) -> Self {
        Self {
            events,
            queue,
            handed: HandedRows::default(),
            counts: EventCounts::default(),
            problem: None,
        }
    }

    fn next_job(&mut self) -> Option<Result<NewJob, String>> {
        let event = match self.events.next()? {
            Ok(event) => event,
            Err(problem) => return Some(Err(problem)),
        };
        if event.row.is_some() {
            let row = HandedRows::from_events(std::slice::from_ref(&event), &[]);
            self.handed.append(&row);
        }
        Some(event.to_job(self.queue).map_err(|error| error.to_string()))
    }
}

impl<E: Iterator<Item = Result<Event, String>>> Iterator for ChunkJobs<'_, E> {
    type Item = NewJob;

    fn next(&mut self) -> Option<NewJob> {
        if self.problem.is_some() {
            return None;
        }
        match self.next_job()? {
            Ok(job) => {
                self.counts.events += 1;
                self.counts.bytes += job.bytes();
                Some(job)
            }
            Err(problem) => {
                self.problem = Some(problem);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::ChunkJobs;
    use crate::event::{Event, EventDraft};
    use crate::position::Position;

    fn event(name: &str) -> Event {
        let draft = EventDraft {
            id: None,
            name: name.into(),
            key: None,
            headers: Vec::new(),
            body: "{}".into(),
        };
        let (id, at) = (Uuid::nil(), Timestamp::UNIX_EPOCH);
        Event::new(draft, id, at, 1, Position::default())
    }

    #[test]
    fn jobs_end_at_the_first_row_that_cannot_become_one() {
        let events = ["a", "b"].map(|name| Ok(event(name)));
        let mut whole = ChunkJobs::new(events.into_iter(), "q");
        let bytes: usize = whole.by_ref().map(|job| job.bytes()).sum();
        assert_eq!((whole.counts.events, whole.counts.bytes), (2, bytes));
        assert_eq!(whole.problem, None);
        let events = [Ok(event("a")), Err("bad".to_owned()), Ok(event("b"))];
        let mut broken = ChunkJobs::new(events.into_iter(), "q");
        assert_eq!(broken.by_ref().count(), 1);
        assert_eq!(broken.by_ref().count(), 0);
        assert_eq!(broken.problem.as_deref(), Some("bad"));
        let unnamed = [Ok(event(""))];
        let mut unnamed = ChunkJobs::new(unnamed.into_iter(), "q");
        assert_eq!(unnamed.by_ref().count(), 0);
        assert!(unnamed.problem.is_some());
    }
}
