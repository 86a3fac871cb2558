//! Logs queues that have jobs and no worker: a mistyped name has no other symptom.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::attempt;
use crate::store::reconnecting::ReconnectingClient;

/// How long a job waits in such a queue before a line is logged, and the time between two lines.
const WAITED: Duration = Duration::from_secs(10);
const WARN_AGAIN: Duration = Duration::from_secs(600);

/// Queues without a worker, and when each was logged.
#[derive(Default)]
pub(super) struct Unworked(HashMap<String, Instant>);

impl Unworked {
    pub(super) async fn log(&mut self, link: &ReconnectingClient) {
        for one in attempt!(link, unworked(WAITED)).unwrap_or_default() {
            let logged = self.0.get(&one.queue);
            if logged.is_some_and(|logged| logged.elapsed() < WARN_AGAIN) {
                continue;
            }
            tracing::warn!(
                queue = &*one.queue,
                waited = one.seconds as u64,
                "jobs wait in a queue that no worker serves"
            );
            self.0.insert(one.queue, Instant::now());
        }
        self.0.retain(|_, logged| logged.elapsed() < WARN_AGAIN);
    }
}
