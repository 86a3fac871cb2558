//! `posthaste::Client`: its answers and effects, over tokio-postgres and, in `drivers`, over the
//! other drivers.

#[cfg(all(feature = "sqlx", feature = "diesel-async", feature = "sea-orm"))]
mod drivers;
#[cfg(all(feature = "sqlx", feature = "diesel-async", feature = "sea-orm"))]
mod migrated;
mod refused;
mod shared;

use std::time::Duration;

use posthaste::{Filter, FoundJob, JobId, NewJob, Rate, State, enqueue};
use posthaste_testkit::{PgVersion, Sql as _, TestResult};
use serde_json::json;
use uuid::Uuid;

use self::shared::{everything, microseconds};
use crate::find::hands::{Hands, id_of};
use crate::support::{connected, database, jobs};

const DEAD: &str =
    "ARRAY[2::smallint], ARRAY[1], NULL, NULL, ARRAY['dead'], ARRAY[$e$50% \"off\" \\ \u{2603}$e$]";

/// Dead-letters these jobs one after the other, with the error of [`DEAD`].
async fn given_up(client: &tokio_postgres::Client, enqueues: &[&str]) -> Vec<JobId> {
    let hands = Hands::new(client).await;
    let mut ids = Vec::new();
    for enqueue in enqueues {
        let id = id_of(client, enqueue).await;
        let fence = hands.claim(client, 1).await;
        fence.settle(client, id, DEAD).await;
        ids.push(JobId(id));
    }
    ids
}

fn ids_of(found: &[FoundJob]) -> Vec<JobId> {
    found.iter().map(|job| job.id).collect()
}

#[tokio::test]
async fn every_operation_joins_and_rolls_back_with_the_callers_transaction() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let mut client = db.client().await.unwrap();
        let tx = client.transaction().await.unwrap();
        everything(&tx).await;
        tx.rollback().await.unwrap();
        shared::no_job_remains_unfinished(&client).await;
        let mut pooled = db.pool(1).unwrap().get().await.unwrap();
        let tx = pooled.transaction().await.unwrap();
        everything(posthaste::Unnamed(&tx)).await;
        tx.rollback().await.unwrap();
        let tx = pooled.transaction().await.unwrap();
        everything(&tx).await;
        tx.rollback().await.unwrap();
        shared::no_job_remains_unfinished(&client).await;
    }
}

#[tokio::test]
async fn times_are_exact_in_every_time_zone() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    for (year, zone) in [
        ("0001-01-01T00:00:00.000001Z", "Africa/Monrovia"),
        ("2026-02-28T23:59:59.123457Z", "Asia/Kathmandu"),
        ("9998-12-31T23:59:59.999999Z", "Pacific/Kiritimati"),
        ("9998-12-31T23:59:59.999999Z", "America/St_Johns"),
    ] {
        let job = NewJob::new("x", &json!({}))?;
        let job = job.scheduled_at("9998-01-01T00:00:00Z".parse()?);
        let id = enqueue(&client, &job.expires_at(year.parse()?)).await?;
        let set = format!("SET timezone = '{zone}'; SET datestyle = 'SQL, DMY'");
        client.run(&set).await?;
        let found = jobs(&client).find(id).await?.unwrap();
        assert_eq!(found.expires_at.to_string(), year, "{zone}");
        let listed = jobs(&client).list(&Filter::new().ids([id])).await?;
        assert_eq!(listed[0].expires_at, found.expires_at);
    }
    Ok(())
}

#[tokio::test]
async fn jobs_are_listed_by_every_filter_in_both_orders() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    let dead = given_up(&client, &["SELECT posthaste.enqueue('x')"]).await[0];
    client
        .run(
            "SELECT posthaste.enqueue('a', tag => 't', queue => 'q') FROM generate_series(1, 60);
             SELECT posthaste.enqueue('b', scheduled_at => now() + interval '1 hour')",
        )
        .await?;
    let numbers = async |filter: Filter| -> Vec<i64> {
        let listed = jobs(&client).list(&filter).await.unwrap();
        listed.iter().map(|job| job.id.0).collect()
    };
    let new = Filter::new;
    let newest = numbers(new()).await;
    assert_eq!(newest.len(), 50, "unless the filter says otherwise");
    assert!(newest.is_sorted_by(|a, b| a > b), "{newest:?}");
    let all = numbers(new().limit(1000).oldest_first()).await;
    assert_eq!(all.len(), 62);
    assert!(all.is_sorted(), "{all:?}");
    assert_eq!(numbers(new().limit(2)).await, newest[..2]);
    assert_eq!(numbers(new().limit(2).oldest_first()).await, all[..2]);
    assert!(numbers(new().limit(0)).await.is_empty());
    let (first, last) = (all[0], all[61]);
    assert_eq!(first, dead.0);
    for (filter, expected) in [
        (new().name("b"), vec![last]),
        (new().state(State::Scheduled), vec![last]),
        (new().state(State::Dead), vec![first]),
        (new().queue("default"), vec![last, first]),
        (new().queue("default").name("x"), vec![first]),
        (new().error_like("50\\% \"off\" \\\\ _"), vec![first]),
        (new().error_like("50"), vec![]),
        (new().tag("t").queue("default"), vec![]),
        (
            new().ids([dead, JobId(last), JobId(4711)]),
            vec![last, first],
        ),
        (new().ids([]), vec![]),
    ] {
        assert_eq!(numbers(filter.clone()).await, expected, "{filter:?}");
    }
    assert_eq!(numbers(new().tag("t").limit(1000)).await.len(), 60);
    let every = numbers(new().ids(all.iter().copied().map(JobId))).await;
    assert_eq!(every.len(), 62, "as many as it names");
    Ok(())
}

