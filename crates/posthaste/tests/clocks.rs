//! Clocks that step. The tests are in one file because they share the functions that step a clock:
//! a server's clock steps under a running worker, or a replica with a slow clock takes over. That
//! costs time, never a job.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, Pool};
use posthaste::{Backoff, Missed, NewJob, Outcome, Periodic, QueueConfig, WorkerHandle};
use posthaste_testkit::{PgServer, PgVersion, Sql as _, connect, eventually, ran};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use crate::scheduled::on_both;
use crate::stress::store::Store;
use crate::support::{self, SOON, number};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const YEAR: i64 = 365 * 24 * HOUR;

on_both! {
    a_year_ahead =>
        a_clock_once_a_year_ahead_does_not_disturb_back_offs_schedules_or_the_leader_on_15,
        a_clock_once_a_year_ahead_does_not_disturb_back_offs_schedules_or_the_leader_on_18;
    failed_over =>
        a_failover_to_a_clock_ten_minutes_slow_costs_no_attempt_and_no_delay_on_15,
        a_failover_to_a_clock_ten_minutes_slow_costs_no_attempt_and_no_delay_on_18;
    followed_at_once =>
        back_offs_from_a_briefly_fast_clock_are_corrected_on_15,
        back_offs_from_a_briefly_fast_clock_are_corrected_on_18;
    each_tick_once =>
        each_tick_fires_once_across_clock_steps_on_15,
        each_tick_fires_once_across_clock_steps_on_18;
    stepped_within =>
        immediate_jobs_stay_due_when_the_clock_steps_back_in_their_transaction_on_15,
        immediate_jobs_stay_due_when_the_clock_steps_back_in_their_transaction_on_18;
    rated =>
        rate_limited_queues_continue_after_a_fast_clock_is_corrected_on_15,
        rate_limited_queues_continue_after_a_fast_clock_is_corrected_on_18;
    nothing_for_ever =>
        clock_jumps_delete_nothing_and_future_times_are_corrected_on_15,
        clock_jumps_delete_nothing_and_future_times_are_corrected_on_18;
}

/// For each run of a job: the attempts counted before, and its start.
type Runs = Arc<Mutex<BTreeMap<String, Vec<(i32, Instant)>>>>;

fn runs(runs: &Runs, name: &str) -> Vec<(i32, Instant)> {
    let runs = runs.lock().unwrap();
    runs.get(name).cloned().unwrap_or_default()
}

/// Starts a worker with the default back-off, from one second; jobs named `fail` always fail.
async fn noting(pool: &Pool, runs: &Runs) -> WorkerHandle {
    let note = |runs: &Runs| {
        let runs = Arc::clone(runs);
        move |job: &posthaste::Job| {
            let mut runs = runs.lock().unwrap();
            let seen = runs.entry(job.name.to_string()).or_default();
            seen.push((job.attempt - 1, Instant::now()));
        }
    };
    let (failing, done) = (note(runs), note(runs));
    support::worker(pool)
        .queue("default", 4)
        .handler("fail", move |_, job| {
            failing(&job);
            async { Err("no".into()) }
        })
        .handler("*", move |_, job| {
            done(&job);
            async { Ok(Outcome::Done) }
        })
        .start()
        .await
        .unwrap()
}

async fn enqueue(client: &Client, name: &str, seconds: i64) -> anyhow::Result<()> {
    let sql = "SELECT posthaste.enqueue($1,
                 scheduled_at => clock_timestamp() + $2::bigint * interval '1 s')";
    client.query_one(sql, &[&name, &seconds]).await?;
    Ok(())
}

async fn is(client: &Client, sql: &str) -> anyhow::Result<bool> {
    let is: Option<bool> = client.one(sql).await?;
    Ok(is == Some(true))
}

/// Checks that a job that becomes due by the current clock runs: the promoter follows that clock.
async fn followed(client: &Client, seen: &Runs, name: &str) -> anyhow::Result<()> {
    enqueue(client, name, 1).await?;
    eventually(SOON, "it comes when it is due", async || {
        Ok(!runs(seen, name).is_empty())
    })
    .await
}

