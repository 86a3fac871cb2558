//! Maintenance without a pause, and the proof at the end that every slot can be emptied.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tokio_postgres::Client;
use tokio_postgres::types::{FromSqlOwned, ToSql};

use super::session::{connect, told};
use super::{PATIENCE, Stress};

/// Generations that were truncated.
#[expect(dead_code, reason = "not every number has a bar")]
#[derive(Clone, Copy, Debug)]
pub struct Turned {
    pub ready: i64,
    pub parked: i64,
    pub aside: i64,
}

/// One connection that does the duties.
struct Upkeep<'a> {
    client: &'a Client,
    /// How far the oldest generation is verified: (generation, page).
    verified: (i64, i64),
}

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Upkeep<'_> {
    async fn value<T: FromSqlOwned>(
        &self,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Result<T, String> {
        let row = self
            .client
            .query_one(sql, parameters)
            .await
            .map_err(|error| told(sql, &error))?;
        Ok(row.get(0))
    }

    /// Rotates, seals and reclaims; when the ring is full, moves aside what nobody claims.
    async fn turn(&mut self, bytes: i64) -> Result<(), String> {
        let rotated: String = self.value("SELECT posthaste.rotate($1)", &[&bytes]).await?;
        while self
            .value::<bool>("SELECT o_sealed FROM posthaste.seal()", &[])
            .await?
        {}
        let row = self
            .client
            .query_one(
                "SELECT ready_low, ready_scan, ready_current FROM posthaste.ring()",
                &[],
            )
            .await
            .map_err(|error| told("ring()", &error))?;
        let (low, scan, current): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        if low < scan {
            return self.reclaim(low, current).await;
        }
        if rotated == "full" {
            let slot = i32::try_from(scan % 4).unwrap_or(0);
            self.value::<i64>("SELECT posthaste.move_aside($1, 50)", &[&slot])
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
            .map_err(|error| told("reclaim()", &error))?;
        let (state, page): (String, i64) = (row.get(0), row.get(1));
        let stuck = state == "open" && page == self.verified.1;
        if state == "open" || state == "blocked" {
            self.verified.1 = page;
        }
        if stuck && current - low >= 2 {
            let slot = i32::try_from(low % 4).unwrap_or(0);
            self.value::<i64>("SELECT posthaste.hold($1, $2, 20)", &[&slot, &page])
                .await?;
        }
        Ok(())
    }

    async fn promote(&self, page: i32) -> Result<(), String> {
        self.value::<bool>("SELECT posthaste.tell_due()", &[])
            .await?;
        for old in [false, true] {
            self.value::<i64>("SELECT posthaste.promote($1, $2)", &[&page, &old])
                .await?;
        }
        Ok(())
    }

    async fn tidy(&mut self, spent: i64) -> Result<(), String> {
        self.value::<String>("SELECT o_state FROM posthaste.tidy_parked($1)", &[&spent])
            .await?;
        self.value::<String>(
            "SELECT o_state FROM posthaste.tidy_aside($1, 50)",
            &[&spent],
        )
        .await?;
        Ok(())
    }
}

/// Turns the ring every few milliseconds.
pub async fn turn_ring(stress: Arc<Stress>) -> Result<(), String> {
    let client = connect(&stress.url).await?;
    let mut upkeep = Upkeep {
        client: &client,
        verified: (-1, 0),
    };
    while stress.working() {
        upkeep.turn(stress.settings.generation_bytes).await?;
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Does every other duty every few milliseconds.
pub async fn tend(stress: Arc<Stress>) -> Result<(), String> {
    let client = connect(&stress.url).await?;
    let mut upkeep = Upkeep {
        client: &client,
        verified: (-1, 0),
    };
    while stress.working() {
        // Some pages end among the jobs of one instant.
        let page = match fastrand::bool() {
            true => fastrand::i32(1..8),
            false => fastrand::i32(8..400),
        };
        upkeep.promote(page).await?;
        upkeep.tidy(100).await?;
        if fastrand::bool() {
            upkeep
                .value::<i64>("SELECT posthaste.expire($1, 20)", &[&fastrand::i32(0..8)])
                .await?;
        }
        sleep(Duration::from_millis(fastrand::u64(1..4))).await;
    }
    Ok(())
}

// A cursor of an empty slot may stay: pass_k and claim_k have one row then.
const SIZES: &str = "SELECT coalesce(sum(pg_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'posthaste' AND c.relkind = 'r' AND c.relname ~ '^(ready|ack|early|parked)_[0-7]$'";
// By its pages: rows that were rolled back take space too.
const CURRENT_IS_EMPTY: &str = "SELECT pg_relation_size(('posthaste.ready_' || ready_current % 4)::regclass) = 0 FROM posthaste.ring()";

/// Turns all rings until every slot is empty.
pub async fn empty_all_slots(client: &Client) -> Result<Turned, String> {
    let mut upkeep = Upkeep {
        client,
        verified: (-1, 0),
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left: i64 = upkeep.value(SIZES, &[]).await?;
        if left == 0 {
            let row = client
                .query_one(
                    "SELECT ready_low, parked_low, aside_low FROM posthaste.ring()",
                    &[],
                )
                .await
                .map_err(|error| told("ring()", &error))?;
            return Ok(Turned {
                ready: row.get(0),
                parked: row.get(1),
                aside: row.get(2),
            });
        }
        if Instant::now() > deadline {
            let what: String = upkeep.value(include_str!("spent.sql"), &[]).await?;
            return Err(format!("spent jobs could not be reclaimed: {what}"));
        }
        let bytes = if upkeep.value(CURRENT_IS_EMPTY, &[]).await? {
            i64::MAX
        } else {
            -1
        };
        upkeep.promote(1000).await?;
        upkeep.turn(bytes).await?;
        upkeep.tidy(0).await?;
    }
}
