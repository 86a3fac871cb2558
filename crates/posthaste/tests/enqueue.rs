//! Enqueue: in the caller's transaction, in every isolation level.

use posthaste::{NewJob, enqueue, enqueue_many};
use posthaste_testkit::{PgVersion, Sql as _, TestResult};
use serde_json::json;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::support::{connected, count, database, unfinished};

#[tokio::test]
async fn jobs_commit_and_roll_back_with_their_transaction() -> TestResult {
    let db = database(PgVersion::any()).await;
    let mut client = db.client().await?;
    let watcher = db.client().await?;
    let job = NewJob::new("mail.welcome", &json!({"name": "ada"}))?;

    let tx = client.transaction().await?;
    enqueue(&tx, &job).await?;
    assert_eq!(unfinished(&watcher).await, 0, "not before the commit");
    tx.rollback().await?;
    assert_eq!(unfinished(&watcher).await, 0, "never after a rollback");

    let tx = client.transaction().await?;
    let id = enqueue(&tx, &job).await?;
    tx.commit().await?;
    let row = watcher
        .query_one(
            "SELECT id, name, queue, state, attempt, max_attempts, kwargs->>'name' \
             FROM posthaste.job",
            &[],
        )
        .await?;
    assert_eq!(row.get::<_, i64>(0), id.0);
    assert_eq!(row.get::<_, &str>(1), "mail.welcome");
    assert_eq!(row.get::<_, &str>(2), "default");
    assert_eq!(row.get::<_, &str>(3), "available");
    assert_eq!((row.get::<_, i32>(4), row.get::<_, i32>(5)), (0, 25));
    assert_eq!(row.get::<_, &str>(6), "ada");
    Ok(())
}

#[tokio::test]
async fn enqueues_in_every_isolation_level_savepoint_and_prepared_transaction() -> TestResult {
    for version in PgVersion::tried() {
        let (_db, client) = connected(version).await?;
        for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            client
                .run(&format!(
                    "BEGIN ISOLATION LEVEL {level};
                     INSERT INTO posthaste.job (name) VALUES ('kept');
                     SAVEPOINT s; INSERT INTO posthaste.job (name) VALUES ('dropped'); ROLLBACK TO \
                     s;
                     SELECT posthaste.enqueue('kept');
                     COMMIT"
                ))
                .await?;
        }
        // Separately, because COMMIT PREPARED does not run inside the implicit transaction of a
        // script.
        for statement in [
            "BEGIN; INSERT INTO posthaste.job (name) VALUES ('kept'); PREPARE TRANSACTION 'a'",
            "BEGIN; INSERT INTO posthaste.job (name) VALUES ('dropped'); PREPARE TRANSACTION 'b'",
            "COMMIT PREPARED 'a'",
            "ROLLBACK PREPARED 'b'",
        ] {
            client.run(statement).await?;
        }
        let row = client
            .query_one(
                "SELECT count(*) FILTER (WHERE name = 'kept'), count(*) FROM posthaste.job",
                &[],
            )
            .await?;
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (7, 7));
    }
    Ok(())
}

#[tokio::test]
async fn insert_select_returns_ids_and_schedules_future_jobs() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    let rows = client
        .query(
            "INSERT INTO posthaste.job (name, scheduled_at, priority, tag, kwargs)
             SELECT 'index', now() + (g % 2) * interval '1 hour', 100, 'reindex_user',
               jsonb_build_object('annotation_id', g)
               FROM generate_series(1, 1000) g RETURNING id, state",
            &[],
        )
        .await?;
    let scheduled = rows
        .iter()
        .filter(|row| row.get::<_, &str>(1) == "scheduled")
        .count();
    assert_eq!((rows.len(), scheduled), (1000, 500));
    assert_eq!(count(&client, "available").await, 500);
    assert_eq!(count(&client, "scheduled").await, 500);
    Ok(())
}

#[tokio::test]
async fn volatile_time_expressions_are_evaluated_once() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    client
        .run(
            "INSERT INTO posthaste.job (name, scheduled_at)
             SELECT 'x', clock_timestamp() + (random() - 0.5) * interval '1 hour'
               FROM generate_series(1, 500)",
        )
        .await?;
    let early: i64 = client
        .one(
            "SELECT count(*) FROM posthaste.job WHERE state = 'available' \
             AND scheduled_at > clock_timestamp()",
        )
        .await?;
    assert_eq!(early, 0, "a job that is not due must not be available");
    Ok(())
}

