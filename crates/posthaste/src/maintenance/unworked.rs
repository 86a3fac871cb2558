//! Logs queues that have jobs and no worker: a mistyped name has no other symptom.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::attempt;
use crate::store::reconnecting::ReconnectingClient;

/// How long a job waits in such a queue before a line is logged, and the time between two lines.
const MIN_LOGGED_WAIT: Duration = Duration::from_secs(10);
const WARNING_INTERVAL: Duration = Duration::from_secs(600);

/// Queues without a worker, and when each was logged.
#[derive(Default)]
pub(super) struct UnworkedQueues(HashMap<String, Instant>);

impl UnworkedQueues {
    pub(super) async fn log(&mut self, link: &ReconnectingClient) {
        for one in attempt!(link, read_unworked_queues(MIN_LOGGED_WAIT)).unwrap_or_default() {
            let logged = self.0.get(&one.queue);
            if logged.is_some_and(|logged| logged.elapsed() < WARNING_INTERVAL) {
                continue;
            }
            tracing::warn!(
                queue = &*one.queue,
                waited = one.seconds as u64,
                "jobs wait in a queue that no worker serves"
            );
            self.0.insert(one.queue, Instant::now());
        }
        self.0
            .retain(|_, logged| logged.elapsed() < WARNING_INTERVAL);
    }
}
