//! Captures that an operator paused, and the reported lag.

use posthaste_capture::{PauseOutcome, State, list_captures, pause, resume};
use posthaste_testkit::{PgVersion, eventually};

use super::world::{OUTBOX, SOON, World, outbox};

#[tokio::test]
async fn paused_captures_capture_nothing_until_they_are_resumed() {
    for version in PgVersion::tried() {
        let world = World::new(version, &[]).await;
        world.sql(OUTBOX).await;
        let capture = outbox();
        world.install(&capture).await;
        let running = world.start(&capture);
        world
            .sql("INSERT INTO outbox (payload) VALUES ('one')")
            .await;
        world.until_captured(1).await;
        assert_eq!(
            pause(&world.client, "all").await.unwrap(),
            PauseOutcome::Changed
        );
        assert_eq!(
            pause(&world.client, "all").await.unwrap(),
            PauseOutcome::Unchanged
        );
        let is_paused = async || Ok(running.status().state == State::Paused);
        eventually(SOON, "it is paused", is_paused).await.unwrap();
        world
            .sql("INSERT INTO outbox (payload) VALUES ('two')")
            .await;
        let once = world.catch_up(&capture).await.unwrap_err();
        assert!(once.is_paused(), "{once}");
        assert_eq!(world.bodies().await, ["one"]);
        let seen = list_captures(&world.client).await.unwrap().remove(0);
        assert_eq!((seen.state(), seen.is_active), ("paused", false));
        assert_eq!(
            resume(&world.client, "all").await.unwrap(),
            PauseOutcome::Changed
        );
        world.until_captured(2).await;
        assert_eq!(world.bodies().await, ["one", "two"]);
        assert_eq!(
            resume(&world.client, "none").await.unwrap(),
            PauseOutcome::NoCapture
        );
    }
}

#[tokio::test]
async fn status_counts_events_and_measures_lag_from_the_log() {
    let world = World::new(PgVersion::any(), &[]).await;
    world.sql(OUTBOX).await;
    let capture = outbox();
    world.install(&capture).await;
    world
        .sql("INSERT INTO outbox (payload) VALUES ('one'), ('two')")
        .await;
    world.catch_up(&capture).await.unwrap();
    world
        .sql("INSERT INTO outbox (payload) VALUES ('three')")
        .await;
    world.catch_up(&capture).await.unwrap();
    let seen = list_captures(&world.client).await.unwrap().remove(0);
    assert_eq!(seen.events, 3);
    assert!(seen.bytes > 300, "{}", seen.bytes);
    // No process runs it: everything committed up to an hour ago is captured, and nothing is known
    // about later commits.
    world
        .sql(
            "UPDATE posthaste.capture_mark_0 SET at = at - interval '1 hour';
              SELECT pg_logical_emit_message(true, 'a', repeat('x', 1000))",
        )
        .await;
    let seen = list_captures(&world.client).await.unwrap().remove(0);
    let lag = seen.lag_seconds.unwrap();
    assert!((3_600.0..4_000.0).contains(&lag), "{lag}");
    let running = world.start(&capture);
    world
        .sql("INSERT INTO outbox (payload) VALUES ('four')")
        .await;
    world.until_captured(4).await;
    let seen = list_captures(&world.client).await.unwrap().remove(0);
    assert_eq!(running.status().state, State::Running);
    assert_eq!((seen.events, seen.lag_seconds), (4, Some(0.0)));
}
