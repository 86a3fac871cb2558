//! Connections that receive notifications. The pool does not make them, because its connections
//! discard notifications.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Notification, Socket};

type Connecting = Pin<Box<dyn Future<Output = Result<Session, tokio_postgres::Error>> + Send>>;

/// Opens a new connection.
pub(crate) type Listen = Arc<dyn Fn() -> Connecting + Send + Sync>;

/// A connection that collects its notifications.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) received: UnboundedReceiver<Notification>,
}

/// Returns a function that opens such connections.
pub(crate) fn connector<T>(config: Config, tls: T) -> Listen
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
            let (sender, received) = unbounded_channel();
            tokio::spawn(drive(connection, sender));
            Ok(Session { client, received })
        })
    })
}

/// Drives a connection until it ends.
async fn drive<T>(
    mut connection: Connection<Socket, T>,
    sender: tokio::sync::mpsc::UnboundedSender<Notification>,
) where
    T: tokio_postgres::tls::TlsStream + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(received) = message {
            // If the receiver was dropped, so was the client, which ends the connection.
            let _ = sender.send(received);
        }
    }
}
