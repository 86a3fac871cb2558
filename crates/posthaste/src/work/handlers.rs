//! The handlers of a worker by the names of their jobs, with their settings and layers.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Polled, Poll};
use std::time::Duration;

use super::context::Context;
use crate::config;
use crate::handler::HandlerResult;
use crate::job::Job;
use crate::retry::Backoff;

type Running = Pin<Box<dyn Future<Output = HandlerResult> + Send>>;
type Handle = Box<dyn Fn(Context, Arc<Job>) -> Running + Send + Sync>;
type Layer = Box<dyn Fn(Context, Next) -> Running + Send + Sync>;

/// The rest of a run, as passed to a [layer](crate::WorkerBuilder::layer): the inner layers and the
/// handler. It starts when it is first awaited, and never if it is dropped before.
pub struct Next(Running);

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Next")
    }
}

impl Future for Next {
    type Output = HandlerResult;

    fn poll(mut self: Pin<&mut Self>, polled: &mut Polled<'_>) -> Poll<HandlerResult> {
        self.0.as_mut().poll(polled)
    }
}

/// Settings of one handler that override those of its queue.
#[derive(Clone, Copy, Default)]
pub(crate) struct HandlerSettings {
    pub(crate) timeout: Option<Duration>,
    pub(crate) backoff: Option<Backoff>,
    pub(crate) concurrency: Option<usize>,
}

struct Handler {
    pattern: String,
    handle: Handle,
    settings: HandlerSettings,
}

/// The index of a handler of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct HandlerId(usize);

/// Handlers by job name or by prefix of a job name.
#[derive(Default)]
pub(crate) struct Handlers {
    all: Vec<Handler>,
    exact: HashMap<String, HandlerId>,
    /// Prefixes, the longest first.
    prefixes: Vec<(String, HandlerId)>,
    /// Layers, the outermost first.
    layers: Vec<Layer>,
    /// The first invalid call; the start fails with it.
    problem: Option<String>,
}

impl Handlers {
    pub(crate) fn add<F, R>(&mut self, pattern: String, handler: F)
    where
        F: Fn(Context, Arc<Job>) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult> + Send + 'static,
    {
        let which = HandlerId(self.all.len());
        let is_known = match pattern.strip_suffix('*') {
            Some(prefix) => {
                let is_known = self.prefixes.iter().any(|(other, _)| other == prefix);
                self.prefixes.push((prefix.to_owned(), which));
                self.prefixes
                    .sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
                is_known
            }
            None => self.exact.insert(pattern.clone(), which).is_some(),
        };
        if is_known {
            self.record_problem(format!("there are two handlers for {pattern:?}: give one"));
        }
        self.all.push(Handler {
            pattern,
            handle: Box::new(move |context, job| Box::pin(handler(context, job))),
            settings: HandlerSettings::default(),
        });
    }

    pub(crate) fn layer<F, R>(&mut self, layer: F)
    where
        F: Fn(Context, Next) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult> + Send + 'static,
    {
        let layer: Layer = Box::new(move |context, next| Box::pin(layer(context, next)));
        self.layers.push(layer);
    }

    /// Changes the settings of the handler that was added last.
    pub(crate) fn change_last(&mut self, setting: &str, set: impl FnOnce(&mut HandlerSettings)) {
        match self.all.last_mut() {
            Some(last) => set(&mut last.settings),
            None => self.record_problem(format!(
                "{setting} precedes every handler: call it after one"
            )),
        }
    }

    fn record_problem(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }

    pub(crate) fn get(&self, name: &str) -> Option<HandlerId> {
        let exact = self.exact.get(name).copied();
        exact.or_else(|| {
            let mut prefixes = self.prefixes.iter();
            prefixes
                .find(|(prefix, _)| name.starts_with(prefix))
                .map(|(_, which)| *which)
        })
    }

    pub(crate) fn settings(&self, which: HandlerId) -> HandlerSettings {
        self.all[which.0].settings
    }

    /// Runs a handler within all layers.
    pub(crate) async fn run(
        self: &Arc<Self>,
        which: HandlerId,
        context: Context,
        job: Arc<Job>,
    ) -> HandlerResult {
        if self.layers.is_empty() {
            return (self.all[which.0].handle)(context, job).await;
        }
        let (handlers, innermost) = (Arc::clone(self), context.clone());
        let handled = async move { (handlers.all[which.0].handle)(innermost, job).await };
        let layers = self.layers.iter().rev();
        let run = layers.fold(Next(Box::pin(handled)), |next, layer| {
            Next(layer(context.clone(), next))
        });
        run.await
    }

    /// Returns the longest timeout that any handler has set.
    pub(crate) fn longest_timeout(&self) -> Option<Duration> {
        let settings = self.all.iter().map(|handler| handler.settings);
        settings.filter_map(|settings| settings.timeout).max()
    }

    /// Whether a handler has a concurrency limit.
    pub(crate) fn are_limited(&self) -> bool {
        let mut all = self.all.iter();
        all.any(|handler| handler.settings.concurrency.is_some())
    }

    /// Fails if a call or a setting is invalid; the error is a sentence.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        self.all.iter().try_for_each(Handler::check)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl Handler {
    fn check(&self) -> Result<(), String> {
        let (name, shortest) = match self.pattern.strip_suffix('*') {
            Some(prefix) => (prefix, 0),
            None => (&*self.pattern, 1),
        };
        config::check_text("a handler's name", name, shortest)?;
        let of_this = |problem| format!("the handler for {:?}: {problem}", self.pattern);
        let HandlerSettings {
            timeout,
            backoff,
            concurrency,
        } = self.settings;
        if concurrency == Some(0) {
            return Err(of_this("concurrency must be at least 1".into()));
        }
        let times = [
            ("timeout", timeout),
            ("backoff.base", backoff.map(|backoff| backoff.base)),
            ("backoff.cap", backoff.map(|backoff| backoff.cap)),
        ];
        times.into_iter().try_for_each(|(setting, time)| {
            time.map_or(Ok(()), |time| config::check_positive(setting, time))
                .map_err(of_this)
        })
    }
}
