//! Actions on all jobs that a filter names: kept in the database, and worked on batch by batch.

mod batch;
mod driver;
mod pace;

pub(crate) use driver::Driver;
