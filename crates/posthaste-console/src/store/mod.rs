//! What the console asks the database: in transactions of their own that end soon, with every name
//! qualified.

mod error;
mod list;
mod session;
mod snapshot;

pub(crate) use error::StoreError;
pub(crate) use list::{JobRow, kept, kept_count, numbered, places, slot};
pub(crate) use session::Session;
pub(crate) use snapshot::read as read_snapshot;
