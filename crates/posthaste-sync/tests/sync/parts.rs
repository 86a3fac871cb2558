//! Partitioned tables: every change is seen, whether through the root or in a partition, and
//! whenever the partition was created.

use std::collections::BTreeMap;

use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, TestResult, eventually};
use tokio_postgres::Client;

use crate::support::{self, SOON, connected, database, number};

/// Two levels of partitions by a column that is not the key; two syncs share a version column.
const BY_TIME: &str = "CREATE TABLE note (id bigint, at integer, slug text NOT NULL, body text,
        PRIMARY KEY (id, at), UNIQUE (slug, at)) PARTITION BY RANGE (at);
    CREATE TABLE note_0 PARTITION OF note FOR VALUES FROM (0) TO (10);
    CREATE TABLE note_1 PARTITION OF note FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (at);
    CREATE TABLE note_10 PARTITION OF note_1 FOR VALUES FROM (10) TO (15);";

/// Partitions by the key.
const BY_KEY: &str = "CREATE TABLE note (id bigint PRIMARY KEY, at integer, slug text NOT NULL,
        body text, UNIQUE (slug, id)) PARTITION BY RANGE (id);
    CREATE TABLE note_0 PARTITION OF note FOR VALUES FROM (0) TO (4);
    CREATE TABLE note_1 PARTITION OF note FOR VALUES FROM (4) TO (100) PARTITION BY HASH (id);
    CREATE TABLE note_10 PARTITION OF note_1 FOR VALUES WITH (MODULUS 2, REMAINDER 0);";

const SYNCED: &str = "SELECT posthaste.sync_table('note');
    SELECT posthaste.sync_table('note', key => 'slug', name => 'by_slug', always => true);
    SELECT posthaste.sync_table('note', version => 'other', name => 'apart', always => true);
    SELECT posthaste.sync_table('note');";

/// A partition that is created after the triggers.
const LATER: [&str; 2] = [
    "CREATE TABLE note_11 PARTITION OF note_1 FOR VALUES FROM (15) TO (20)",
    "CREATE TABLE note_11 PARTITION OF note_1 FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
];

const SYNCS: [(&str, &str, &str); 3] = [
    ("note", "id", "posthaste_version"),
    ("by_slug", "slug", "posthaste_version"),
    ("apart", "id", "other"),
];

/// Changes that name a partition work with either table.
const CHANGES: [&str; 17] = [
    "INSERT INTO note SELECT n, n * 3, 's' || n, 'a' FROM generate_series(1, 6) n",
    "UPDATE note SET body = 'b' WHERE id < 6",
    "UPDATE note_0 SET body = 'c'",
    "UPDATE note_11 SET body = 'd'",
    "DELETE FROM note WHERE id = 2",
    "DELETE FROM ONLY note_0 WHERE id = 1",
    "INSERT INTO note VALUES (2, 7, 's2', 'again')",
    "INSERT INTO note VALUES (2, 7, 's2', 'more'), (1, 3, 's1', 'new') ON CONFLICT DO NOTHING",
    // Rows move to another partition by the column, by the key, and by both.
    "UPDATE note SET at = (at + 7) % 20 WHERE id < 4",
    "UPDATE note SET id = id + 10 WHERE id IN (1, 5)",
    "UPDATE note SET id = 1, at = 17, slug = 'other' WHERE id = 11",
    "UPDATE note SET slug = slug || 'x' WHERE id > 3",
    "WITH gone AS (DELETE FROM note WHERE id = 3 RETURNING *)
     INSERT INTO note SELECT * FROM gone",
    "INSERT INTO note_10 SELECT * FROM (SELECT n, 11, 'y' || n, 'a', 0, 0
       FROM generate_series(20::bigint, 40) n) y
      WHERE (SELECT partstrat = 'r' FROM pg_partitioned_table WHERE partrelid = 'note_1'::regclass)
         OR satisfies_hash_partition('note_1'::regclass, 2, 0, n)",
    "TRUNCATE note_0",
    "TRUNCATE note_1",
    "INSERT INTO note SELECT n, n * 3, 's' || n, 'last' FROM generate_series(1, 6) n",
];

