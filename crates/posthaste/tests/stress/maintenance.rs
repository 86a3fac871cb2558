//! Maintenance without a pause, and the check at the end that every slot can be emptied.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tokio_postgres::Client;
use tokio_postgres::types::{FromSqlOwned, ToSql};

use super::session::{connect, describe};
use super::{PATIENCE, Stress};

/// Segments that were truncated.
#[expect(dead_code, reason = "not every number has a bar")]
#[derive(Clone, Copy, Debug)]
pub struct Turned {
    pub ready: i64,
    pub scheduled: i64,
    pub overflow: i64,
}

/// A connection that performs the duties.
struct Maintenance<'a> {
    client: &'a Client,
    /// The place up to which the oldest segment is verified: (segment, page).
    verified: (i64, i64),
}

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Maintenance<'_> {
    async fn value<T: FromSqlOwned>(
        &self,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Result<T, String> {
        let row = self
            .client
            .query_one(sql, parameters)
            .await
            .map_err(|error| describe(sql, &error))?;
        Ok(row.get(0))
    }

    /// Rotates, seals and reclaims; if the ready log is full, moves unclaimed jobs to the overflow.
    async fn turn(&mut self, bytes: i64) -> Result<(), String> {
        let rotated: String = self.value("SELECT posthaste.rotate($1)", &[&bytes]).await?;
        while self
            .value::<bool>("SELECT o_sealed FROM posthaste.seal()", &[])
            .await?
        {}
        let row = self
            .client
            .query_one(
                "SELECT ready_low, ready_scan, ready_current FROM posthaste.segments()",
                &[],
            )
            .await
            .map_err(|error| describe("segments()", &error))?;
        let (low, scan, current): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        if low < scan {
            return self.reclaim(low, current).await;
        }
        if rotated == "full" {
            let slot = i32::try_from(scan % 4).unwrap_or(0);
            self.value::<i64>("SELECT posthaste.move_to_overflow($1, 50)", &[&slot])
                .await?;
        }
        Ok(())
    }

    async fn reclaim(&mut self, low: i64, current: i64) -> Result<(), String> {
        if self.verified.0 != low {
            self.verified = (low, 0);
        }
        let row = self
            .client
            .query_one(
                "SELECT o_state, o_batch FROM posthaste.reclaim($1, $2, 64)",
                &[&low, &self.verified.1],
            )
            .await
            .map_err(|error| describe("reclaim()", &error))?;
        let (state, page): (String, i64) = (row.get(0), row.get(1));
        let stuck = state == "open" && page == self.verified.1;
        if state == "open" || state == "locked" {
            self.verified.1 = page;
        }
        if stuck && current - low >= 2 {
            let slot = i32::try_from(low % 4).unwrap_or(0);
            self.value::<i64>("SELECT posthaste.move_running($1, $2, 20)", &[&slot, &page])
                .await?;
        }
        Ok(())
    }

    async fn promote(&self, page: i32) -> Result<(), String> {
        self.value::<bool>("SELECT posthaste.publish_horizon()", &[])
            .await?;
        for old in [false, true] {
            self.value::<i64>("SELECT posthaste.promote($1, $2)", &[&page, &old])
                .await?;
        }
        Ok(())
    }

    /// Runs the clock ahead for some pages, then sets it back. Returns whether the promoter
    /// followed.
    async fn step_back(&self, page: i32) -> Result<bool, String> {
        let ahead = fastrand::i32(2..20);
        self.value::<bool>(PUBLISH_AHEAD, &[&ahead]).await?;
        for _ in 0..fastrand::u32(0..4) {
            for old in [false, true] {
                self.value::<i64>("SELECT posthaste.promote($1, $2)", &[&page, &old])
                    .await?;
            }
        }
        self.value("SELECT posthaste.publish_horizon()", &[]).await
    }

    async fn tidy(&mut self, spent: i64) -> Result<(), String> {
        self.value::<String>(
            "SELECT o_state FROM posthaste.tidy_scheduled($1)",
            &[&spent],
        )
        .await?;
        self.value::<String>(
            "SELECT o_state FROM posthaste.tidy_overflow($1, 50)",
            &[&spent],
        )
        .await?;
        Ok(())
    }
}

