//! A store with some of everything.

use posthaste::{Outcome, Worker, WorkerHandle};
use posthaste_testkit::{Sql as _, TestDb};
use tokio::sync::watch;

use super::kit::{until_state, until_true};
use crate::sync;

/// A store with some of everything, and a worker that runs while this value exists.
pub struct Store {
    pub database: TestDb,
    worker: WorkerHandle,
    release: watch::Sender<bool>,
    pub running: i64,
    pub retrying: i64,
    pub dead: i64,
}

impl Store {
    /// Creates jobs in every state, schedules, relays, a synced table and workers.
    pub async fn full() -> Self {
        Self::of(crate::support::database().await).await
    }

    /// Creates the same in this database.
    pub async fn of(database: TestDb) -> Self {
        let client = sync::pages(&database).await;
        client.run(include_str!("seeds.sql")).await.expect("seeds");
        let (release, released) = watch::channel(false);
        let worker = worker(&database, released).await;
        let job = async |name: &str| -> i64 {
            let sql = "SELECT id FROM (SELECT id, name FROM posthaste.job \
                       UNION ALL SELECT id, name FROM posthaste.in_flight \
                       UNION ALL SELECT id, name FROM posthaste.dead) j WHERE name = $1 LIMIT 1";
            client.one_with(sql, &[&name]).await.expect("a job")
        };
        let (running, retrying) = (job("report.build").await, job("charge.capture").await);
        let dead = job("mail.bounce").await;
        for (id, state) in [(running, "running"), (retrying, "retrying"), (dead, "dead")] {
            until_state(&client, id, state).await.expect(state);
        }
        let awaited = job("parcel.hand_over").await;
        until_state(&client, awaited, "awaiting")
            .await
            .expect("it waits");
        let done = until_true(&client, include_str!("settled.sql"));
        done.await.expect("all are done that can be");
        Self {
            database,
            worker,
            release,
            running,
            retrying,
            dead,
        }
    }

    /// Lets running jobs end, and stops the worker.
    pub async fn end(self) {
        let _ = self.release.send(true);
        self.worker.stop().await.expect("it stops");
    }
}

async fn worker(database: &TestDb, released: watch::Receiver<bool>) -> WorkerHandle {
    let worker = Worker::builder(database.pool(6).expect("a pool"))
        .queue("mail", 4)
        .queue("payments", 2)
        .queue("parcels", 1)
        .queue("reports", 1)
        .queue("sync.page", 1)
        .handler("mail.bounce", |_, _| async {
            Err("sending to the relay: 550 5.1.1 no such mailbox".into())
        })
        .handler("charge.capture", |_, _| async {
            Err("calling the provider: connection refused".into())
        })
        .handler("parcel.hand_over", |_, _| async {
            let until = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24);
            Ok(Outcome::Await { until })
        })
        .handler("report.build", move |_, _| {
            let mut released = released.clone();
            async move {
                released.wait_for(|over| *over).await?;
                Ok(Outcome::Done)
            }
        })
        .handler("*", |_, _| async { Ok(Outcome::Done) });
    worker.start().await.expect("a worker")
}
