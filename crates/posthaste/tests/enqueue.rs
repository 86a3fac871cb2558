//! Enqueue: in the caller's transaction, in every isolation level, and refused clearly where it must be.

use jiff::Timestamp;
use posthaste::{NewJob, enqueue, enqueue_many};
use posthaste_testkit::PgVersion;
use serde_json::json;
use serde_json::value::RawValue;
use tokio_postgres::error::SqlState;

use crate::support::{count, database, unfinished};

#[tokio::test]
async fn a_job_appears_with_its_transaction_and_vanishes_with_it() {
    let db = database(PgVersion::V15).await;
    let mut client = db.client().await.unwrap();
    let watcher = db.client().await.unwrap();
    let job = NewJob::new("mail.welcome", &json!({"name": "ada"})).unwrap();

    let tx = client.transaction().await.unwrap();
    enqueue(&tx, &job).await.unwrap();
    assert_eq!(unfinished(&watcher).await, 0, "not before the commit");
    tx.rollback().await.unwrap();
    assert_eq!(unfinished(&watcher).await, 0, "never after a rollback");

    let tx = client.transaction().await.unwrap();
    let id = enqueue(&tx, &job).await.unwrap();
    tx.commit().await.unwrap();
    let row = watcher
        .query_one("SELECT id, name, queue, state, attempt, max_attempts, kwargs->>'name' FROM posthaste.job", &[])
        .await
        .unwrap();
    assert_eq!(row.get::<_, i64>(0), id.0);
    assert_eq!(row.get::<_, &str>(1), "mail.welcome");
    assert_eq!(row.get::<_, &str>(2), "default");
    assert_eq!(row.get::<_, &str>(3), "claimable");
    assert_eq!((row.get::<_, i32>(4), row.get::<_, i32>(5)), (0, 25));
    assert_eq!(row.get::<_, &str>(6), "ada");
}

#[tokio::test]
async fn every_isolation_level_savepoint_and_prepared_transaction_can_enqueue() {
    for version in [PgVersion::V15, PgVersion::V18] {
        let db = database(version).await;
        let client = db.client().await.unwrap();
        for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            client
                .batch_execute(&format!(
                    "BEGIN ISOLATION LEVEL {level};
                     INSERT INTO posthaste.job (name) VALUES ('kept');
                     SAVEPOINT s; INSERT INTO posthaste.job (name) VALUES ('dropped'); ROLLBACK TO s;
                     SELECT posthaste.enqueue('kept');
                     COMMIT"
                ))
                .await
                .unwrap();
        }
        // One by one: COMMIT PREPARED does not run inside the implicit transaction of a script.
        for statement in [
            "BEGIN; INSERT INTO posthaste.job (name) VALUES ('kept'); PREPARE TRANSACTION 'a'",
            "BEGIN; INSERT INTO posthaste.job (name) VALUES ('dropped'); PREPARE TRANSACTION 'b'",
            "COMMIT PREPARED 'a'",
            "ROLLBACK PREPARED 'b'",
        ] {
            client.batch_execute(statement).await.unwrap();
        }
        let row = client
            .query_one(
                "SELECT count(*) FILTER (WHERE name = 'kept'), count(*) FROM posthaste.job",
                &[],
            )
            .await
            .unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (7, 7));
    }
}

#[tokio::test]
async fn insert_select_returns_ids_and_parks_what_is_not_due() {
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    let rows = client
        .query(
            "INSERT INTO posthaste.job (name, scheduled_at, priority, tag, kwargs)
             SELECT 'index', now() + (g % 2) * interval '1 hour', 100, 'reindex_user', jsonb_build_object('annotation_id', g)
               FROM generate_series(1, 1000) g RETURNING id, state",
            &[],
        )
        .await
        .unwrap();
    let scheduled = rows
        .iter()
        .filter(|row| row.get::<_, &str>(1) == "scheduled")
        .count();
    assert_eq!((rows.len(), scheduled), (1000, 500));
    assert_eq!(count(&client, "claimable").await, 500);
    assert_eq!(count(&client, "scheduled").await, 500);
}

