//! Claimers: workers that finish, retry, put off, give back, are slow, lose their claims and die, and come back from the dead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row, Statement};
use uuid::Uuid;

use super::Stress;
use super::ledger::{End, Handed};
use super::producer::{PAUSED, PRIORITIES, QUEUES};
use super::session::{alone, connect, told};

const CLAIM: &str = "SELECT slot, batch, id, attempt, (kwargs->>'key')::bigint, scheduled_at <= clock_timestamp(), expires_at > clock_timestamp() - interval '5 s'
    FROM posthaste.claim($1, $2, $3, $4, $5, $6)";
const CLAIM_SUSPECT: &str = "SELECT slot, batch, id, attempt, (kwargs->>'key')::bigint, true, true FROM posthaste.claim_suspect($1, $2, $3)";
const DONE: &str = "SELECT posthaste.close_whole($1, $2, $3, $4)";
const SETTLE: &str = "SELECT posthaste.settle($1, $2, $3, $4, $5, $6, ARRAY(SELECT ms * interval '1 ms' FROM unnest($7::bigint[]) ms), NULL, NULL, NULL)";
const RETURN: &str = "SELECT posthaste.return_claim($1, $2)";
const RESCUE: &str = "SELECT posthaste.rescue($1, 0)";

/// A job in hand.
#[derive(Clone, Copy)]
struct Job {
    id: i64,
    attempt: i32,
    handed: Handed,
}

/// What one claim handed out, by (slot, batch).
type Batches = BTreeMap<(i16, i64), Vec<Job>>;

pub fn start(stress: &Arc<Stress>, tasks: &mut JoinSet<Result<(), String>>) {
    for number in 0..stress.settings.claimers {
        let stress = Arc::clone(stress);
        tasks.spawn(async move { Claimer::new(stress, number).await?.run().await });
    }
}

struct Claimer {
    stress: Arc<Stress>,
    number: usize,
    worker: i64,
    client: Client,
    claim: Statement,
    claim_suspect: Statement,
    done: Statement,
    settle: Statement,
    give_back: Statement,
    rescue: Statement,
    /// Workers that this claimer was and let die; rescued again and again, as a leader does.
    dead: Vec<i64>,
}

impl Claimer {
    async fn new(stress: Arc<Stress>, number: usize) -> Result<Self, String> {
        let client = connect(&stress.url).await?;
        let prepare = async |sql| client.prepare(sql).await.map_err(|error| told(sql, &error));
        let mut claimer = Self {
            number,
            worker: 0,
            claim: prepare(CLAIM).await?,
            claim_suspect: prepare(CLAIM_SUSPECT).await?,
            done: prepare(DONE).await?,
            settle: prepare(SETTLE).await?,
            give_back: prepare(RETURN).await?,
            rescue: prepare(RESCUE).await?,
            dead: Vec::new(),
            stress,
            client,
        };
        claimer.begin().await?;
        Ok(claimer)
    }

    /// A new worker.
    async fn begin(&mut self) -> Result<(), String> {
        let row = self
            .client
            .query_one(
                "INSERT INTO posthaste.worker (name) VALUES ('stress') RETURNING id",
                &[],
            )
            .await
            .map_err(|error| told("registering", &error))?;
        self.worker = row.get(0);
        Ok(())
    }

    async fn run(mut self) -> Result<(), String> {
        while self.stress.working() {
            if fastrand::u32(0..40) == 0 {
                for worker in self.dead.clone() {
                    self.take_away(worker).await?;
                }
            }
            let queue = self.queue();
            let token = Uuid::new_v4();
            if fastrand::u32(0..5) == 0 {
                let batches = self.claim_suspect(queue, token).await?;
                for (fence, jobs) in batches {
                    self.finish(fence, token, &jobs, false).await?;
                }
                continue;
            }
            let batches = self.claim(queue, token).await?;
            if batches.is_empty() {
                sleep(Duration::from_millis(fastrand::u64(1..4))).await;
                continue;
            }
            self.work(token, batches).await?;
        }
        Ok(())
    }