/// The rows and jobs that were seen of a sync.
#[derive(Default)]
struct SeenRows {
    /// Each row with its version.
    rows: BTreeMap<String, (i64, String)>,
    /// The newest version that each key ever had, including deletions.
    newest: BTreeMap<String, i64>,
    job: i64,
}

impl SeenRows {
    /// Checks that each change since the last check has a job, and a version larger than any
    /// before.
    async fn polls(&mut self, client: &Client, sync: (&str, &str, &str), change: &str) {
        let (name, key, version) = sync;
        let rows = format!(
            "SELECT n.{key}::text, n.{version},
                    (to_jsonb(n) - ARRAY['posthaste_version', 'other'])::text FROM note n"
        );
        let rows = client.query(&rows, &[]).await.unwrap();
        let rows: BTreeMap<String, (i64, String)> = rows
            .iter()
            .map(|row| (row.get(0), (row.get(1), row.get(2))))
            .collect();
        let jobs = "SELECT j.id, j.kwargs ->> 'id', (j.kwargs ->> 'deleted')::bigint
            FROM posthaste.job j WHERE j.queue = 'sync.' || $1::text AND j.id > $2 ORDER BY j.id";
        let mut deleted: BTreeMap<String, Option<i64>> = BTreeMap::new();
        for job in client.query(jobs, &[&name, &self.job]).await.unwrap() {
            self.job = job.get(0);
            let version: Option<i64> = job.get(2);
            let known = deleted.entry(job.get(1)).or_default();
            *known = (*known).max(version);
        }
        for (id, before) in &self.rows {
            if !rows.contains_key(id) {
                let at = deleted.get(id).copied().flatten();
                assert!(at > Some(before.0), "{change}: {name}: {id} went: {at:?}");
            }
        }
        for (id, row) in &rows {
            let before = self.rows.get(id);
            if before == Some(row) {
                continue;
            }
            assert!(deleted.contains_key(id), "{change}: {name}: {id} came");
            let newest = self.newest.get(id).copied().max(deleted[id]);
            assert!(Some(row.0) > newest, "{change}: {name}: {id} is old");
        }
        for (id, version) in deleted {
            let newest = self.newest.entry(id).or_default();
            *newest = (*newest).max(version.unwrap_or_default());
        }
        for (id, row) in &rows {
            self.newest.insert(id.clone(), row.0);
        }
        self.rows = rows;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_to_any_partition_is_synced() {
    for server in PgVersion::tried() {
        for (table, later) in [BY_TIME, BY_KEY].into_iter().zip(LATER) {
            for role in ["origin", "replica"] {
                let db = database(server).await;
                let client = db.client().await.unwrap();
                let all = [table, SYNCED, later].join(" ");
                client.run(&all).await.unwrap();
                let replicates = format!("SET session_replication_role = {role}");
                client.run(&replicates).await.unwrap();
                let skipped = usize::from(role == "replica");
                let mut seen: [SeenRows; 3] = Default::default();
                for change in CHANGES {
                    client.run(change).await.expect(change);
                    for (sync, seen) in SYNCS.into_iter().zip(&mut seen).skip(skipped) {
                        seen.polls(&client, sync, change).await;
                    }
                }
                for (name, ..) in SYNCS {
                    let gone = format!("SELECT posthaste.unsync_table('{name}')");
                    client.run(&gone).await.unwrap();
                }
                let left = "SELECT (SELECT count(*) FROM pg_trigger WHERE tgname ~ 'posthaste_')
                    + (SELECT count(*) FROM pg_proc
                        WHERE proname ~ '^sync_.*_(note|apart|by_slug)$')";
                assert_eq!(number(&client, left).await, 0);
            }
        }
    }
}

/// An insert draws its version before it waits for the transaction that deletes its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_insert_waiting_for_a_deletion_gets_a_newer_version() {
    for server in PgVersion::tried() {
        for table in [BY_TIME, BY_KEY] {
            for again in [
                "INSERT INTO note VALUES (1, 3, 's1', 'again')",
                "INSERT INTO note_0 SELECT n, 3, 's' || n, 'again' FROM generate_series(1, 2) n",
                "UPDATE note SET id = 1 WHERE id = 3",
            ] {
                let db = database(server).await;
                let (deleter, creator) = (db.client().await.unwrap(), db.client().await.unwrap());
                let rows = "INSERT INTO note VALUES (1, 3, 's1', 'old'), (2, 3, 's2', 'old');
                    INSERT INTO note VALUES (3, 3, 's3', 'other'); DELETE FROM note WHERE id = 2";
                let begun = "BEGIN; UPDATE note SET body = 'b' WHERE id = 1";
                for before in [table, SYNCED, rows, begun] {
                    deleter.run(before).await.unwrap();
                }
                let creating = tokio::spawn(async move { creator.batch_execute(again).await });
                let waits = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event = 'transactionid'";
                eventually(SOON, "it waits", async || {
                    Ok(number(&deleter, waits).await == 1)
                })
                .await
                .unwrap();
                let ended = "UPDATE note SET body = 'last' WHERE id = 1;
                    DELETE FROM note WHERE id = 1; COMMIT";
                deleter.run(ended).await.unwrap();
                creating.await.unwrap().unwrap();
                for (name, key, version) in SYNCS {
                    let wrong = format!(
                        "SELECT count(*) FROM note n
                           JOIN posthaste.job j ON j.kwargs ->> 'id' = n.{key}::text
                          WHERE j.queue = 'sync.{name}'
                            AND (j.kwargs ->> 'deleted')::bigint >= n.{version}"
                    );
                    assert_eq!(number(&deleter, &wrong).await, 0, "{name}: {again}");
                }
            }
        }
    }
}

async fn jobs(client: &Client) -> i64 {
    number(client, "SELECT count(*) FROM posthaste.job").await
}

/// Returns how many jobs a statement enqueues.
async fn enqueues(client: &Client, sql: &str) -> i64 {
    let before = jobs(client).await;
    client.run(sql).await.expect(sql);
    jobs(client).await - before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_synced_while_attached() -> TestResult {
    for server in PgVersion::tried() {
        let (_db, client) = connected(server).await?;
        let tables = "CREATE TABLE note (id bigint, at integer, PRIMARY KEY (id, at))
              PARTITION BY RANGE (at);
            SELECT posthaste.sync_table('note');
            CREATE TABLE apart (id bigint, at integer, posthaste_version bigint NOT NULL DEFAULT 0,
              PRIMARY KEY (id, at));
            INSERT INTO apart SELECT n, 3, 0 FROM generate_series(1, 5) n;
            ALTER TABLE note ATTACH PARTITION apart FOR VALUES FROM (0) TO (10);";
        let client = &client;
        assert_eq!(enqueues(client, tables).await, 0, "its rows come unseen");
        assert_eq!(enqueues(client, "UPDATE apart SET id = id").await, 5);
        assert_eq!(
            number(
                client,
                "SELECT count(*) FROM note WHERE posthaste_version > 0"
            )
            .await,
            5
        );
        // The partition has no TRUNCATE trigger yet; the root's covers it.
        let emptied = "BEGIN; TRUNCATE note; ROLLBACK; BEGIN; TRUNCATE note; COMMIT";
        let fill = "INSERT INTO apart SELECT n, 3, 0 FROM generate_series(1, 5) n";
        assert_eq!(enqueues(client, emptied).await, 5);
        assert_eq!(enqueues(client, fill).await, 5);
        let again = "SELECT posthaste.sync_table('note')";
        assert_eq!(enqueues(client, again).await, 0);
        assert_eq!(enqueues(client, "TRUNCATE note").await, 5);
        assert_eq!(enqueues(client, fill).await, 5);
        assert_eq!(enqueues(client, "TRUNCATE apart").await, 5);
        assert_eq!(enqueues(client, fill).await, 5);
        client
            .run("ALTER TABLE note DETACH PARTITION apart")
            .await?;
        for change in ["UPDATE apart SET id = id", "TRUNCATE apart", fill] {
            assert_eq!(enqueues(client, change).await, 0, "{change}");
        }
        // A partition may be synced separately, if the root is not synced.
        client
            .batch_execute(
                "ALTER TABLE note ATTACH PARTITION apart FOR VALUES FROM (0) TO (10);
                 CREATE TABLE other PARTITION OF note FOR VALUES FROM (10) TO (20);
                 SELECT posthaste.sync_table('apart', version => 'own')",
            )
            .await
            .unwrap_err();
        client
            .run(
                "SELECT posthaste.unsync_table('note');
                 ALTER TABLE note ATTACH PARTITION apart FOR VALUES FROM (0) TO (10);
                 CREATE TABLE other PARTITION OF note FOR VALUES FROM (10) TO (20);
                 SELECT posthaste.sync_table('apart')",
            )
            .await?;
        assert_eq!(enqueues(client, "UPDATE note SET id = id").await, 5);
        let moved = "UPDATE note SET at = 11 WHERE id = 1";
        assert_eq!(enqueues(client, moved).await, 1, "it went");
        assert_eq!(enqueues(client, "TRUNCATE note").await, 4);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejects_inheritance_and_keys_that_are_not_the_first_column() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let tables = "CREATE TABLE parent (id bigint PRIMARY KEY);
        CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent);
        CREATE TABLE second (id bigint, at integer, PRIMARY KEY (at, id)) PARTITION BY RANGE (at);
        CREATE TABLE wide (id bigint, at integer, by integer, PRIMARY KEY (id, at, by))
          PARTITION BY RANGE (at)";
    client.run(tables).await.unwrap();
    for (table, code) in [
        ("parent", "42809"),
        ("child", "42809"),
        ("second", "22023"),
        ("wide", "22023"),
    ] {
        let install = format!("SELECT posthaste.sync_table('{table}')");
        let refused = client.batch_execute(&install).await.unwrap_err();
        let refused = refused.as_db_error().unwrap();
        assert_eq!(refused.code().code(), code, "{table}: {refused:?}");
    }
}

/// Triggers of a partitioned table are row triggers, which the apply process of logical replication
/// fires.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn replicated_changes_of_partitioned_tables_are_seen() -> TestResult {
    for version in PgVersion::tried() {
        let server = PgServer::start(version, &[("wal_level", "logical")])?;
        let (source, target) = (
            TestDb::empty(&server).await?,
            support::migrated(&server).await,
        );
        let publisher = source.client().await?;
        let subscriber = target.client().await?;
        let synced = "CREATE TABLE note (id bigint, at integer, body text, PRIMARY KEY (id, at))
              PARTITION BY RANGE (at);
            CREATE TABLE note_0 PARTITION OF note FOR VALUES FROM (0) TO (10);
            CREATE TABLE note_1 PARTITION OF note FOR VALUES FROM (10) TO (20);";
        publisher.run(synced).await?;
        let published = "CREATE PUBLICATION notes FOR TABLE note
              WITH (publish_via_partition_root = true)";
        publisher.run(published).await?;
        let slot = "SELECT pg_create_logical_replication_slot('notes', 'pgoutput')";
        publisher.run(slot).await?;
        let install = "SELECT posthaste.sync_table('note', always => true)";
        subscriber.run(synced).await?;
        subscriber.run(install).await?;
        let subscribe = format!(
            "CREATE SUBSCRIPTION notes
               CONNECTION 'host=127.0.0.1 port={} user=postgres dbname={}' PUBLICATION notes
               WITH (create_slot = false, slot_name = 'notes', copy_data = false)",
            server.address().port(),
            source.name()
        );
        subscriber.run(&subscribe).await?;
        let mut before = 0;
        for change in [
            "INSERT INTO note SELECT n, n * 3, 'a' FROM generate_series(1, 6) n",
            "UPDATE note SET body = 'b'",
            "UPDATE note SET at = (at + 7) % 20 WHERE id < 4",
            "DELETE FROM note WHERE id = 2",
            "TRUNCATE note",
        ] {
            publisher.run(change).await?;
            let last = "SELECT count(*) FROM posthaste.job";
            eventually(SOON, change, async || {
                Ok(number(&subscriber, last).await > before)
            })
            .await?;
            before = number(&subscriber, last).await;
        }
        let wrong = "SELECT count(*) FROM generate_series(1, 6) n WHERE NOT EXISTS (
              SELECT FROM posthaste.job j WHERE j.queue = 'sync.note'
                 AND j.kwargs ->> 'id' = n::text AND j.kwargs ? 'deleted')";
        eventually(SOON, "each deletion has its job", async || {
            Ok(number(&subscriber, wrong).await == 0)
        })
        .await?;
        subscriber.run("DROP SUBSCRIPTION notes").await?;
    }
    Ok(())
}
