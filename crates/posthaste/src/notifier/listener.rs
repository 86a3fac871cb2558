//! The connection that listens.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Notification;

use crate::error::{Error, ErrorKind};
use crate::parts::queue::QueueState;
use crate::store::notify as store;
use crate::store::reconnecting::ReconnectingClient;
use crate::store::session::{Listen, Session};

/// Timeout of a statement or a connection attempt.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);

/// The listening connection and the bits of its queues.
pub(crate) struct Listener {
    session: Session,
    bits: Vec<i64>,
}

/// Connects, listens, and checks that a notification arrives: a pooler may accept LISTEN and drop
/// the notifications.
pub(super) async fn open_listener(
    queues: &[Arc<QueueState>],
    polls: &ReconnectingClient,
    listen: &Listen,
) -> Result<Listener, Error> {
    let failed = Error::unsent("cannot listen for notifications");
    let session = with_timeout(async { listen().await.map_err(failed) }).await?;
    let names: Vec<&str> = queues.iter().map(|queue| &*queue.name).collect();
    let bits = with_timeout(store::listen(&session.client, &names)).await?;
    let mut listener = Listener { session, bits };
    // The name of a queue that does not exist.
    let test = uuid::Uuid::new_v4().to_string();
    store::notify(polls, &test).await?;
    let missed = "a test notification did not arrive; a pooler in transaction mode would drop it";
    let missed = || ErrorKind::Connect(missed.to_owned().into());
    let came = async {
        while listener.next_notification().await?.payload() != test {}
        Ok(())
    };
    match tokio::time::timeout(ANSWER_TIMEOUT, came).await {
        Ok(came) => came.map(|()| listener),
        Err(_) => Err(missed().into()),
    }
}

impl Listener {
    /// Returns the bits of the engine's queues.
    pub(crate) fn bits(&self) -> &[i64] {
        &self.bits
    }

    /// Waits for the next notification; fails if the connection has ended.
    pub(crate) async fn next_notification(&mut self) -> Result<Notification, Error> {
        let received = self.session.received.recv().await;
        received.ok_or_else(|| ErrorKind::Connect("the connection ended".to_owned().into()).into())
    }

    pub(crate) async fn turn_on(&self, bits: i64, lease: Duration) -> Result<Option<bool>, Error> {
        with_timeout(store::turn_on(&self.session.client, bits, lease)).await
    }

    pub(crate) async fn turn_off(&self, bits: i64) -> Result<(), Error> {
        with_timeout(store::turn_off(&self.session.client, bits)).await
    }

    /// Turns off a queue, which may belong to other workers.
    pub(crate) async fn turn_off_for(&self, queue: &str) -> Result<(), Error> {
        with_timeout(store::turn_off_for(&self.session.client, queue)).await
    }
}

async fn with_timeout<T>(step: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match tokio::time::timeout(ANSWER_TIMEOUT, step).await {
        Ok(result) => result,
        Err(_) => Err(ErrorKind::TimedOut {
            what: "the notifier's connection",
            seconds: ANSWER_TIMEOUT.as_secs(),
        }
        .into()),
    }
}