#[tokio::test]
async fn listing_returns_retained_jobs_as_find_does() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let client = db.client().await.unwrap();
        let mut all = jobs(&client);
        let enqueues = [
            "SELECT posthaste.enqueue('it''s', tag => '\\', kwargs => '{\"n\": 1e300}',
                trace => '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01')",
            "SELECT posthaste.enqueue('y', max_attempts => NULL)",
        ];
        let dead = given_up(&client, &enqueues).await;
        let waits = id_of(&client, "SELECT posthaste.enqueue('z')").await;
        assert_eq!(all.cancel(&[JobId(waits)]).await.unwrap().len(), 1);
        let kept = all.dead(&Filter::new()).await.unwrap();
        let newest_first = [JobId(waits), dead[1], dead[0]];
        assert_eq!(ids_of(&kept), newest_first);
        let first = all.dead(&Filter::new().oldest_first().limit(1)).await;
        assert_eq!(ids_of(&first.unwrap()), [dead[0]]);
        let filter = Filter::new().state(State::Dead).tag("\\").name("it's");
        let filter = filter.queue("default").error_like("50\\%%\u{2603}");
        assert_eq!(ids_of(&all.dead(&filter).await.unwrap()), [dead[0]]);
        for job in &kept {
            let found = all.find(job.id).await.unwrap().unwrap();
            assert_eq!(shared::describe(job), shared::describe(&found));
            assert_eq!(job.trace, found.trace);
            assert!(job.ended_at.is_some());
        }
        assert_eq!(kept[2].kwargs_json().len(), "{\"n\": }".len() + 301);
        assert_eq!(kept[1].max_attempts, None);
        assert!(kept[2].trace.is_some() && kept[1].trace.is_none());

        let failures = all.failures(dead[0]).await.unwrap();
        assert_eq!(failures.len(), 1);
        let failure = &failures[0];
        assert_eq!((failure.attempt, &*failure.outcome), (1, "dead"));
        assert_eq!(failure.error.as_deref(), Some("50% \"off\" \\ \u{2603}"));
        assert_eq!(failure.worker_name.as_deref(), Some("hand"));
        let at = format!("posthaste.attempt WHERE job = {}", dead[0]);
        assert_eq!(
            failure.at.as_microsecond(),
            microseconds(&client, "at", &at).await
        );
        assert!(all.failures(JobId(4711)).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn jobs_are_cancelled_retried_and_redriven_by_id_and_by_filter() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let client = db.client().await.unwrap();
        let mut all = jobs(&client);
        let later = async |name: &str| {
            let enqueue = format!(
                "SELECT posthaste.enqueue('{name}', scheduled_at => now() + interval '1 hour')"
            );
            JobId(id_of(&client, &enqueue).await)
        };
        let (a, b, c) = (later("a").await, later("b").await, later("b").await);
        let hands = Hands::new(&client).await;
        let running = JobId(id_of(&client, "SELECT posthaste.enqueue('r')").await);
        hands.claim(&client, 1).await;
        assert_eq!(
            all.cancel(&[running, a, JobId(4711), a]).await.unwrap(),
            [(a, State::Cancelled), (running, State::Running)]
        );
        assert_eq!(
            all.retry(&[b, a, running, JobId(4711)]).await.unwrap(),
            [
                (a, State::Cancelled),
                (b, State::Available),
                (running, State::Running)
            ]
        );
        let these = Filter::new().name("b").state(State::Scheduled);
        let none = these.clone().limit(0);
        assert!(all.retry_where(&none).await.unwrap().is_empty());
        assert_eq!(
            all.retry_where(&these).await.unwrap(),
            [(c, State::Available)]
        );

        let given = all.cancel(&[b, c]).await.unwrap();
        assert_eq!(given, [(b, State::Cancelled), (c, State::Cancelled)]);
        assert_eq!(all.redrive(&[c, JobId(4711)]).await.unwrap(), [c]);
        assert!(all.redrive(&[c]).await.unwrap().is_empty(), "it waits");
        let oldest = Filter::new().state(State::Cancelled).limit(1);
        assert_eq!(all.redrive_where(&oldest).await.unwrap(), [a]);
        assert_eq!(all.redrive_where(&Filter::new()).await.unwrap(), [b]);
        assert!(all.dead(&Filter::new()).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn operations_on_more_than_a_thousand_ids_apply_to_all() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    client
        .run(
            "SELECT posthaste.enqueue('x', scheduled_at => now() + interval '1 hour') \
             FROM generate_series(1, 1200)",
        )
        .await?;
    let mut all = jobs(&client);
    let ids: Vec<JobId> = (1..=1200).map(JobId).collect();
    let now = all.retry(&ids).await?;
    let is_available = |(_, state): &&(JobId, State)| *state == State::Available;
    assert_eq!(now.iter().filter(is_available).count(), 1200);
    assert_eq!(all.cancel(&ids).await?.len(), 1200);
    let sent = all.redrive_where(&Filter::new()).await?;
    assert_eq!(sent.len(), 1000, "unless the filter says otherwise");
    assert_eq!(all.redrive(&ids).await?.len(), 200);
    Ok(())
}

#[tokio::test]
async fn queue_settings_match_the_sql_functions() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let client = db.client().await.unwrap();
        let mut queues = jobs(&client);
        let name = "m'a\"i\\l \u{1F680}";
        let set = async || -> String {
            let row = "SELECT concat_ws(' ', coalesce(rate, 0), extract(epoch
                         FROM per), burst, extract(epoch FROM keep), paused_at IS NOT NULL)
                         FROM posthaste.queue WHERE name = $1";
            client.one_with(row, &[&name]).await.unwrap()
        };
        assert!(queues.pause(name).await.unwrap());
        assert!(!queues.pause(name).await.unwrap(), "it is paused already");
        assert_eq!(set().await, "0 t");
        assert!(queues.resume(name).await.unwrap());
        assert!(!queues.resume(name).await.unwrap(), "it was not paused");
        let rate = Rate::new(90, Duration::from_micros(60_000_001)).burst(3);
        queues.limit(name, Some(rate)).await.unwrap();
        assert_eq!(set().await, "90 60.000001 3 f");
        let yearly = Rate::new(i32::MAX as u32, Duration::from_secs(360 * 86_400));
        queues.limit(name, Some(yearly)).await.unwrap();
        assert_eq!(set().await, "2147483647 31104000.000000 2147483647 f");
        queues.limit(name, None).await.unwrap();
        assert_eq!(set().await, "0 f");
        let longest = Some(Duration::from_secs(3_660 * 86_400));
        assert!(queues.keep(name, longest).await.unwrap());
        assert!(!queues.keep(name, longest).await.unwrap(), "it was so");
        assert_eq!(set().await, "0 316224000.000000 f");
        assert!(queues.keep(name, None).await.unwrap());
        assert!(!queues.keep(name, None).await.unwrap(), "it was so");

        let hands = Hands::new(&client).await;
        let awaited = id_of(&client, "SELECT posthaste.enqueue('x')").await;
        let fence = hands.claim(&client, 1).await;
        let awaits = "ARRAY[4::smallint], NULL, NULL, ARRAY[now() + interval '1 hour'], NULL, NULL";
        fence.settle(&client, awaited, awaits).await;
        let found = queues.find(JobId(awaited)).await.unwrap().unwrap();
        assert_eq!(found.state, State::Awaiting);
        assert!(queues.confirm(found.delivery_id).await.unwrap());
        assert!(!queues.confirm(Uuid::new_v4()).await.unwrap());
        let found = queues.find(JobId(awaited)).await.unwrap().unwrap();
        assert_eq!(found.state, State::Completed);
    }
}