/// As posthaste.publish_horizon() does by a clock that is ahead.
const PUBLISH_AHEAD: &str = "SELECT pg_try_advisory_xact_lock(1885893476, 2)
    AND setval('posthaste.promote_horizon', greatest(
          pg_sequence_last_value('posthaste.promote_horizon'),
          (extract(epoch FROM clock_timestamp()) + $1::integer)::bigint * 1000000)) > 0";

/// Rotates the ready log every few milliseconds.
pub async fn turn_ring(stress: Arc<Stress>) -> Result<(), String> {
    let client = connect(&stress.url).await?;
    let mut maintenance = Maintenance {
        client: &client,
        verified: (-1, 0),
    };
    while stress.working() {
        maintenance.turn(stress.settings.segment_bytes).await?;
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Performs every other duty every few milliseconds.
pub async fn tend(stress: Arc<Stress>) -> Result<(), String> {
    let client = connect(&stress.url).await?;
    let mut maintenance = Maintenance {
        client: &client,
        verified: (-1, 0),
    };
    while stress.working() {
        // Some pages end among jobs of the same instant.
        let page = match fastrand::bool() {
            true => fastrand::i32(1..8),
            false => fastrand::i32(8..400),
        };
        // At least once, even on a slow machine.
        let is_first = stress.steps.load(Ordering::Relaxed) == 0;
        if stress.settings.clock_steps && (is_first || fastrand::u32(0..12) == 0) {
            let back = maintenance.step_back(page).await?;
            stress.steps.fetch_add(back.into(), Ordering::Relaxed);
        }
        maintenance.promote(page).await?;
        maintenance.tidy(100).await?;
        if fastrand::bool() {
            maintenance
                .value::<i64>("SELECT posthaste.expire($1, 20)", &[&fastrand::i32(0..8)])
                .await?;
        }
        sleep(Duration::from_millis(fastrand::u64(1..4))).await;
    }
    Ok(())
}

// The cursor of an empty slot may remain: promote_cursor_k and claim_k have one row then.
const SIZES: &str = "SELECT coalesce(sum(pg_relation_size(c.oid)), 0)::bigint FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'posthaste' AND c.relkind = 'r'
      AND c.relname ~ '^(ready|job_done|closed_unclaimed|scheduled)_[0-7]$'";
// By its pages: rows that were rolled back take space too.
const CURRENT_IS_EMPTY: &str = "SELECT pg_relation_size(('posthaste.ready_' || ready_current % \
                                4)::regclass) = 0 FROM posthaste.segments()";

/// Rotates all slots until each is empty.
pub async fn empty_all_slots(client: &Client) -> Result<Turned, String> {
    let mut maintenance = Maintenance {
        client,
        verified: (-1, 0),
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left: i64 = maintenance.value(SIZES, &[]).await?;
        if left == 0 {
            let row = client
                .query_one(
                    "SELECT ready_low, scheduled_low, overflow_low FROM posthaste.segments()",
                    &[],
                )
                .await
                .map_err(|error| describe("segments()", &error))?;
            return Ok(Turned {
                ready: row.get(0),
                scheduled: row.get(1),
                overflow: row.get(2),
            });
        }
        if Instant::now() > deadline {
            let what: String = maintenance.value(include_str!("spent.sql"), &[]).await?;
            return Err(format!("spent jobs could not be reclaimed: {what}"));
        }
        let bytes = if maintenance.value(CURRENT_IS_EMPTY, &[]).await? {
            i64::MAX
        } else {
            -1
        };
        maintenance.promote(1000).await?;
        maintenance.turn(bytes).await?;
        maintenance.tidy(0).await?;
    }
}
