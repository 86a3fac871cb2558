//! Scheduled slots are rotated and truncated while a session pins the horizon; waiting jobs are
//! carried over unchanged.

use posthaste_testkit::PgVersion;

use super::on_both;
use crate::stress::store::Store;
use crate::support;

on_both! {
    space_is_bounded =>
        scheduled_jobs_use_bounded_space_under_a_pinned_horizon_on_15,
        scheduled_jobs_use_bounded_space_under_a_pinned_horizon_on_18;
}

const ROUNDS: usize = 24;
const EACH: i32 = 400;
const FAR: &str = "SELECT coalesce(string_agg(id || ' ' || scheduled_at || ' ' || state, ',' \
                   ORDER BY id), '') FROM posthaste.job WHERE name = 'far'";
const SIZE: &str = "SELECT sum(pg_total_relation_size(format('posthaste.scheduled_%s', \
                    k)::regclass) + pg_total_relation_size(format('posthaste.promote_cursor_%s', \
                    k)::regclass))::bigint FROM generate_series(6, 7) k";

async fn space_is_bounded(version: PgVersion) -> anyhow::Result<()> {
    let database = support::database(version).await;
    let (store, pin) = (
        Store::new(database.url()).await?,
        Store::new(database.url()).await?,
    );
    pin.say("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
        .await?;
    let horizon = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text";
    let pinned: String = pin.value(horizon, &[]).await?;
    for day in 1..=50 {
        store.enqueue("far", day * 86_400_000).await?;
    }
    let far: String = store.value(FAR, &[]).await?;
    let mut sizes: Vec<i64> = Vec::new();
    for _ in 0..ROUNDS {
        store
            .client
            .execute(
                "INSERT INTO posthaste.job (name, scheduled_at) \
                 SELECT 'soon', clock_timestamp() + interval '20 ms' FROM generate_series(1, $1)",
                &[&EACH],
            )
            .await?;
        store.until(&store.clock(30).await?).await?;
        store.promote(1_000).await?;
        let due = store.claim_all().await?;
        assert_eq!(due.len(), usize::try_from(EACH)?, "what is due comes once");
        store.tidy_scheduled(i64::from(EACH)).await?;
        sizes.push(store.value(SIZE, &[]).await?);
    }
    assert!(
        store.position("scheduled_low").await? >= 4,
        "the slots are not rotated: {sizes:?}"
    );
    let (early, late) = sizes.split_at(ROUNDS / 2);
    assert!(
        late.iter().max() <= early.iter().max().map(|most| most * 3 / 2).as_ref(),
        "space grows although as much waits as ever: {sizes:?}"
    );
    assert_eq!(
        store.value::<String>(FAR, &[]).await?,
        far,
        "what was carried over has changed"
    );
    assert_eq!(
        pin.value::<String>(horizon, &[]).await?,
        pinned,
        "the horizon was not held"
    );
    pin.say("COMMIT").await
}

/// With many concurrent writers each poll leaves a window, even if no job is due.
#[tokio::test]
async fn empty_windows_are_removed() -> anyhow::Result<()> {
    let database = support::database(PgVersion::any()).await;
    let store = Store::new(database.url()).await?;
    store.enqueue("far", 86_400_000).await?;
    store.promote(1_000).await?;
    let slot = "SELECT max(k)::int FROM generate_series(6, 7) k
                 WHERE pg_relation_size(format('posthaste.promote_cursor_%s', k)) > 0";
    let slot: i32 = store.value(slot, &[]).await?;
    let many = format!(
        "INSERT INTO posthaste.promote_cursor_{slot}
         SELECT (jsonb_populate_record(c, '{{\"page\": 5000}}')).*
           FROM posthaste.promote_cursor_{slot} c ORDER BY c.page DESC LIMIT 1"
    );
    store.say(&many).await?;
    let before = store.position("scheduled_current").await?;
    store.tidy_scheduled(5_000).await?;
    assert_eq!(store.position("scheduled_current").await?, before + 1);
    Ok(())
}

/// Jobs with incompressible arguments of 100 kB.
fn large(name: &str, jobs: i32, due: &str) -> String {
    format!(
        "INSERT INTO posthaste.job (name, scheduled_at, kwargs)
         SELECT '{name}', clock_timestamp() + interval '{due}', jsonb_build_object('a', (
           SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 3125 + 0 * i)))
           FROM generate_series(1, {jobs}) i"
    )
}

/// Promotes and claims all jobs that are due within a moment, and returns whether a segment begins.
async fn tidied(store: &Store) -> anyhow::Result<String> {
    store.until(&store.clock(30).await?).await?;
    store.promote(1_000).await?;
    store.claim_all().await?;
    let tidy = "SELECT o_state FROM posthaste.tidy_scheduled(100000, 1 << 20)";
    store.value(tidy, &[]).await
}

#[tokio::test]
async fn a_few_large_spent_jobs_start_a_new_segment() -> anyhow::Result<()> {
    for (waiting, state) in [
        (large("far", 3, "1 day"), "rotated"),
        // More rows than are dead, and fewer bytes.
        (
            "INSERT INTO posthaste.job (name, scheduled_at)
             SELECT 'far', now() + interval '1 day' FROM generate_series(1, 2000)"
                .to_owned(),
            "rotated",
        ),
        // Carrying these over would cost more than it gains.
        (large("far", 60, "1 day"), "none"),
    ] {
        let database = support::database(PgVersion::any()).await;
        let store = Store::new(database.url()).await?;
        store.say(&waiting).await?;
        assert_eq!(tidied(&store).await?, "none", "nothing is spent");
        store.say(&large("soon", 20, "20 ms")).await?;
        assert_eq!(tidied(&store).await?, state, "{waiting}");
    }
    Ok(())
}
