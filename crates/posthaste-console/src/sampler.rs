//! Takes samples for charts while no worker does.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use deadpool_postgres::Pool;

use crate::app::App;
use crate::store;

/// How often it is checked whether the sample of this minute is still to be taken.
const EVERY: Duration = Duration::from_secs(10);

/// Takes samples as long as the console runs, unless it is read-only for all. Without a runtime
/// nobody does.
pub(crate) fn begin(app: &Arc<App>) {
    if !app.settings.lets_anybody_act() {
        return;
    }
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(run(Arc::downgrade(app)));
    }
}

async fn run(app: Weak<App>) {
    while let Some(pool) = app.upgrade().map(|app| app.pool.clone()) {
        let started = Instant::now();
        take(&pool).await;
        drop(pool);
        // Where counting is slow it takes a fiftieth of the time.
        tokio::time::sleep(EVERY.max(started.elapsed() * 50)).await;
    }
}

/// Pages say what is the matter with a database; a sample that is missing is a gap of a chart.
async fn take(pool: &Pool) {
    if let Err(error) = store::take_sample(pool).await {
        tracing::debug!(%error, "no sample could be taken");
    }
}
