//! The store without a worker: one connection performs what a worker or a leader does, one
//! statement at a time.

use std::time::Duration;

use anyhow::{Context, ensure};
use posthaste_testkit::connect;
use tokio_postgres::Client;
use tokio_postgres::types::{FromSqlOwned, ToSql};
use uuid::Uuid;

/// A connection with a worker's identity.
pub struct Store {
    pub client: Client,
    pub worker: i64,
}

/// A claimed job with its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    pub slot: i16,
    pub batch: i64,
    pub token: Uuid,
    pub id: i64,
    pub attempt: i32,
}

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Store {
    pub async fn new(url: &str) -> anyhow::Result<Self> {
        let client = connect(url).await?;
        let row = client
            .query_one(
                "INSERT INTO posthaste.worker (name) VALUES ('by hand') RETURNING id",
                &[],
            )
            .await?;
        Ok(Self {
            client,
            worker: row.get(0),
        })
    }

    pub async fn say(&self, sql: &str) -> anyhow::Result<()> {
        self.client
            .batch_execute(sql)
            .await
            .with_context(|| sql.to_owned())
    }

    /// Returns the one value of the one row.
    pub async fn value<T: FromSqlOwned>(
        &self,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> anyhow::Result<T> {
        let row = self
            .client
            .query_one(sql, parameters)
            .await
            .with_context(|| sql.to_owned())?;
        Ok(row.try_get(0)?)
    }

    /// Enqueues one job of this name, due this many milliseconds from now.
    pub async fn enqueue(&self, name: &str, ahead: i64) -> anyhow::Result<i64> {
        self.value(
            "SELECT posthaste.enqueue($1, scheduled_at => clock_timestamp() + $2::bigint * \
             interval '1 ms')",
            &[&name, &ahead],
        )
        .await
    }

    /// Enqueues many jobs in one statement.
    pub async fn enqueue_many(&self, name: &str, jobs: i32) -> anyhow::Result<()> {
        self.client
            .execute(
                "INSERT INTO posthaste.job (name) SELECT $1 FROM generate_series(1, $2)",
                &[&name, &jobs],
            )
            .await?;
        Ok(())
    }

    /// Claims from the default queue, priority 0, in a separate transaction unless one is open.
    pub async fn claim(&self, limit: i32) -> anyhow::Result<Vec<Claimed>> {
        self.claim_lane(0, limit).await
    }

    pub async fn claim_lane(&self, priority: i32, limit: i32) -> anyhow::Result<Vec<Claimed>> {
        Ok(self.claim_part(priority, limit).await?.0)
    }

    /// As `claim`; also returns whether the claim ended before the end of the lane.
    pub async fn claim_part(
        &self,
        priority: i32,
        limit: i32,
    ) -> anyhow::Result<(Vec<Claimed>, bool)> {
        let token = Uuid::new_v4();
        let rows = self
            .client
            .query(
                "SELECT slot, batch, id, attempt FROM posthaste.claim('default', \
                 ARRAY[$1::integer], $2, $3, $4, 16777216)",
                &[&priority, &self.worker, &token, &limit],
            )
            .await?;
        let jobs = rows.iter().filter_map(|row| {
            let id: Option<i64> = row.get(2);
            id.map(|id| Claimed {
                slot: row.get(0),
                batch: row.get(1),
                token,
                id,
                attempt: row.get(3),
            })
        });
        let jobs: Vec<Claimed> = jobs.collect();
        let has_more = jobs.len() < rows.len();
        Ok((jobs, has_more))
    }

    /// Claims until nothing comes.
    pub async fn claim_all(&self) -> anyhow::Result<Vec<Claimed>> {
        let mut all = Vec::new();
        loop {
            let some = self.claim(1000).await?;
            if some.is_empty() {
                return Ok(all);
            }
            all.extend(some);
        }
    }

    /// Settles one job; returns whether this worker still had it. Kinds as in
    /// sql/functions/complete.sql.
    pub async fn settle(&self, job: Claimed, kind: i16, wait: i64) -> anyhow::Result<bool> {
        let ours: Vec<i64> = self
            .value(
                "SELECT posthaste.settle($1, $2, $3, ARRAY[$4::bigint], ARRAY[$5::smallint], \
                 ARRAY[$6::integer], ARRAY[$7::bigint * interval '1 ms'], NULL, NULL, NULL)",
                &[
                    &job.slot,
                    &job.batch,
                    &job.token,
                    &job.id,
                    &kind,
                    &job.attempt,
                    &wait,
                ],
            )
            .await?;
        Ok(ours == [job.id])
    }

    /// Completes jobs, all of which this worker must have.
    pub async fn finish(&self, jobs: &[Claimed]) -> anyhow::Result<()> {
        for job in jobs {
            ensure!(self.settle(*job, 0, 0).await?, "{job:?} was lost");
        }
        Ok(())
    }

    /// Closes a whole batch, as a worker that finished all its jobs.
    pub async fn done(&self, jobs: &[Claimed]) -> anyhow::Result<()> {
        let job = jobs.first().context("a batch has jobs")?;
        let count = i32::try_from(jobs.len())?;
        let left: Vec<i32> = self
            .client
            .query_one(
                "SELECT posthaste.close_batches(ARRAY[$1::smallint], ARRAY[$2::bigint], \
                 ARRAY[$3::uuid], ARRAY[$4::integer])",
                &[&job.slot, &job.batch, &job.token, &count],
            )
            .await?
            .try_get(0)?;
        ensure!(
            left.is_empty(),
            "the batch of {job:?} could not be closed as a whole"
        );
        Ok(())
    }

    /// Publishes the promoter's horizon, and promotes one page of the current and one of the old
    /// scheduled slot.
    pub async fn promote(&self, limit: i32) -> anyhow::Result<i64> {
        self.value::<bool>("SELECT posthaste.publish_horizon()", &[])
            .await?;
        let mut jobs = 0;
        for old in [false, true] {
            jobs += self
                .value::<i64>("SELECT posthaste.promote($1, $2)", &[&limit, &old])
                .await?;
        }
        Ok(jobs)
    }

    /// Starts a new ready segment whatever the size of the current one.
    pub async fn rotate(&self) -> anyhow::Result<String> {
        self.value("SELECT posthaste.rotate(-1)", &[]).await
    }

    pub async fn seal(&self) -> anyhow::Result<bool> {
        self.value("SELECT o_sealed FROM posthaste.seal()", &[])
            .await
    }

    /// Reclaims the oldest ready segment; returns the result.
    pub async fn reclaim(&self) -> anyhow::Result<String> {
        self.value(
            "SELECT (posthaste.reclaim(ready_low, 0, 1000000)).o_state FROM posthaste.segments()",
            &[],
        )
        .await
    }

    pub async fn tidy_scheduled(&self, spent: i64) -> anyhow::Result<String> {
        self.value(
            "SELECT o_state FROM posthaste.tidy_scheduled($1)",
            &[&spent],
        )
        .await
    }

    /// Returns one of the positions of `posthaste.segments()`.
    pub async fn position(&self, of: &str) -> anyhow::Result<i64> {
        self.value(
            "SELECT (to_jsonb(r)->>$1)::bigint FROM posthaste.segments() r",
            &[&of],
        )
        .await
    }

    /// Counts jobs of the view that are not finished.
    pub async fn unfinished(&self) -> anyhow::Result<i64> {
        self.value(
            "SELECT count(*) FROM posthaste.job WHERE state NOT IN ('dead', 'expired', \
             'discarded')",
            &[],
        )
        .await
    }

    /// Returns the server's clock as text, `ahead` milliseconds from now.
    pub async fn clock(&self, ahead: i64) -> anyhow::Result<String> {
        self.value(
            "SELECT (clock_timestamp() + $1::bigint * interval '1 ms')::text",
            &[&ahead],
        )
        .await
    }

    /// Waits until the server's clock has passed this time.
    pub async fn until(&self, time: &str) -> anyhow::Result<()> {
        self.client
            .execute(
                "SELECT pg_sleep(greatest(0, extract(epoch \
                 FROM $1::text::timestamptz - clock_timestamp())))",
                &[&time],
            )
            .await?;
        Ok(())
    }
}

/// How long a test waits for another session to reach a point.
pub const SOON: Duration = Duration::from_secs(20);
