//! Findings about a failover.

use posthaste_testkit::{PgVersion, eventually};

use super::{BOUND, World, world_on};

impl World {
    async fn until_found(&self, what: &str, ids: &[&str]) -> anyhow::Result<()> {
        eventually(BOUND, what, async || Ok(self.found().await? == ids)).await
    }

    async fn set(&self, setting: &str) -> anyhow::Result<()> {
        let set = format!("ALTER SYSTEM SET {setting}");
        self.client.batch_execute(&set).await?;
        let reload = "SELECT pg_reload_conf()";
        Ok(self.client.batch_execute(reload).await?)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_captures_that_would_not_survive_a_failover() -> anyhow::Result<()> {
    let world = world_on(PgVersion::V18).await?;
    world.set("max_slot_wal_keep_size = '10GB'").await?;
    let off = "[capture.orders]\noutbox = 'public.outbox'\nfailover = false\n";
    world.stage.write("posthaste.toml", off)?;
    world.good(&["capture", "install"]).await?;
    world.until_found("no standby follows", &[]).await?;
    let slot = "SELECT pg_create_physical_replication_slot('its', true)";
    world.client.batch_execute(slot).await?;
    let replica = world.server.start_replica(&[])?;
    let failover = "capture.failover";
    world
        .until_found("the slot stays behind", &[failover])
        .await?;
    world.stage.write("posthaste.toml", super::FILE)?;
    world.good(&["capture", "install"]).await?;
    let both = [failover, failover];
    world.until_found("nothing is synchronized", &both).await?;
    world.set("synchronized_standby_slots = 'its'").await?;
    let waits = ["capture.standby", failover];
    world
        .until_found("captures wait for its slot", &waits)
        .await?;
    drop(replica);
    let leads = world.server.address().port();
    let leads = format!("host=127.0.0.1 port={leads} user=postgres dbname=postgres");
    let follows = [
        ("wal_level", "logical"),
        ("hot_standby_feedback", "on"),
        ("primary_slot_name", "its"),
        ("primary_conninfo", &*leads),
        ("sync_replication_slots", "on"),
    ];
    let _replica = world.server.start_replica(&follows)?;
    world.until_found("nothing is left", &[]).await
}