/// Checks that the leader's lease is by the current clock, that a job due in an hour waits, and
/// that each back-off has the right length.
async fn all_is_right(client: &Client, seen: &Runs) -> anyhow::Result<()> {
    enqueue(client, "fail", 0).await?;
    eventually(SOON, "the clock that was ahead is forgotten", async || {
        let right = "SELECT clock_timestamp() BETWEEN l.since AND l.until
                        AND posthaste.promote_horizon() <= clock_timestamp()
                          FROM posthaste.leader l";
        is(client, right).await
    })
    .await?;
    enqueue(client, "in an hour", HOUR).await?;
    followed(client, seen, "after").await?;
    let counted = |attempt| {
        let first = runs(seen, "fail").into_iter().find(|run| run.0 >= attempt);
        first.map(|(_, at)| at)
    };
    eventually(SOON, "three attempts are counted", async || {
        Ok(counted(3).is_some())
    })
    .await?;
    // The least delays are half of one, two and four seconds, for 0, 1 and 2 counted attempts.
    let took = counted(3).unwrap() - counted(1).unwrap();
    assert!(took >= Duration::from_millis(2900), "{took:?}");
    let waits = "SELECT state = 'scheduled' FROM posthaste.job WHERE name = 'in an hour'";
    assert!(is(client, waits).await?, "it ran early");
    assert_eq!(
        number(client, "SELECT count(*) FROM posthaste.dead").await,
        0
    );
    Ok(())
}

async fn a_year_ahead(version: PgVersion) -> anyhow::Result<()> {
    let server = PgServer::start_with_clock(version, &[])?;
    let db = support::migrated(&server).await;
    let client = db.client().await?;
    let stranger = support::hand(&client).await;
    let seen = Runs::default();
    let worker = noting(&db.pool(4)?, &seen).await;
    server.turn_clock(YEAR)?;
    followed(&client, &seen, "ahead").await?;
    // A leader dies then: its lease ends in a year.
    let lead = "UPDATE posthaste.leader SET worker = $1, since = clock_timestamp(),
                       until = clock_timestamp() + interval '5 s'";
    client.execute(lead, &[&stranger]).await?;
    server.turn_clock(0)?;
    all_is_right(&client, &seen).await?;
    worker.stop().await?;
    ran::count("clocks", 1);
    Ok(())
}

async fn failed_over(version: PgVersion) -> anyhow::Result<()> {
    let primary = PgServer::start_with_clock(version, &[])?;
    primary.turn_clock(10 * MINUTE)?;
    let db = support::migrated(&primary).await;
    let replica = primary.start_replica(&[])?;
    let either = format!(
        "host=127.0.0.1,127.0.0.1 port={},{} user=postgres dbname={} \
         target_session_attrs=read-write",
        primary.address().port(),
        replica.address().port(),
        db.name()
    );
    let manager = Manager::new(either.parse()?, tokio_postgres::NoTls);
    let pool = Pool::builder(manager).max_size(4).build()?;
    let seen = Runs::default();
    let worker = noting(&pool, &seen).await;
    let (old, new) = (db.client().await?, connect(&replica.url(db.name())).await?);
    followed(&old, &seen, "ahead").await?;
    let sink = "SELECT pg_sequence_last_value('posthaste.promote_horizon')";
    let until = number(&old, sink).await;
    eventually(SOON, "the replica has it", async || {
        Ok(number(&new, sink).await >= until)
    })
    .await?;
    tokio::task::block_in_place(|| primary.stop_immediate())?;
    new.run("SELECT pg_promote()").await?;
    all_is_right(&new, &seen).await?;
    worker.stop().await?;
    ran::count("clocks", 1);
    Ok(())
}

