//! The console's queries: in short transactions, with every name qualified.

mod bulk;
mod bulk_jobs;
mod captures;
mod error;
mod given_up;
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
    NewAction, begin_action, begin_batch, continue_action, due_actions, fail_action, read_action,
    read_actions, record_batch, stop_action,
};
pub(crate) use bulk_jobs::{being_cancelled, next_given_up, quarantined_below, tried_since};
pub(crate) use captures::{accept_gap, pause_capture, read_gaps};
pub(crate) use error::StoreError;
pub(crate) use given_up::{
    LastError, already_cancelled, count_given_up, delete_given_up, delete_jobs, last_errors,
};
pub(crate) use list::{
    JobRow, all_places, has_more_claims, read_by_id, read_completed, read_due, read_given_up,
    read_slot,
};
pub(crate) use order::{Waiting, waiting_for_turn};
pub(crate) use periodic::{Periodic, read_periodic, run_periodic, switch_periodic};
pub(crate) use samples::{read_samples, take_sample};
pub(crate) use server::{Installation, SchemaStep, SegmentLog, read_installation};
pub(crate) use session::Session;
pub(crate) use snapshot::read as read_snapshot;
pub(crate) use synced::{AuditResult, Synced, begin_reindex, plan_reindex, read_lags, read_syncs};
pub(crate) use tables::{DeadRows, enqueuing_pids, read_dead_rows};
pub(crate) use workers::{EndedWorker, read_ended_workers, running_by_worker};
