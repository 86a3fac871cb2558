//! The console's queries: in short transactions, with every name qualified.

mod bulk;
mod bulk_jobs;
mod captures;
mod error;
mod kept;
mod list;
mod order;
mod periodic;
mod samples;
mod server;
mod session;
mod snapshot;
mod synced;
mod tables;
mod workers;

pub(crate) use bulk::{
    Begun, action, actions, advance, begin_action, begin_batch, continue_action, due_actions,
    fail_action, stop_action,
};
pub(crate) use bulk_jobs::{being_cancelled, next_kept, quarantined, tried_since};
pub(crate) use captures::{accept_gap, gaps, pause_capture};
pub(crate) use error::StoreError;
pub(crate) use kept::{
    LastError, cancelled_before, delete_jobs, delete_kept, kept_count, last_errors,
};
pub(crate) use list::{JobRow, due, finished, has_more_claims, kept, numbered, places, slot};
pub(crate) use order::{Waiting, waiting_for_turn};
pub(crate) use periodic::{Periodic, periodic, run_periodic, switch_periodic};
pub(crate) use samples::{samples, take_sample};
pub(crate) use server::{Installed, Log, Step, installed};
pub(crate) use session::Session;
pub(crate) use snapshot::read as read_snapshot;
pub(crate) use synced::{Audited, Synced, begin_reindex, behind, plan_reindex, synced};
pub(crate) use tables::{DeadRows, dead_rows, enqueuing};
pub(crate) use workers::{Ended, ended_workers, running_by_worker};
