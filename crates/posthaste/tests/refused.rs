//! Invalid jobs are rejected with a clear error: in Rust before anything is sent, and in SQL by the
//! name of the field.

use jiff::Timestamp;
use posthaste::{NewJob, enqueue, enqueue_many};
use posthaste_testkit::{PgVersion, Sql as _, TestResult};
use serde_json::json;
use serde_json::value::RawValue;
use tokio_postgres::error::SqlState;

use crate::support::{connected, database, unfinished};

#[tokio::test]
async fn rejects_invalid_arguments_with_22023_naming_the_field() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
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
            "scheduled_at",
            "posthaste.enqueue('a', scheduled_at => '294276-12-31')".to_owned(),
        ),
        (
            "scheduled_at",
            "posthaste.enqueue('a', scheduled_at => '9998-12-31')".to_owned(),
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
        .batch_execute(
            "INSERT INTO posthaste.job (name, scheduled_at) VALUES ('a', '294276-12-31')",
        )
        .await
        .unwrap_err();
    assert!(
        error
            .as_db_error()
            .unwrap()
            .message()
            .contains("scheduled_at:")
    );
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
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn compressed_arguments_are_measured_uncompressed() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    client
        .run("SET statement_timeout = '10s'; CREATE TABLE payload (name text, body jsonb)")
        .await?;
    let deep = format!("{}1{}", "{\"a\":".repeat(3000), "}".repeat(3000));
    let bomb = format!("{{\"a\":[{}1]}}", "1e131071,".repeat(10_000));
    for (name, body) in [("deep", deep), ("bomb", bomb)] {
        let store = "INSERT INTO payload VALUES ($1, $2::text::jsonb)";
        client.execute(store, &[&name, &body]).await?;
    }
    let compressed = "SELECT count(*) FROM payload WHERE pg_column_compression(body) IS NOT NULL";
    let compressed: i64 = client.one(compressed).await?;
    assert_eq!(compressed, 2, "the table compresses them");
    for name in ["deep", "bomb"] {
        for way in [
            "INSERT INTO posthaste.job (name, kwargs) SELECT 'a', body FROM payload \
             WHERE name = $1",
            "SELECT posthaste.enqueue('a', body) FROM payload WHERE name = $1",
        ] {
            let refused = client.execute(way, &[&name]).await.unwrap_err();
            let refused = refused.as_db_error().unwrap();
            assert_eq!(refused.code().code(), "22023", "{name}: {refused}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn rust_rejects_invalid_jobs_before_sending() {
    let db = database(PgVersion::any()).await;
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

/// Rust rejects arguments above each of these limits; the database must accept them up to it.
#[tokio::test]
async fn the_largest_arguments_rust_accepts_are_stored() {
    let zeros = |count: usize| "0".repeat(count);
    let numbers = [
        "1e400".to_owned(),
        "-9.99e399".to_owned(),
        "1e-400".to_owned(),
        format!("0.5{}", zeros(16_382)),
        format!("5.{}e-400", zeros(15_983)),
        format!("[{}1]", "1e400,".repeat(2_600)),
    ];
    for version in PgVersion::tried() {
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
async fn postgres_itself_rejects_nul_characters() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let client = db.client().await.unwrap();
        let code = async |sql: &str, parameter: &str| {
            let refused = client.query(sql, &[&parameter]).await.unwrap_err();
            refused.code().expect("an error of the server").clone()
        };
        let escaped = "{\"a\": \"\\u0000\"}";
        for sql in [
            "SELECT posthaste.enqueue('a', $1::text::jsonb)",
            "INSERT INTO posthaste.job (name, kwargs) VALUES ('a', $1::text::jsonb)",
        ] {
            assert_eq!(code(sql, escaped).await, SqlState::UNTRANSLATABLE_CHARACTER);
        }
        for sql in [
            "SELECT posthaste.enqueue($1)",
            "INSERT INTO posthaste.job (name) VALUES ($1)",
        ] {
            let refused = code(sql, "a\0b").await;
            assert_eq!(refused, SqlState::CHARACTER_NOT_IN_REPERTOIRE);
        }
        assert_eq!(unfinished(&client).await, 0);
    }
}

/// The database of a new user has no schema, and that of an updated program has an older one.
#[tokio::test]
async fn missing_schema_errors_name_the_migrate_command() -> TestResult {
    let server = posthaste_testkit::PgServer::shared(PgVersion::any())?;
    let empty = posthaste_testkit::TestDb::empty(server).await?;
    let client = empty.client().await?;
    let job = posthaste::NewJob::new("x", &serde_json::json!({}))?;
    let keyed = job.clone().unique_key("k");
    let errors = [
        posthaste::enqueue(&client, &job).await.unwrap_err(),
        posthaste::enqueue(&client, &keyed).await.unwrap_err(),
        posthaste::enqueue_many(&client, std::slice::from_ref(&job))
            .await
            .unwrap_err(),
    ];
    for error in errors {
        assert!(error.sqlstate().is_some(), "{error:?}");
        let error = error.to_string();
        assert!(error.contains("posthaste migrate"), "{error}");
    }
    let error = posthaste::check_schema(&client).await.unwrap_err();
    assert!(error.to_string().contains("is not installed"), "{error}");
    let (_old, client) = connected(PgVersion::any()).await?;
    client
        .run("DELETE FROM posthaste.migration WHERE name = '0001_initial'")
        .await?;
    let error = posthaste::check_schema(&client).await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("older than this program"), "{error}");
    assert!(error.contains("0001_initial"), "{error}");
    Ok(())
}
