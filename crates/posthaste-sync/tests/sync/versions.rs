//! Versions of synced tables: a later version of a row is larger, whichever transaction waits for
//! the other, and each change has a job.

use posthaste_testkit::{PgVersion, Sql as _, TestDb, TestResult, eventually};
use tokio_postgres::Client;

use crate::support::{SOON, connected, database, number, unfinished};

async fn notes(version: PgVersion) -> (TestDb, Client) {
    let db = database(version).await;
    let client = db.client().await.unwrap();
    client
        .run(
            "CREATE TABLE note (id bigint PRIMARY KEY, body text); \
             SELECT posthaste.sync_table('note')",
        )
        .await
        .unwrap();
    (db, client)
}

/// Returns the version of a row.
async fn version(client: &Client, id: i64) -> i64 {
    number(
        client,
        &format!("SELECT posthaste_version FROM note WHERE id = {id}"),
    )
    .await
}

/// Returns the version of the newest deletion of a key that has a job.
async fn deletion(client: &Client, id: i64) -> i64 {
    let newest = format!(
        "SELECT max((kwargs ->> 'deleted')::bigint) FROM posthaste.job \
         WHERE kwargs ->> 'id' = '{id}'"
    );
    number(client, &newest).await
}

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_gets_a_larger_version_and_a_job_in_every_isolation_level() -> TestResult {
    for server in PgVersion::tried() {
        let (_db, client) = notes(server).await;
        let mut last = 0;
        for (n, level) in LEVELS.iter().enumerate() {
            let before = unfinished(&client).await;
            let begin = format!("BEGIN ISOLATION LEVEL {level}");
            client.run(&begin).await?;
            for change in [
                "INSERT INTO note VALUES (1, 'a')",
                "UPDATE note SET body = 'b', posthaste_version = 0",
                "INSERT INTO note VALUES (1, 'c') ON CONFLICT (id) DO UPDATE \
                 SET body = excluded.body",
            ] {
                client.run(change).await?;
                let drawn = version(&client, 1).await;
                assert!(drawn > last, "{level}: {drawn} after {last}");
                last = drawn;
            }
            client.run("DELETE FROM note; COMMIT").await?;
            let drawn = deletion(&client, 1).await;
            assert!(drawn > last, "{level}: {drawn} after {last}");
            last = drawn;
            assert_eq!(unfinished(&client).await - before, 4, "{n}");
        }
        let ahead = "SELECT count(*) FROM posthaste.job WHERE scheduled_at BETWEEN now() + \
                     interval '30 s' AND now() + interval '60 s' AND queue = 'sync.note' \
                     AND max_attempts IS NULL";
        assert_eq!(number(&client, ahead).await, 12);
        // A rolled-back change leaves no job.
        client
            .run("BEGIN; INSERT INTO note VALUES (1, 'a'); ROLLBACK")
            .await?;
        assert_eq!(unfinished(&client).await, 12);
    }
    Ok(())
}

