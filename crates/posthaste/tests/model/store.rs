//! Drives the store through its functions, and compares it with the model.

mod hands;
mod jobs;

use std::collections::HashMap;

use posthaste::State;
use posthaste_testkit::TestDb;
use tokio_postgres::types::{FromSqlOwned, ToSql};
use tokio_postgres::{Client, Row, Statement};

use super::book::{Book, Job};
use super::step::{Step, Turn};

const QUEUES: [&str; 2] = ["a", "b"];
const LATER: &str = "now() + interval '1 hour'";

pub struct Store {
    client: Client,
    prepared: HashMap<String, Statement>,
    workers: [i64; 2],
}

type ModelResult<T = ()> = Result<T, String>;

impl Store {
    pub async fn open(database: &TestDb) -> ModelResult<Self> {
        let client = database.client().await.map_err(|error| error.to_string())?;
        let mut store = Self {
            client,
            prepared: HashMap::new(),
            workers: [0; 2],
        };
        // The view has many branches and few rows here.
        store.rows("SET jit = off", &[]).await?;
        store
            .rows("SET plan_cache_mode = force_generic_plan", &[])
            .await?;
        for worker in 0..2 {
            store.workers[worker] = store.register().await?;
        }
        Ok(store)
    }

    async fn register(&mut self) -> ModelResult<i64> {
        let sql = "INSERT INTO posthaste.worker (name) VALUES ('model') RETURNING id";
        Ok(self.rows(sql, &[]).await?[0].get(0))
    }

