//! Takes samples for charts while no worker takes them.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use deadpool_postgres::Pool;

use crate::app::App;
use crate::store;

/// Shortest time between two attempts to take the sample of the current minute.
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_secs(10);

/// Takes samples while the console runs, unless all users are read-only. Without a Tokio runtime no
/// samples are taken.
pub(crate) fn start(app: &Arc<App>) {
    if !app.settings.lets_anybody_act() {
        return;
    }
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(take_samples(Arc::downgrade(app)));
    }
}

async fn take_samples(app: Weak<App>) {
    while let Some(pool) = app.upgrade().map(|app| app.pool.clone()) {
        let started = Instant::now();
        take_sample(&pool).await;
        drop(pool);
        // If counting is slow, it takes at most a fiftieth of the time.
        tokio::time::sleep(MIN_SAMPLE_INTERVAL.max(started.elapsed() * 50)).await;
    }
}

/// Takes a sample. Errors are only logged: pages report problems of the database, and a missing
/// sample is a gap in a chart.
async fn take_sample(pool: &Pool) {
    if let Err(error) = store::take_sample(pool).await {
        tracing::debug!(%error, "no sample could be taken");
    }
}
