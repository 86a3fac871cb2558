//! The engine: makes messages of claimed jobs, sends them, and settles each job by its answer.

pub(crate) mod background;
pub(crate) mod buffer;
pub(crate) mod builder;
pub(crate) mod health;
pub(crate) mod lease;
pub(crate) mod options;
pub(crate) mod prepare;
pub(crate) mod readers;
pub(crate) mod receiver_queues;
pub(crate) mod recent_reasons;
pub(crate) mod references;
pub(crate) mod relay;
pub(crate) mod send;
pub(crate) mod sender;
pub(crate) mod shared;
pub(crate) mod spans;
