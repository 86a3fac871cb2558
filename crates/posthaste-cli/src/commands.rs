//! One module per command: its arguments and its implementation.

pub(crate) mod adopt;
pub(crate) mod alerts;
pub(crate) mod capture;
pub(crate) mod completions;
pub(crate) mod console;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod exporter;
pub(crate) mod health;
pub(crate) mod init;
pub(crate) mod jobs;
pub(crate) mod manual;
pub(crate) mod migrate;
pub(crate) mod queues;
pub(crate) mod rebase;
pub(crate) mod relay;
pub(crate) mod status;
pub(crate) mod sync;
pub(crate) mod top;
pub(crate) mod two_phase;
pub(crate) mod txwatch;
pub(crate) mod up;
pub(crate) mod work;
