//! What a statement of a crate beside this one is bound to: values that know their types, so that
//! statements need no names and pass through a pooler in transaction mode.
//!
//! ```no_run
//! # async fn example(client: tokio_postgres::Client) -> Result<(), tokio_postgres::Error> {
//! use posthaste::sql::typed;
//!
//! let rows = client.query_typed("SELECT $1 + 1", &typed(&[&41_i64])).await?;
//! # Ok(()) }
//! ```

pub use crate::json_text::JsonText;
pub use crate::store::milliseconds;
pub use crate::store::parameter::{Kind, Parameter, typed};
pub use crate::store::prose::Prose;
