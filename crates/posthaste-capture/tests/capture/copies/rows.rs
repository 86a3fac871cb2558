//! The rows that a copy delivers, and their format.

use std::collections::BTreeMap;

use posthaste_capture::Source;
use posthaste_testkit::PgVersion;
use serde_json::{Value, json};

use super::super::world::{OUTBOX, World, outbox, table, tables};
use super::ITEM;

#[tokio::test]
async fn copied_rows_equal_streamed_rows_for_all_keys_and_types() {
    for version in PgVersion::tried() {
        let world = World::new(version, &[]).await;
        world
            .sql(
                "CREATE TYPE mood AS ENUM ('bad', 'good');
                  CREATE TABLE \"It's\" (
                    a text, \"B c\" char(5), at timestamptz, v text, b boolean, n numeric,
                    f float8, d jsonb, i interval, h bytea, net inet, m mood, l int[],
                    nothing text, g int GENERATED ALWAYS AS (1) STORED,
                    PRIMARY KEY (\"B c\", a, at));
                  INSERT INTO \"It's\"
                  SELECT (ARRAY['', 'O''Neil', E'back\\\\slash', 'ä\u{1F600}', '%s', E'line\\n'])
                         [1 + g % 6],
                         'k' || g / 6,
                         '2026-03-29 01:59:59.123456+01'::timestamptz + g * '1 s'::interval,
                         'v', g % 2 = 0, CASE g % 3 WHEN 0 THEN 'NaN' ELSE '1.50' END::numeric,
                         0.1::float8 + g, '{\"a\": 1.0}', '1 day 02:03:04.5'::interval, '\\x00ff',
                         '10.0.0.1', 'good', '{1,NULL}', NULL
                    FROM generate_series(1, 1500) g",
            )
            .await;
        // Sessions with other output settings.
        let database = world.text("SELECT current_database()::text").await;
        let set = format!(
            "ALTER DATABASE \"{database}\" SET datestyle = 'German'; \
             ALTER DATABASE \"{database}\" SET timezone = 'Asia/Tokyo'; \
             ALTER DATABASE \"{database}\" SET bytea_output = 'escape'; \
             ALTER DATABASE \"{database}\" SET intervalstyle = 'iso_8601'"
        );
        world.sql(&set).await;
        let capture = tables(&["public.It's"]);
        world.install(&capture).await;
        world.copy(&capture, "public.It's", None).await;
        world.catch_up(&capture).await.unwrap();
        assert_eq!(world.newest_copy().await.rows, 1_500);
        world.sql("UPDATE \"It's\" SET v = v").await;
        world.catch_up(&capture).await.unwrap();
        let jobs = world.jobs().await;
        assert_eq!(jobs.len(), 3_000);
        let by = |operation: &str| -> BTreeMap<String, Value> {
            let jobs = jobs.iter().filter(|job| job.row["operation"] == operation);
            jobs.map(|job| (job.row["key"].to_string(), job.row["after"].clone()))
                .collect()
        };
        let (read, changed) = (by("read"), by("update"));
        assert_eq!(read.len(), 1_500);
        assert_eq!(read, changed);
        let first = read.values().next().unwrap();
        assert!(first["b"].is_boolean(), "{first}");
    }
}

#[tokio::test]
async fn copies_contain_only_captured_and_requested_rows_and_columns() {
    let world = World::new(PgVersion::any(), &[]).await;
    world.sql(ITEM).await;
    world.sql("ALTER TABLE item REPLICA IDENTITY DEFAULT").await;
    world.fill(3_000).await;
    let mut one = table("public.item");
    one.columns = vec!["id".into(), "v".into()];
    one.filter = Some("id > 1000".into());
    one.operations = vec!["insert".into()];
    let capture = super::super::world::capture(Source::Tables(vec![one]));
    world.install(&capture).await;
    world
        .copy(&capture, "public.item", Some("id % 2 = 0 OR pad IS NULL"))
        .await;
    world.catch_up(&capture).await.unwrap();
    let jobs = world.jobs().await;
    assert_eq!(jobs.len(), 1_000);
    assert_eq!(jobs[0].row["after"], json!({ "id": 1002, "v": 1002 }));
    assert_eq!(jobs[0].row["operation"], "read");
    let copy = world.newest_copy().await;
    assert_eq!((copy.rows, copy.table.as_str()), (1_000, "public.item"));
}

#[tokio::test]
async fn outbox_rows_are_copied_as_messages() {
    let world = World::new(PgVersion::any(), &[]).await;
    world.sql(OUTBOX).await;
    let id = "01900000-0000-7000-8000-00000000002a";
    world
        .sql(&format!(
            "INSERT INTO outbox (id, type, payload) VALUES ('{id}', 'paid', 'before')"
        ))
        .await;
    let capture = outbox();
    world.install(&capture).await;
    capture.request_copies(&world.database()).await.unwrap();
    world.catch_up(&capture).await.unwrap();
    let jobs = world.jobs().await;
    assert_eq!(jobs.len(), 1);
    let first = &jobs[0];
    assert_eq!(
        (&*first.id, &*first.name, &*first.body),
        (id, "paid", "before")
    );
}
