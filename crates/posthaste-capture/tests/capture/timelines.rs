//! A leader that lives on beside its promoted follower: two logs with the same places.

use std::collections::HashMap;

use posthaste_capture::{Capture, Until, list_gaps};
use posthaste_testkit::{PgServer, PgVersion, connect, eventually};
use serde_json::json;
use tokio_postgres::Client;

use super::direct::{Sent, direct, first_arrivals};
use super::failover::Pair;
use super::world::{SOON, outbox};

/// An event of the outbox, as it was captured on one of the servers.
struct Captured {
    id: String,
    /// The record and the row in it, without the timeline.
    record: String,
    body: String,
}

async fn captured(client: &Client) -> Vec<Captured> {
    let sql = "SELECT o ->> 'id', substr(o -> 'headers' ->> 'position', 25), o ->> 'text' \
               FROM posthaste.job j, LATERAL (SELECT j.kwargs -> 'posthaste.outbox' AS o) x \
               WHERE queue = 'captured' ORDER BY id";
    let rows = client.query(sql, &[]).await.unwrap();
    let read = |row: &tokio_postgres::Row| Captured {
        id: row.get(0),
        record: row.get(1),
        body: row.get(2),
    };
    rows.iter().map(read).collect()
}

async fn catch_up(capture: &Capture, server: &PgServer, database: &str) {
    let database = posthaste::connect(&server.url(database)).unwrap();
    let mut running = capture.clone().start(database, Until::Caught).unwrap();
    let ended = tokio::time::timeout(SOON, running.ended()).await;
    ended.expect("it ends by itself").unwrap();
}

async fn promote(pair: &Pair) {
    assert_eq!(pair.there("SELECT pg_promote()::text").await, "true");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_at_equal_places_of_two_timelines_have_different_ids() {
    let capture = outbox();
    let pair = Pair::new(PgVersion::V18, &[], &capture).await;
    let mut running = pair.start(&capture);
    pair.until_synchronized().await;
    running.stop();
    running.ended().await.unwrap();
    let common =
        "INSERT INTO outbox (payload) SELECT 'common ' || i FROM generate_series(1, 100) i";
    pair.world.sql(common).await;
    pair.until_replayed().await;
    promote(&pair).await;
    let (old, new) = (&pair.world.client, &pair.there);
    for (client, name) in [(old, "old"), (new, "new")] {
        // The places are random, and some of them coincide.
        let sql = format!(
            "INSERT INTO outbox (payload) SELECT '{name} ' || i || repeat('x', (random() * 300) \
             ::int) FROM generate_series(1, 5000) i"
        );
        client.batch_execute(&sql).await.unwrap();
    }
    let name = pair.world.db.name();
    catch_up(&capture, &pair.world.server, name).await;
    catch_up(&capture, &pair.follower, name).await;
    let (old, new) = (captured(old).await, captured(new).await);
    let by_record: HashMap<&str, &Captured> = old.iter().map(|one| (&*one.record, one)).collect();
    let (mut repeats, mut coincidences) = (0, 0);
    for one in &new {
        let Some(other) = by_record.get(&*one.record) else {
            continue;
        };
        let is_repeat = one.body == other.body;
        assert_eq!(is_repeat, one.id == other.id, "{} {}", one.body, other.body);
        match is_repeat {
            true => repeats += usize::from(one.body.starts_with("common")),
            false => coincidences += 1,
        }
    }
    assert_eq!(repeats, 100);
    assert!(coincidences > 0);
    let bodies: HashMap<&str, &str> = old.iter().map(|one| (&*one.id, &*one.body)).collect();
    for one in &new {
        let other = bodies.get(&*one.id);
        assert!(other.is_none_or(|body| *body == one.body), "{}", one.id);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_of_an_abandoned_timeline_are_not_marked_on_the_promoted_server() {
    let sent = Sent::new(|_| ()).await;
    let mut capture = outbox();
    capture.direct = Some(direct(sent.redis.port(), &json!({})));
    let pair = Pair::new(PgVersion::V18, &[], &capture).await;
    let running = pair.start(&capture);
    pair.until_synchronized().await;
    promote(&pair).await;
    // The old leader streams on, but its database accepts no connection any more.
    let old = connect(&pair.world.server.url("postgres")).await.unwrap();
    let name = pair.world.db.name();
    let refuse = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false");
    old.batch_execute(&refuse).await.unwrap();
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE backend_type = 'client backend' AND application_name LIKE 'posthaste%'";
    old.batch_execute(cut).await.unwrap();
    let abandoned = "INSERT INTO outbox (payload) \
                     SELECT 'abandoned ' || i FROM generate_series(1, 2000) i";
    pair.world.sql(abandoned).await;
    let arrived = || first_arrivals(&sent.arrived());
    let is_sent = async || Ok(arrived().iter().any(|one| one == "abandoned 2000"));
    eventually(SOON, "the old leader's events arrive", is_sent)
        .await
        .unwrap();
    let ahead = "SELECT (max(done) > pg_current_wal_lsn())::text FROM (SELECT * FROM \
                 posthaste.capture_mark_0 UNION ALL SELECT * FROM posthaste.capture_mark_1) m";
    let reads = "SELECT count(*)::text FROM pg_replication_slots WHERE active";
    let has_moved =
        async || Ok(pair.there(reads).await == "1" || pair.there(ahead).await == "true");
    eventually(SOON, "the capture has moved", has_moved)
        .await
        .unwrap();
    assert_eq!(pair.there(ahead).await, "false", "a place of the other log");
    let later = "INSERT INTO outbox (payload) SELECT 'later ' || i FROM generate_series(1, 50) i";
    pair.there.batch_execute(later).await.unwrap();
    let is_sent = async || Ok(arrived().iter().any(|one| one == "later 50"));
    eventually(SOON, "the new leader's events arrive", is_sent)
        .await
        .unwrap();
    let arrived = arrived();
    let rows = pair.there.query("SELECT payload FROM outbox", &[]).await;
    for row in rows.unwrap() {
        let payload: String = row.get(0);
        assert!(arrived.contains(&payload), "{payload} is missing");
    }
    assert!(list_gaps(&pair.there, None).await.unwrap().is_empty());
    drop(running);
}
