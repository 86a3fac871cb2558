//! Several syncs of one table: each sees every change, and each can be removed without the others.

use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};
use tokio_postgres::Client;

use crate::support::{SOON, connected, database, number, unfinished};

/// Syncs with one key, with another key, and with a separate version column.
const THREE: &str =
    "CREATE TABLE note (id bigint PRIMARY KEY, slug text NOT NULL UNIQUE, body text);
    SELECT posthaste.sync_table('note');
    SELECT posthaste.sync_table('note', key => 'slug', name => 'by_slug');
    SELECT posthaste.sync_table('note', version => 'other', name => 'apart')";

const CHANGES: [&str; 9] = [
    "INSERT INTO note SELECT n, 's' || n, 'a' FROM generate_series(1, 5) n",
    "UPDATE note SET body = 'b' WHERE id < 4",
    "DELETE FROM note WHERE id = 2",
    "INSERT INTO note VALUES (2, 's2', 'again')",
    "UPDATE note SET id = 12 WHERE id = 3",
    "UPDATE note SET slug = 's14' WHERE id = 4",
    "WITH gone AS (DELETE FROM note WHERE id = 5 RETURNING *) INSERT INTO note SELECT * FROM gone",
    "TRUNCATE note",
    "INSERT INTO note SELECT n, 's' || n, 'last' FROM generate_series(1, 4) n",
];

const SYNCS: [(&str, &str, &str); 3] = [
    ("note", "id", "posthaste_version"),
    ("by_slug", "slug", "posthaste_version"),
    ("apart", "id", "other"),
];

/// Checks that the newest deletion of each key is older than the row that has the key now.
async fn rows_are_newer_than_their_deletions(client: &Client, sync: (&str, &str, &str)) {
    let (name, key, version) = sync;
    let wrong = format!(
        "SELECT count(*) FROM note n JOIN posthaste.job j ON j.kwargs ->> 'id' = n.{key}::text
          WHERE j.queue = 'sync.{name}' AND (j.kwargs ->> 'deleted')::bigint >= n.{version}"
    );
    assert_eq!(number(client, &wrong).await, 0, "{name}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_syncs_of_a_table_see_every_change() -> TestResult {
    for server in PgVersion::tried() {
        let (_db, client) = connected(server).await?;
        client.run(THREE).await?;
        // Installed again, as after each change of the configuration file.
        client.run("SELECT posthaste.sync_table('note')").await?;
        for change in CHANGES {
            let jobs = |name: &str| {
                format!("SELECT count(*) FROM posthaste.job WHERE queue = 'sync.{name}'")
            };
            let mut before = Vec::new();
            for (name, ..) in SYNCS {
                before.push(number(&client, &jobs(name)).await);
            }
            client.run(change).await?;
            for (sync, before) in SYNCS.into_iter().zip(before) {
                let after = number(&client, &jobs(sync.0)).await;
                assert!(after > before, "{change}: {} has no job", sync.0);
                rows_are_newer_than_their_deletions(&client, sync).await;
            }
        }
        // After the first sync is removed, its version column is still maintained for the sync that
        // shares it.
        client.run("SELECT posthaste.unsync_table('note')").await?;
        let version = "SELECT max(posthaste_version) FROM note";
        let before = (number(&client, version).await, unfinished(&client).await);
        client
            .run("UPDATE note SET body = 'c' WHERE id = 1")
            .await?;
        assert!(number(&client, version).await > before.0);
        assert_eq!(unfinished(&client).await - before.1, 2);
        // Installed again, it continues with newer versions than before.
        client.run("SELECT posthaste.sync_table('note')").await?;
        let before = number(&client, version).await;
        client
            .run("UPDATE note SET body = 'd' WHERE id = 2")
            .await?;
        assert!(number(&client, version).await > before);
        for (name, ..) in SYNCS {
            let gone = format!("SELECT posthaste.unsync_table('{name}')");
            client.run(&gone).await?;
        }
        let left = "SELECT (SELECT count(*) FROM pg_trigger WHERE tgrelid = 'note'::regclass)
            + (SELECT count(*) FROM pg_class WHERE relname LIKE 'sync\\_%' AND relkind = 'S')
            + (SELECT count(*) FROM pg_proc WHERE proname ~ '^sync_.*_(note|apart|by_slug)$')";
        assert_eq!(number(&client, left).await, 0);
    }
    Ok(())
}

/// Two syncs share a version column: an insert that waits for a deletion is newer for both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_insert_waiting_for_a_deletion_is_newer_for_every_sync() {
    for server in PgVersion::tried() {
        let db = database(server).await;
        let (deleter, creator) = (db.client().await.unwrap(), db.client().await.unwrap());
        deleter.run(THREE).await.unwrap();
        let begun = "INSERT INTO note VALUES (1, 's1', 'old'); BEGIN; UPDATE note SET body = 'b'";
        deleter.run(begun).await.unwrap();
        let creating = tokio::spawn(async move {
            let again = "INSERT INTO note VALUES (1, 's1', 'again')";
            creator.batch_execute(again).await
        });
        let waits = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event = 'transactionid'";
        eventually(SOON, "it waits", async || {
            Ok(number(&deleter, waits).await == 1)
        })
        .await
        .unwrap();
        let ended = "UPDATE note SET body = 'last'; DELETE FROM note; COMMIT";
        deleter.run(ended).await.unwrap();
        creating.await.unwrap().unwrap();
        for sync in SYNCS {
            rows_are_newer_than_their_deletions(&deleter, sync).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsupported_tables_are_refused_by_cause() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let tables = "CREATE TABLE pair (a bigint, b bigint, n bigint NOT NULL, PRIMARY KEY (a, b));
        CREATE TABLE note (id bigint PRIMARY KEY, gone text);
        SELECT posthaste.sync_table('note')";
    client.run(tables).await.unwrap();
    for (arguments, code, expected) in [
        ("'pair'", "42703", "there is no column \"id\" for its key"),
        (
            "'pair', 'a'",
            "22023",
            "the key \"a\" must be NOT NULL with a single-column unique index",
        ),
        (
            "'pair', 'n', draw => false",
            "42703",
            "there is no column \"posthaste_version\"",
        ),
        (
            "'note', name => 'x', deleted => 'gone'",
            "22023",
            "\"gone\", which marks deleted rows",
        ),
        (
            "'note', name => 'x', deleted => 'went'",
            "42703",
            "there is no column \"went\"",
        ),
        (
            "'note', name => 'x', draw => false",
            "22023",
            "\"posthaste_version\" with another value of draw",
        ),
    ] {
        let install = format!("SELECT posthaste.sync_table({arguments})");
        let refused = client.batch_execute(&install).await.unwrap_err();
        let refused = refused.as_db_error().unwrap();
        assert_eq!(refused.code().code(), code, "{arguments}: {refused:?}");
        assert!(
            refused.message().contains(expected),
            "{arguments}: {refused:?}"
        );
    }
}

/// With `session_replication_role = replica`, only triggers that are enabled as ALWAYS fire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn always_triggers_see_replicated_changes() {
    for server in PgVersion::tried() {
        let db = database(server).await;
        let client = db.client().await.unwrap();
        let tables = "CREATE TABLE note (id bigint PRIMARY KEY, body text);
            SELECT posthaste.sync_table('note', always => true), posthaste.sync_table('note',
              name => 'usual'), posthaste.sync_table('note', name => 'now', delay => '0',
                always => true);
            SET session_replication_role = replica";
        client.run(tables).await.unwrap();
        let jobs =
            |name: &str| format!("SELECT count(*) FROM posthaste.job WHERE queue = 'sync.{name}'");
        let mut before = [0; 2];
        for change in [
            "INSERT INTO note SELECT n, 'a' FROM generate_series(1, 3) n",
            "UPDATE note SET body = 'b'",
            "UPDATE note SET id = 4 WHERE id = 3",
            "DELETE FROM note WHERE id = 1",
            "TRUNCATE note",
            "INSERT INTO note VALUES (4, 'again')",
        ] {
            client.run(change).await.unwrap();
            for (name, before) in ["note", "now"].into_iter().zip(&mut before) {
                let after = number(&client, &jobs(name)).await;
                assert!(after > *before, "{change}: {name}");
                *before = after;
                let sync = (name, "id", "posthaste_version");
                rows_are_newer_than_their_deletions(&client, sync).await;
            }
        }
        assert_eq!(number(&client, &jobs("usual")).await, 0);
    }
}

/// Without triggers no change of a partition can bypass them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitioned_tables_sync_through_application_jobs() {
    for server in PgVersion::tried() {
        let db = database(server).await;
        let client = db.client().await.unwrap();
        let tables = "CREATE TABLE note (id bigint PRIMARY KEY, version bigint NOT NULL, body text)
              PARTITION BY HASH (id);
            CREATE TABLE note_0 PARTITION OF note FOR VALUES WITH (MODULUS 2, REMAINDER 0);
            CREATE TABLE note_1 PARTITION OF note FOR VALUES WITH (MODULUS 2, REMAINDER 1);
            SELECT posthaste.sync_table('note', version => 'version', draw => false,
              enqueue => false);
            INSERT INTO note SELECT n, 5, 'a' FROM generate_series(1, 9) n";
        client.run(tables).await.unwrap();
        let page = "SELECT count(*) FROM posthaste.sync_page('note', '4', 100) WHERE version = 5";
        assert_eq!(number(&client, page).await, 5);
        let fill = "SELECT posthaste.sync_fill('note')";
        assert_eq!(number(&client, fill).await, 9);
        assert_eq!(
            (number(&client, fill).await, unfinished(&client).await),
            (0, 9)
        );
    }
}

