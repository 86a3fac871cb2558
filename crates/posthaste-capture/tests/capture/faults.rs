//! Disconnects, shutdowns, delays and repetitions.

use std::collections::HashSet;
use std::time::Duration;

use posthaste_capture::{State, Until, list_gaps};
use posthaste_testkit::{PgVersion, Proxy, eventually};

use super::world::{OUTBOX, SOON, World, outbox};

/// Returns the inserted rows in the order of the server's plugin test_decoding.
pub(super) async fn inserted(world: &World) -> Vec<String> {
    let sql = "SELECT substring(data FROM 'payload\\[text\\]:''([^'']*)''') \
               FROM pg_logical_slot_peek_changes('other', NULL, NULL) \
               WHERE data LIKE 'table public.outbox: INSERT%'";
    let rows = world.client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn disconnects_at_any_moment_lose_and_repeat_nothing() {
    for version in PgVersion::tried() {
        let world = World::new(version, &[]).await;
        world.sql(OUTBOX).await;
        let capture = outbox();
        world.install(&capture).await;
        world
            .sql("SELECT pg_create_logical_replication_slot('other', 'test_decoding')")
            .await;
        let running = world.start(&capture);
        let writers: Vec<_> = (0..3).map(|n| write(&world, n)).collect();
        let cut = async {
            let admin = world.db.client().await.unwrap();
            for _ in 0..25 {
                tokio::time::sleep(Duration::from_millis(fastrand::u64(5..120))).await;
                let kinds = ["walsender", "client backend"];
                let kind = kinds[fastrand::usize(..2)];
                let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                           WHERE backend_type = $1 AND application_name LIKE 'posthaste%'";
                admin.query(sql, &[&kind]).await.unwrap();
            }
        };
        tokio::join!(futures(writers), cut);
        let expected = inserted(&world).await;
        assert!(expected.len() > 1500, "{}", expected.len());
        world.until_captured(expected.len()).await;
        drop(running);
        let jobs = world.jobs().await;
        let ids: HashSet<_> = jobs.iter().map(|job| &job.id).collect();
        assert_eq!(ids.len(), jobs.len(), "each once");
        let bodies: Vec<String> = jobs.iter().map(|job| job.body.clone()).collect();
        assert_eq!(bodies, expected, "all of them, in the order of commits");
    }
}

async fn futures(all: Vec<impl Future<Output = ()>>) {
    let mut all: Vec<_> = all.into_iter().map(Box::pin).collect();
    while let Some(one) = all.pop() {
        match all.pop() {
            Some(two) => match all.pop() {
                Some(three) => drop(tokio::join!(one, two, three)),
                None => drop(tokio::join!(one, two)),
            },
            None => one.await,
        }
    }
}

/// Writes small transactions, rolled back ones, and large ones that do not fit into a batch.
async fn write(world: &World, writer: u32) {
    let client = world.db.client().await.unwrap();
    for n in 0..60 {
        let count = match n % 20 {
            7 => 700,
            3 => 20,
            _ => 1,
        };
        let end = if n % 9 == 4 { "ROLLBACK" } else { "COMMIT" };
        let sql = format!(
            "BEGIN; INSERT INTO outbox (payload) SELECT '{writer}-{n}-' || i \
             FROM generate_series(1, {count}) i; \
             INSERT INTO outbox (payload) VALUES ('{writer}-{n}-last'); {end}"
        );
        client.batch_execute(&sql).await.unwrap();
    }
}

#[tokio::test]
async fn server_crashes_lose_and_repeat_nothing() {
    let mut world = World::new(PgVersion::V18, &[("fsync", "on")]).await;
    world.sql(OUTBOX).await;
    let capture = outbox();
    world.install(&capture).await;
    let running = world.start(&capture);
    for round in 0..3 {
        let sql = format!(
            "INSERT INTO outbox (payload) SELECT '{round}-' || i FROM generate_series(1, 800) i"
        );
        world.sql(&sql).await;
        if round == 1 {
            world.until_captured(1600).await;
        }
        world.server.stop_immediate().unwrap();
        world.server.restart().unwrap();
        world.reconnect().await;
    }
    world.until_captured(2400).await;
    drop(running);
    let mut bodies = world.bodies().await;
    assert_eq!(bodies.len(), 2400);
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!(bodies.len(), 2400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_shutdowns_do_not_wait_for_captures() {
    for version in PgVersion::tried() {
        let mut world = World::new(version, &[]).await;
        world.sql(OUTBOX).await;
        let capture = outbox();
        world.install(&capture).await;
        let running = world.start(&capture);
        world.sql("INSERT INTO outbox (payload) VALUES ('a')").await;
        world.until_captured(1).await;
        // Log of another table, of which nothing is marked yet.
        world
            .sql("CREATE TABLE other (v text); INSERT INTO other VALUES ('x')")
            .await;
        let server = &world.server;
        tokio::task::block_in_place(|| server.stop_fast()).unwrap();
        world.server.restart().unwrap();
        world.reconnect().await;
        world.sql("INSERT INTO outbox (payload) VALUES ('b')").await;
        world.until_captured(2).await;
        assert_eq!(world.bodies().await, ["a", "b"]);
        drop(running);
    }
}

#[tokio::test]
async fn second_processes_stand_by_and_take_over() {
    let world = World::new(PgVersion::V18, &[]).await;
    world.sql(OUTBOX).await;
    let capture = outbox();
    world.install(&capture).await;
    let mut first = world.start(&capture);
    let is_running = async || Ok(first.status().state == State::Running);
    eventually(SOON, "the first runs", is_running)
        .await
        .unwrap();
    let second = world.start(&capture);
    let stands_by = async || Ok(second.status().state == State::Standby);
    eventually(SOON, "the second stands by", stands_by)
        .await
        .unwrap();
    world.sql("INSERT INTO outbox (payload) VALUES ('a')").await;
    world.until_captured(1).await;
    first.stop();
    first.ended().await.unwrap();
    world.sql("INSERT INTO outbox (payload) VALUES ('b')").await;
    world.until_captured(2).await;
    assert_eq!(world.bodies().await, ["a", "b"]);
    assert_eq!(second.status().state, State::Running);
}

/// The process that runs the capture confirms its marks at any moment.
#[tokio::test]
async fn standby_processes_report_no_gap_while_marks_are_written() {
    let world = World::new(PgVersion::any(), &[]).await;
    world.sql(OUTBOX).await;
    let capture = outbox();
    world.install(&capture).await;
    let all: Vec<_> = (0..8).map(|_| world.start(&capture)).collect();
    for count in 1..=120 {
        world.sql("INSERT INTO outbox (payload) VALUES ('a')").await;
        world.until_captured(count).await;
    }
    let ended = all.iter().map(posthaste_capture::Running::status);
    let ended: Vec<_> = ended.filter(|one| one.state == State::Ended).collect();
    assert!(ended.is_empty(), "{ended:?}");
    assert!(list_gaps(&world.client, None).await.unwrap().is_empty());
}

/// A commit that waits for a standby is in the log, but not yet visible to other sessions.
#[tokio::test]
async fn jobs_appear_only_after_their_rows_are_visible() {
    let settings = [
        ("synchronous_standby_names", "nobody"),
        ("synchronous_commit", "local"),
    ];
    for version in PgVersion::tried() {
        let world = World::new(version, &settings).await;
        world.sql(OUTBOX).await;
        let capture = outbox();
        world.install(&capture).await;
        let mut running = world.start(&capture);
        let writer = world.db.client().await.unwrap();
        let cancel = writer.cancel_token();
        let write = tokio::spawn(async move {
            let sql = "SET synchronous_commit = on; INSERT INTO outbox (payload) VALUES ('a')";
            writer.batch_execute(sql).await
        });
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let is_waiting = async || Ok(count(&world, waits).await == 1);
        eventually(SOON, "the commit waits", is_waiting)
            .await
            .unwrap();
        // The commit has reached the capture: the walsender has sent the whole log.
        let sent =
            "SELECT count(*) FROM pg_stat_replication WHERE sent_lsn >= pg_current_wal_lsn()";
        let is_sent = async || Ok(count(&world, sent).await == 1);
        eventually(SOON, "the log is sent", is_sent).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(count(&world, "SELECT count(*) FROM outbox").await, 0);
        assert_eq!(world.jobs().await.len(), 0);
        // A capture that is stopped now ends, and the next one continues.
        running.stop();
        running.ended().await.unwrap();
        let running = world.start(&capture);
        cancel.cancel_query(tokio_postgres::NoTls).await.unwrap();
        write.await.unwrap().unwrap();
        world.until_captured(1).await;
        drop(running);
    }
}

async fn count(world: &World, sql: &str) -> i64 {
    world.client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn rejects_marks_of_superseded_processes() {
    let world = World::new(PgVersion::V18, &[]).await;
    world.sql(OUTBOX).await;
    let capture = outbox();
    world.install(&capture).await;
    let running = world.start(&capture);
    let is_running = async || Ok(running.status().state == State::Running);
    eventually(SOON, "it runs", is_running).await.unwrap();
    // Another process has taken over, without the knowledge of this one.
    world
        .sql("UPDATE posthaste.capture SET runner = gen_random_uuid()")
        .await;
    world.sql("INSERT INTO outbox (payload) VALUES ('a')").await;
    // This process stops, takes over again, and writes the job once.
    world.until_captured(1).await;
    assert_eq!(world.bodies().await, ["a"]);
    drop(running);
}

#[tokio::test]
async fn rotating_marks_keeps_the_newest_of_each_capture() {
    let world = World::new(PgVersion::V18, &[]).await;
    world.sql(OUTBOX).await;
    let capture = outbox();
    world.install(&capture).await;
    // Another capture, which is idle.
    world
        .sql(
            "INSERT INTO posthaste.capture (epoch, published, slot, publication, name, identity)
              VALUES (gen_random_uuid(), 0, 'other', 'other', 'other', '{}');
              INSERT INTO posthaste.capture_mark_0 (done, commit, record, row, epoch)
              SELECT '0/7', '0/5', '0/3', 1, epoch FROM posthaste.capture
               WHERE name = 'other'",
        )
        .await;
    for round in 0..4 {
        let table = round % 2;
        let fill = format!(
            "INSERT INTO posthaste.capture_mark_{table} (done, commit, record, row, epoch) \
             SELECT '0/0', '0/0', '0/0', 0, epoch \
             FROM posthaste.capture, generate_series(1, 20000) WHERE name = 'all'"
        );
        world.sql(&fill).await;
        world
            .sql(&format!("INSERT INTO outbox (payload) VALUES ('{round}')"))
            .await;
        world.catch_up(&capture).await.unwrap();
        let turn = "SELECT last_value::bigint FROM posthaste.capture_turn";
        assert_eq!(count(&world, turn).await, round + 1);
        let next = format!("SELECT count(*) FROM posthaste.capture_mark_{}", 1 - table);
        assert!(count(&world, &next).await < 10, "it was emptied");
    }
    assert_eq!(world.bodies().await, ["0", "1", "2", "3"]);
    let other = "SELECT count(*) FROM (SELECT * FROM posthaste.capture_mark_0 UNION ALL \
                 SELECT * FROM posthaste.capture_mark_1) m WHERE done = '0/7'";
    assert!(count(&world, other).await > 0);
}

/// The jobs are written before the mark, in the same transaction.
#[tokio::test]
async fn failed_marks_leave_no_jobs() {
    let world = World::new(PgVersion::any(), &[]).await;
    world.sql(OUTBOX).await;
    let capture = outbox();
    world.install(&capture).await;
    let _running = world.start(&capture);
    world.sql("INSERT INTO outbox (payload) VALUES ('a')").await;
    world.until_captured(1).await;
    let holder = world.db.client().await.unwrap();
    let hold = "BEGIN; LOCK TABLE posthaste.capture_mark_0, posthaste.capture_mark_1 \
                IN SHARE MODE";
    holder.batch_execute(hold).await.unwrap();
    world.sql("INSERT INTO outbox (payload) VALUES ('b')").await;
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation IN \
                 ('posthaste.capture_mark_0'::regclass, 'posthaste.capture_mark_1'::regclass)";
    let is_waiting = async || Ok(count(&world, waits).await == 1);
    eventually(SOON, "the mark waits", is_waiting)
        .await
        .unwrap();
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted";
    world.sql(cut).await;
    drop(holder);
    world.until_captured(2).await;
    world.sql("INSERT INTO outbox (payload) VALUES ('c')").await;
    world.until_captured(3).await;
    assert_eq!(world.bodies().await, ["a", "b", "c"]);
}

/// The server would keep the slot of such a connection for ever.
#[tokio::test(flavor = "multi_thread")]
async fn another_process_continues_after_a_connection_is_half_open() {
    let world = World::new(PgVersion::any(), &[("wal_sender_timeout", "0")]).await;
    world.sql(OUTBOX).await;
    let capture = outbox();
    world.install(&capture).await;
    let proxy = Proxy::start_raw(world.server.address()).await.unwrap();
    let through = posthaste::connect(&proxy.url(world.db.name())).unwrap();
    let _cut_off = capture.clone().start(through, Until::Stopped).unwrap();
    world.sql("INSERT INTO outbox (payload) VALUES ('a')").await;
    world.until_captured(1).await;
    proxy.half_open();
    let _running = world.start(&capture);
    world.sql("INSERT INTO outbox (payload) VALUES ('b')").await;
    world.until_captured(2).await;
    assert_eq!(world.bodies().await, ["a", "b"]);
}