    async fn rows(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> ModelResult<Vec<Row>> {
        let failed = |error: tokio_postgres::Error| match error.as_db_error() {
            Some(error) => format!("{sql}: {} {}", error.code().code(), error.message()),
            None => format!("{sql}: {error}"),
        };
        if !self.prepared.contains_key(sql) {
            let prepared = self.client.prepare(sql).await.map_err(failed)?;
            self.prepared.insert(sql.to_owned(), prepared);
        }
        let statement = &self.prepared[sql];
        self.client.query(statement, values).await.map_err(failed)
    }

    /// Returns one value.
    async fn ask<T: FromSqlOwned>(
        &mut self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> ModelResult<T> {
        let rows = self.rows(sql, values).await?;
        Ok(rows.first().ok_or("no row")?.get(0))
    }

    /// Performs a step in the store and in the book.
    pub async fn take(&mut self, step: &Step, book: &mut Book) -> ModelResult {
        self.step(step, book).await?;
        // The leader polls ordering keys all the time.
        while self
            .ask::<i64>("SELECT posthaste.advance_ordering(100)", &[])
            .await?
            > 0
        {}
        book.takes_turns();
        Ok(())
    }

    async fn step(&mut self, step: &Step, book: &mut Book) -> ModelResult {
        match step {
            Step::Enqueue { .. } | Step::EnqueueMany { .. } => self.enqueue(step, book).await,
            Step::Claim {
                worker,
                queue,
                most,
            } => self.claim(*worker, *queue, *most, book).await.map(drop),
            Step::ClaimAll { worker, queue } => {
                while self.claim(*worker, *queue, 3, book).await? {}
                Ok(())
            }
            Step::ClaimQuarantined { worker, queue } => {
                self.claim_quarantined(*worker, *queue, book).await
            }
            Step::Settle { hand, some, how } => self.settle(*hand, *some, *how, book).await,
            Step::CloseBatches { hand } => self.close_batches(*hand, book).await,
            Step::Reschedule { hand, later } => self.reschedule(*hand, *later, book).await,
            Step::ReturnClaim { hand } => self.return_claim(*hand, book).await,
            Step::Kill { worker } => self.kill(*worker, book).await,
            Step::Turn(turn) => self.turn(*turn, book).await,
            Step::ClockBack => self.step_back(book).await,
            Step::CancelAgain => {
                let _: i64 = self.ask("SELECT posthaste.cancel_again()", &[]).await?;
                book.cancelled_again();
                Ok(())
            }
            Step::Pause { queue } => {
                let is_new = book.paused.insert(*queue);
                let sql = "SELECT posthaste.pause($1)";
                expect(self.ask(sql, &[&QUEUES[*queue]]).await?, is_new)
            }
            Step::Resume { queue } => {
                let was_paused = book.paused.remove(queue);
                let sql = "SELECT posthaste.resume($1)";
                expect(self.ask(sql, &[&QUEUES[*queue]]).await?, was_paused)
            }
            _ => self.touch(step, book).await,
        }
    }

    async fn enqueue(&mut self, step: &Step, book: &mut Book) -> ModelResult {
        match step {
            Step::Enqueue {
                queue,
                priority,
                later,
                key,
                ordering_key,
                most,
                is_kept,
            } => {
                let ordering_key = ordering_key.map(|ordering_key| format!("key {ordering_key}"));
                let key = key.map(|key| format!("key {key}"));
                let sql = format!(
                    "SELECT posthaste.enqueue('model', '{{\"a\": 1}}', $1, $2, {}, \
                     unique_key => $3, max_attempts => $4, ordering_key => $5, trace => $6)",
                    if *later { LATER } else { "now()" }
                );
                let end = if *is_kept { "COMMIT" } else { "ROLLBACK" };
                self.rows("BEGIN", &[]).await?;
                let trace = trace(*priority);
                let values: [&(dyn ToSql + Sync); 6] =
                    [&QUEUES[*queue], priority, &key, most, &ordering_key, &trace];
                let id: i64 = self.ask(&sql, &values).await?;
                self.rows(end, &[]).await?;
                match book.holder(key.as_ref()) {
                    Some(holder) => expect(id, holder),
                    None if *is_kept => {
                        let job = Job {
                            key,
                            ordering_key,
                            ..new(*queue, *priority, *later, *most)
                        };
                        book.enqueued(id, job);
                        Ok(())
                    }
                    None => Ok(()),
                }
            }
            Step::EnqueueMany {
                queue,
                priority,
                jobs,
                later,
            } => {
                let sql = format!(
                    "INSERT INTO posthaste.job (name, queue, priority, scheduled_at, trace) \
                     SELECT 'model', $1, $2, {}, $4 FROM generate_series(1, $3::integer) \
                     RETURNING id",
                    if *later { LATER } else { "now()" }
                );
                for row in self
                    .rows(&sql, &[&QUEUES[*queue], priority, jobs, &trace(*priority)])
                    .await?
                {
                    book.enqueued(row.get(0), new(*queue, *priority, *later, Some(25)));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn turn(&mut self, turn: Turn, book: &mut Book) -> ModelResult {
        let segments = &self
            .rows(
                "SELECT (ready_low % 4)::integer, ready_low, (ready_scan % 4)::integer \
                 FROM posthaste.segments()",
                &[],
            )
            .await?[0];
        let (low, segment, scan): (i32, i64, i32) =
            (segments.get(0), segments.get(1), segments.get(2));
        match turn {
            Turn::Rotate => self.rows("SELECT posthaste.rotate(1)", &[]).await,
            Turn::Seal => self.rows("SELECT posthaste.seal()", &[]).await,
            Turn::Reclaim => {
                let sql = "SELECT posthaste.reclaim($1, 0, 1000)";
                self.rows(sql, &[&segment]).await
            }
            Turn::MoveToOverflow => {
                self.rows("SELECT posthaste.move_to_overflow($1, 100)", &[&scan])
                    .await
            }
            Turn::TidyOverflow => {
                self.rows("SELECT posthaste.tidy_overflow(1, 100)", &[])
                    .await
            }
            Turn::TidyScheduled => self.rows("SELECT posthaste.tidy_scheduled(1)", &[]).await,
            Turn::Hold => {
                for hand in &mut book.hands {
                    hand.is_split |= i32::from(hand.slot) == low && !hand.open.is_empty();
                }
                self.rows("SELECT posthaste.move_running($1, 0, 100)", &[&low])
                    .await
            }
        }
        .map(drop)
    }

    /// Checks that the view shows the jobs of the book, each once, and that keys are held by the
    /// same jobs.
    pub async fn compare(&mut self, book: &Book) -> ModelResult {
        let sql = "SELECT id, queue, priority, state, attempt, max_attempts, unique_key, \
                   ordering_key, trace FROM posthaste.job WHERE state <> 'completed' ORDER BY id";
        let mut shown: Vec<Shown> = Vec::new();
        for row in self.rows(sql, &[]).await? {
            shown.push((
                row.get(0),
                row.get(1),
                row.get(2),
                row.get(3),
                row.get(4),
                row.get(5),
                row.get(6),
                row.get(7),
                row.get(8),
            ));
        }
        let jobs = book.jobs.iter();
        let known = jobs.filter(|(_, job)| job.state != State::Completed);
        let known: Vec<Shown> = known.map(|(id, job)| describe(*id, job)).collect();
        expect(shown, known)?;
        let sql = "SELECT key, id FROM posthaste.unique_key";
        let rows = self.rows(sql, &[]).await?;
        let keys = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        expect(&keys, &book.keys)
    }
}

/// Id, lane, state, attempts, keys and trace context of a job.
type Shown = (
    i64,
    String,
    i32,
    String,
    i32,
    Option<i32>,
    Option<String>,
    Option<String>,
    Option<String>,
);

/// Returns the row of a job in the view.
fn describe(id: i64, job: &Job) -> Shown {
    let state = match job.state {
        State::Scheduled | State::Retrying if job.attempt > 0 => "retrying",
        State::Scheduled | State::Retrying => "scheduled",
        State::Blocked => "blocked",
        State::Available => "available",
        State::Running => "running",
        State::Awaiting => "awaiting",
        State::Quarantined => "quarantined",
        State::Completed => "completed",
        State::Dead => "dead",
        State::Discarded => "discarded",
        State::Expired => "expired",
        State::Cancelled => "cancelled",
    };
    (
        id,
        QUEUES[job.queue].into(),
        job.priority,
        state.into(),
        job.attempt,
        job.most,
        job.key.clone(),
        job.ordering_key.clone(),
        job.trace.clone(),
    )
}

fn new(queue: usize, priority: i32, later: bool, most: Option<i32>) -> Job {
    Job {
        queue,
        priority,
        state: if later {
            State::Scheduled
        } else {
            State::Available
        },
        attempt: 0,
        most,
        key: None,
        ordering_key: None,
        trace: trace(priority),
        has_turn: false,
        crashes: 0,
    }
}

/// Returns the trace context that jobs of every other priority have.
fn trace(priority: i32) -> Option<String> {
    (priority % 2 == 0).then(|| format!("00-{priority:032x}-00f067aa0ba902b7-01"))
}

fn expect<T: PartialEq + std::fmt::Debug>(is: T, should: T) -> ModelResult {
    if is == should {
        Ok(())
    } else {
        Err(format!("the store says\n  {is:?}, the model\n  {should:?}"))
    }
}