/// Only the job that fails may wake the promoter.
async fn followed_at_once(version: PgVersion) -> anyhow::Result<()> {
    let server = PgServer::start_with_clock(version, &[])?;
    let db = support::migrated(&server).await;
    let client = db.client().await?;
    let minutes = Backoff {
        base: Duration::from_secs(120),
        cap: Duration::from_secs(120),
    };
    let worker = support::worker(&db.pool(4)?)
        .queue_config(QueueConfig {
            backoff: minutes,
            ..QueueConfig::new("default", 4)
        })
        .handler("*", async |_, _| Err("no".into()))
        .start()
        .await?;
    for ahead in [YEAR, HOUR] {
        server.turn_clock(ahead)?;
        enqueue(&client, "fail", 0).await?;
        let states = "SELECT count(*) FILTER (WHERE state = 'retrying') = count(*)
                        AND posthaste.promote_horizon() > clock_timestamp() - interval '2 min'
                       FROM posthaste.job";
        eventually(SOON, "it failed, and the clock is followed", async || {
            is(&client, states).await
        })
        .await?;
        server.turn_clock(0)?;
        let near = "SELECT bool_and(scheduled_at < clock_timestamp() + interval '3 min')
                     FROM posthaste.job WHERE state = 'retrying' OR state = 'available'";
        eventually(SOON, "it waits for its back-off", async || {
            is(&client, near).await
        })
        .await?;
    }
    worker.stop().await?;
    ran::count("clocks", 1);
    Ok(())
}

async fn each_tick_once(version: PgVersion) -> anyhow::Result<()> {
    let server = PgServer::start_with_clock(version, &[])?;
    let db = support::migrated(&server).await;
    let client = db.client().await?;
    let ticks: Arc<Mutex<BTreeMap<String, Vec<String>>>> = Arc::default();
    let sink = Arc::clone(&ticks);
    let minutely = |name: &str, missed| {
        let job = NewJob::new(name, &serde_json::json!({}))?;
        let periodic = Periodic::new(name, "* * * * *", job)?;
        anyhow::Ok(periodic.missed(missed))
    };
    let worker = support::worker(&db.pool(4)?)
        .queue("default", 4)
        .periodic(minutely("all", Missed::All)?)
        .periodic(minutely("last", Missed::Last)?)
        .handler("*", move |_, job| {
            let mut ticks = sink.lock().unwrap();
            let seen = ticks.entry(job.name.to_string()).or_default();
            seen.push(job.scheduled_at.to_string());
            async { Ok(Outcome::Done) }
        })
        .start()
        .await?;
    let of = |name: &str| ticks.lock().unwrap().get(name).cloned().unwrap_or_default();
    let mut last = Vec::new();
    // An hour ahead once; then time continues, steps back by ten minutes, and jumps by a year.
    for seconds in [0, HOUR, 0, 120, 240, -600, 360, YEAR, 480, 600] {
        server.turn_clock(seconds)?;
        eventually(
            SOON,
            "the next tick is the next by this clock",
            async || {
                let next = "SELECT count(*) = 2 AND bool_and(next_at > clock_timestamp()
                           AND next_at <= clock_timestamp() + interval '61 s')
                          FROM posthaste.periodic";
                Ok(is(&client, next).await? && support::unfinished(&client).await == 0)
            },
        )
        .await?;
        last.push(of("last").len());
    }
    for name in ["all", "last"] {
        let seen = of(name);
        let mut once = seen.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), seen.len(), "{name}: a tick came twice");
    }
    // Ticks that were skipped in that hour and that year come when the clock reaches them again;
    // ticks that have come do not.
    assert!(last[1] > last[0], "{last:?}");
    assert!(last[3] > last[2] && last[4] > last[3], "{last:?}");
    assert!(last[6] > last[5] && last[9] > last[8], "{last:?}");
    let all = of("all").len();
    assert!(
        (1000..1200).contains(&all),
        "{all} of a year's half million"
    );
    worker.stop().await?;
    ran::count("clocks", 1);
    Ok(())
}

