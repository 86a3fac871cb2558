//! A record of which claimer received which job when, and the outcome. Overlapping claims of one
//! job are found at once; the rest is for the verdict.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How a delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The store reported: closed by this claimer, for good.
    Done,
    /// The store reported: closed by this claimer, to come again; an attempt may have been counted.
    Again { counted: bool },
    /// It was taken from a dead worker, or given back by the claim's token.
    TakenAway,
}

/// One delivery of a job. Slot, batch and claimer are for the reader of a finding.
#[expect(dead_code, reason = "shown in findings only")]
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    pub id: i64,
    pub slot: i16,
    pub batch: i64,
    pub attempt: i32,
    pub claimer: usize,
    at: Instant,
    /// The job may be delivered again from here on: its end was requested.
    closing: Option<Instant>,
    pub end: Option<End>,
}

/// Identifies one delivery: the job's key and the number of the delivery.
pub type Handed = (i64, usize);

#[derive(Default)]
struct Book {
    jobs: HashMap<i64, Vec<Delivery>>,
    deliveries: usize,
    done: usize,
    last: Option<Instant>,
    finding: Option<String>,
}

/// All deliveries of one run.
#[derive(Default)]
pub struct Ledger(Mutex<Book>);

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a finding; only the first counts, because others may follow from it.
    pub fn fail(&self, finding: String) {
        self.book().finding.get_or_insert(finding);
    }

    pub fn failed(&self) -> bool {
        self.book().finding.is_some()
    }

    pub fn finding(&self) -> Option<String> {
        self.book().finding.clone()
    }

    /// Records a delivery; no other claimer may have the job.
    pub fn delivered(
        &self,
        key: i64,
        id: i64,
        fence: (i16, i64),
        attempt: i32,
        claimer: usize,
    ) -> Handed {
        let mut book = self.book();
        let now = Instant::now();
        book.last = Some(now);
        book.deliveries += 1;
        let times = book.jobs.entry(key).or_default();
        let delivery = Delivery {
            id,
            slot: fence.0,
            batch: fence.1,
            attempt,
            claimer,
            at: now,
            closing: None,
            end: None,
        };
        let finding = times
            .last()
            .and_then(|before| clash(key, before, &delivery));
        times.push(delivery);
        let number = times.len() - 1;
        if let Some(finding) = finding {
            book.finding.get_or_insert(finding);
        }
        (key, number)
    }

    /// Records that the end of these deliveries is about to be requested.
    pub fn closing(&self, handed: &[Handed]) {
        let mut book = self.book();
        let now = Instant::now();
        for (key, number) in handed {
            if let Some(delivery) = book
                .jobs
                .get_mut(key)
                .and_then(|times| times.get_mut(*number))
            {
                delivery.closing.get_or_insert(now);
            }
        }
    }

    /// Records the answer of the store.
    pub fn ended(&self, (key, number): Handed, end: End) {
        let mut book = self.book();
        book.last = Some(Instant::now());
        book.done += usize::from(end == End::Done);
        let mut twice = false;
        if let Some(delivery) = book
            .jobs
            .get_mut(&key)
            .and_then(|times| times.get_mut(number))
        {
            twice = delivery.end.replace(end).is_some();
        }
        if twice {
            book.finding
                .get_or_insert(format!("delivery {number} of job {key} ended twice"));
        }
    }

    /// Returns the number of jobs that are closed for good, and when anything last happened.
    pub fn progress(&self) -> (usize, Option<Instant>) {
        let book = self.book();
        (book.done, book.last)
    }

    /// Returns the numbers of jobs and deliveries.
    pub fn totals(&self) -> (usize, usize) {
        let book = self.book();
        (book.jobs.len(), book.deliveries)
    }

    /// Returns all deliveries by key.
    pub fn jobs(&self) -> HashMap<i64, Vec<Delivery>> {
        self.book().jobs.clone()
    }
}

fn clash(key: i64, before: &Delivery, now: &Delivery) -> Option<String> {
    let what = if before.id != now.id {
        "came under another id"
    } else if before.end == Some(End::Done) {
        "was handed out after it was done"
    } else if before.closing.is_none_or(|closing| closing > now.at) {
        "was handed out by two live claims at once"
    } else {
        return None;
    };
    Some(format!("job {key} {what}: first {before:?}, then {now:?}"))
}
