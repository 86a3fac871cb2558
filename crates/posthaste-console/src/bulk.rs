//! Actions on all jobs that a filter selects. They are stored in the database and processed in
//! batches.

mod batch;
mod driver;
mod pace;

pub(crate) use driver::Driver;
