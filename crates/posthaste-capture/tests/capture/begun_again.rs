//! Slots at unexpected positions, and changes that cannot be captured.

use posthaste_capture::{Position, list_gaps};
use posthaste_testkit::PgVersion;

use super::world::{OUTBOX, World, outbox};

async fn stopped(world: &World) -> String {
    let error = world.catch_up(&outbox()).await.unwrap_err();
    assert!(error.is_stopped(), "{error}");
    let text = error.to_string();
    let shown = world.text("SELECT stopped FROM posthaste.capture").await;
    assert_eq!(shown, text);
    text
}

#[tokio::test]
async fn misplaced_slots_are_gaps_until_the_capture_begins_again() {
    let moves = [
        (
            "SELECT pg_drop_replication_slot('posthaste_all')",
            "missing",
        ),
        (
            "SELECT pg_replication_slot_advance('posthaste_all', pg_current_wal_lsn())",
            "ahead",
        ),
        (
            "SELECT pg_drop_replication_slot('posthaste_all');
             SELECT pg_create_logical_replication_slot('posthaste_all', 'pgoutput')",
            "ahead",
        ),
    ];
    for version in PgVersion::tried() {
        let world = World::new(version, &[]).await;
        world.sql(OUTBOX).await;
        let capture = outbox();
        world.install(&capture).await;
        for (number, (moved, reason)) in moves.into_iter().enumerate() {
            world
                .sql(&format!("INSERT INTO outbox (payload) VALUES ('{number}')"))
                .await;
            world.catch_up(&capture).await.unwrap();
            world
                .sql("INSERT INTO outbox (payload) VALUES ('lost')")
                .await;
            world.sql(moved).await;
            for _ in 0..2 {
                let text = stopped(&world).await;
                assert!(text.contains(reason), "{text}");
            }
            let found = list_gaps(&world.client, Some("all")).await.unwrap();
            assert_eq!(found.len(), number + 1, "one for each time");
            assert_eq!(
                (&found[0].ends, &*found[0].tables),
                (&None, &["public.outbox".to_owned()][..])
            );
            capture.begin(&world.database()).await.unwrap();
            let found = list_gaps(&world.client, None).await.unwrap();
            assert_eq!(found.len(), number + 1);
            assert!(found[0].ends.is_some());
        }
        world
            .sql("INSERT INTO outbox (payload) VALUES ('last')")
            .await;
        world.catch_up(&capture).await.unwrap();
        assert_eq!(world.bodies().await, ["0", "1", "2", "last"]);
        let first = list_gaps(&world.client, None).await.unwrap()[0].id;
        assert!(
            posthaste_capture::accept_gap(&world.client, first)
                .await
                .unwrap()
        );
        assert!(
            !posthaste_capture::accept_gap(&world.client, first)
                .await
                .unwrap()
        );
    }
}

#[tokio::test]
async fn invalidated_slots_stop_the_capture_until_it_begins_again() {
    let settings = [("max_slot_wal_keep_size", "1MB")];
    for version in PgVersion::tried() {
        let world = World::new(version, &settings).await;
        world.sql(OUTBOX).await;
        world.install(&outbox()).await;
        world.sql("CREATE TABLE other (v text)").await;
        for _ in 0..6 {
            world
                .sql(
                    "INSERT INTO other SELECT repeat('x', 900) FROM generate_series(1, 4000);
                      SELECT pg_switch_wal(); CHECKPOINT",
                )
                .await;
        }
        let text = stopped(&world).await;
        assert!(text.contains("invalidated the slot"), "{text}");
        outbox().begin(&world.database()).await.unwrap();
        world.sql("INSERT INTO outbox (payload) VALUES ('a')").await;
        world.catch_up(&outbox()).await.unwrap();
        assert_eq!(world.bodies().await, ["a"]);
    }
}

#[tokio::test]
async fn unreadable_changes_stop_the_capture_until_they_are_skipped() {
    let world = World::new(PgVersion::V18, &[]).await;
    world.sql(OUTBOX).await;
    let capture = outbox();
    world.install(&capture).await;
    world
        .sql(
            "BEGIN; INSERT INTO outbox (payload) VALUES ('a');
              INSERT INTO outbox (payload, headers) VALUES ('broken', '[]');
              INSERT INTO outbox (payload) VALUES ('b'); COMMIT;
              INSERT INTO outbox (payload) VALUES ('c')",
        )
        .await;
    let text = stopped(&world).await;
    assert_eq!(stopped(&world).await, text);
    assert_eq!(world.bodies().await, ["a"]);
    let position = text.split(' ').nth(3).unwrap();
    let position: Position = position.parse().unwrap();
    capture.skip(&world.database(), position).await.unwrap();
    world.catch_up(&capture).await.unwrap();
    assert_eq!(world.bodies().await, ["a", "b", "c"]);
    let found = list_gaps(&world.client, None).await.unwrap();
    assert!(found[0].reason.contains("skipped"), "{found:?}");
}

#[tokio::test]
async fn copied_databases_send_nothing_until_the_capture_begins_there() {
    let world = World::new(PgVersion::V18, &[]).await;
    world.sql(OUTBOX).await;
    let capture = outbox();
    world.install(&capture).await;
    // The identity after a dump was restored on another server.
    world
        .sql("UPDATE posthaste.capture SET identity[3] = '1'")
        .await;
    world.sql("INSERT INTO outbox (payload) VALUES ('a')").await;
    let text = stopped(&world).await;
    assert!(text.contains("copy"), "{text}");
    capture.begin(&world.database()).await.unwrap();
    world.sql("INSERT INTO outbox (payload) VALUES ('b')").await;
    world.catch_up(&capture).await.unwrap();
    assert_eq!(world.bodies().await, ["b"]);
}

#[tokio::test]
async fn dropped_or_recreated_publications_stop_the_capture() {
    let world = World::new(PgVersion::V15, &[]).await;
    world.sql(OUTBOX).await;
    world.install(&outbox()).await;
    world.sql("DROP PUBLICATION posthaste_all").await;
    let text = stopped(&world).await;
    assert!(text.contains("publication"), "{text}");
    // A publication of the same name lacks the changes that were committed before it.
    world
        .sql("INSERT INTO outbox (payload) VALUES ('lost')")
        .await;
    world
        .sql("CREATE PUBLICATION posthaste_all FOR TABLE outbox WITH (publish = 'insert')")
        .await;
    let text = stopped(&world).await;
    assert!(text.contains("publication"), "{text}");
    outbox().install(&world.database()).await.unwrap_err();
    outbox().begin(&world.database()).await.unwrap();
    world.sql("INSERT INTO outbox (payload) VALUES ('a')").await;
    world.catch_up(&outbox()).await.unwrap();
    assert_eq!(world.bodies().await, ["a"]);
}
