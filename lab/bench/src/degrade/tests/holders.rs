//! Holders on a real server: each holds, and an early release is detected.

use std::time::Duration;

use anyhow::{Result, ensure};
use posthaste_testkit::{PgServer, PgVersion};

use crate::contestants::posthaste::paced::oldest_holder;
use crate::database::Database;
use crate::degrade::algorithm::Algorithm;
use crate::degrade::holder::Holder;
use crate::degrade::run;
use crate::degrade::scenario::{Hold, HoldKind};
use crate::degrade::span::Span;
use crate::server;

async fn ground() -> Result<(PgServer, Database)> {
    let settings = [
        ("shared_preload_libraries", "pg_stat_statements"),
        ("wal_level", "logical"),
    ];
    let server = server::start_with(PgVersion::any(), &std::env::temp_dir(), &settings)?;
    let database = run::prepare(&server, &Algorithm::shipped("que")?).await?;
    Ok((server, database))
}

fn hold(kind: HoldKind) -> Hold {
    Hold {
        kind,
        at: Span::default(),
        lasts: Span::default(),
        rows: if kind == HoldKind::Bulk { 1_200 } else { 0 },
    }
}

async fn holds(kinds: &[HoldKind]) -> Result<()> {
    let (server, database) = ground().await?;
    let algorithm = Algorithm::shipped("que")?;
    let client = database.connect().await?;
    for kind in kinds {
        let holder = Holder::take(&hold(*kind), &server, &database, &algorithm).await?;
        for _ in 0..3 {
            // Each is a transaction after the holder.
            client
                .batch_execute("INSERT INTO holder.written VALUES (2)")
                .await?;
        }
        let (_, transactions) = oldest_holder(&client).await?;
        ensure!(transactions >= 3, "{kind:?} holds {transactions}");
        holder.release().await?;
        posthaste_testkit::eventually(Duration::from_secs(20), "it lets go", async || {
            Ok(oldest_holder(&client).await?.1 < 3)
        })
        .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_of_one_server_hold_until_they_are_released() -> Result<()> {
    holds(&[
        HoldKind::Snapshot,
        HoldKind::Writer,
        HoldKind::Reader,
        HoldKind::Prepared,
        HoldKind::Slot,
        HoldKind::Bulk,
    ])
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_on_a_follower_holds_the_leader() -> Result<()> {
    holds(&[HoldKind::Follower]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_holders_are_detected() -> Result<()> {
    let (server, database) = ground().await?;
    let algorithm = Algorithm::shipped("que")?;
    let client = database.connect().await?;
    let holder = Holder::take(&hold(HoldKind::Writer), &server, &database, &algorithm).await?;
    let ended = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
                 WHERE backend_xid IS NOT NULL";
    let ended: bool = client.query_one(ended, &[]).await?.get(0);
    ensure!(ended, "no writer");
    ensure!(holder.release().await.is_err(), "a writer had ended");
    let holder = Holder::take(&hold(HoldKind::Prepared), &server, &database, &algorithm).await?;
    client.batch_execute("ROLLBACK PREPARED 'degrade'").await?;
    ensure!(
        holder.release().await.is_err(),
        "a prepared transaction had ended"
    );
    Ok(())
}