/// One session deletes a row while another waits to create it again: the insert began before the
/// deletion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recreated_row_is_newer_than_its_deletion_even_if_inserted_first() -> TestResult {
    for server in PgVersion::tried() {
        for level in LEVELS {
            for again in [
                "INSERT INTO note VALUES (1, 'again')",
                "INSERT INTO note VALUES (7, 'x'); UPDATE note SET id = 1 WHERE id = 7",
                "INSERT INTO note SELECT n, 'again' FROM generate_series(1, 3) n",
            ] {
                let (db, deleter) = notes(server).await;
                let creator = db.client().await?;
                deleter
                    .run(
                        "INSERT INTO note VALUES (1, 'old'); BEGIN; UPDATE note SET body = 'older'",
                    )
                    .await?;
                let creating = tokio::spawn(async move {
                    let sql = format!(
                        "BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM note; {again}; COMMIT"
                    );
                    creator.batch_execute(&sql).await
                });
                let waits = "SELECT count(*) FROM pg_stat_activity \
                             WHERE datname = current_database() AND wait_event = 'transactionid'";
                eventually(SOON, "it waits", async || {
                    Ok(number(&deleter, waits).await == 1)
                })
                .await?;
                deleter
                    .run("UPDATE note SET body = 'last'; DELETE FROM note; COMMIT")
                    .await?;
                if let Err(refused) = creating.await? {
                    let code = refused.code().map(|code| code.code().to_owned());
                    assert_eq!(
                        (level, code.as_deref()),
                        ("SERIALIZABLE", Some("40001")),
                        "{refused:?}"
                    );
                    continue;
                }
                let (created, deleted) = (version(&deleter, 1).await, deletion(&deleter, 1).await);
                assert!(
                    created > deleted,
                    "{level}, {again}: created {created}, deleted {deleted}"
                );
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_keys_become_a_deletion_and_a_new_row() -> TestResult {
    for server in PgVersion::tried() {
        let (_db, client) = notes(server).await;
        client
            .run(
                "INSERT INTO note SELECT n, 'a' FROM generate_series(1, 3) n; UPDATE note \
                 SET id = id + 10 WHERE id = 2",
            )
            .await?;
        assert!(deletion(&client, 2).await > 0 && version(&client, 12).await > 0);
        // Keys move within one statement: each row takes the key of another.
        client
            .run(
                "DELETE FROM note; INSERT INTO note VALUES (3, 'a'); INSERT INTO note \
                 VALUES (2, 'b'); INSERT INTO note VALUES (1, 'c'); UPDATE note SET id = id + 1",
            )
            .await?;
        for id in [2, 3] {
            assert!(
                version(&client, id).await > deletion(&client, id).await,
                "{id}"
            );
        }
        assert!(deletion(&client, 1).await > 0 && version(&client, 4).await > 0);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_recreated_by_one_statement_is_newer_than_its_deletion() {
    for server in PgVersion::tried() {
        let (_db, client) = notes(server).await;
        for replace in [
            "WITH gone AS (DELETE FROM note RETURNING *) INSERT INTO note SELECT id, body \
             FROM gone",
            "WITH made AS (INSERT INTO note VALUES (5, 'five') RETURNING *), gone AS (DELETE \
             FROM note RETURNING *) SELECT * FROM made, gone",
        ] {
            client
                .run("INSERT INTO note VALUES (1, 'a'), (2, 'b') ON CONFLICT DO NOTHING")
                .await
                .unwrap();
            client.run(replace).await.unwrap();
            for row in client.query("SELECT id FROM note", &[]).await.unwrap() {
                let id = row.get(0);
                let gone = format!(
                    "SELECT coalesce(max((kwargs ->> 'deleted')::bigint), 0) FROM posthaste.job \
                     WHERE kwargs ->> 'id' = '{id}'"
                );
                assert!(
                    version(&client, id).await > number(&client, &gone).await,
                    "{replace}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncate_deletes_each_row_and_is_rejected_under_an_old_snapshot() -> TestResult {
    for server in PgVersion::tried() {
        let (_db, client) = notes(server).await;
        client
            .run("INSERT INTO note SELECT n, 'a' FROM generate_series(1, 50) n")
            .await?;
        let refused = client
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; TRUNCATE note")
            .await
            .unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "0A000");
        client.run("ROLLBACK; TRUNCATE note").await?;
        let reported = "SELECT count(DISTINCT kwargs ->> 'id') FROM posthaste.job \
                    WHERE (kwargs ->> 'deleted')::bigint > 50";
        assert_eq!(number(&client, reported).await, 50);
        client.run("INSERT INTO note VALUES (1, 'a')").await?;
        assert!(version(&client, 1).await > deletion(&client, 1).await);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_of_the_application_are_used_if_none_are_drawn() -> TestResult {
    for server in PgVersion::tried() {
        let (_db, client) = connected(server).await?;
        client
            .run(
                r#"CREATE TABLE "My Note" (
                     "Key" text PRIMARY KEY, changed bigint NOT NULL, hidden boolean);
                   SELECT posthaste.sync_table('"My Note"', 'Key', version => 'changed',
                                                name => 'own', deleted => 'hidden', draw => false);
                   INSERT INTO "My Note" VALUES ('a', 100, false), ('b', 200, true);
                   UPDATE "My Note" SET changed = 300 WHERE "Key" = 'a';
                   DELETE FROM "My Note" WHERE "Key" = 'a'"#,
            )
            .await?;
        let deleted = "SELECT (kwargs ->> 'deleted')::bigint FROM posthaste.job \
                       WHERE kwargs ? 'deleted' AND queue = 'sync.own'";
        assert_eq!(number(&client, deleted).await, 300);
        assert_eq!(unfinished(&client).await, 4);
        let hidden = "SELECT count(*) FROM posthaste.sync_rows('own', '{a,b}') WHERE version = 200 \
                      AND document IS NULL";
        assert_eq!(number(&client, hidden).await, 1);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejects_tables_with_unsafe_versions_by_name() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    for (table, code) in [
        ("CREATE TABLE t (id bigint) PARTITION BY LIST (id)", "22023"),
        (
            "CREATE TABLE p (id bigint PRIMARY KEY); CREATE TABLE t () INHERITS (p)",
            "42809",
        ),
        ("CREATE TABLE t (id bigint PRIMARY KEY DEFERRABLE)", "22023"),
        ("CREATE TABLE t (id bigint UNIQUE)", "22023"),
        (
            "CREATE TABLE t (id bigint NOT NULL); CREATE UNIQUE INDEX ON t (id) WHERE id > 0",
            "22023",
        ),
        (
            "CREATE TABLE t (id bigint PRIMARY KEY, posthaste_version text)",
            "42701",
        ),
        (
            "CREATE TABLE t (id bigint PRIMARY KEY, posthaste_version text); \
             COMMENT ON COLUMN t.posthaste_version IS 'posthaste: versions of rows'",
            "22023",
        ),
        (
            "CREATE TABLE t (id bigint PRIMARY KEY); CREATE TABLE u (id bigint PRIMARY KEY); \
             SELECT posthaste.sync_table('u', name => 't')",
            "42710",
        ),
    ] {
        client.run(&format!("BEGIN; {table}")).await?;
        let refused = client
            .batch_execute("SELECT posthaste.sync_table('t')")
            .await
            .unwrap_err();
        assert_eq!(refused.code().unwrap().code(), code, "{table}: {refused:?}");
        client.run("ROLLBACK").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_tables_can_be_disabled_and_enabled_again() -> TestResult {
    let (_db, client) = notes(PgVersion::any()).await;
    client
        .run(
            "INSERT INTO note VALUES (1, 'a'); SELECT posthaste.sync_table('note', delay => '5 s', \
             enqueue => false); INSERT INTO note VALUES (2, 'a')",
        )
        .await?;
    assert_eq!(unfinished(&client).await, 1);
    assert!(version(&client, 2).await > version(&client, 1).await);
    client
        .run("SELECT posthaste.sync('note', '2'), posthaste.unsync_table('note'); DELETE FROM note")
        .await?;
    assert_eq!(unfinished(&client).await, 2);
    let left = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'posthaste'::regnamespace \
                AND proname ~ '^sync_.*_note$'";
    assert_eq!(number(&client, left).await, 0);
    Ok(())
}

/// The roles may exist before the table is synced, or be created later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_producer_role_can_change_a_synced_table() -> TestResult {
    for server in PgVersion::tried() {
        for is_before in [true, false] {
            let db = database(server).await;
            let mut client = db.client().await?;
            if is_before {
                posthaste::grant_roles(&mut client).await?;
            }
            client
                .run(
                    "CREATE TABLE note (id bigint PRIMARY KEY, body text); \
                     SELECT posthaste.sync_table('note')",
                )
                .await?;
            if !is_before {
                posthaste::grant_roles(&mut client).await?;
            }
            client
                .run(
                    "GRANT ALL ON note TO posthaste_producer; SET ROLE posthaste_producer;
                     INSERT INTO note VALUES (1, 'a'), (2, 'b'); UPDATE note
                       SET body = 'c'; UPDATE note SET id = 3 WHERE id = 2;
                     DELETE FROM note WHERE id = 1; TRUNCATE note;
                       SELECT posthaste.sync('note', '3'); RESET ROLE",
                )
                .await?;
            assert!(unfinished(&client).await > 7);
        }
    }
    Ok(())
}