#[tokio::test]
async fn jobs_expire_thirty_days_after_they_are_due_by_default() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    client
        .run(
            "SELECT posthaste.enqueue('due'), posthaste.enqueue('later', scheduled_at => now() +
                    interval '60 days'),
                    posthaste.enqueue('overdue', scheduled_at => now() - interval '60 days'),
                      posthaste.enqueue('keyed', unique_key => 'k');
             INSERT INTO posthaste.job (name) VALUES ('due');
             INSERT INTO posthaste.job (name, scheduled_at)
               VALUES ('later', now() + interval '60 days'), ('overdue', now() - \
               interval '60 days');",
        )
        .await?;
    let plain = NewJob::new("plain", &json!({}))?;
    enqueue(&client, &plain).await?;
    enqueue_many(&client, &[plain.clone(), plain]).await?;
    let row = client
        .query_one(
            "SELECT count(*), count(*) FILTER (WHERE expires_at - greatest(scheduled_at,
                                                     enqueued_at)
                                                     BETWEEN interval '30 days -1 minute'
                                                       AND interval '30 days 1 minute')
               FROM posthaste.job",
            &[],
        )
        .await?;
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (10, 10));
    Ok(())
}

#[tokio::test]
async fn routes_match_exactly_then_by_longest_prefix_then_default() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    client
        .run(
            "INSERT INTO posthaste.route (pattern, queue) \
             VALUES ('mail.*', 'mail'), ('mail.bulk.*', 'bulk'), ('mail.bulk.now', 'urgent')",
        )
        .await?;
    for (name, queue) in [
        ("mail.x", "mail"),
        ("mail.bulk.x", "bulk"),
        ("mail.bulk.now", "urgent"),
        ("mail", "default"),
        ("other", "default"),
    ] {
        let id = enqueue(&client, &NewJob::new(name, &json!({}))?).await?;
        let got: String = client
            .one_with("SELECT queue FROM posthaste.job WHERE id = $1", &[&id.0])
            .await?;
        assert_eq!(got, queue, "{name}");
    }
    let named = NewJob::new("mail.x", &json!({}))?.queue("mine");
    let id = enqueue(&client, &named).await?;
    let got: String = client
        .one_with("SELECT queue FROM posthaste.job WHERE id = $1", &[&id.0])
        .await?;
    assert_eq!(got, "mine", "a named queue wins");
    for bad in ["''", "'a*b'", "'a**'"] {
        let refused = client
            .batch_execute(&format!("INSERT INTO posthaste.route VALUES ({bad}, 'q')"))
            .await;
        assert!(refused.is_err(), "{bad} is not a pattern");
    }
    Ok(())
}

#[tokio::test]
async fn bulk_enqueues_keep_order_and_all_fields() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
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
    let ids = enqueue_many(&client, &jobs).await?;
    assert_eq!(ids.len(), 2500);
    let rows = client
        .query(
            "SELECT id, name, priority, kwargs->>'n', max_attempts, queue FROM posthaste.job \
             ORDER BY priority",
            &[],
        )
        .await?;
    for (n, row) in rows.iter().enumerate() {
        assert_eq!(row.get::<_, i64>(0), ids[n].0);
        assert_eq!(row.get::<_, String>(1), format!("n{n}"));
        assert_eq!(row.get::<_, String>(3), n.to_string());
        assert_eq!(row.get::<_, Option<i32>>(4), None);
        assert_eq!(row.get::<_, &str>(5), if n == 7 { "q" } else { "default" });
    }
    Ok(())
}

#[tokio::test]
async fn ordering_keys_keep_order_with_any_unique_keys() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let event = |n: u32| NewJob::new("event", &json!({"n": n})).unwrap();
    let jobs: Vec<NewJob> = (8..12)
        .map(|n| match n {
            9 => event(n).ordering_key("order/1"),
            _ => event(n)
                .ordering_key("order/1")
                .unique_key(format!("evt-{n}")),
        })
        .collect();
    let ids = enqueue_many(&client, &jobs).await.unwrap();
    assert!(ids.is_sorted(), "{ids:?}");
    let handed_out = "SELECT array_agg(kwargs->>'n' ORDER BY id) FROM posthaste.job";
    let row = client.one::<Vec<String>>(handed_out).await.unwrap();
    assert_eq!(row, ["8", "9", "10", "11"]);
}

