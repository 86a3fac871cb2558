//! Holders of the horizon. Each proves at its end that it held from its beginning; a holder that
//! released early invalidates every figure under it.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use posthaste_testkit::{PgServer, eventually};
use tokio_postgres::Client;

use super::algorithm::Algorithm;
use super::instruments;
use super::producer;
use super::scenario::{Hold, HoldKind};
use crate::database::{Database, instruments as shared_instruments};
use crate::pin::Pin;

/// The limit for a follower to report its horizon to the leader.
const FEEDBACK: Duration = Duration::from_secs(30);

/// A holder of the horizon.
pub(crate) enum Holder {
    /// A snapshot or a dump.
    Pin(Pin),
    /// Any other holder, with its proof.
    Seen(Grip, Proof),
}

/// The resource that ends with the hold.
pub(crate) enum Grip {
    Writer(Client),
    Prepared,
    Slot,
    Follower(Box<PgServer>, Client),
}

/// An observation of a holder, and its value at the beginning.
pub(crate) struct Proof {
    observer: Client,
    statement: &'static str,
    pid: i32,
    begun: String,
}

impl Holder {
    /// Begins to hold.
    pub(crate) async fn take(
        hold: &Hold,
        server: &PgServer,
        database: &Database,
        algorithm: &Algorithm,
    ) -> Result<Self> {
        let observer = database.connect().await?;
        Ok(match hold.kind {
            HoldKind::Snapshot => Self::Pin(Pin::snapshot(database).await?),
            HoldKind::Reader => Self::Pin(Pin::dump(server, database, algorithm.schema()).await?),
            HoldKind::Writer => {
                let client = database.connect().await?;
                client.batch_execute("BEGIN").await?;
                client.batch_execute(instruments().get("write")?).await?;
                let pid = backend(&client).await?;
                let proof = Proof::begin(observer, "proof_writer", pid).await?;
                Self::Seen(Grip::Writer(client), proof)
            }
            HoldKind::Prepared => {
                let client = database.connect().await?;
                client.batch_execute("BEGIN").await?;
                client.batch_execute(instruments().get("write")?).await?;
                let prepare = instruments().get("prepare_transaction")?;
                client.batch_execute(prepare).await?;
                let proof = Proof::begin(observer, "proof_prepared", 0).await?;
                Self::Seen(Grip::Prepared, proof)
            }
            HoldKind::Slot => {
                observer
                    .batch_execute(instruments().get("make_slot")?)
                    .await?;
                let proof = Proof::begin(observer, "proof_slot", 0).await?;
                Self::Seen(Grip::Slot, proof)
            }
            HoldKind::Bulk => {
                let client = producer::insert_uncommitted(database, algorithm, hold.rows).await?;
                let pid = backend(&client).await?;
                let proof = Proof::begin(observer, "proof_writer", pid).await?;
                Self::Seen(Grip::Writer(client), proof)
            }
            HoldKind::Follower => follow(server, database, observer).await?,
        })
    }

    /// Proves that it held all the time, and releases.
    pub(crate) async fn release(self) -> Result<()> {
        let (grip, proof) = match self {
            Self::Pin(pin) => return pin.release().await,
            Self::Seen(grip, proof) => (grip, proof),
        };
        let verified = proof.verify().await;
        match grip {
            Grip::Writer(client) => client.batch_execute("ROLLBACK").await?,
            Grip::Prepared => {
                let rollback = instruments().get("rollback_prepared")?;
                proof.observer.batch_execute(rollback).await?;
            }
            Grip::Slot => {
                let drop = instruments().get("drop_slot")?;
                proof.observer.batch_execute(drop).await?;
            }
            Grip::Follower(replica, client) => {
                drop(client);
                tokio::task::block_in_place(|| replica.stop_fast())?;
            }
        }
        verified
    }
}

async fn follow(server: &PgServer, database: &Database, observer: Client) -> Result<Holder> {
    let settings = [
        ("hot_standby_feedback", "on"),
        ("wal_receiver_status_interval", "1s"),
        // Replay must not cancel the snapshot.
        ("max_standby_streaming_delay", "-1"),
    ];
    let replica = tokio::task::block_in_place(|| server.start_replica(&settings))?;
    let client = Database::named(&replica.url(database.name()?))?
        .connect()
        .await?;
    client
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
    client
        .query_one(shared_instruments().get("pin")?, &[])
        .await?;
    let horizon: Option<String> = client
        .query_one(instruments().get("own_horizon")?, &[])
        .await?
        .get(0);
    let horizon = horizon.context("the follower's session has no snapshot")?;
    let seen = eventually(FEEDBACK, "the follower's feedback", async || {
        Ok(see(&observer, "proof_follower", 0).await?.as_ref() == Some(&horizon))
    });
    seen.await?;
    let proof = Proof::begin(observer, "proof_follower", 0).await?;
    Ok(Holder::Seen(
        Grip::Follower(Box::new(replica), client),
        proof,
    ))
}

impl Proof {
    async fn begin(observer: Client, statement: &'static str, pid: i32) -> Result<Self> {
        let Some(begun) = see(&observer, statement, pid).await? else {
            bail!("{statement}: nothing holds the horizon");
        };
        Ok(Self {
            observer,
            statement,
            pid,
            begun,
        })
    }

    async fn verify(&self) -> Result<()> {
        let now = see(&self.observer, self.statement, self.pid).await?;
        ensure!(
            now.as_ref() == Some(&self.begun),
            "the horizon was not held: {} became {now:?}",
            self.begun
        );
        Ok(())
    }
}

async fn see(observer: &Client, statement: &str, pid: i32) -> Result<Option<String>> {
    let row = observer
        .query_opt(instruments().get(statement)?, &[&pid])
        .await?;
    Ok(row.and_then(|row| row.get(0)))
}

async fn backend(client: &Client) -> Result<i32> {
    let backend = shared_instruments().get("backend")?;
    Ok(client.query_one(backend, &[]).await?.get(0))
}
