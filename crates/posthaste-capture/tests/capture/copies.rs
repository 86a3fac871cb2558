//! Existing rows, copied during concurrent changes.

mod rows;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use posthaste_capture::{
    Capture, CopyOverview, Source, TableName, Until, cancel_copy, list_copies,
};
use posthaste_testkit::{PgVersion, TestDb, eventually, ran};

use super::world::{Job, SOON, World, table, tables};

const WRITERS: usize = 8;
const ITEM: &str = "CREATE SEQUENCE version; \
     CREATE TABLE item (id bigint PRIMARY KEY, v bigint NOT NULL DEFAULT nextval('version'), \
                        pad text); \
     ALTER TABLE item REPLICA IDENTITY FULL";

impl World {
    async fn fill(&self, rows: u32) {
        let sql = format!(
            "INSERT INTO item SELECT g, nextval('version'), 'p' FROM generate_series(1, {rows}) g"
        );
        self.sql(&sql).await;
    }

    async fn copy(&self, capture: &Capture, name: &str, filter: Option<&str>) {
        let table = TableName::read(name).unwrap();
        let begun = capture.request_copy(&self.database(), &table, filter).await;
        assert!(begun.unwrap(), "one goes on already");
    }

    async fn newest_copy(&self) -> CopyOverview {
        list_copies(&self.client, None).await.unwrap().remove(0)
    }

    async fn until_copied(&self) -> CopyOverview {
        let has_ended = async || Ok(self.newest_copy().await.ended_at.is_some());
        eventually(SOON, "the copy ends", has_ended).await.unwrap();
        self.newest_copy().await
    }
}

/// Returns the rows of a receiver after all these jobs, the number of copied rows, and how many of
/// those were older than the receiver's state.
fn received(jobs: &[Job]) -> (BTreeMap<i64, i64>, usize, usize) {
    let (mut rows, mut gone) = (BTreeMap::new(), HashMap::new());
    let (mut stale, mut reads, mut emptied) = (0, 0, 0);
    for job in jobs {
        let number = |row: &str, field: &str| job.row[row][field].as_i64();
        let id = number("key", "id").or(number("after", "id"));
        match (job.row["operation"].as_str().unwrap(), id) {
            ("truncate", _) => {
                emptied = rows.values().copied().fold(emptied, i64::max);
                rows.clear();
            }
            ("delete", _) => {
                let id = number("before", "id").unwrap();
                gone.insert(id, number("before", "v").unwrap());
                rows.remove(&id);
            }
            (operation, Some(id)) => {
                let v = number("after", "v").unwrap();
                if operation == "read" {
                    reads += 1;
                    let has_newer = rows.get(&id).is_some_and(|had| *had > v);
                    let is_gone = gone.get(&id).is_some_and(|was| *was >= v);
                    stale += usize::from(has_newer || is_gone || emptied >= v);
                }
                rows.insert(id, v);
            }
            other => panic!("{other:?}"),
        }
    }
    (rows, reads, stale)
}

async fn there_are(world: &World) -> BTreeMap<i64, i64> {
    let rows = world.client.query("SELECT id, v FROM item", &[]).await;
    let rows = rows.unwrap().into_iter();
    rows.map(|row| (row.get(0), row.get(1))).collect()
}

/// The state that the writers of a test share.
#[derive(Default)]
struct Writing {
    is_over: AtomicBool,
    /// Whether writers pause because the capture lags: without pauses a busy machine would leave it
    /// no time.
    rests: AtomicBool,
    changes: AtomicU64,
}

