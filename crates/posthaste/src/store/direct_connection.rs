//! Whether a connection ends at the server process that executes its statements. Only there a named
//! statement stays what it was: a pooler gives each transaction to some server process, where the
//! name is unknown, or that of another client's statement.
//!
//! A server process announces its id when a connection is opened, for requests to cancel. A pooler
//! that shares server processes must announce ids that it can map to clients, not theirs.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio_postgres::Client;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// The code of a request to negotiate TLS, which comes before a request to cancel if the connection
/// requires TLS.
const TLS_REQUEST: i32 = 80_877_103;
/// The longest time for two messages that stay within the process.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns whether the process that was announced for this connection is the one that answers;
/// false if that is unknown.
pub async fn is_direct(client: &Client) -> bool {
    let pid = client.query_typed("SELECT pg_catalog.pg_backend_pid()", &[]);
    let answering: Option<i32> = match pid.await {
        Ok(rows) => rows.first().and_then(|row| row.try_get(0).ok()),
        Err(_) => None,
    };
    answering.is_some() && announced_process(client).await == answering
}

/// Returns the id of the announced process, as the driver writes it into a request to cancel, which
/// is sent nowhere.
async fn announced_process(client: &Client) -> Option<i32> {
    let (near, mut far) = tokio::io::duplex(64);
    let token = client.cancel_token();
    let written = token.cancel_query_raw(Pipe(near), PipeTls);
    let read = async {
        let (_length, code) = read_pair(&mut far).await?;
        if code == TLS_REQUEST {
            far.write_all(b"S").await?;
            read_pair(&mut far).await?;
        }
        let (process, _key) = read_pair(&mut far).await?;
        io::Result::Ok(process)
    };
    let both = futures_util::future::join(written, read);
    let (_, process) = tokio::time::timeout(WRITE_TIMEOUT, both).await.ok()?;
    process.ok()
}

async fn read_pair(from: &mut DuplexStream) -> io::Result<(i32, i32)> {
    Ok((from.read_i32().await?, from.read_i32().await?))
}

/// A pipe that stands for a connection with TLS.
struct Pipe(DuplexStream);

struct PipeTls;

impl TlsConnect<Pipe> for PipeTls {
    type Stream = Pipe;
    type Error = io::Error;
    type Future = Ready<io::Result<Pipe>>;

    fn connect(self, pipe: Pipe) -> Self::Future {
        ready(Ok(pipe))
    }
}

impl TlsStream for Pipe {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
