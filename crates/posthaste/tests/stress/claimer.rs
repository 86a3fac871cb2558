//! Claimers: workers that finish, retry, reschedule, give back, are slow, lose their claims, die,
//! and return after they were declared dead.

mod ending;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};
use uuid::Uuid;

use super::Stress;
use super::ledger::{End, Handed};
use super::producer::{PAUSED, PRIORITIES, QUEUES};
use super::session::{alone, connect, describe};

const CLAIM: &str = "SELECT slot, batch, id, attempt, (kwargs->>'key')::bigint,
    scheduled_at <= clock_timestamp(), expires_at > clock_timestamp() - interval '5 s'
    FROM posthaste.claim($1, $2, $3, $4, $5, $6) WHERE id IS NOT NULL";
const CLAIM_QUARANTINED: &str = "SELECT slot, batch, id, attempt, (kwargs->>'key')::bigint, true, \
                                 true FROM posthaste.claim_quarantined($1, $2, $3)";
const DONE: &str = "SELECT posthaste.close_batches($1, $2, $3, $4)";
const SETTLE: &str = "SELECT posthaste.settle($1, $2, $3, $4, $5, $6, ARRAY(SELECT ms * interval \
                      '1 ms' FROM unnest($7::bigint[]) ms), NULL, NULL, NULL)";
const RETURN: &str = "SELECT posthaste.return_claim($1, $2)";
const RESCUE: &str = "SELECT posthaste.rescue($1, $2)";
/// The time within which a claim is given back completely, even on a busy machine.
const GIVEN_BACK: Duration = Duration::from_secs(60);
/// The heartbeat of each worker here, which it sends once, when it begins. An earlier reading
/// counts as none.
const BEAT: i64 = 1;

/// A claimed job.
#[derive(Clone, Copy)]
struct Job {
    id: i64,
    attempt: i32,
    handed: Handed,
}

/// The jobs of one claim, by (slot, batch).
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
    claim_quarantined: Statement,
    done: Statement,
    settle: Statement,
    give_back: Statement,
    rescue: Statement,
    /// Former workers of this claimer that died; rescued repeatedly, as a leader does.
    dead: Vec<i64>,
}

