//! A store without workers: the test advances ordering keys, and claims and closes jobs.

use posthaste::enqueue;
use posthaste_testkit::Sql as _;
use tokio_postgres::Client;
use uuid::Uuid;

use super::job;
use crate::support::{hand, number};

/// A store without workers.
pub(crate) struct Store {
    pub(crate) client: Client,
    worker: i64,
}

impl Store {
    pub(crate) async fn new(client: Client) -> Self {
        let worker = hand(&client).await;
        Self { client, worker }
    }

    pub(crate) async fn enqueue(&self, n: i64) -> i64 {
        enqueue(&self.client, &job("k", n)).await.unwrap().0
    }

    pub(crate) async fn turns(&self) -> i64 {
        self.number("SELECT posthaste.advance_ordering(1000)").await
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        number(&self.client, sql).await
    }

    /// Claims the one job that can be claimed now.
    pub(crate) async fn claim(&self) -> Option<Claimed> {
        let token = Uuid::new_v4();
        let rows = self
            .client
            .query(
                "SELECT slot, batch, id FROM posthaste.claim('default', '{0}', $1, $2, 100, \
                 1000000)",
                &[&self.worker, &token],
            )
            .await
            .unwrap();
        assert!(rows.len() < 2, "two of one key at once");
        rows.first().map(|row| Claimed {
            slot: row.get(0),
            batch: row.get(1),
            id: row.get(2),
            token,
        })
    }

    /// Closes a job: 0 done, 1 retried at once, 2 dead, 4 awaiting, 8 given back.
    pub(crate) async fn settle(&self, job: &Claimed, kind: i16) {
        let closed: Vec<i64> = self
            .client
            .one_with(
                "SELECT posthaste.settle($1, $2, $3, ARRAY[$4::bigint], ARRAY[$5::smallint],
                                         ARRAY[0], ARRAY[interval '0'],
                                         ARRAY[CASE WHEN $5 = 4 THEN now() + interval '1 hour'
                                           END], ARRAY['dead'], ARRAY['x'])",
                &[&job.slot, &job.batch, &job.token, &job.id, &kind],
            )
            .await
            .unwrap();
        assert_eq!(closed, [job.id]);
    }

    /// Claims the next job after ordering keys were advanced, and leaves it running.
    pub(crate) async fn next(&self) -> i64 {
        self.turns().await;
        self.claim().await.expect("a job").id
    }

    pub(crate) async fn nobody(&self) {
        self.turns().await;
        if let Some(other) = self.claim().await {
            panic!("{} was handed out", other.id);
        }
    }
}

/// A claimed job.
pub(crate) struct Claimed {
    slot: i16,
    batch: i64,
    pub(crate) id: i64,
    token: Uuid,
}
