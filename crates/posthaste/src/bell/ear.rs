//! The connection that listens. It is not made by the pool, whose connections throw away what the server says unasked.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Notification, Socket};

use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::store::bell as store;

/// A statement, or the way there, that takes longer has failed.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

type Connecting = Pin<Box<dyn Future<Output = Result<Line, tokio_postgres::Error>> + Send>>;

/// Connects anew.
pub(crate) type Listen = Arc<dyn Fn() -> Connecting + Send + Sync>;

/// A connection whose notifications are kept.
pub(crate) struct Line {
    client: Client,
    rung: UnboundedReceiver<Notification>,
}

/// How to make such connections.
pub(crate) fn listener<T>(config: Config, tls: T) -> Listen
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    Arc::new(move || {
        let (config, tls) = (config.clone(), tls.clone());
        Box::pin(async move {
            let (client, connection) = config.connect(tls).await?;
            let (tell, rung) = unbounded_channel();
            tokio::spawn(carry(connection, tell));
            Ok(Line { client, rung })
        })
    })
}

/// Drives a connection until it ends.
async fn carry<T>(
    mut connection: Connection<Socket, T>,
    tell: tokio::sync::mpsc::UnboundedSender<Notification>,
) where
    T: tokio_postgres::tls::TlsStream + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(rung) = message {
            // Nobody hears it: the client is gone too, and the connection ends by that.
            let _ = tell.send(rung);
        }
    }
}

/// A connection that hears the bell.
pub(crate) struct Ear {
    line: Line,
    bits: Vec<i64>,
}

/// Connects, listens, and makes sure that a ring comes through: a pooler takes a LISTEN and keeps what it brings.
pub(crate) async fn open(engine: &Engine, listen: &Listen) -> Result<Ear, Error> {
    let failed = Error::unsent("cannot listen for the bell");
    let line = within(async { listen().await.map_err(failed) }).await?;
    let names: Vec<&str> = engine.queues.iter().map(|queue| &*queue.name).collect();
    let bits = within(store::listen(&line.client, &names)).await?;
    let mut ear = Ear { line, bits };
    // A queue that nobody has.
    let test = uuid::Uuid::new_v4().to_string();
    store::ring(&engine.looks, &test).await?;
    let unheard = "a ring did not come through; a pooler in transaction mode keeps it";
    let unheard = || ErrorKind::Connect(unheard.into());
    let came = async {
        while ear.next().await?.payload() != test {}
        Ok(())
    };
    match tokio::time::timeout(ANSWER_WITHIN, came).await {
        Ok(came) => came.map(|()| ear),
        Err(_) => Err(unheard().into()),
    }
}

impl Ear {
    /// The bits of the engine's queues.
    pub(crate) fn bits(&self) -> &[i64] {
        &self.bits
    }

    /// What the bell says; an error when the connection has ended.
    pub(crate) async fn next(&mut self) -> Result<Notification, Error> {
        let rung = self.line.rung.recv().await;
        rung.ok_or_else(|| ErrorKind::Connect("the connection ended".into()).into())
    }

    pub(crate) async fn arm(&self, bits: i64, lease: Duration) -> Result<bool, Error> {
        within(store::arm(&self.line.client, bits, lease)).await
    }

    pub(crate) async fn rest(&self, bits: i64) -> Result<(), Error> {
        within(store::rest(&self.line.client, bits)).await
    }

    /// Whoever's queue that is.
    pub(crate) async fn rest_for(&self, queue: &str) -> Result<(), Error> {
        within(store::rest_for(&self.line.client, queue)).await
    }
}

async fn within<T>(step: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match tokio::time::timeout(ANSWER_WITHIN, step).await {
        Ok(result) => result,
        Err(_) => Err(ErrorKind::TimedOut {
            what: "the bell's connection",
            seconds: ANSWER_WITHIN.as_secs(),
        }
        .into()),
    }
}
