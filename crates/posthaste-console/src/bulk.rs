//! Actions on all jobs that a filter names: kept in the database, and worked on batch by batch.

mod action;
mod batch;
mod driver;
mod pace;

pub(crate) use action::{Action, Kind, Moved, Progress};
pub(crate) use batch::Step;
pub(crate) use driver::Driver;