impl Claimer {
    async fn new(stress: Arc<Stress>, number: usize) -> Result<Self, String> {
        let client = connect(&stress.url).await?;
        let prepare = async |sql| {
            client
                .prepare(sql)
                .await
                .map_err(|error| describe(sql, &error))
        };
        let mut claimer = Self {
            number,
            worker: 0,
            claim: prepare(CLAIM).await?,
            claim_quarantined: prepare(CLAIM_QUARANTINED).await?,
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

    /// Registers a new worker.
    async fn begin(&mut self) -> Result<(), String> {
        let row = self
            .client
            .query_one(
                "INSERT INTO posthaste.worker (name, beat) VALUES ('stress', $1) RETURNING id",
                &[&BEAT],
            )
            .await
            .map_err(|error| describe("registering", &error))?;
        self.worker = row.get(0);
        Ok(())
    }

    async fn run(mut self) -> Result<(), String> {
        while self.stress.working() {
            if fastrand::u32(0..40) == 0 {
                for worker in self.dead.clone() {
                    self.take_away(worker, BEAT).await?;
                }
            }
            let queue = self.queue();
            let token = Uuid::new_v4();
            if fastrand::u32(0..5) == 0 {
                let batches = self.claim_quarantined(queue, token).await?;
                for (fence, jobs) in batches {
                    self.finish(fence, token, &jobs, false).await?;
                }
                continue;
            }
            if fastrand::u32(0..20) == 0 {
                self.at_once(queue, token).await?;
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

    /// Returns any queue; the paused one only after most of the run.
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
        // So few bytes that a batch ends within the rows of a transaction.
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
            Err(error) => Err(describe("a claim", &error)),
        }
    }

    async fn claim_quarantined(&self, queue: &str, token: Uuid) -> Result<Batches, String> {
        let rows = alone(
            &self.client,
            "READ COMMITTED",
            &self.claim_quarantined,
            &[&queue, &self.worker, &token],
        )
        .await
        .map_err(|error| describe("a claim of a quarantined job", &error))?;
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
            if !row.get::<_, bool>(5) && !self.stress.settings.clock_steps {
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
        // Long enough to be moved to in_flight while it runs.
        let long = fastrand::u32(0..40) == 0;
        let pause = match fastrand::u32(0..12) {
            _ if long => 300..600,
            0 => 20..60,
            _ => 0..3,
        };
        sleep(Duration::from_millis(fastrand::u64(pause))).await;
        if fastrand::u32(0..20) == 0 {
            // A leader that acts on an old heartbeat takes no job from a living worker.
            self.take_away(self.worker, BEAT - 1).await?;
        }
        match fastrand::u32(0..100) {
            0..=29 if long => self.lose(token, &batches).await,
            0..=2 => self.die(token, &batches).await,
            3..=5 => self.lose(token, &batches).await,
            6..=60 => self.finish_whole(token, &batches).await,
            _ => self.finish_mixed(token, &batches).await,
        }
    }

    async fn finish_mixed(&self, token: Uuid, batches: &Batches) -> Result<(), String> {
        for (fence, jobs) in batches {
            let (now, later) = jobs.split_at(fastrand::usize(0..=jobs.len()));
            self.finish(*fence, token, now, true).await?;
            self.finish(*fence, token, later, true).await?;
        }
        Ok(())
    }

    /// Claims twice and settles in one transaction: the jobs it writes back must come again,
    /// although its own second claim was the newest poll.
    async fn at_once(&self, queue: &str, token: Uuid) -> Result<(), String> {
        let say = async |sql: &str| {
            let answer = self.client.batch_execute(sql).await;
            answer.map_err(|error| describe(sql, &error))
        };
        say("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        // One lane: two claims of several would lock the lanes in another order than other
        // claimers.
        let priorities = vec![fastrand::choice(PRIORITIES).unwrap_or(0)];
        let mut claimed = Vec::new();
        let parameters: [&(dyn ToSql + Sync); 6] = [
            &queue,
            &priorities,
            &self.worker,
            &token,
            &10_i32,
            &(16_i64 << 20),
        ];
        for wait in [0..3, 0..1] {
            let rows = self.client.query(&self.claim, &parameters).await;
            let rows = rows.map_err(|error| describe("a claim that is settled at once", &error))?;
            let batches = self.handed_out(&rows);
            sleep(Duration::from_millis(fastrand::u64(wait))).await;
            claimed.push(batches);
        }
        for batches in &claimed {
            self.finish_mixed(token, batches).await?;
        }
        say("COMMIT").await
    }

    /// Loses the answer to the claim, and gives the claim back by its token.
    async fn lose(&self, token: Uuid, batches: &Batches) -> Result<(), String> {
        let handed: Vec<Handed> = batches.values().flatten().map(|job| job.handed).collect();
        self.stress.ledger.closing(&handed);
        let since = Instant::now();
        let mut given = 0;
        // The function lists the open jobs at one moment and misses those that a leader moves just
        // then, so the engine repeats it.
        loop {
            let row = self
                .client
                .query_one(&self.give_back, &[&self.worker, &token])
                .await
                .map_err(|error| describe("giving a claim back", &error))?;
            given += usize::try_from(row.get::<_, i64>(0)).unwrap_or(usize::MAX / 2);
            if given >= handed.len() || since.elapsed() > GIVEN_BACK {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        if given != handed.len() {
            return Err(format!("{given} jobs of {} were given back", handed.len()));
        }
        for one in handed {
            self.stress.ledger.ended(one, End::TakenAway);
        }
        Ok(())
    }

    /// Lets the worker die and be rescued; then it returns and tries to finish.
    async fn die(&mut self, token: Uuid, batches: &Batches) -> Result<(), String> {
        let handed: Vec<Handed> = batches.values().flatten().map(|job| job.handed).collect();
        self.stress.ledger.closing(&handed);
        let dead = self.worker;
        self.begin().await?;
        self.take_away(dead, BEAT).await?;
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
            // A job that rescue had to skip, because maintenance held it, is still the worker's.
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

    async fn take_away(&self, worker: i64, beat: i64) -> Result<(), String> {
        let parameters: [&(dyn ToSql + Sync); 2] = [&worker, &beat];
        match alone(&self.client, "READ COMMITTED", &self.rescue, &parameters).await {
            // It does not wait for a truncation; it is called again.
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Ok(()),
            Err(error) => Err(describe("a rescue", &error)),
            Ok(_) => Ok(()),
        }
    }
}
