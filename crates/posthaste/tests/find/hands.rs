//! A worker that a test plays with statements.

use posthaste_testkit::Sql as _;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::hand;
/// Returns the one number of a statement, usually a job's id.
pub use crate::support::number as id_of;

/// A worker that claims and closes by statements.
pub struct Hands {
    pub id: i64,
}

/// The fence of a claim.
pub struct Fence {
    pub slot: i16,
    pub batch: i64,
    pub token: Uuid,
}

impl Hands {
    pub async fn new(client: &Client) -> Self {
        Self {
            id: hand(client).await,
        }
    }

    pub async fn claim(&self, client: &Client, limit: i32) -> Fence {
        self.claim_from(client, "default", limit).await
    }

    pub async fn claim_from(&self, client: &Client, queue: &str, limit: i32) -> Fence {
        let token = Uuid::new_v4();
        let row = client
            .query(
                "SELECT slot, batch FROM posthaste.claim($1, '{0}', $2, $3, $4, 1000000)",
                &[&queue, &self.id, &token, &limit],
            )
            .await
            .unwrap();
        Fence {
            slot: row[0].get(0),
            batch: row[0].get(1),
            token,
        }
    }

    /// Declares the worker dead.
    pub async fn die(&self, client: &Client) {
        let rescue = "SELECT posthaste.rescue(id, beat) FROM posthaste.worker WHERE id = $1";
        let rescued: i64 = client.one_with(rescue, &[&self.id]).await.unwrap();
        assert_eq!(rescued, 1);
    }
}

impl Fence {
    /// Settles a job; `rest` has the kinds and all later arguments.
    pub async fn settle(&self, client: &Client, id: i64, rest: &str) {
        let settle = format!("SELECT posthaste.settle($1, $2, $3, ARRAY[$4::bigint], {rest})");
        let closed: Vec<i64> = client
            .one_with(&settle, &[&self.slot, &self.batch, &self.token, &id])
            .await
            .unwrap();
        assert_eq!(closed, [id]);
    }
}
