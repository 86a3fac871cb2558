//! Replicas that may take over, with the slots of captures if these fail over.

use std::time::Duration;

use anyhow::Context as _;
use posthaste_testkit::{PgServer, connect, eventually, number};
use tokio::task::block_in_place;
use tokio_postgres::Client;

use super::stage::{SETTINGS, Stage};
use crate::bugs::Misbehavior;

/// The limit until a new replica has the slots. The server releases the slot of a half-open
/// connection after half a minute, and a replica that sees no progress sleeps for as long.
const SYNCHRONIZED_WITHIN: Duration = Duration::from_secs(150);
const SLOT: &str = "SELECT pg_create_physical_replication_slot('replica', true)";
/// Captures receive nothing before the replica has it. A replica would copy this setting if it were
/// made earlier, and wait for itself after its promotion.
const WAIT: &str = "ALTER SYSTEM SET synchronized_standby_slots = 'replica'";
const RELOAD: &str = "SELECT pg_reload_conf()";
const SYNCHRONIZING: [(&str, &str); 3] = [
    ("hot_standby_feedback", "on"),
    ("primary_slot_name", "replica"),
    ("sync_replication_slots", "on"),
];
const DESCRIBE_SLOTS: &str = "SELECT coalesce(string_agg(s::text, ' '), 'no slot')
     FROM pg_replication_slots s";
const DESCRIBE_TRANSACTIONS: &str = "SELECT coalesce(string_agg(
         concat_ws(' ', pid, application_name, backend_xid, xact_start, state), '; '), 'none')
     FROM pg_stat_activity WHERE backend_xid IS NOT NULL";

impl Stage {
    pub(super) async fn start_replica(&self) -> anyhow::Result<PgServer> {
        if !self.captures.fail_over {
            return block_in_place(|| self.server.start_replica(&SETTINGS));
        }
        let here = connect(&self.server.url("postgres")).await?;
        here.batch_execute(SLOT).await?;
        let settings = [&SETTINGS[..], &SYNCHRONIZING].concat();
        let replica = block_in_place(|| self.server.start_replica(&settings))?;
        if self.misbehavior != Some(Misbehavior::OvertakesReplicas) {
            here.batch_execute(WAIT).await?;
            here.batch_execute(RELOAD).await?;
        }
        let there = connect(&replica.url("postgres")).await?;
        if let Err(error) = until_synchronized(&here, &there).await {
            let state = describe(&here, &there).await;
            return Err(error.context(format!("{state}; {}", last_lines(&replica))));
        }
        Ok(replica)
    }
}

/// The end of the log of a server.
fn last_lines(server: &PgServer) -> String {
    let log = server.log();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("; ")
}

/// The slots of both servers, and the transactions that may hold them back.
async fn describe(here: &Client, there: &Client) -> String {
    let mut described = Vec::new();
    for (name, client, sql) in [
        ("primary", here, DESCRIBE_SLOTS),
        ("replica", there, DESCRIBE_SLOTS),
        ("transactions", here, DESCRIBE_TRANSACTIONS),
    ] {
        let read = client.query_one(sql, &[]).await;
        let read = read.map_or_else(|error| error.to_string(), |row| row.get(0));
        described.push(format!("{name}: {read}"));
    }
    described.join("; ")
}

/// Waits until the replica has all slots of captures, and would keep them after a promotion.
async fn until_synchronized(here: &Client, there: &Client) -> anyhow::Result<()> {
    let all = "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'posthaste%'";
    let synchronized = "SELECT count(*) FROM pg_replication_slots
         WHERE slot_name LIKE 'posthaste%' AND synced AND NOT temporary";
    eventually(
        SYNCHRONIZED_WITHIN,
        "the slots are synchronized",
        async || {
            // A slot is kept once the replica knows the running transactions at its place.
            here.batch_execute("SELECT pg_log_standby_snapshot()")
                .await
                .context("the primary")?;
            Ok(number(there, synchronized).await? == number(here, all).await?)
        },
    )
    .await
}