async fn stepped_within(version: PgVersion) -> anyhow::Result<()> {
    let server = PgServer::start_with_clock(version, &[])?;
    let db = support::migrated(&server).await;
    let client = db.client().await?;
    client.run("BEGIN").await?;
    server.turn_clock(-10 * MINUTE)?;
    let jobs = [
        "SELECT posthaste.enqueue('plain')",
        "SELECT posthaste.enqueue('unique', unique_key => 'k')",
        "SELECT posthaste.enqueue('first', ordering_key => 'k')",
        "SELECT posthaste.enqueue('later', scheduled_at => clock_timestamp() + interval '1 hour')",
    ];
    for job in jobs {
        client.query_one(job, &[]).await?;
    }
    client
        .run("INSERT INTO posthaste.job (name) VALUES ('by the view'); COMMIT")
        .await?;
    let waits = "SELECT string_agg(name, ', ') FROM posthaste.job WHERE state = 'scheduled'";
    let waits: Option<String> = client.one(waits).await?;
    assert_eq!(waits.as_deref(), Some("later"));
    let seen = Runs::default();
    let worker = noting(&db.pool(4)?, &seen).await;
    eventually(SOON, "the others come", async || {
        Ok(seen.lock().unwrap().len() == 4)
    })
    .await?;
    worker.stop().await?;
    ran::count("clocks", 1);
    Ok(())
}

async fn rated(version: PgVersion) -> anyhow::Result<()> {
    let server = PgServer::start_with_clock(version, &[])?;
    let db = support::migrated(&server).await;
    let client = db.client().await?;
    let seen = Runs::default();
    let worker = noting(&db.pool(4)?, &seen).await;
    let limit = "SELECT posthaste.limit_rate('default', 20, '1 second', burst => 20)";
    client.run(limit).await?;
    for ahead in [HOUR, YEAR] {
        server.turn_clock(ahead)?;
        enqueue(&client, "ahead", 0).await?;
        eventually(
            SOON,
            "the job of the clock that is ahead runs",
            async || Ok(support::unfinished(&client).await == 0),
        )
        .await?;
        server.turn_clock(0)?;
        enqueue(&client, "back", 0).await?;
        eventually(
            SOON,
            "the job of the clock that is right runs",
            async || Ok(support::unfinished(&client).await == 0),
        )
        .await?;
    }
    worker.stop().await?;
    ran::count("clocks", 1);
    Ok(())
}

/// The statement that the leader sends.
const LEAD: &str = include_str!("../src/store/lead.sql");
const TAKE_LEASE: &str = include_str!("../../posthaste-relay/src/store/ordered_relay.sql");
const BEATS: &str = include_str!("../src/store/beats.sql");
const RELAYS: &str = include_str!("../../posthaste-relay/src/store/relays.sql");
const TELL: &str = "INSERT INTO posthaste.relay (slot, worker, queue, route, destination, state,
      accepted, rejected, retried, unavailable, rejections, failures)
    VALUES ((SELECT posthaste.volume('relay')), $1, 'mail', 'r', 'd', $2, 0, 0, 0, 0, '{}', '{}')";

async fn asks(store: &Store, sql: &str, values: &[&(dyn ToSql + Sync)]) -> anyhow::Result<bool> {
    Ok(!store.client.query(sql, values).await?.is_empty())
}

/// Returns whether the worker has the lease of a queue from now on.
async fn takes_lease(store: &Store) -> anyhow::Result<bool> {
    let values: [&(dyn ToSql + Sync); 3] = [&"mail", &store.worker, &5_000_i64];
    Ok(store.value::<i64>(TAKE_LEASE, &values).await? == store.worker)
}

