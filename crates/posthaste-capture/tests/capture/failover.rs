//! A leader that fails, and a follower that is promoted.

use posthaste::Database;
use posthaste_capture::{Capture, Error, Options, Running, State, Until, list_gaps};
use posthaste_testkit::{PgServer, PgVersion, connect, eventually};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::direct::{Sent, direct, first_arrivals};
use super::world::{OUTBOX, SOON, World, outbox};

/// Two servers, the second of which follows the first.
pub(super) struct Pair {
    pub(super) world: World,
    pub(super) follower: PgServer,
    pub(super) there: Client,
}

impl Pair {
    pub(super) async fn new(
        version: PgVersion,
        leader: &[(&str, &str)],
        capture: &Capture,
    ) -> Self {
        let world = World::new(version, leader).await;
        world.sql(OUTBOX).await;
        let slot = "SELECT pg_create_physical_replication_slot('its', true)";
        world.sql(slot).await;
        world.install(capture).await;
        let port = world.server.address().port();
        let leads = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
        let mut settings = vec![
            ("wal_level", "logical"),
            ("hot_standby_feedback", "on"),
            ("primary_slot_name", "its"),
            ("primary_conninfo", &*leads),
        ];
        if version == PgVersion::V18 {
            settings.push(("sync_replication_slots", "on"));
        }
        let follower = tokio::task::block_in_place(|| world.server.start_replica(&settings));
        let follower = follower.unwrap();
        let there = connect(&follower.url(world.db.name())).await.unwrap();
        Self {
            world,
            follower,
            there,
        }
    }

    /// Returns a connection string for the leader and, after its failure, the follower.
    fn database(&self) -> Database {
        let ports = [&self.world.server, &self.follower].map(|server| server.address().port());
        let name = self.world.db.name();
        posthaste::connect(&format!(
            "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/{name}?target_session_attrs=read-write",
            ports[0], ports[1]
        ))
        .unwrap()
    }

    pub(super) fn start(&self, capture: &Capture) -> Running {
        let capture = capture.clone();
        capture.start(self.database(), Until::Stopped).unwrap()
    }

    async fn catch_up(&self, capture: &Capture) -> Result<(), Error> {
        let mut running = capture.clone().start(self.database(), Until::Caught)?;
        let ended = tokio::time::timeout(SOON, running.ended()).await;
        ended.expect("it ends by itself")
    }

