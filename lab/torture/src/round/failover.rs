//! Replicas that may take over, with the slots of captures if these fail over.

use anyhow::Context as _;
use posthaste_testkit::{PgServer, connect, eventually, number};
use tokio::task::block_in_place;
use tokio_postgres::Client;

use super::stage::{SETTINGS, SOON, Stage};

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

impl Stage {
    pub(super) async fn start_replica(&self) -> anyhow::Result<PgServer> {
        if !self.captures.fail_over {
            return block_in_place(|| self.server.start_replica(&SETTINGS));
        }
        let here = connect(&self.server.url("postgres")).await?;
        here.batch_execute(SLOT).await?;
        let settings = [&SETTINGS[..], &SYNCHRONIZING].concat();
        let replica = block_in_place(|| self.server.start_replica(&settings))?;
        here.batch_execute(WAIT).await?;
        here.batch_execute(RELOAD).await?;
        let there = connect(&replica.url("postgres")).await?;
        until_synchronized(&here, &there)
            .await
            .with_context(|| last_lines(&replica))?;
        Ok(replica)
    }
}

/// The end of the log of a server.
fn last_lines(server: &PgServer) -> String {
    let log = server.log();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("; ")
}

/// Waits until the replica has all slots of captures, and would keep them after a promotion.
async fn until_synchronized(here: &Client, there: &Client) -> anyhow::Result<()> {
    let all = "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'posthaste%'";
    let synchronized = "SELECT count(*) FROM pg_replication_slots
         WHERE slot_name LIKE 'posthaste%' AND synced AND NOT temporary";
    eventually(SOON, "the slots are synchronized", async || {
        // A slot is kept once the replica knows the running transactions at its place.
        here.batch_execute("SELECT pg_log_standby_snapshot()")
            .await?;
        Ok(number(there, synchronized).await? == number(here, all).await?)
    })
    .await
}
