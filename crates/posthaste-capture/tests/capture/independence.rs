//! Sending that continues while the store answers late.

use std::time::Duration;

use posthaste_capture::State;
use posthaste_testkit::{PgVersion, connect, eventually};
use tokio_postgres::Client;

use super::direct::{Sent, until};
use super::world::{OUTBOX, SOON, World, outbox};

/// Shorter than any limit of a statement that waits for the lock.
const BEFORE_THE_LIMIT: Duration = Duration::from_secs(15);

/// Waits until the server runs this many statements of captures that match, on other connections.
async fn until_waiting(client: &Client, pattern: &str, count: i64) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
               AND state = 'active' AND wait_event_type IN ('Lock', 'IPC') AND query LIKE $1";
    let waits = async || Ok(client.query_one(sql, &[&pattern]).await?.get::<_, i64>(0) == count);
    eventually(SOON, "the statement waits", waits)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_of_the_capture_delays_no_event() {
    let sent = Sent::new(|_| ()).await;
    let running = sent.start();
    sent.insert("first", 1).await;
    sent.until_arrived(1).await;
    sent.until_shown("direct").await;
    let holder = sent.world.db.client().await.unwrap();
    let hold = "BEGIN; SELECT FROM posthaste.capture WHERE name = 'all' FOR UPDATE";
    holder.batch_execute(hold).await.unwrap();
    sent.redis.kill9().unwrap();
    sent.insert("second", 10).await;
    until_waiting(&sent.world.client, "UPDATE posthaste.capture SET path%", 1).await;
    assert_eq!(running.status().state, State::Waiting);
    sent.redis.restart().unwrap();
    let all = async || Ok(sent.arrived().len() >= 11);
    eventually(BEFORE_THE_LIMIT, "the events arrive", all)
        .await
        .unwrap();
    assert_eq!(sent.state().await, "direct", "nothing was written");
    holder.batch_execute("ROLLBACK").await.unwrap();
    until_waiting(&sent.world.client, "UPDATE posthaste.capture SET path%", 0).await;
    sent.until_shown("direct").await;
    sent.require_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_synchronous_standby_delays_no_event_and_no_shown_state() {
    let sent = Sent::new(|_| ()).await;
    let running = sent.start();
    until(&running, State::Direct).await;
    sent.insert("first", 1).await;
    sent.until_arrived(1).await;
    let admin = connect(&sent.world.server.url("postgres")).await.unwrap();
    let silent = [
        "ALTER SYSTEM SET synchronous_standby_names = 'nobody'",
        "SELECT pg_reload_conf()",
    ];
    for statement in silent {
        admin.batch_execute(statement).await.unwrap();
    }
    sent.world.sql("SET synchronous_commit = local").await;
    let is_set = async || Ok(sent.world.text("SHOW synchronous_standby_names").await == "nobody");
    eventually(SOON, "it is set", is_set).await.unwrap();
    sent.insert("second", 10).await;
    sent.until_arrived(11).await;
    // The mark of these events waits for the standby.
    until_waiting(&sent.world.client, "COMMIT", 1).await;
    sent.redis.kill9().unwrap();
    sent.insert("third", 10).await;
    sent.until_shown("waiting").await;
    sent.redis.restart().unwrap();
    let all = async || Ok(sent.arrived().len() >= 21);
    eventually(BEFORE_THE_LIMIT, "the events arrive", all)
        .await
        .unwrap();
    sent.until_shown("direct").await;
    for statement in [
        "ALTER SYSTEM RESET synchronous_standby_names",
        "SELECT pg_reload_conf()",
    ] {
        admin.batch_execute(statement).await.unwrap();
    }
    sent.require_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_reader_of_the_marks_does_not_delay_jobs() {
    let world = World::new(PgVersion::any(), &[]).await;
    world.sql(OUTBOX).await;
    let capture = outbox();
    world.install(&capture).await;
    // Enough marks of another capture that they continue in the other table.
    world
        .sql(
            "INSERT INTO posthaste.capture_mark_0 SELECT m.* FROM posthaste.capture_mark_0 m, \
             generate_series(1, 20000); \
             INSERT INTO posthaste.capture_mark_1 SELECT m.* FROM posthaste.capture_mark_1 m, \
             generate_series(1, 20000)",
        )
        .await;
    let reader = world.db.client().await.unwrap();
    let read = "BEGIN; SELECT count(*) FROM posthaste.capture_mark_0; \
                SELECT count(*) FROM posthaste.capture_mark_1";
    reader.batch_execute(read).await.unwrap();
    let running = world.start(&capture);
    world
        .sql("INSERT INTO outbox (payload) VALUES ('one')")
        .await;
    world.until_captured(1).await;
    world
        .sql("INSERT INTO outbox (payload) VALUES ('two')")
        .await;
    let both = async || Ok(world.jobs().await.len() == 2);
    eventually(Duration::from_secs(3), "the next is captured", both)
        .await
        .unwrap();
    drop((reader, running));
}
