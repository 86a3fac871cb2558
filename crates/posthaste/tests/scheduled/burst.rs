//! Many jobs due at once: they are promoted one page at a time, and claims are served in between.

use posthaste_testkit::PgVersion;

use super::on_both;
use crate::stress::store::Store;
use crate::support;

/// The page size of the library (src/maintenance/promoter.rs).
const PAGE: i32 = 5_000;

on_both! {
    a_burst_over_a_second =>
        claims_continue_while_a_hundred_thousand_jobs_are_promoted_on_15,
        claims_continue_while_a_hundred_thousand_jobs_are_promoted_on_18;
    a_burst_at_an_instant => many_jobs_due_at_one_instant_are_promoted_in_pages_on_15,
        many_jobs_due_at_one_instant_are_promoted_in_pages_on_18;
}

async fn park(store: &Store, jobs: i32, spread: &str) -> anyhow::Result<()> {
    store
        .client
        .execute(
            "INSERT INTO posthaste.job (name, queue, scheduled_at)
             SELECT 'burst', 'burst', now() + interval '30 s' + $2::text::interval * (i::float8 /
               $1) FROM generate_series(1, $1) i",
            &[&jobs, &spread],
        )
        .await?;
    // They become due: set as if the clock had advanced, which no test should have to wait for.
    store
        .say(
            "SELECT setval('posthaste.promote_horizon', (extract(epoch \
             FROM clock_timestamp() + interval '60 s') * 1000000)::bigint)",
        )
        .await
}

/// Promotes everything. In the middle of each page, while its transaction is open, enqueues and
/// claims on another queue. Returns the number of pages.
async fn promote_all(version: PgVersion, jobs: i32, spread: &str) -> anyhow::Result<i64> {
    let database = support::database(version).await;
    let (promoter, other) = (
        Store::new(database.url()).await?,
        Store::new(database.url()).await?,
    );
    park(&promoter, jobs, spread).await?;
    let (mut promoted, mut pages) = (0, 0);
    loop {
        promoter.say("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        let page: i64 = promoter
            .value("SELECT posthaste.promote($1, false)", &[&PAGE])
            .await?;
        other.enqueue("other", 0).await?;
        let served = other.claim(10).await?;
        assert_eq!(served.len(), 1, "nobody is served while a page is promoted");
        other.finish(&served).await?;
        promoter.say("COMMIT").await?;
        assert!(page <= i64::from(PAGE), "a page of {page}");
        if page == 0 {
            break;
        }
        promoted += page;
        pages += 1;
    }
    assert_eq!(promoted, i64::from(jobs), "each is promoted once");
    let ready: i64 = other
        .value(
            "SELECT count(DISTINCT id) FROM posthaste.store WHERE queue = 'burst' AND slot < 6",
            &[],
        )
        .await?;
    assert_eq!(ready, i64::from(jobs));
    posthaste_testkit::ran::count("promoted", promoted.unsigned_abs());
    Ok(pages)
}

async fn a_burst_over_a_second(version: PgVersion) -> anyhow::Result<()> {
    let pages = promote_all(version, 100_000, "1 s").await?;
    assert_eq!(pages, 20);
    Ok(())
}

async fn a_burst_at_an_instant(version: PgVersion) -> anyhow::Result<()> {
    let pages = promote_all(version, 50_000, "0 s").await?;
    assert_eq!(pages, 10);
    Ok(())
}
