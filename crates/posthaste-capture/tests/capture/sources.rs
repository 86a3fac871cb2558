//! The events of rows and messages.

use posthaste_capture::Source;
use posthaste_testkit::PgVersion;
use serde_json::json;

use super::world::{OUTBOX, World, capture, outbox, tables};

#[tokio::test]
async fn outbox_rows_become_jobs_in_commit_order() {
    for version in PgVersion::tried() {
        let world = World::new(version, &[]).await;
        world.sql(OUTBOX).await;
        world
            .sql("INSERT INTO outbox (payload) VALUES ('before')")
            .await;
        let capture = outbox();
        world.install(&capture).await;
        let id = "01900000-0000-7000-8000-00000000002a";
        world
            .sql(&format!(
                "INSERT INTO outbox (id, type, payload) VALUES ('{id}', 'paid', 'one')"
            ))
            .await;
        world
            .sql("BEGIN; INSERT INTO outbox (payload) VALUES ('never'); ROLLBACK")
            .await;
        let second = world.db.client().await.unwrap();
        second
            .batch_execute("BEGIN; INSERT INTO outbox (payload) VALUES ('three')")
            .await
            .unwrap();
        world
            .sql("INSERT INTO outbox (payload) VALUES ('two')")
            .await;
        second
            .batch_execute(
                "SAVEPOINT s; INSERT INTO outbox (payload) VALUES ('no'); \
                            ROLLBACK TO s; INSERT INTO outbox (payload) VALUES ('four'); COMMIT",
            )
            .await
            .unwrap();
        world
            .sql("UPDATE outbox SET payload = 'x'; DELETE FROM outbox")
            .await;
        world.catch_up(&capture).await.unwrap();
        assert_eq!(world.bodies().await, ["one", "two", "three", "four"]);
        let first = world.jobs().await.remove(0);
        assert_eq!((&*first.id, &*first.name), (id, "paid"));
        world
            .sql("INSERT INTO outbox (payload) VALUES ('five')")
            .await;
        for _ in 0..3 {
            world.catch_up(&capture).await.unwrap();
        }
        assert_eq!(
            world.bodies().await,
            ["one", "two", "three", "four", "five"]
        );
    }
}

#[tokio::test]
async fn only_transactional_messages_become_jobs() {
    for version in PgVersion::tried() {
        let world = World::new(version, &[]).await;
        let capture = capture(Source::Messages("order.*".into()));
        world.install(&capture).await;
        world
            .sql(
                "SELECT pg_logical_emit_message(true, 'order.paid', '{\"n\": 1}');
                  SELECT pg_logical_emit_message(true, 'other', 'x');
                  SELECT pg_logical_emit_message(false, 'order.loose', 'x');
                  SELECT pg_logical_emit_message(true, 'order.bytes', '\\x00ff'::bytea)",
            )
            .await;
        world
            .sql("BEGIN; SELECT pg_logical_emit_message(true, 'order.no', 'x'); ROLLBACK")
            .await;
        world.catch_up(&capture).await.unwrap();
        let jobs = world.jobs().await;
        let found: Vec<_> = jobs.iter().map(|job| (&*job.name, &*job.body)).collect();
        assert_eq!(
            found,
            [("order.paid", "{\"n\": 1}"), ("order.bytes", "00ff")]
        );
    }
}

#[tokio::test]
async fn row_changes_become_jobs_with_all_known_values() {
    for version in PgVersion::tried() {
        let world = World::new(version, &[]).await;
        world
            .sql(
                "CREATE TABLE item (id int PRIMARY KEY, price numeric, big text, tags jsonb);
                  ALTER TABLE item ALTER big SET STORAGE EXTERNAL;
                  CREATE TABLE whole (id int, v text);
                  ALTER TABLE whole REPLICA IDENTITY FULL",
            )
            .await;
        let capture = tables(&["public.item", "public.whole"]);
        world.install(&capture).await;
        world
            .sql(
                "INSERT INTO item VALUES (1, 1.50, repeat('x', 9000), '{\"a\": [1]}');
                  UPDATE item SET price = 2 WHERE id = 1;
                  UPDATE item SET id = 7;
                  DELETE FROM item;
                  INSERT INTO whole VALUES (1, 'a');
                  UPDATE whole SET v = NULL;
                  TRUNCATE item, whole",
            )
            .await;
        world.catch_up(&capture).await.unwrap();
        let jobs = world.jobs().await;
        let operations: Vec<_> = jobs.iter().map(|job| &job.row["operation"]).collect();
        assert_eq!(
            operations,
            [
                "insert", "update", "update", "delete", "insert", "update", "truncate", "truncate"
            ]
        );
        assert!(jobs[0].body.contains("\"price\":1.50,"), "{}", jobs[0].body);
        assert_eq!(jobs[0].row["after"]["tags"], json!({ "a": [1] }));
        assert_eq!(jobs[0].row["key"], json!({ "id": 1 }));
        assert_eq!(jobs[1].row["unchanged"], json!(["big"]));
        assert_eq!(jobs[1].row["after"].get("big"), None);
        assert_eq!(jobs[1].row["before"], json!(null));
        assert_eq!(jobs[2].row["before"], json!({ "id": 1 }));
        assert_eq!(jobs[2].row["key"], json!({ "id": 7 }));
        assert_eq!(jobs[3].row["before"], json!({ "id": 7 }));
        assert_eq!(jobs[5].row["before"], json!({ "id": 1, "v": "a" }));
        assert_eq!(jobs[5].row["after"], json!({ "id": 1, "v": null }));
        let ids: std::collections::HashSet<_> = jobs.iter().map(|job| &job.id).collect();
        assert_eq!(ids.len(), jobs.len());
    }
}

#[tokio::test]
async fn previews_show_the_next_events_and_consume_none() {
    for version in PgVersion::tried() {
        let world = World::new(version, &[]).await;
        world.sql(OUTBOX).await;
        let capture = outbox();
        world.install(&capture).await;
        world
            .sql("INSERT INTO outbox (payload) VALUES ('one')")
            .await;
        world.catch_up(&capture).await.unwrap();
        world
            .sql("INSERT INTO outbox (payload, type) VALUES ('two', 'b')")
            .await;
        for _ in 0..2 {
            let events = capture.preview(&world.database(), 10).await.unwrap();
            assert_eq!(events.len(), 1);
            assert_eq!((&*events[0].body, &*events[0].name), (&b"two"[..], "b"));
        }
        let seen = capture.preview(&world.database(), 10).await.unwrap();
        world.catch_up(&capture).await.unwrap();
        let jobs = world.jobs().await;
        assert_eq!(jobs.len(), 2);
        assert_eq!(jobs[1].id, seen[0].id.to_string());
        assert_eq!(capture.preview(&world.database(), 10).await.unwrap(), []);
    }
}
