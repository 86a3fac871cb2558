//! Replicated changes, and rows of an outbox that are deleted once they are captured.

use std::time::Duration;

use posthaste_capture::{Capture, Source, State, TableName};
use posthaste_testkit::{PgVersion, TestDb, eventually};
use tokio_postgres::Client;

use super::direct::Sent;
use super::world::{OUTBOX, SOON, World, outbox, tables};

fn local_only(mut capture: Capture) -> Capture {
    capture.options.local_only = true;
    capture
}

#[tokio::test]
async fn replicated_changes_are_captured_unless_origin_is_none() {
    let world = World::new(PgVersion::V18, &[]).await;
    let table = "CREATE TABLE item (id int PRIMARY KEY)";
    world.sql(table).await;
    let origin = TestDb::empty(&world.server).await.unwrap();
    let writes = origin.client().await.unwrap();
    writes.batch_execute(table).await.unwrap();
    for statement in [
        "CREATE PUBLICATION p FOR TABLE item",
        "SELECT pg_create_logical_replication_slot('brings', 'pgoutput')",
    ] {
        writes.batch_execute(statement).await.unwrap();
    }
    let mut every = tables(&["public.item"]);
    every.name = "every".into();
    every.slot = "posthaste_every".into();
    every.queue = "every".into();
    let local = local_only(tables(&["public.item"]));
    world.install(&every).await;
    world.install(&local).await;
    let port = world.server.address().port();
    let subscription = format!(
        "CREATE SUBSCRIPTION brings CONNECTION 'host=127.0.0.1 port={port} user=postgres \
         dbname={}' PUBLICATION p WITH (create_slot = false, copy_data = false)",
        origin.name()
    );
    world.sql(&subscription).await;
    writes
        .batch_execute("INSERT INTO item VALUES (1)")
        .await
        .unwrap();
    let is_there = async || Ok(world.text("SELECT count(*)::text FROM item").await == "1");
    eventually(SOON, "it was brought", is_there).await.unwrap();
    world.sql("INSERT INTO item VALUES (2)").await;
    let previewed = local.preview(&world.database(), 10).await.unwrap();
    assert_eq!(previewed.len(), 1);
    world.sql("ALTER SUBSCRIPTION brings DISABLE").await;
    capture_all(&world, &every).await;
    capture_all(&world, &local).await;
    let ids = async |queue: &str| {
        let sql = "SELECT kwargs -> 'posthaste.outbox' ->> 'text' FROM posthaste.job \
                   WHERE queue = $1 ORDER BY id";
        let rows = world.client.query(sql, &[&queue]).await.unwrap();
        let id = |row: &tokio_postgres::Row| {
            let change: serde_json::Value = serde_json::from_str(row.get(0)).unwrap();
            change["key"]["id"].as_i64().unwrap()
        };
        rows.iter().map(id).collect::<Vec<_>>()
    };
    assert_eq!(ids("every").await, [1, 2]);
    assert_eq!(ids("captured").await, [2]);
    world
        .sql("ALTER SUBSCRIPTION brings SET (slot_name = NONE)")
        .await;
    world.sql("DROP SUBSCRIPTION brings").await;
    let drop = "SELECT pg_drop_replication_slot('brings')";
    let is_dropped = async || Ok(writes.batch_execute(drop).await.is_ok());
    eventually(SOON, "the slot is let go", is_dropped)
        .await
        .unwrap();
}

async fn capture_all(world: &World, capture: &Capture) {
    let capture = capture.clone();
    let mut running = capture
        .start(world.database(), posthaste_capture::Until::Caught)
        .unwrap();
    tokio::time::timeout(SOON, running.ended())
        .await
        .expect("it ends by itself")
        .unwrap();
}

#[tokio::test]
async fn rejects_origin_none_on_servers_without_origins() {
    let world = World::new(PgVersion::V15, &[]).await;
    world.sql(OUTBOX).await;
    let refused = local_only(outbox()).install(&world.database()).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("PostgreSQL 16"), "{refused}");
    world.install(&outbox()).await;
    let refused = world.catch_up(&local_only(outbox())).await.unwrap_err();
    assert!(refused.is_stopped(), "{refused}");
}

fn deleting(mut capture: Capture) -> Capture {
    capture.options.outbox_delete = true;
    capture
}

