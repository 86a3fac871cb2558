//! Captures that are refused because other sessions' statements would fail, and the effects of an
//! installation.

use posthaste_capture::{Capture, Source, list_captures};
use posthaste_testkit::PgVersion;

use super::world::{OUTBOX, World, capture, outbox, table, tables};

async fn refusal(world: &World, capture: &Capture) -> String {
    let error = capture.install(&world.database()).await.unwrap_err();
    let slots = "SELECT count(*)::text FROM pg_replication_slots";
    assert_eq!(world.text(slots).await, "0", "no slot is left");
    let publications = "SELECT count(*)::text FROM pg_publication";
    assert_eq!(
        world.text(publications).await,
        "0",
        "no publication is left"
    );
    error.to_string()
}

#[tokio::test]
async fn rejects_tables_whose_statements_would_fail() {
    for version in PgVersion::tried() {
        let world = World::new(version, &[]).await;
        world
            .sql(
                "CREATE TABLE bare (id int, v int); INSERT INTO bare VALUES (1, 1);
                  CREATE TABLE keyed (id int PRIMARY KEY, v int)",
            )
            .await;
        let text = refusal(&world, &tables(&["public.bare"])).await;
        assert!(text.contains("replica identity"), "{text}");
        world.sql("UPDATE bare SET v = 2; DELETE FROM bare").await;
        let narrow = capture(Source::Tables(vec![posthaste_capture::CapturedTable {
            columns: vec!["v".into()],
            ..table("public.keyed")
        }]));
        let text = refusal(&world, &narrow).await;
        assert!(text.contains("keyed"), "{text}");
        let filtered = capture(Source::Tables(vec![posthaste_capture::CapturedTable {
            filter: Some("v > 0".into()),
            ..table("public.keyed")
        }]));
        let text = refusal(&world, &filtered).await;
        assert!(text.contains("keyed"), "{text}");
        // Without the refusal, these statements fail.
        world.sql("CREATE PUBLICATION p FOR TABLE bare").await;
        let failed = world.client.batch_execute("UPDATE bare SET v = 3").await;
        failed.unwrap_err();
    }
}

#[tokio::test]
async fn captures_full_identities_beside_generated_columns_on_every_version() {
    for version in PgVersion::tried() {
        let world = World::new(version, &[]).await;
        world
            .sql(
                "CREATE TABLE made (id int, d int GENERATED ALWAYS AS (id * 2) STORED);
                  ALTER TABLE made REPLICA IDENTITY FULL",
            )
            .await;
        let capture = tables(&["public.made"]);
        world.install(&capture).await;
        world
            .sql("INSERT INTO made VALUES (1); UPDATE made SET id = 2")
            .await;
        world.catch_up(&capture).await.unwrap();
        assert_eq!(world.jobs().await[1].row["after"]["id"], 2);
    }
}

#[tokio::test]
async fn rejects_missing_unlogged_and_foreign_tables() {
    let world = World::new(PgVersion::V18, &[]).await;
    world
        .sql("CREATE UNLOGGED TABLE loose (id int PRIMARY KEY); CREATE VIEW seen AS SELECT 1 AS a")
        .await;
    for (name, words) in [
        ("public.nothing", "no table"),
        ("public.loose", "not logged"),
        ("public.seen", "not a table"),
    ] {
        let text = refusal(&world, &tables(&[name])).await;
        assert!(text.contains(words), "{text}");
    }
    world.sql("CREATE TABLE outbox (id int, body text)").await;
    let text = refusal(&world, &outbox()).await;
    assert!(text.contains("outbox_columns"), "{text}");
}

#[tokio::test]
async fn rejects_servers_without_logical_wal() {
    let world = World::new(PgVersion::V15, &[("wal_level", "replica")]).await;
    world.sql(OUTBOX).await;
    let text = refusal(&world, &outbox()).await;
    assert!(text.contains("wal_level = logical"), "{text}");
}

#[tokio::test]
async fn installing_creates_missing_parts_and_removing_leaves_none() {
    let world = World::new(PgVersion::V18, &[]).await;
    world.sql(OUTBOX).await;
    let capture = outbox();
    let database = world.database();
    assert!(!capture.install(&database).await.unwrap().was_there);
    assert!(capture.install(&database).await.unwrap().was_there);
    let seen = list_captures(&world.client).await.unwrap();
    assert_eq!((&*seen[0].name, seen[0].is_missing), ("all", false));
    // The next installation completes one that stopped between its slot and its mark.
    world.sql("DELETE FROM posthaste.capture").await;
    world.sql("INSERT INTO outbox (payload) VALUES ('a')").await;
    world.install(&capture).await;
    world.catch_up(&capture).await.unwrap();
    assert_eq!(world.bodies().await, ["a"]);
    capture.remove(&database).await.unwrap();
    capture.remove(&database).await.unwrap();
    for left in [
        "pg_replication_slots",
        "pg_publication",
        "posthaste.capture",
    ] {
        let sql = format!("SELECT count(*)::text FROM {left}");
        assert_eq!(world.text(&sql).await, "0", "{left}");
    }
}

#[tokio::test]
async fn a_renamed_slot_leaves_no_slot_of_the_old_name() {
    let world = World::new(PgVersion::V18, &[]).await;
    world.sql(OUTBOX).await;
    let (capture, mut renamed) = (outbox(), outbox());
    renamed.slot = "posthaste_renamed".into();
    let database = world.database();
    let slots = "SELECT (SELECT string_agg(slot_name, ',') FROM pg_replication_slots) || ' '
                     || (SELECT string_agg(pubname, ',') FROM pg_publication)";
    world.install(&capture).await;
    let error = renamed.install(&database).await.unwrap_err().to_string();
    assert!(error.contains("another slot, posthaste_all"), "{error}");
    renamed.begin(&database).await.unwrap();
    let names = world.text(slots).await;
    assert_eq!(names, "posthaste_renamed posthaste_renamed");
    // The settings name the former slot again.
    capture.remove(&database).await.unwrap();
    let left = "SELECT ((SELECT count(*) FROM pg_replication_slots)
                        + (SELECT count(*) FROM pg_publication))::text";
    assert_eq!(world.text(left).await, "0");
}

#[tokio::test]
async fn printed_statements_suffice_for_an_installation() {
    for version in PgVersion::tried() {
        let world = World::new(version, &[]).await;
        world.sql(OUTBOX).await;
        let capture = outbox();
        for statement in capture.statements(&world.database()).await.unwrap() {
            world.sql(&statement).await;
        }
        world.sql("INSERT INTO outbox (payload) VALUES ('a')").await;
        world.install(&capture).await;
        world.catch_up(&capture).await.unwrap();
        assert_eq!(world.bodies().await, ["a"]);
    }
}

#[tokio::test]
async fn install_refuses_an_existing_publication_for_all_tables() {
    let world = World::new(PgVersion::V18, &[]).await;
    world.sql(OUTBOX).await;
    world
        .sql("CREATE PUBLICATION posthaste_all FOR ALL TABLES")
        .await;
    let error = outbox().install(&world.database()).await.unwrap_err();
    assert!(error.to_string().contains("other tables"), "{error}");
}