#[tokio::test]
async fn counters_are_exact_under_any_session_rounding() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    let mut all = jobs(&client);
    let none = all.counters().await?;
    assert!(none.jobs.is_empty() && none.oldest.is_empty());
    client
        .run(
            "SET extra_float_digits = -15; SET timezone = 'Asia/Kathmandu';
             SELECT posthaste.enqueue('it''s', tag => '\\\"', queue => 'q', priority => -7)
               FROM generate_series(1, 3);
             SELECT posthaste.enqueue('later', scheduled_at => now() + interval '1 hour');
             SELECT posthaste.enqueue('late', scheduled_at => now() - interval '12345.678901 s')",
        )
        .await?;
    let found = all.counters().await?;
    let listed: Vec<_> = found
        .jobs
        .iter()
        .map(|of| (&*of.queue, &*of.name))
        .collect();
    assert_eq!(
        listed,
        [("default", "late"), ("default", "later"), ("q", "it's")]
    );
    let quoted = &found.jobs[2];
    assert_eq!((&*quoted.tag, quoted.priority), ("\\\"", -7));
    let numbers = (quoted.available, quoted.scheduled, found.jobs[1].scheduled);
    assert_eq!(numbers, (3, 0, 1));
    // Enqueued just now, although it was due long before.
    let since = microseconds(&client, "since", "posthaste.oldest() WHERE queue = 'q'").await;
    let oldest = &found.oldest[1];
    assert_eq!((&*oldest.queue, oldest.is_worked), ("q", false));
    assert_eq!(oldest.since.as_microsecond(), since);
    let fits = |seconds: f64| seconds > 0.0 && seconds < 600.0;
    assert!(fits(oldest.seconds), "{oldest:?}");
    let whole = (oldest.seconds * 1e6) as i64 % 1000;
    let again = all.counters().await?.oldest[1].seconds;
    assert!(whole != 0 || (again * 1e6) as i64 % 1000 != 0, "{again}");
    Ok(())
}