    /// Any queue; the paused one only once most of the run is over.
    fn queue(&self) -> &'static str {
        let released = self.stress.started.elapsed() > self.stress.settings.produce.mul_f64(0.7);
        match fastrand::u32(0..5) {
            0 if released => PAUSED,
            _ => fastrand::choice(QUEUES).unwrap_or("a"),
        }
    }

    async fn claim(&self, queue: &str, token: Uuid) -> Result<Batches, String> {
        let limit = match fastrand::u32(0..10) {
            0 => 1,
            1 => 200,
            _ => fastrand::i32(1..40),
        };
        // So few bytes that a batch ends inside a transaction's rows.
        let bytes = if fastrand::u32(0..4) == 0 {
            fastrand::i64(1..600)
        } else {
            16 << 20
        };
        let priorities = PRIORITIES.to_vec();
        let rows = alone(
            &self.client,
            self.stress.settings.claim_isolation,
            &self.claim,
            &[&queue, &priorities, &self.worker, &token, &limit, &bytes],
        )
        .await;
        match rows {
            Ok(rows) => Ok(self.handed_out(&rows)),
            Err(error) => Err(told("a claim", &error)),
        }
    }

    async fn claim_suspect(&self, queue: &str, token: Uuid) -> Result<Batches, String> {
        let rows = alone(
            &self.client,
            "READ COMMITTED",
            &self.claim_suspect,
            &[&queue, &self.worker, &token],
        )
        .await
        .map_err(|error| told("a claim of a suspect", &error))?;
        Ok(self.handed_out(&rows))
    }

    fn handed_out(&self, rows: &[Row]) -> Batches {
        let mut batches = Batches::new();
        for row in rows {
            let fence = (row.get(0), row.get(1));
            let (id, attempt, key) = (row.get(2), row.get(3), row.get(4));
            let handed = self
                .stress
                .ledger
                .delivered(key, id, fence, attempt, self.number);
            if !row.get::<_, bool>(5) {
                self.stress
                    .ledger
                    .fail(format!("job {key} was handed out before it was due"));
            }
            if !row.get::<_, bool>(6) {
                self.stress
                    .ledger
                    .fail(format!("job {key} was handed out after it had expired"));
            }
            batches.entry(fence).or_default().push(Job {
                id,
                attempt,
                handed,
            });
        }
        batches
    }

    async fn work(&mut self, token: Uuid, batches: Batches) -> Result<(), String> {
        let pause = match fastrand::u32(0..50) {
            0 => 300..600, // long enough to be held aside while it runs
            1..=4 => 20..60,
            _ => 0..3,
        };
        sleep(Duration::from_millis(fastrand::u64(pause))).await;
        match fastrand::u32(0..100) {
            0..=2 => self.die(token, &batches).await,
            3..=5 => self.lose(token, &batches).await,
            6..=60 => self.finish_whole(token, &batches).await,
            _ => {
                for (fence, jobs) in &batches {
                    let (now, later) = jobs.split_at(fastrand::usize(0..=jobs.len()));
                    self.finish(*fence, token, now, true).await?;
                    self.finish(*fence, token, later, true).await?;
                }
                Ok(())
            }
        }
    }

    /// The answer to the claim never came: it is given back by its token.
    async fn lose(&self, token: Uuid, batches: &Batches) -> Result<(), String> {
        let handed: Vec<Handed> = batches.values().flatten().map(|job| job.handed).collect();
        self.stress.ledger.closing(&handed);
        let row = self
            .client
            .query_one(&self.give_back, &[&self.worker, &token])
            .await
            .map_err(|error| told("giving a claim back", &error))?;
        let given: i64 = row.get(0);
        if usize::try_from(given) != Ok(handed.len()) {
            return Err(format!("{given} jobs of {} were given back", handed.len()));
        }
        for one in handed {
            self.stress.ledger.ended(one, End::TakenAway);
        }
        Ok(())
    }

    /// The worker dies, is rescued, and then comes back and tries to finish.
    async fn die(&mut self, token: Uuid, batches: &Batches) -> Result<(), String> {
        let handed: Vec<Handed> = batches.values().flatten().map(|job| job.handed).collect();
        self.stress.ledger.closing(&handed);
        let dead = self.worker;
        self.begin().await?;
        self.take_away(dead).await?;
        self.dead.push(dead);
        for (fence, jobs) in batches {
            let ids: Vec<i64> = jobs.iter().map(|job| job.id).collect();
            let ours = self
                .settle(
                    *fence,
                    token,
                    &ids,
                    &vec![0; ids.len()],
                    &vec![0; ids.len()],
                )
                .await?;
            // A job that rescue had to skip (maintenance was just holding it) is still its own.
            for job in jobs {
                let end = if ours.contains(&job.id) {
                    End::Done
                } else {
                    End::TakenAway
                };
                self.stress.ledger.ended(job.handed, end);
            }
        }
        Ok(())
    }

    async fn take_away(&self, dead: i64) -> Result<(), String> {
        match alone(&self.client, "READ COMMITTED", &self.rescue, &[&dead]).await {
            // It does not wait for whoever is just truncating; it is called again.
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Ok(()),
            Err(error) => Err(told("a rescue", &error)),
            Ok(_) => Ok(()),
        }
    }

    /// Closes all batches in one statement; job by job if one of them was moved while it ran.
    async fn finish_whole(&self, token: Uuid, batches: &Batches) -> Result<(), String> {
        let slots: Vec<i16> = batches.keys().map(|fence| fence.0).collect();
        let numbers: Vec<i64> = batches.keys().map(|fence| fence.1).collect();
        let tokens = vec![token; batches.len()];
        let expected: Vec<i32> = batches
            .values()
            .map(|jobs| i32::try_from(jobs.len()).unwrap_or(i32::MAX))
            .collect();
        let jobs: Vec<Job> = batches.values().flatten().copied().collect();
        let handed: Vec<Handed> = jobs.iter().map(|job| job.handed).collect();
        self.stress.ledger.closing(&handed);
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&slots, &numbers, &tokens, &expected];
        let left: Vec<i32> = self
            .client
            .query_one(&self.done, &parameters)
            .await
            .and_then(|row| row.try_get(0))
            .map_err(|error| told("done()", &error))?;
        for (at, (fence, jobs)) in (1..).zip(batches) {
            if left.contains(&at) {
                self.finish(*fence, token, jobs, false).await?;
                continue;
            }
            for job in jobs {
                self.stress.ledger.ended(job.handed, End::Done);
            }
            // Unlike settle, done() leaves unique keys alone: the caller knows which jobs have one.
            self.release_keys(jobs).await?;
        }
        Ok(())
    }

    async fn release_keys(&self, jobs: &[Job]) -> Result<(), String> {
        let ids: Vec<i64> = jobs.iter().map(|job| job.id).collect();
        self.client
            .execute(
                "DELETE FROM posthaste.unique_key WHERE id = ANY ($1)",
                &[&ids],
            )
            .await
            .map(drop)
            .map_err(|error| told("releasing keys", &error))
    }

    /// Settles jobs of one batch, each in its own way, or all as done.
    async fn finish(
        &self,
        fence: (i16, i64),
        token: Uuid,
        jobs: &[Job],
        mixed: bool,
    ) -> Result<(), String> {
        if jobs.is_empty() {
            return Ok(());
        }
        let handed: Vec<Handed> = jobs.iter().map(|job| job.handed).collect();
        self.stress.ledger.closing(&handed);
        let ids: Vec<i64> = jobs.iter().map(|job| job.id).collect();
        let ends: Vec<(i16, i32)> = jobs
            .iter()
            .map(|job| match fastrand::u32(0..10) {
                0 if mixed => (1, job.attempt + 1),
                1 if mixed => (1, job.attempt),
                2 if mixed => (8, job.attempt),
                _ => (0, job.attempt),
            })
            .collect();
        let kinds: Vec<i16> = ends.iter().map(|end| end.0).collect();
        let attempts: Vec<i32> = ends.iter().map(|end| end.1).collect();
        let ours = self.settle(fence, token, &ids, &kinds, &attempts).await?;
        for (job, (kind, attempt)) in jobs.iter().zip(ends) {
            if !ours.contains(&job.id) {
                return Err(format!(
                    "claimer {} lost job {:?} of batch {fence:?} although it lives",
                    self.number, job.handed
                ));
            }
            let end = match kind {
                0 => End::Done,
                _ => End::Again {
                    burnt: attempt > job.attempt,
                },
            };
            self.stress.ledger.ended(job.handed, end);
        }
        Ok(())
    }

    async fn settle(
        &self,
        fence: (i16, i64),
        token: Uuid,
        ids: &[i64],
        kinds: &[i16],
        attempts: &[i32],
    ) -> Result<Vec<i64>, String> {
        let waits: Vec<i64> = ids.iter().map(|_| fastrand::i64(0..400)).collect();
        let row = self
            .client
            .query_one(
                &self.settle,
                &[&fence.0, &fence.1, &token, &ids, &kinds, &attempts, &waits],
            )
            .await
            .map_err(|error| told("settle()", &error))?;
        Ok(row.get(0))
    }
}