/// An index that was deleted lacks all rows, including that of a running job, which may have read
/// the deleted index.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fill_enqueues_rows_without_a_pending_fill_job() {
    for server in PgVersion::tried() {
        let db = database(server).await;
        let client = db.client().await.unwrap();
        let table = "CREATE TABLE note (id bigint PRIMARY KEY, body text);
            INSERT INTO note VALUES (1, 'a');
            SELECT posthaste.sync_table('note')";
        client.run(table).await.unwrap();
        let fill = "SELECT posthaste.sync_fill('note')";
        assert_eq!(number(&client, fill).await, 1);
        // Separate transactions, because a claim sees only committed rows.
        for step in [
            "INSERT INTO note SELECT n, 'b' FROM generate_series(2, 9) n",
            "INSERT INTO posthaste.worker (name) VALUES ('at it')",
            "SELECT posthaste.claim('sync.note', '{1000}', max(id), gen_random_uuid(), 10, \
             100000000) FROM posthaste.worker",
        ] {
            client.run(step).await.unwrap();
        }
        let at_it = "SELECT count(*) FROM posthaste.job WHERE tag = 'fill' AND state = 'running'";
        assert_eq!(number(&client, at_it).await, 1);
        assert_eq!(number(&client, fill).await, 9);
        assert_eq!(number(&client, fill).await, 0);
        let twice = "SELECT count(*) FROM (SELECT FROM posthaste.job WHERE tag = 'fill'
            GROUP BY kwargs ->> 'id' HAVING count(*) > 1) twice";
        assert_eq!(number(&client, twice).await, 1, "of the one that runs");
    }
}
