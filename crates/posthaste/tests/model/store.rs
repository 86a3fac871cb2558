//! The store, driven through its functions, and compared with the model.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use posthaste::{Event, State};
use posthaste_testkit::TestDb;
use proptest::sample::Index;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};
use uuid::Uuid;

use super::book::{Book, Hand, Job};
use super::step::{Close, Step, Turn};

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
    async fn ask<T: tokio_postgres::types::FromSqlOwned>(
        &mut self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Told<T> {
        let rows = self.rows(sql, values).await?;
        Ok(rows.first().ok_or("no row")?.get(0))
    }

    /// Takes a step here and in the book.
    pub async fn take(&mut self, step: &Step, book: &mut Book) -> Told {
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
                most,
                is_kept,
            } => {
                let key = key.map(|key| format!("key {key}"));
                let sql = format!(
                    "SELECT posthaste.enqueue('model', '{{\"a\": 1}}', $1, $2, {}, unique_key => $3, max_attempts => $4)",
                    if *later { LATER } else { "now()" }
                );
                let end = if *is_kept { "COMMIT" } else { "ROLLBACK" };
                self.rows("BEGIN", &[]).await?;
                let values: [&(dyn ToSql + Sync); 4] = [&QUEUES[*queue], priority, &key, most];
                let id: i64 = self.ask(&sql, &values).await?;
                self.rows(end, &[]).await?;
                match book.holder(key.as_ref()) {
                    Some(holder) => expect(id, holder),
                    None if *is_kept => {
                        book.enqueued(id, new(*queue, *priority, *later, key, *most));
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
                    book.enqueued(row.get(0), new(*queue, *priority, *later, None, Some(25)));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether anything came. What comes is claimable, the first lane first; and something comes while something is claimable.
    async fn claim(
        &mut self,
        worker: usize,
        queue: usize,
        most: i32,
        book: &mut Book,
    ) -> Told<bool> {
        let token = Uuid::new_v4();
        let sql = "SELECT slot, batch, id, attempt, priority FROM posthaste.claim($1, ARRAY[0, 1], $2, $3, $4, 1 << 24)";
        let id = self.workers[worker];
        let rows = self
            .rows(sql, &[&QUEUES[queue], &id, &token, &most])
            .await?;
        let claimable = book.claimable(queue, State::Claimable);
        if rows.is_empty() != claimable.is_empty() || rows.len() > most as usize {
            return Err(format!("{} came of {claimable:?}", rows.len()));
        }
        let first = claimable.iter().map(|id| book.jobs[id].priority).min();
        let mut hands: BTreeMap<(i16, i64), Vec<i64>> = BTreeMap::new();
        for (at, row) in rows.iter().enumerate() {
            let id: i64 = row.get(2);
            let job = &book.jobs[&id];
            if !claimable.contains(&id) {
                return Err(format!("{id} came, which is {job:?}"));
            }
            expect((row.get(3), row.get(4)), (job.attempt, job.priority))?;
            if at == 0 {
                expect(Some(job.priority), first)?;
            }
            hands.entry((row.get(0), row.get(1))).or_default().push(id);
        }
        for ((slot, batch), given) in hands {
            book.claimed(hand(self.workers[worker], slot, batch, token, given));
        }
        Ok(!rows.is_empty())
    }

    async fn claim_suspect(&mut self, worker: usize, queue: usize, book: &mut Book) -> Told {
        let now = "UPDATE posthaste.held SET until = clock_timestamp() WHERE state = 'suspect'";
        self.rows(now, &[]).await?;
        let token = Uuid::new_v4();
        let sql = "SELECT slot, batch, id FROM posthaste.claim_suspect($1, $2, $3)";
        let id = self.workers[worker];
        let rows = self.rows(sql, &[&QUEUES[queue], &id, &token]).await?;
        let suspects = book.claimable(queue, State::Suspect);
        expect(rows.len(), suspects.len().min(1))?;
        for row in rows {
            let id: i64 = row.get(2);
            if !suspects.contains(&id) {
                return Err(format!("{id} came, of {suspects:?}"));
            }
            book.claimed(hand(
                self.workers[worker],
                row.get(0),
                row.get(1),
                token,
                vec![id],
            ));
        }
        Ok(())
    }

    async fn settle(&mut self, hand: Index, some: u8, how: Close, book: &mut Book) -> Told {
        if book.hands.is_empty() {
            return Ok(());
        }
        let at = hand.index(book.hands.len());
        let Hand {
            slot,
            batch,
            token,
            given,
            ..
        } = book.hands[at].clone();
        let chosen = given.into_iter().enumerate();
        let ids: Vec<i64> = chosen
            .filter(|(nth, _)| some >> (nth % 8) & 1 == 1)
            .map(|(_, id)| id)
            .collect();
        if ids.is_empty() {
            return Ok(());
        }
        let mut kinds: Vec<i16> = Vec::new();
        let mut attempts: Vec<i32> = Vec::new();
        for id in &ids {
            let Job { attempt, most, .. } = book.jobs[id];
            let burnt = attempt + 1;
            let is_last = most.is_some_and(|most| burnt >= most);
            let (kind, attempt) = match how {
                Close::Done => (0, attempt),
                Close::Fail { .. } if is_last => (2, burnt),
                Close::Fail { .. } => (1, burnt),
                Close::Snooze { .. } => (1, attempt),
                Close::Discard => (2, burnt),
                Close::Await => (4, attempt),
                Close::GiveBack => (8, attempt),
            };
            kinds.push(kind);
            attempts.push(attempt);
        }
        let state = if how == Close::Discard {
            "discarded"
        } else {
            "dead"
        };
        let is_later = matches!(
            how,
            Close::Fail { later: true } | Close::Snooze { later: true } | Close::Await
        );
        let hours = i32::from(is_later);
        let sql = "SELECT posthaste.settle($1, $2, $3, $4::bigint[], $5, $6, NULL,
              array_fill(now() + $7::integer * interval '1 hour', ARRAY[cardinality($4::bigint[])]), array_fill($8::text, ARRAY[cardinality($4::bigint[])]),
              array_fill('an error'::text, ARRAY[cardinality($4::bigint[])]))";
        let values: [&(dyn ToSql + Sync); 8] = [
            &slot, &batch, &token, &ids, &kinds, &attempts, &hours, &state,
        ];
        let ours: Vec<i64> = self.ask(sql, &values).await?;
        let mut expected = BTreeSet::new();
        for id in ids {
            if book.settled(at, id, how) {
                expected.insert(id);
            }
        }
        expect(BTreeSet::from_iter(ours), expected)
    }

    /// As workers do: only where no job has a key.
    async fn close_whole(&mut self, hand: Index, book: &mut Book) -> Told {
        if book.hands.is_empty() {
            return Ok(());
        }
        let at = hand.index(book.hands.len());
        let hand = book.hands[at].clone();
        if hand.given.iter().any(|id| book.jobs[id].key.is_some()) {
            return Ok(());
        }
        let sql = "SELECT posthaste.close_whole(ARRAY[$1::smallint], ARRAY[$2::bigint], ARRAY[$3::uuid], ARRAY[$4::integer])";
        let jobs = i32::try_from(hand.given.len()).unwrap_or(0);
        let left: Vec<i32> = self
            .ask(sql, &[&hand.slot, &hand.batch, &hand.token, &jobs])
            .await?;
        let is_whole = hand.slot >= 0 && !hand.is_split;
        expect(left.is_empty(), is_whole)?;
        if is_whole {
            for id in &hand.given {
                book.settled(at, *id, Close::Done);
            }
        }
        Ok(())
    }

    async fn return_claim(&mut self, hand: Index, book: &mut Book) -> Told {
        if book.hands.is_empty() {
            return Ok(());
        }
        let Hand { worker, token, .. } = book.hands[hand.index(book.hands.len())];
        let sql = "SELECT posthaste.return_claim($1, $2)";
        let given: i64 = self.ask(sql, &[&worker, &token]).await?;
        let mut expected = 0;
        for hand in 0..book.hands.len() {
            if book.hands[hand].token == token {
                for id in book.hands[hand].open.clone() {
                    expected += i64::from(book.settled(hand, id, Close::GiveBack));
                }
            }
        }
        expect(given, expected)
    }

    async fn kill(&mut self, worker: usize, book: &mut Book) -> Told {
        let id = self.workers[worker];
        let sql = "SELECT posthaste.rescue($1, 0)";
        let _: i64 = self.ask(sql, &[&id]).await?;
        book.worker_died(id);
        self.workers[worker] = self.register().await?;
        Ok(())
    }

    /// Steps that concern one job.
    async fn touch(&mut self, step: &Step, book: &mut Book) -> Told {
        use State::{
            Awaiting, Cancelled, Claimable, Dead, Discarded, Expired, Retrying, Scheduled, Suspect,
        };
        let kept = [Dead, Discarded, Expired, Cancelled];
        let (job, jobs) = match step {
            Step::Due { job } => (job, book.in_state(&[Scheduled, Retrying])),
            Step::Expire { job } => {
                let waiting = [Scheduled, Claimable, Retrying, Awaiting, Suspect];
                (job, book.in_state(&waiting))
            }
            Step::Overdue { job } => (job, book.in_state(&[Awaiting])),
            Step::Redrive { job } => (job, book.in_state(&kept)),
            Step::Confirm { job } | Step::Cancel { job } => {
                (job, book.jobs.keys().copied().collect())
            }
            _ => return Ok(()),
        };
        if jobs.is_empty() {
            return Ok(());
        }
        let id = jobs[job.index(jobs.len())];
        match step {
            Step::Confirm { .. } => {
                let sql = "SELECT posthaste.done(posthaste.delivery_id($1))";
                expect(self.ask(sql, &[&id]).await?, true)?;
                book.confirmed(id);
            }
            Step::Cancel { .. } => {
                let said: Option<String> = self.ask("SELECT posthaste.cancel($1)", &[&id]).await?;
                expect(said.as_deref(), book.cancelled(id))?;
            }
            Step::Redrive { .. } => {
                let sql = "SELECT posthaste.redrive(ARRAY[$1::bigint])";
                expect(self.rows(sql, &[&id]).await?.len() == 1, book.redriven(id))?;
            }
            Step::Due { .. } => {
                self.come(id).await?;
                book.happens(id, Event::Due);
            }
            Step::Expire { .. } => {
                self.pass(id).await?;
                book.happens(id, Event::Expired);
            }
            _ => {
                let now = "UPDATE posthaste.held SET until = clock_timestamp() WHERE id = $1";
                self.rows(now, &[&id]).await?;
                let _: i64 = self.ask("SELECT posthaste.overdue(100)", &[]).await?;
                book.failed(id, false);
            }
        }
        Ok(())
    }

    /// The time of a parked job has come: the clock is not turned, the job is. What was promoted before keeps its place.
    async fn come(&mut self, id: i64) -> Told {
        let sql = "UPDATE posthaste.store s SET scheduled_at = clock_timestamp() WHERE s.id = $1 AND s.slot >= 6
            AND s.xid = (SELECT max(t.xid) FROM posthaste.store t WHERE t.id = $1 AND t.slot >= 6)";
        self.rows(sql, &[&id]).await?;
        let _: bool = self.ask("SELECT posthaste.tell_due()", &[]).await?;
        for is_old in [true, false] {
            let sql = "SELECT posthaste.promote(100, $1)";
            while self.ask::<i64>(sql, &[&is_old]).await? > 0 {}
        }
        Ok(())
    }

    /// The time of a job that waits is over, and whose duty that is finds it.
    async fn pass(&mut self, id: i64) -> Told {
        for table in ["store", "held"] {
            let sql =
                format!("UPDATE posthaste.{table} SET expires_at = '2000-01-01' WHERE id = $1");
            self.rows(&sql, &[&id]).await?;
        }
        for slot in 0..8i32 {
            let _: i64 = self
                .ask("SELECT posthaste.expire($1, 100)", &[&slot])
                .await?;
        }
        let _: i64 = self.ask("SELECT posthaste.overdue(100)", &[]).await?;
        Ok(())
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
        let sql = "SELECT id, queue, priority, state, attempt, max_attempts, unique_key FROM posthaste.job WHERE state <> 'done' ORDER BY id";
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

type Shown = (i64, String, i32, String, i32, Option<i32>, Option<String>);

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
    )
}

fn new(queue: usize, priority: i32, later: bool, key: Option<String>, most: Option<i32>) -> Job {
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
        key,
        crashes: 0,
    }
}

fn hand(worker: i64, slot: i16, batch: i64, token: Uuid, given: Vec<i64>) -> Hand {
    Hand {
        worker,
        slot,
        batch,
        token,
        open: given.iter().copied().collect(),
        given,
        is_split: false,
    }
}

fn expect<T: PartialEq + std::fmt::Debug>(is: T, should: T) -> Told {
    if is == should {
        Ok(())
    } else {
        Err(format!("the store says\n  {is:?}, the model\n  {should:?}"))
    }
}
