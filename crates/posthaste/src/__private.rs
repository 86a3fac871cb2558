//! Items for the crates of this repository only: not part of the public interface, and subject to
//! change in any version.

pub use crate::database::replication::{Replication, ReplicationLogin, ReplicationStream};
pub use crate::enqueue::copy::enqueue_copy_by_client;
pub use crate::error::{MIGRATE, NOT_INSTALLED, OR_CALL, READ_ONLY, chain, panic_text};
pub use crate::job::{Event, IllegalTransition, is_traceparent, next};
pub use crate::json_text::JsonText;
pub use crate::log_limit::{FEW, LogLimit};
pub use crate::maintenance::duties::{DUTIES, Duty};
pub use crate::settings::lacks_feature;
pub use crate::store::copied_database::{SiteRefusal, site_refusal};
pub use crate::store::direct_connection::is_direct;
pub use crate::store::holders::{holders, transactions};
pub use crate::store::migrate::migrations_sql_with_mutations;
pub use crate::store::milliseconds;
pub use crate::store::parameter::{Kind, Parameter, typed};
pub use crate::store::prose::Prose;

/// HTTP requests, as handlers and relays make them.
#[cfg(feature = "http")]
pub mod http {
    pub use crate::http::{
        Asked, Blame, Faults, KeepAlive, NO_FILES, OURS, OpenRequest, Turns, Verdict, address,
        client, describe, headers, lacks_files, quarter_of_descriptors, verdict,
    };
}