async fn nothing_for_ever(version: PgVersion) -> anyhow::Result<()> {
    let server = PgServer::start_with_clock(version, &[])?;
    let db = support::migrated(&server).await;
    let (one, other) = (Store::new(db.url()).await?, Store::new(db.url()).await?);
    let lease = 5_000_i64;
    assert!(asks(&one, LEAD, &[&one.worker, &lease]).await?);
    assert!(takes_lease(&one).await?);
    // An attempt in a volume that is no longer the newest, a receiver's record, and a worker that
    // died with a claimed job.
    one.say(
        "INSERT INTO posthaste.attempt (job, attempt, slot, outcome, queue, name)
         VALUES (1, 1, 0, 'dead', 'q', 'x');
         UPDATE posthaste.volume SET began_at = clock_timestamp()
          WHERE shelf = 'attempt' AND slot = 1;
         SELECT posthaste.receive(gen_random_uuid());
         SELECT posthaste.confirm(posthaste.delivery_id(7));
         UPDATE posthaste.worker SET stopped_at = clock_timestamp() WHERE id = 2;",
    )
    .await?;
    server.turn_clock(YEAR)?;
    // A renewal moves the steady time by at most a minute, however far the clock jumped.
    assert!(asks(&one, LEAD, &[&one.worker, &lease]).await?);
    assert!(takes_lease(&one).await?);
    one.say("SELECT posthaste.prune(), posthaste.prune_inbox()")
        .await?;
    one.say("SELECT posthaste.tidy_history()").await?;
    let left = "SELECT (SELECT count(*) FROM posthaste.attempt) = 1
                   AND (SELECT count(*) FROM posthaste.inbox) = 1
                   AND (SELECT count(*) FROM posthaste.confirmed) >= 1
                   AND (SELECT count(*) FROM posthaste.worker) = 2";
    assert!(is(&one.client, left).await?, "it was forgotten at once");
    assert!(
        asks(&one, BEATS, &[]).await?,
        "nobody rescues the jobs of dead workers"
    );
    // Written while the clock is ahead.
    one.say(
        "UPDATE posthaste.worker SET stopped_at = clock_timestamp(), seen_at = clock_timestamp()
          WHERE id = 1;
         INSERT INTO posthaste.cancelling (id) VALUES (1);
         SELECT posthaste.receive(gen_random_uuid());
         SELECT posthaste.notify_on(4, '30 s');
         INSERT INTO posthaste.in_flight (id, until, enqueued_at, scheduled_at, expires_at,
           priority,
                                     attempt, max_attempts, kwargs_bytes, crashes, state, queue,
                                     name, tag, kwargs)
         VALUES (7, posthaste.quarantine_until(2::smallint), now(), now(), 'infinity', 0,
                 0, 25, 2, 2, 'quarantined', 'q', 'x', '', '{}');
         INSERT INTO posthaste.bulk_action (id, driven_until, at_most, action, filter, who,
                                            identity)
         VALUES (1, clock_timestamp() + interval '10 s', 1, 'retry', '', 'x', '{}')",
    )
    .await?;
    let relay = support::hand(&one.client).await;
    one.client.execute(TELL, &[&relay, &"down"]).await?;
    server.turn_clock(-10 * MINUTE)?;
    // A relay's report by that clock is older than its next one, and is not dated in the future.
    let sink = async || -> anyhow::Result<(String, bool)> {
        let row = one.client.query_one(RELAYS, &[]).await?;
        let at: jiff::Timestamp = row.get(12);
        let now: jiff::Timestamp = one.value("SELECT clock_timestamp()", &[]).await?;
        Ok((row.get(4), at <= now))
    };
    assert_eq!(sink().await?, ("down".into(), true));
    one.client.execute(TELL, &[&relay, &"up"]).await?;
    assert_eq!(sink().await?, ("up".into(), true));
    assert!(
        asks(&other, LEAD, &[&other.worker, &lease]).await?,
        "nobody leads for a year"
    );
    assert!(
        takes_lease(&other).await?,
        "nobody takes the lease for a year"
    );
    let found: i64 = one
        .value("SELECT posthaste.correct_future_times()", &[])
        .await?;
    assert!(found >= 6, "{found} times were set right");
    let ahead = "WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at)
        SELECT EXISTS (SELECT FROM posthaste.worker, now WHERE greatest(seen_at, stopped_at) > at)
        OR EXISTS (SELECT FROM posthaste.cancelling, now WHERE asked_at > at)
        OR EXISTS (SELECT FROM posthaste.confirmed, now WHERE confirmed_at > at)
        OR EXISTS (SELECT FROM posthaste.in_flight, now WHERE until > at)
        OR EXISTS (SELECT FROM posthaste.inbox, now WHERE received_at > at)
        OR EXISTS (SELECT FROM posthaste.bulk_action, now WHERE driven_until > at)
        OR pg_sequence_last_value('posthaste.listeners_until') > extract(epoch FROM now()) + 31";
    assert!(!is(&one.client, ahead).await?, "something is still ahead");
    let again: i64 = one
        .value("SELECT posthaste.correct_future_times()", &[])
        .await?;
    assert_eq!(again, 0, "there is nothing more to be set right");
    ran::count("clocks", 1);
    Ok(())
}
