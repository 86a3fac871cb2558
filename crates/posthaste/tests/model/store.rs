//! The store, driven through its functions, and compared with the model.

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

type Told<T = ()> = Result<T, String>;

impl Store {
    pub async fn open(database: &TestDb) -> Told<Self> {
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

    async fn register(&mut self) -> Told<i64> {
        let sql = "INSERT INTO posthaste.worker (name) VALUES ('model') RETURNING id";
        Ok(self.rows(sql, &[]).await?[0].get(0))
    }

    async fn rows(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Told<Vec<Row>> {
        let told = |error: tokio_postgres::Error| match error.as_db_error() {
            Some(said) => format!("{sql}: {} {}", said.code().code(), said.message()),
            None => format!("{sql}: {error}"),
        };
        if !self.prepared.contains_key(sql) {
            let prepared = self.client.prepare(sql).await.map_err(told)?;
            self.prepared.insert(sql.to_owned(), prepared);
        }
        let statement = &self.prepared[sql];
        self.client.query(statement, values).await.map_err(told)
    }

    /// One value.
    async fn ask<T: FromSqlOwned>(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Told<T> {
        let rows = self.rows(sql, values).await?;
        Ok(rows.first().ok_or("no row")?.get(0))
    }

    /// Takes a step here and in the book.
    pub async fn take(&mut self, step: &Step, book: &mut Book) -> Told {
        self.step(step, book).await?;
        // The leader looks at the lines all the time.
        while self
            .ask::<i64>("SELECT posthaste.take_turns(100)", &[])
            .await?
            > 0
        {}
        book.takes_turns();
        Ok(())
    }

    async fn step(&mut self, step: &Step, book: &mut Book) -> Told {
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
            Step::ClaimSuspect { worker, queue } => self.claim_suspect(*worker, *queue, book).await,
            Step::Settle { hand, some, how } => self.settle(*hand, *some, *how, book).await,
            Step::CloseWhole { hand } => self.close_whole(*hand, book).await,
            Step::PutOff { hand, later } => self.put_off(*hand, *later, book).await,
            Step::ReturnClaim { hand } => self.return_claim(*hand, book).await,
            Step::Kill { worker } => self.kill(*worker, book).await,
            Step::Turn(turn) => self.turn(*turn, book).await,
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

    async fn enqueue(&mut self, step: &Step, book: &mut Book) -> Told {
        match step {
            Step::Enqueue {
                queue,
                priority,
                later,
                key,
                line,
                most,
                is_kept,
            } => {
                let line = line.map(|line| format!("line {line}"));
                let key = key.map(|key| format!("key {key}"));
                let sql = format!(
                    "SELECT posthaste.enqueue('model', '{{\"a\": 1}}', $1, $2, {}, unique_key => $3, max_attempts => $4, ordering_key => $5)",
                    if *later { LATER } else { "now()" }
                );
                let end = if *is_kept { "COMMIT" } else { "ROLLBACK" };
                self.rows("BEGIN", &[]).await?;
                let values: [&(dyn ToSql + Sync); 5] =
                    [&QUEUES[*queue], priority, &key, most, &line];
                let id: i64 = self.ask(&sql, &values).await?;
                self.rows(end, &[]).await?;
                match book.holder(key.as_ref()) {
                    Some(holder) => expect(id, holder),
                    None if *is_kept => {
                        let job = Job {
                            key,
                            line,
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
                    "INSERT INTO posthaste.job (name, queue, priority, scheduled_at) SELECT 'model', $1, $2, {} FROM generate_series(1, $3::integer) RETURNING id",
                    if *later { LATER } else { "now()" }
                );
                for row in self.rows(&sql, &[&QUEUES[*queue], priority, jobs]).await? {
                    book.enqueued(row.get(0), new(*queue, *priority, *later, Some(25)));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn turn(&mut self, turn: Turn, book: &mut Book) -> Told {
        let ring = &self.rows("SELECT (ready_low % 4)::integer, ready_low, (ready_scan % 4)::integer FROM posthaste.ring()", &[]).await?[0];
        let (low, generation, scan): (i32, i64, i32) = (ring.get(0), ring.get(1), ring.get(2));
        match turn {
            Turn::Rotate => self.rows("SELECT posthaste.rotate(1)", &[]).await,
            Turn::Seal => self.rows("SELECT posthaste.seal()", &[]).await,
            Turn::Reclaim => {
                let sql = "SELECT posthaste.reclaim($1, 0, 1000)";
                self.rows(sql, &[&generation]).await
            }
            Turn::MoveAside => {
                self.rows("SELECT posthaste.move_aside($1, 100)", &[&scan])
                    .await
            }
            Turn::TidyAside => self.rows("SELECT posthaste.tidy_aside(1, 100)", &[]).await,
            Turn::TidyParked => self.rows("SELECT posthaste.tidy_parked(1)", &[]).await,
            Turn::Hold => {
                for hand in &mut book.hands {
                    hand.is_split |= i32::from(hand.slot) == low && !hand.open.is_empty();
                }
                self.rows("SELECT posthaste.hold($1, 0, 100)", &[&low])
                    .await
            }
        }
        .map(drop)
    }

    /// The view shows what the book says, each job once, and keys are held by whom the book says.
    pub async fn compare(&mut self, book: &Book) -> Told {
        let sql = "SELECT id, queue, priority, state, attempt, max_attempts, unique_key, ordering_key FROM posthaste.job WHERE state <> 'done' ORDER BY id";
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
            ));
        }
        let jobs = book.jobs.iter();
        let known = jobs.filter(|(_, job)| job.state != State::Done);
        let known: Vec<Shown> = known.map(|(id, job)| told(*id, job)).collect();
        expect(shown, known)?;
        let sql = "SELECT key, id FROM posthaste.unique_key";
        let rows = self.rows(sql, &[]).await?;
        let keys = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        expect(&keys, &book.keys)
    }
}

/// Its id, lane, state, attempts and keys.
type Shown = (
    i64,
    String,
    i32,
    String,
    i32,
    Option<i32>,
    Option<String>,
    Option<String>,
);

/// A job as the view shows it.
fn told(id: i64, job: &Job) -> Shown {
    let state = match job.state {
        State::Scheduled | State::Retrying if job.attempt > 0 => "retrying",
        State::Scheduled | State::Retrying => "scheduled",
        State::Waiting => "waiting",
        State::Claimable => "claimable",
        State::Running => "running",
        State::Awaiting => "awaiting",
        State::Suspect => "suspect",
        State::Done => "done",
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
        job.line.clone(),
    )
}

fn new(queue: usize, priority: i32, later: bool, most: Option<i32>) -> Job {
    Job {
        queue,
        priority,
        state: if later {
            State::Scheduled
        } else {
            State::Claimable
        },
        attempt: 0,
        most,
        key: None,
        line: None,
        has_turn: false,
        crashes: 0,
    }
}

fn expect<T: PartialEq + std::fmt::Debug>(is: T, should: T) -> Told {
    if is == should {
        Ok(())
    } else {
        Err(format!("the store says\n  {is:?}, the model\n  {should:?}"))
    }
}