/// A key of two columns, one of which must be quoted.
const KEYED: &str = "CREATE TABLE outbox (\"Day\" timestamptz NOT NULL DEFAULT now(), \
     n bigint GENERATED ALWAYS AS IDENTITY, type text NOT NULL DEFAULT 'event', payload text, \
     PRIMARY KEY (n, \"Day\"))";

async fn left(client: &Client) -> i64 {
    let sql = "SELECT count(*) FROM outbox";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

async fn until_empty(client: &Client) {
    let is_empty = async || Ok(left(client).await == 0);
    eventually(SOON, "all rows are deleted", is_empty)
        .await
        .unwrap();
}

#[tokio::test]
async fn captured_outbox_rows_are_deleted_and_others_stay() {
    for version in PgVersion::tried() {
        let world = World::new(version, &[]).await;
        world.sql(KEYED).await;
        world
            .sql("INSERT INTO outbox (payload) VALUES ('before')")
            .await;
        let capture = deleting(outbox());
        world.install(&capture).await;
        world
            .sql(
                "INSERT INTO outbox (payload) SELECT i FROM generate_series(1, 1200) i;
                 INSERT INTO outbox (payload) VALUES ('gone already');
                 DELETE FROM outbox WHERE payload = 'gone already'",
            )
            .await;
        world.catch_up(&capture).await.unwrap();
        assert_eq!(world.jobs().await.len(), 1201);
        assert_eq!(
            world
                .text("SELECT string_agg(payload, ' ') FROM outbox")
                .await,
            "before"
        );
        // A copy delivers the previously existing row.
        let table = TableName::read("public.outbox").unwrap();
        capture
            .request_copy(&world.database(), &table, None)
            .await
            .unwrap();
        world.catch_up(&capture).await.unwrap();
        assert_eq!(
            (world.jobs().await.len(), left(&world.client).await),
            (1202, 0)
        );
    }
}

/// Another session has locked a row: its job and its deletion wait for each other.
#[tokio::test]
async fn rows_are_deleted_only_with_their_jobs() {
    let world = World::new(PgVersion::any(), &[]).await;
    world.sql(OUTBOX).await;
    let capture = deleting(outbox());
    world.install(&capture).await;
    let running = world.start(&capture);
    world
        .sql("BEGIN; INSERT INTO outbox (payload) VALUES ('a'), ('b'); COMMIT")
        .await;
    world.until_captured(2).await;
    let locks = world.db.client().await.unwrap();
    for statement in [
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN IF old.payload = ''kept'' THEN RAISE ''not today''; END IF; RETURN old; END'",
        "CREATE TRIGGER refuse BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION refuse()",
        "INSERT INTO outbox (payload) VALUES ('kept')",
    ] {
        locks.batch_execute(statement).await.unwrap();
    }
    let fails = async || {
        let status = running.status();
        Ok(status
            .last_error
            .is_some_and(|error| error.contains("not today")))
    };
    eventually(SOON, "it says why", fails).await.unwrap();
    assert_eq!(
        (world.jobs().await.len(), left(&world.client).await),
        (2, 1)
    );
    world.sql("DROP TRIGGER refuse ON outbox").await;
    world.until_captured(3).await;
    assert_eq!(left(&world.client).await, 0);
}

#[tokio::test]
async fn rows_of_sent_and_spilled_events_are_deleted() {
    let mut sent = Sent::new(|direct| {
        direct.spill_after_time = Some(Duration::from_millis(300));
    })
    .await;
    sent.capture = deleting(sent.capture.clone());
    let running = sent.start();
    sent.insert("direct", 700).await;
    sent.until_arrived(700).await;
    until_empty(&sent.world.client).await;
    sent.redis.kill9().unwrap();
    sent.insert("spilled", 700).await;
    super::direct::until(&running, State::Spilling).await;
    until_empty(&sent.world.client).await;
    let count = "SELECT count(*)::text FROM posthaste.job WHERE queue = 'captured'";
    assert_eq!(sent.world.text(count).await, "700");
}

#[tokio::test]
async fn rejects_outboxes_whose_rows_cannot_be_deleted() {
    let world = World::new(PgVersion::any(), &[]).await;
    world
        .sql("CREATE TABLE outbox (id uuid DEFAULT gen_random_uuid(), type text, payload text)")
        .await;
    let refused = deleting(outbox()).install(&world.database()).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("no primary key"), "{refused}");
    assert!(matches!(outbox().source, Source::Outbox { .. }));
}