    pub(super) async fn there(&self, sql: &str) -> String {
        self.there.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Waits until the follower has the slot and would keep it after a failover.
    pub(super) async fn until_synchronized(&self) {
        let sql = "SELECT count(*)::text FROM pg_replication_slots \
                   WHERE synced AND NOT temporary AND slot_name = 'posthaste_all'";
        eventually(SOON, "the slot is synchronized", async || {
            // The follower keeps the slot once it has passed the follower's own start, which needs
            // a confirmation by the capture, and once the follower knows the running transactions.
            self.world
                .sql(
                    "INSERT INTO outbox (payload) VALUES ('0');
                      SELECT pg_log_standby_snapshot()",
                )
                .await;
            Ok(self.there(sql).await == "1")
        })
        .await
        .unwrap();
    }

    /// Waits until the follower has everything that was committed before.
    pub(super) async fn until_replayed(&self) {
        let place = "SELECT pg_current_wal_flush_lsn()::text";
        let place = self.world.text(place).await;
        let has_all = format!("SELECT (pg_last_wal_replay_lsn() >= '{place}')::text");
        let has_all = async || Ok(self.there(&has_all).await == "true");
        eventually(SOON, "the follower has all", has_all)
            .await
            .unwrap();
    }

    /// Inserts one row after the other until the leader fails.
    async fn write(&self) -> JoinHandle<()> {
        let client = self.world.db.client().await.unwrap();
        tokio::spawn(async move {
            for number in 1.. {
                let sql = format!("INSERT INTO outbox (payload) VALUES ('{number}')");
                if client.batch_execute(&sql).await.is_err() {
                    return;
                }
            }
        })
    }

    async fn fail_over(&self) {
        tokio::task::block_in_place(|| self.world.server.stop_immediate()).unwrap();
        let promoted = "SELECT pg_promote()::text";
        assert_eq!(self.there(promoted).await, "true");
    }

    async fn rows(&self) -> Vec<String> {
        let sql = "SELECT payload FROM outbox ORDER BY payload::int";
        let rows = self.there.query(sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn jobs(&self) -> Vec<String> {
        let sql = "SELECT kwargs -> 'posthaste.outbox' ->> 'text' FROM posthaste.job \
                   WHERE queue = 'captured' ORDER BY id";
        let rows = self.there.query(sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}

/// Makes the leader's stream of the slot wait for the follower, so that the follower lacks nothing.
const WAITS: [(&str, &str); 1] = [("synchronized_standby_slots", "its")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn captures_continue_after_a_failover_without_loss_or_repeats() {
    let capture = outbox();
    let pair = Pair::new(PgVersion::V18, &WAITS, &capture).await;
    let running = pair.start(&capture);
    pair.until_synchronized().await;
    let writer = pair.write().await;
    pair.world.until_captured(500).await;
    pair.fail_over().await;
    writer.await.unwrap();
    pair.there
        .batch_execute(
            "INSERT INTO outbox (payload) SELECT i FROM generate_series(1000001, 1000100) i",
        )
        .await
        .unwrap();
    let rows = pair.rows().await;
    assert!(rows.len() > 600, "{} rows", rows.len());
    let is_captured = async || Ok(pair.jobs().await.len() >= rows.len());
    eventually(SOON, "all is captured", is_captured)
        .await
        .unwrap();
    assert_eq!(
        pair.jobs().await,
        rows,
        "each once, in the order of the commits"
    );
    assert_eq!(running.status().state, State::Running);
    assert!(list_gaps(&pair.there, None).await.unwrap().is_empty());
    // Positions after the failover sort after earlier ones.
    let timeline = "SELECT max(left(kwargs -> 'posthaste.outbox' -> 'headers' ->> 'position', 8)) \
                    FROM posthaste.job WHERE queue = 'captured'";
    assert_eq!(pair.there(timeline).await, "00000002");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn direct_sending_continues_after_a_failover_without_loss() {
    let sent = Sent::new(|_| ()).await;
    let mut capture = outbox();
    capture.direct = Some(direct(sent.redis.port(), &json!({})));
    let pair = Pair::new(PgVersion::V18, &WAITS, &capture).await;
    let running = pair.start(&capture);
    pair.until_synchronized().await;
    let writer = pair.write().await;
    sent.until_arrived(300).await;
    pair.fail_over().await;
    writer.await.unwrap();
    pair.there
        .batch_execute(
            "INSERT INTO outbox (payload) SELECT i FROM generate_series(1000001, 1000100) i",
        )
        .await
        .unwrap();
    let rows = pair.rows().await;
    // The follower has everything that was sent, because the stream waits for it.
    let arrived = || first_arrivals(&sent.arrived());
    let is_there = async || Ok(arrived().len() >= rows.len());
    eventually(SOON, "all has arrived", is_there).await.unwrap();
    assert_eq!(arrived(), rows, "in the order of the commits");
    assert!(!running.status().state.eq(&State::Ended));
    assert!(list_gaps(&pair.there, None).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failovers_without_the_slot_are_gaps_until_the_capture_begins_again() {
    for version in PgVersion::tried() {
        let mut capture = outbox();
        capture.options = Options {
            failover: Some(false),
            ..Options::default()
        };
        let pair = Pair::new(version, &[], &capture).await;
        pair.world
            .sql("INSERT INTO outbox (payload) VALUES ('1')")
            .await;
        pair.catch_up(&capture).await.unwrap();
        pair.until_replayed().await;
        pair.fail_over().await;
        let error = pair.catch_up(&capture).await.unwrap_err();
        assert!(error.is_stopped(), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("missing") && text.contains("capture begin"),
            "{text}"
        );
        let found = list_gaps(&pair.there, Some("all")).await.unwrap();
        assert_eq!(found[0].tables, ["public.outbox"]);
        capture.begin(&pair.database()).await.unwrap();
        let later = "INSERT INTO outbox (payload) VALUES ('2')";
        pair.there.batch_execute(later).await.unwrap();
        pair.catch_up(&capture).await.unwrap();
        assert_eq!(pair.jobs().await, ["1", "2"]);
    }
}

#[tokio::test]
async fn slots_fail_over_unless_disabled_or_unsupported() {
    let slot = "SELECT count(*)::text FROM pg_replication_slots s \
                WHERE to_jsonb(s) ->> 'failover' = 'true'";
    let world = World::new(PgVersion::V18, &[]).await;
    world.sql(OUTBOX).await;
    let with = |failover: Option<bool>| {
        let mut capture = outbox();
        capture.options.failover = failover;
        capture
    };
    for (failover, count) in [(None, "1"), (Some(false), "0"), (Some(true), "1")] {
        let capture = with(failover);
        let statements = capture.statements(&world.database()).await.unwrap();
        assert_eq!(statements[1].contains("failover => true"), count == "1");
        world.install(&capture).await;
        assert_eq!(world.text(slot).await, count, "{failover:?}");
        world.sql("INSERT INTO outbox (payload) VALUES ('a')").await;
        world.catch_up(&capture).await.unwrap();
    }
    assert_eq!(world.jobs().await.len(), 3, "its place is kept");
    let older = World::new(PgVersion::V15, &[]).await;
    older.sql(OUTBOX).await;
    let refused = with(Some(true)).install(&older.database()).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("PostgreSQL 17"), "{refused}");
    older.install(&with(None)).await;
}
