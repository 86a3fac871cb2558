//! State that the loops of a worker process share, each with one purpose. Nothing here depends on a
//! loop.

pub(crate) mod admission;
pub(crate) mod doubted;
pub(crate) mod failing_endpoints;
pub(crate) mod gate;
pub(crate) mod notifications;
pub(crate) mod oldest_unanswered;
pub(crate) mod outstanding;
pub(crate) mod poll_pause;
pub(crate) mod pulse;
pub(crate) mod queue;
pub(crate) mod watched;