impl Writing {
    /// Pauses the writers while more than a megabyte of log is unconfirmed.
    async fn watch_lag(&self, world: &World) {
        let lag = "SELECT (pg_current_wal_lsn() - confirmed_flush_lsn > 1048576)::text \
                   FROM pg_replication_slots WHERE slot_name = 'posthaste_all'";
        while !self.is_over.load(Ordering::Relaxed) {
            let lags = world.text(lag).await == "true";
            self.rests.store(lags, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Changes rows until the test ends.
async fn write(db: &TestDb, rows: i64, writing: Arc<Writing>) {
    let client = db.client().await.unwrap();
    while !writing.is_over.load(Ordering::Relaxed) {
        if writing.rests.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        let id = fastrand::i64(1..=rows);
        let sql = match fastrand::u8(0..10) {
            0 => "DELETE FROM item WHERE id = $1",
            1 => {
                "INSERT INTO item (id, pad) VALUES ($1, 'n') \
                 ON CONFLICT (id) DO UPDATE SET v = nextval('version')"
            }
            _ => "UPDATE item SET v = nextval('version') WHERE id = $1",
        };
        client.execute(sql, &[&id]).await.unwrap();
        writing.changes.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_beside_writers_never_deliver_older_rows_after_newer_ones() {
    for version in PgVersion::tried() {
        let world = World::new(version, &[]).await;
        world.sql(ITEM).await;
        world.fill(20_000).await;
        let mut one = table("public.item");
        one.key = vec!["id".into()];
        let capture = super::world::capture(Source::Tables(vec![one]));
        world.install(&capture).await;
        let running = world.start(&capture);
        let writing = Arc::new(Writing::default());
        let writer = || write(&world.db, 20_000, Arc::clone(&writing));
        let writers = join_all(std::iter::repeat_with(writer).take(WRITERS));
        let copied = async {
            let (mut rows, began) = (0, Instant::now());
            for _ in 0..3 {
                world.copy(&capture, "public.item", None).await;
                rows += world.until_copied().await.rows;
            }
            writing.is_over.store(true, Ordering::Relaxed);
            (rows, began.elapsed())
        };
        let ((), (), (rows, took)) = tokio::join!(writers, writing.watch_lag(&world), copied);
        drop(running);
        world.catch_up(&capture).await.unwrap();
        let jobs = world.jobs().await;
        let (have, reads, stale) = received(&jobs);
        assert_eq!(stale, 0, "of {reads}");
        assert_eq!(i64::try_from(reads), Ok(rows));
        let ids: HashSet<&str> = jobs.iter().map(|job| &*job.id).collect();
        assert_eq!(ids.len(), jobs.len(), "two events share an id");
        assert!(reads > 20_000, "{reads}");
        assert_eq!(have, there_are(&world).await);
        let rate = |number: f64| number / took.as_secs_f64();
        println!(
            "{version:?}: {:.0} rows/s beside {:.0} changes/s",
            rate(rows as f64),
            rate(writing.changes.load(Ordering::Relaxed) as f64)
        );
        ran::count("copied rows", reads as u64);
    }
}

async fn join_all(all: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut set = Vec::new();
    for one in all {
        set.push(Box::pin(one));
    }
    std::future::poll_fn(|context| {
        set.retain_mut(|one| one.as_mut().poll(context).is_pending());
        match set.is_empty() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_deliver_each_row_once_across_disconnects() {
    let world = World::new(PgVersion::any(), &[]).await;
    world.sql(ITEM).await;
    world.fill(30_000).await;
    let capture = tables(&["public.item"]);
    world.install(&capture).await;
    world.copy(&capture, "public.item", None).await;
    let cut = "SELECT count(pg_terminate_backend(pid))::text FROM pg_stat_activity \
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let (mut running, mut cuts, began) = (world.start(&capture), 0, Instant::now());
    while world.newest_copy().await.ended_at.is_none() {
        assert!(began.elapsed() < 3 * SOON, "the copy ends");
        let before = world.newest_copy().await.rows;
        let moves = async || {
            let copy = world.newest_copy().await;
            Ok(copy.rows > before || copy.ended_at.is_some())
        };
        let moved = eventually(SOON, "the copy goes on", moves).await;
        assert!(moved.is_ok(), "{:?}", running.status());
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..80))).await;
        match cuts % 2 {
            0 => drop(std::mem::replace(&mut running, world.start(&capture))),
            _ => drop(world.text(cut).await),
        }
        cuts += 1;
    }
    drop(running);
    world.catch_up(&capture).await.unwrap();
    assert!(cuts > 3, "{cuts}");
    let jobs = world.jobs().await;
    let (have, reads, stale) = received(&jobs);
    assert_eq!((reads, stale, jobs.len()), (30_000, 0, 30_000));
    assert_eq!(have, there_are(&world).await);
    let ids: HashSet<&str> = jobs.iter().map(|job| &*job.id).collect();
    assert_eq!(ids.len(), jobs.len());
    let positions: HashSet<&str> = jobs
        .iter()
        .map(|job| job.row["position"].as_str().unwrap())
        .collect();
    assert_eq!(positions.len(), jobs.len());
    ran::count("cuts", cuts);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_truncated_during_a_copy_stay_empty() {
    for version in PgVersion::tried() {
        let world = World::new(version, &[]).await;
        world.sql(ITEM).await;
        let mut one = table("public.item");
        one.key = vec!["id".into()];
        let capture = super::world::capture(Source::Tables(vec![one]));
        world.install(&capture).await;
        let running = world.start(&capture);
        let second = world.db.client().await.unwrap();
        let fill = "INSERT INTO item SELECT g, nextval('version'), 'p' \
                    FROM generate_series(1, 250 + floor(random() * 300)::int) g";
        let few =
            "INSERT INTO item SELECT g, nextval('version'), 'p' FROM generate_series(1, 20) g";
        let is_over = AtomicBool::new(false);
        let emptied = async {
            let (mut times, mut written) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                // Truncate and insert, in one transaction and in two.
                second.batch_execute("BEGIN; TRUNCATE item").await.unwrap();
                written += second.execute(fill, &[]).await.unwrap();
                second.batch_execute("COMMIT; TRUNCATE item").await.unwrap();
                written += second.execute(fill, &[]).await.unwrap();
                times += 1;
                // A chunk waits for each of these transactions, and its mark comes before or after
                // the next one.
                for _ in 0..12 {
                    second.batch_execute("TRUNCATE item").await.unwrap();
                    written += second.execute(few, &[]).await.unwrap();
                }
                // Copied rows count too, so the stream may lag slightly.
                let keeps_up = async || Ok(running.status().events >= written);
                let kept_up = eventually(SOON, "the capture keeps up", keeps_up).await;
                assert!(kept_up.is_ok(), "{:?}", running.status());
            }
            times
        };
        let copied = async {
            for _ in 0..5 {
                world.copy(&capture, "public.item", None).await;
                world.until_copied().await;
            }
            is_over.store(true, Ordering::Relaxed);
        };
        let (times, ()) = tokio::join!(emptied, copied);
        assert!(times > 3, "{times}");
        drop(running);
        world.catch_up(&capture).await.unwrap();
        let (have, reads, stale) = received(&world.jobs().await);
        assert_eq!(stale, 0, "of {reads}");
        assert_eq!(have, there_are(&world).await);
    }
}

#[tokio::test]
async fn a_capture_and_its_copy_leave_a_pool_of_one_connection_free() {
    let world = World::new(PgVersion::any(), &[]).await;
    world.sql(ITEM).await;
    world.fill(300).await;
    let mut capture = tables(&["public.item"]);
    capture.server = Some(world.database());
    world.install(&capture).await;
    world.copy(&capture, "public.item", None).await;
    let pool = world.database().pool(1).unwrap();
    let running = capture.start(pool.clone(), Until::Stopped).unwrap();
    let copied = world.until_copied().await;
    assert_eq!(copied.rows, 300);
    let other = tokio::time::timeout(SOON, pool.get()).await;
    assert!(other.is_ok(), "{:?}", running.status());
}

#[tokio::test]
async fn copies_without_a_captured_table_a_key_or_a_valid_filter_are_refused() {
    let world = World::new(PgVersion::any(), &[]).await;
    world
        .sql(
            "CREATE TABLE item (id int PRIMARY KEY, v int); CREATE TABLE loose (id int);
              ALTER TABLE loose REPLICA IDENTITY FULL; CREATE TABLE other (id int PRIMARY KEY)",
        )
        .await;
    let capture = tables(&["public.item", "public.loose"]);
    world.install(&capture).await;
    for (name, filter, said) in [
        ("public.other", None, "is not captured"),
        ("public.loose", None, "has no key"),
        ("public.item", Some("nothing = 1"), "nothing"),
        ("public.item", Some("v >"), "syntax"),
    ] {
        let table = TableName::read(name).unwrap();
        let refused = capture
            .request_copy(&world.database(), &table, filter)
            .await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(said), "{name}: {error}");
    }
    assert!(list_copies(&world.client, None).await.unwrap().is_empty());
}

#[tokio::test]
async fn failed_copies_show_their_error_and_cancelled_ones_end() {
    let world = World::new(PgVersion::any(), &[]).await;
    world.sql(ITEM).await;
    world.fill(10).await;
    let capture = tables(&["public.item"]);
    world.install(&capture).await;
    world
        .copy(&capture, "public.item", Some("10 / (id - 5) < 99"))
        .await;
    let running = world.start(&capture);
    let has_problem = async || Ok(world.newest_copy().await.problem.is_some());
    eventually(SOON, "the copy says why", has_problem)
        .await
        .unwrap();
    let problem = world.newest_copy().await.problem.unwrap();
    assert!(problem.contains("division by zero"), "{problem}");
    // The capture itself continues.
    world.sql("INSERT INTO item (id) VALUES (11)").await;
    world.until_captured(1).await;
    drop(running);
    let table = TableName::read("public.item").unwrap();
    let begun = capture.request_copy(&world.database(), &table, None).await;
    assert!(!begun.unwrap(), "one is there");
    assert!(cancel_copy(&world.client, "all", &table).await.unwrap());
    assert!(!cancel_copy(&world.client, "all", &table).await.unwrap());
    world.copy(&capture, "public.item", None).await;
    world.catch_up(&capture).await.unwrap();
    assert_eq!(world.newest_copy().await.rows, 11);
}
