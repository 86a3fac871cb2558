//! Logs jobs that ended for good without a worker: they expired, their worker died in the last
//! attempt, or they were not confirmed. The leader logs a line for each, or one for many. This is
//! best effort: jobs that ended while there was no leader, or whose transaction committed late, are
//! not logged, and jobs that ended by a clock that was ahead may be logged twice.

use super::attempt;
use crate::store::reconnecting::ReconnectingClient;

/// The most jobs of one queue, name and reason that are logged one by one; more share one line.
const MAX_LOGGED_ALONE: i64 = 5;

/// The time up to which deaths are logged.
#[derive(Default)]
pub(super) struct DeadJobs {
    /// By the server's clock, in microseconds.
    until: Option<i64>,
}

impl DeadJobs {
    pub(super) async fn log(&mut self, link: &ReconnectingClient) {
        let Some((until, deaths)) = attempt!(link, read_deaths(self.until, MAX_LOGGED_ALONE))
        else {
            return;
        };
        self.until = Some(until);
        for death in deaths {
            let (state, queue, name) = (&*death.state, &*death.queue, &*death.name);
            let error = death.error.as_deref();
            match death.jobs {
                ..=MAX_LOGGED_ALONE => tracing::warn!(
                    job = death.job,
                    name,
                    queue,
                    attempt = death.attempt,
                    error,
                    "a job {state} while no worker held it"
                ),
                jobs => tracing::warn!(
                    jobs,
                    name,
                    queue,
                    error,
                    "jobs {state} while no worker held them"
                ),
            }
        }
    }
}
