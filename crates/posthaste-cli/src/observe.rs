//! What is to be seen of a database and of a process: read at a bounded rate, written for
//! Prometheus, served over HTTP.

pub(crate) mod alerts;
mod collector;
mod exposition;
mod labels;
mod listen;
mod recorder;
mod snapshot;
pub(crate) mod untold;

pub(crate) use collector::Collector;
pub(crate) use labels::Asked;
pub(crate) use listen::{Listen, Served};
