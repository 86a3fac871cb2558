//! Jobs that end for good in no worker's hands: they expired, their worker died for the last time,
//! or nobody confirmed them. Each is a line of the leader's, or many of them one. As good as can be
//! had cheaply: what ended while nobody led, or was committed late, has none, and what ended by a
//! clock that was ahead may have two.

use super::attempt;
use crate::store::reconnecting::ReconnectingClient;

/// Of one queue, name and reason, this many have lines of their own; more have one together.
const FEW: i64 = 5;

/// How far they are logged.
#[derive(Default)]
pub(super) struct Deaths {
    /// By the server's clock, in microseconds.
    until: Option<i64>,
}

impl Deaths {
    pub(super) async fn log(&mut self, link: &ReconnectingClient) {
        let Some((until, deaths)) = attempt!(link, deaths(self.until, FEW)) else {
            return;
        };
        self.until = Some(until);
        for death in deaths {
            let (state, queue, name) = (&*death.state, &*death.queue, &*death.name);
            let error = death.error.as_deref();
            match death.jobs {
                ..=FEW => tracing::warn!(
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