#[tokio::test]
async fn a_volatile_time_is_judged_and_stored_once() {
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    client
        .batch_execute(
            "INSERT INTO posthaste.job (name, scheduled_at)
             SELECT 'x', clock_timestamp() + (random() - 0.5) * interval '1 hour' FROM generate_series(1, 500)",
        )
        .await
        .unwrap();
    let early: i64 = client
        .query_one("SELECT count(*) FROM posthaste.job WHERE state = 'claimable' AND scheduled_at > clock_timestamp()", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(early, 0, "a job that is not due must not be claimable");
}

#[tokio::test]
async fn a_job_without_an_expiry_expires_thirty_days_after_it_is_due() {
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    client
        .batch_execute(
            "SELECT posthaste.enqueue('due'), posthaste.enqueue('later', scheduled_at => now() + interval '60 days');
             INSERT INTO posthaste.job (name) VALUES ('due');
             INSERT INTO posthaste.job (name, scheduled_at) VALUES ('later', now() + interval '60 days');",
        )
        .await
        .unwrap();
    let right: i64 = client
        .query_one(
            "SELECT count(*) FROM posthaste.job
              WHERE expires_at - scheduled_at BETWEEN interval '30 days' AND interval '30 days 1 minute'",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert_eq!(right, 4);
}

#[tokio::test]
async fn the_queue_comes_from_the_exact_route_else_the_longest_prefix_else_default() {
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    client
        .batch_execute(
            "INSERT INTO posthaste.route (pattern, queue) VALUES ('mail.*', 'mail'), ('mail.bulk.*', 'bulk'), ('mail.bulk.now', 'urgent')",
        )
        .await
        .unwrap();
    for (name, queue) in [
        ("mail.x", "mail"),
        ("mail.bulk.x", "bulk"),
        ("mail.bulk.now", "urgent"),
        ("mail", "default"),
        ("other", "default"),
    ] {
        let id = enqueue(&client, &NewJob::new(name, &json!({})).unwrap())
            .await
            .unwrap();
        let got: String = client
            .query_one("SELECT queue FROM posthaste.job WHERE id = $1", &[&id.0])
            .await
            .unwrap()
            .get(0);
        assert_eq!(got, queue, "{name}");
    }
    let named = NewJob::new("mail.x", &json!({})).unwrap().queue("mine");
    let id = enqueue(&client, &named).await.unwrap();
    let got: String = client
        .query_one("SELECT queue FROM posthaste.job WHERE id = $1", &[&id.0])
        .await
        .unwrap()
        .get(0);
    assert_eq!(got, "mine", "a named queue wins");
    for bad in ["''", "'a*b'", "'a**'"] {
        let refused = client
            .batch_execute(&format!("INSERT INTO posthaste.route VALUES ({bad}, 'q')"))
            .await;
        assert!(refused.is_err(), "{bad} is no pattern");
    }
}

#[tokio::test]
async fn many_jobs_keep_their_order_and_all_their_fields() {
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    let at = jiff::Timestamp::from_second(4_000_000_000).unwrap();
    let jobs: Vec<NewJob> = (0..2500)
        .map(|n| {
            let job = NewJob::new(format!("n{n}"), &json!({"n": n}))
                .unwrap()
                .priority(n)
                .tag("t")
                .max_attempts(None);
            if n == 7 {
                job.scheduled_at(at).expires_at(at).queue("q")
            } else {
                job
            }
        })
        .collect();
    let ids = enqueue_many(&client, &jobs).await.unwrap();
    assert_eq!(ids.len(), 2500);
    let rows = client
        .query("SELECT id, name, priority, kwargs->>'n', max_attempts, queue FROM posthaste.job ORDER BY priority", &[])
        .await
        .unwrap();
    for (n, row) in rows.iter().enumerate() {
        assert_eq!(row.get::<_, i64>(0), ids[n].0);
        assert_eq!(row.get::<_, String>(1), format!("n{n}"));
        assert_eq!(row.get::<_, String>(3), n.to_string());
        assert_eq!(row.get::<_, Option<i32>>(4), None);
        assert_eq!(row.get::<_, &str>(5), if n == 7 { "q" } else { "default" });
    }
}

#[tokio::test]
async fn bad_arguments_are_refused_by_22023_that_names_the_field() {
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    let deep = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    let bomb = format!("{{\"a\":[{}1]}}", "1e131071,".repeat(10_000));
    let small_bomb = format!("{{\"a\":[{}1]}}", "1e131071,".repeat(20));
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
    let long = "n".repeat(256);
    for (field, call) in [
        ("name", "posthaste.enqueue('')".to_owned()),
        ("name", "posthaste.enqueue(NULL)".to_owned()),
        ("name", format!("posthaste.enqueue('{long}')")),
        ("queue", "posthaste.enqueue('a', queue => '')".to_owned()),
        ("tag", format!("posthaste.enqueue('a', tag => '{long}')")),
        (
            "unique_key",
            "posthaste.enqueue('a', unique_key => '')".to_owned(),
        ),
        ("kwargs", "posthaste.enqueue('a', '[1]')".to_owned()),
        ("kwargs", "posthaste.enqueue('a', '7')".to_owned()),
        ("kwargs", format!("posthaste.enqueue('a', '{}')", deep(65))),
        ("kwargs", format!("posthaste.enqueue('a', '{bomb}')")),
        ("kwargs", format!("posthaste.enqueue('a', '{small_bomb}')")),
        ("kwargs", format!("posthaste.enqueue('a', '{large}')")),
        (
            "max_attempts",
            "posthaste.enqueue('a', max_attempts => 0)".to_owned(),
        ),
        (
            "max_attempts",
            "posthaste.enqueue('a', max_attempts => -3)".to_owned(),
        ),
        (
            "scheduled_at",
            "posthaste.enqueue('a', scheduled_at => 'infinity')".to_owned(),
        ),
        (
            "expires_at",
            "posthaste.enqueue('a', expires_at => '-infinity')".to_owned(),
        ),
    ] {
        let error = client
            .query_one(&format!("SELECT {call}"), &[])
            .await
            .unwrap_err();
        let db_error = error.as_db_error().expect("an error of the server");
        assert_eq!(
            db_error.code(),
            &SqlState::INVALID_PARAMETER_VALUE,
            "{field}: {}",
            db_error.message()
        );
        assert!(
            db_error.message().contains(&format!("{field}:")),
            "{field}: {}",
            db_error.message()
        );
    }
    let error = client
        .batch_execute("INSERT INTO posthaste.job (name, attempt) VALUES ('a', -1)")
        .await
        .unwrap_err();
    assert!(error.as_db_error().unwrap().message().contains("attempt:"));
    let error = client
        .batch_execute("INSERT INTO posthaste.job (name, unique_key) VALUES ('a', 'k')")
        .await
        .unwrap_err();
    assert!(
        error
            .as_db_error()
            .unwrap()
            .message()
            .contains("unique_key:")
    );
    for fine in [deep(64), "{\"a\":1e400}".to_owned(), "{}".to_owned()] {
        client
            .query_one(&format!("SELECT posthaste.enqueue('a', '{fine}')"), &[])
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn arguments_that_a_table_holds_compressed_are_judged_by_what_they_are() {
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    client
        .batch_execute(
            "SET statement_timeout = '10s'; CREATE TABLE payload (name text, body jsonb)",
        )
        .await
        .unwrap();
    let deep = format!("{}1{}", "{\"a\":".repeat(3000), "}".repeat(3000));
    let bomb = format!("{{\"a\":[{}1]}}", "1e131071,".repeat(10_000));
    for (name, body) in [("deep", deep), ("bomb", bomb)] {
        let store = "INSERT INTO payload VALUES ($1, $2::text::jsonb)";
        client.execute(store, &[&name, &body]).await.unwrap();
    }
    let compressed = "SELECT count(*) FROM payload WHERE pg_column_compression(body) IS NOT NULL";
    let compressed: i64 = client.query_one(compressed, &[]).await.unwrap().get(0);
    assert_eq!(compressed, 2, "the table compresses them");
    for name in ["deep", "bomb"] {
        for way in [
            "INSERT INTO posthaste.job (name, kwargs) SELECT 'a', body FROM payload WHERE name = $1",
            "SELECT posthaste.enqueue('a', body) FROM payload WHERE name = $1",
        ] {
            let refused = client.execute(way, &[&name]).await.unwrap_err();
            let refused = refused.as_db_error().unwrap();
            assert_eq!(refused.code().code(), "22023", "{name}: {refused}");
        }
    }
}

#[tokio::test]
async fn rust_refuses_bad_jobs_before_anything_is_sent() {
    let db = database(PgVersion::V15).await;
    let mut client = db.client().await.unwrap();
    let tx = client.transaction().await.unwrap();
    let good = || NewJob::new("a", &json!({})).unwrap();
    for bad in [
        good().queue(""),
        good().queue("q\0"),
        good().tag("t".repeat(256)),
        good().unique_key(""),
        good().max_attempts(Some(0)),
        good().max_attempts(Some(-1)),
        good().scheduled_at(Timestamp::MAX),
        good().expires_at(Timestamp::MIN),
    ] {
        assert!(enqueue(&tx, &bad).await.unwrap_err().is_invalid());
        assert!(
            enqueue_many(&tx, &[good(), bad])
                .await
                .unwrap_err()
                .is_invalid()
        );
    }
    assert!(NewJob::new("", &json!({})).unwrap_err().is_invalid());
    assert!(
        NewJob::new("a", &json!({"a": "\0"}))
            .unwrap_err()
            .is_invalid()
    );
    // The caller's transaction is unharmed.
    enqueue(&tx, &good()).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(unfinished(&client).await, 1);
}

/// Beyond each of these Rust refuses; up to them the database must take it.
#[tokio::test]
async fn the_widest_arguments_that_rust_accepts_are_stored() {
    let zeros = |count: usize| "0".repeat(count);
    let numbers = [
        "1e400".to_owned(),
        "-9.99e399".to_owned(),
        "1e-400".to_owned(),
        format!("0.5{}", zeros(16_382)),
        format!("5.{}e-400", zeros(15_983)),
        format!("[{}1]", "1e400,".repeat(2_600)),
    ];
    for version in PgVersion::ALL {
        let db = database(version).await;
        let client = db.client().await.unwrap();
        let last: Timestamp = "9998-12-01T23:59:59Z".parse().unwrap();
        for number in &numbers {
            let kwargs: Box<RawValue> =
                RawValue::from_string(format!("{{\"a\":{number}}}")).unwrap();
            let job = NewJob::new("a", &kwargs).unwrap().scheduled_at(last);
            enqueue(&client, &job).await.unwrap();
            enqueue_many(&client, &[job.clone(), job]).await.unwrap();
        }
        assert_eq!(unfinished(&client).await, 3 * 6);
    }
}

#[tokio::test]
async fn a_unique_key_is_held_by_one_job_and_a_second_enqueue_returns_its_id() {
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    let job = NewJob::new("a", &json!({})).unwrap().unique_key("k");
    let first = enqueue(&client, &job).await.unwrap();
    assert_eq!(enqueue(&client, &job).await.unwrap(), first);
    assert_eq!(unfinished(&client).await, 1);
    let many = enqueue_many(
        &client,
        &[job.clone(), NewJob::new("b", &json!({})).unwrap(), job],
    )
    .await
    .unwrap();
    assert_eq!((many[0], many[2]), (first, first));
    assert_eq!(unfinished(&client).await, 2);
}
