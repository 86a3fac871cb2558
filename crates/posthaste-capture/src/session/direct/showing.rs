//! Records the path of events in the store, for operators. Neither sending nor marks wait for it.

use std::time::Instant;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{DirectRun, LAST_ANSWER_TIMEOUT};
use crate::capture::State;
use crate::error::Error;
use crate::session::STATUS_INTERVAL;
use crate::store::Store;

/// The path of events, and why it is not direct.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ShownPath {
    path: &'static str,
    problem: Option<String>,
}

/// What the store shows, and the write that changes it. There is one at a time, on a separate
/// connection, because other sessions may lock the row for long.
pub(super) struct PathDisplay {
    wanted: ShownPath,
    /// `None` after a failed write, which may have been committed.
    shown: Option<ShownPath>,
    writing: JoinSet<Result<ShownPath, Error>>,
    begun_at: Option<Instant>,
}

impl PathDisplay {
    /// The store shows the path of this state.
    pub(super) fn new(state: State) -> Self {
        let path = state.path_name();
        let shown = ShownPath {
            path,
            problem: None,
        };
        Self {
            wanted: shown.clone(),
            shown: Some(shown),
            writing: JoinSet::new(),
            begun_at: None,
        }
    }

    /// Keeps the last problem until events are sent directly.
    fn set_wanted(&mut self, state: State, problem: Option<String>) {
        let path = state.path_name();
        let problem = problem.or_else(|| self.wanted.problem.take());
        self.wanted = ShownPath {
            path,
            problem: problem.filter(|_| path != State::Direct.path_name()),
        };
    }

    fn is_stale(&self) -> bool {
        self.writing.is_empty() && self.shown.as_ref() != Some(&self.wanted)
    }

    fn is_due(&self) -> bool {
        self.begun_at
            .is_none_or(|at| at.elapsed() >= STATUS_INTERVAL)
    }

    async fn wait_until_written(&mut self) {
        if let Some(written) = self.writing.join_next().await {
            self.shown = written.ok().and_then(Result::ok);
        }
    }
}

impl DirectRun<'_, '_> {
    /// Begins to record the path if it has changed, at most once a second.
    pub(super) fn show_path(&mut self) {
        let (state, problem) = {
            let status = self.session.shared.status();
            let is_waiting = status.state == State::Waiting;
            let problem = is_waiting.then(|| status.last_error.clone().unwrap_or_default());
            (status.state, problem)
        };
        self.display.set_wanted(state, problem);
        if let Some(written) = self.display.writing.try_join_next() {
            self.display.shown = written.ok().and_then(Result::ok);
        }
        if self.display.is_stale() && self.display.is_due() {
            self.begin_record();
        }
    }

    fn begin_record(&mut self) {
        let (database, runner) = (self.session.database.clone(), self.session.reader.runner);
        let (name, wanted) = (
            self.session.capture.name.clone(),
            self.display.wanted.clone(),
        );
        self.display.begun_at = Some(Instant::now());
        self.display.writing.spawn(async move {
            let recorded = async {
                let store = Store::open(&database, &name).await?;
                let problem = wanted.problem.as_deref();
                store.set_path(runner, wanted.path, problem).await
            };
            match recorded.await {
                Ok(()) => Ok(wanted),
                Err(error) => {
                    tracing::debug!(capture = %name, %error, "the path is not recorded");
                    Err(error)
                }
            }
        });
    }

    /// Records the last path, unless the store does not answer.
    pub(super) async fn finish_showing(&mut self) {
        let finish = async {
            self.display.wait_until_written().await;
            if self.display.is_stale() {
                self.begin_record();
            }
            self.display.wait_until_written().await;
        };
        // Only operators read it.
        let _ = timeout(LAST_ANSWER_TIMEOUT, finish).await;
    }
}