#[tokio::test]
async fn bulk_enqueues_keep_the_first_job_of_a_unique_key() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let job = |n: u32| NewJob::new("event", &json!({"n": n})).unwrap();
    let jobs = [
        job(0),
        job(1).unique_key("held"),
        job(2).unique_key("z"),
        job(3).unique_key("held").ordering_key("line"),
        job(4),
        job(5).ordering_key("line"),
        job(6).unique_key("a"),
        job(7).ordering_key("another"),
        job(8).unique_key("b").ordering_key("line"),
    ];
    let ids = enqueue_many(&client, &jobs).await.unwrap();
    assert_eq!(ids[3], ids[1], "the first holds it");
    for (n, id) in ids.iter().enumerate().filter(|(n, _)| *n != 3) {
        let stored = "SELECT (kwargs->>'n')::integer FROM posthaste.job WHERE id = $1";
        let row = client.one_with::<i32>(stored, &[&id.0]).await.unwrap();
        assert_eq!(usize::try_from(row), Ok(n));
    }
    assert!(ids[5] < ids[8], "in the order of their line");
}

#[tokio::test]
async fn a_second_enqueue_of_a_unique_key_returns_the_first_id() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    let job = NewJob::new("a", &json!({}))?.unique_key("k");
    let first = enqueue(&client, &job).await?;
    assert_eq!(enqueue(&client, &job).await?, first);
    assert_eq!(unfinished(&client).await, 1);
    let many = enqueue_many(&client, &[job.clone(), NewJob::new("b", &json!({}))?, job]).await?;
    assert_eq!((many[0], many[2]), (first, first));
    assert_eq!(unfinished(&client).await, 2);
    Ok(())
}

#[tokio::test]
async fn unique_keys_match_under_any_collation() {
    // The binaries of this version have ICU.
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    let make = "CREATE COLLATION other (provider = icu, locale = 'de'); \
                CREATE TABLE t (sku text COLLATE other); INSERT INTO t VALUES ('k')";
    client.run(make).await.unwrap();
    for function in ["enqueue", "enqueue", "enqueue_nowait"] {
        let sql = format!("SELECT posthaste.{function}('n', unique_key => t.sku) FROM t");
        let id: i64 = client.one(&sql).await.unwrap();
        assert_eq!(id, 1, "{function}");
    }
}

/// Enqueues with this key; returns the SQLSTATE if it fails.
async fn take(client: &Client, key: &str) -> Result<i64, String> {
    let taken = client
        .query_one("SELECT posthaste.enqueue('x', unique_key => $1)", &[&key])
        .await;
    match taken {
        Ok(row) => Ok(row.get(0)),
        Err(error) => Err(error.code().map_or("none", SqlState::code).to_owned()),
    }
}

#[tokio::test]
async fn a_unique_key_taken_after_the_snapshot_is_a_serialization_failure() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let (caller, other) = (db.client().await.unwrap(), db.client().await.unwrap());
        for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT FROM posthaste.job");
            caller.run(&begin).await.unwrap();
            let holder = take(&other, level).await.unwrap();
            let seen = take(&caller, level).await;
            caller.run("ROLLBACK").await.unwrap();
            match level {
                "READ COMMITTED" => assert_eq!(seen, Ok(holder), "{level}"),
                _ => assert_eq!(seen, Err("40001".to_owned()), "{level}"),
            }
            // The whole transaction is retried, and sees the holder of the key.
            caller.run(&begin).await.unwrap();
            assert_eq!(take(&caller, level).await, Ok(holder), "{level}");
            caller.run("COMMIT").await.unwrap();
        }
        assert_eq!(unfinished(&other).await, 3, "one job for each key");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bulk_enqueues_of_the_same_unique_keys_do_not_deadlock() {
    let db = database(PgVersion::any()).await;
    let keyed = |round: usize, n: usize| {
        let job = NewJob::new("keyed", &json!({ "n": n })).unwrap();
        job.unique_key(format!("{round} {n}"))
    };
    let mut clients = [db.client().await.unwrap(), db.client().await.unwrap()];
    for round in 0..20 {
        let forth: Vec<NewJob> = (0..30).map(|n| keyed(round, n)).collect();
        let back: Vec<NewJob> = (0..30).rev().map(|n| keyed(round, n)).collect();
        let [one, two] = &mut clients;
        let take = async |client: &mut tokio_postgres::Client, jobs: Vec<NewJob>| {
            let tx = client.transaction().await.unwrap();
            let ids = enqueue_many(&tx, &jobs).await.unwrap();
            tx.commit().await.unwrap();
            ids
        };
        let (forth, mut back) = tokio::join!(take(one, forth), take(two, back));
        back.reverse();
        assert_eq!(forth, back, "both get the same jobs, in their own order");
    }
}
