//! A handshake with RabbitMQ that can be cancelled. The client continues its own handshake on a
//! thread and a socket for as long as a silent server lets it wait, even if the connection is no
//! longer wanted: during an outage they would accumulate.

use std::cell::RefCell;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lapin::runtime::default_runtime;
use lapin::tcp::{AMQPUriTcpExt, AsyncTcpStream, TLSConfig};
use lapin::uri::AMQPUri;
use lapin::{Connection, ConnectionProperties};
use parking_lot::Mutex;
use tracing::Dispatch;
use tracing::dispatcher::{self, DefaultGuard};

thread_local! {
    /// The guard lasts as long as the thread.
    static LOG_SILENCER: RefCell<Option<DefaultGuard>> = const { RefCell::new(None) };
}

/// Discards all log events of this thread. The client uses one thread per connection, and logs
/// whole returned messages there, at a level that most programs enable: a job's arguments must not
/// be logged. Errors are returned as answers.
fn silence_thread_logs() {
    LOG_SILENCER.with_borrow_mut(|silence| {
        // Without a subscriber, a default that discards events would change the handling of all
        // events.
        if silence.is_none() && dispatcher::has_been_set() {
            *silence = Some(dispatcher::set_default(&Dispatch::none()));
        }
    });
}

/// Connects to this address. If the future is dropped, the socket is closed.
pub(super) async fn connect(
    uri: AMQPUri,
    properties: ConnectionProperties,
) -> lapin::Result<Connection> {
    let reins = SocketHandle::default();
    let given = reins.clone();
    let asked = AbortOnDrop(reins);
    let open = Connection::connector(
        uri,
        default_runtime()?,
        // The client opens its socket on that thread.
        async move |uri, runtime| {
            silence_thread_logs();
            if given.is_abandoned() {
                return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
            }
            let stream = uri.connect_with_config_async(TLSConfig::default(), &runtime);
            let stream = stream.await?;
            match &stream {
                AsyncTcpStream::Plain(plain) => given.attach(plain.get_ref().as_fd())?,
                AsyncTcpStream::Rustls(tls) => given.attach(tls.get_ref().0.get_ref().as_fd())?,
                // This program uses no other kind.
                _ => {}
            }
            Ok(stream)
        },
        properties,
    );
    let connection = open.await?;
    // From now on only the client holds the socket.
    asked.0.release();
    Ok(connection)
}

/// Closes the socket unless the connection was established.
struct AbortOnDrop(SocketHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.0.is_abandoned.store(true, Ordering::SeqCst);
        self.0.close();
    }
}

/// A second handle of the socket.
#[derive(Clone, Default)]
struct SocketHandle(Arc<SocketState>);

#[derive(Default)]
struct SocketState {
    socket: Mutex<Option<TcpStream>>,
    is_abandoned: AtomicBool,
}

impl SocketHandle {
    fn is_abandoned(&self) -> bool {
        self.0.is_abandoned.load(Ordering::SeqCst)
    }

    fn attach(&self, socket: std::os::fd::BorrowedFd<'_>) -> io::Result<()> {
        let socket = TcpStream::from(socket.try_clone_to_owned()?);
        *self.socket() = Some(socket);
        // The connection may have been abandoned before.
        if self.is_abandoned() {
            self.close();
        }
        Ok(())
    }

    fn release(&self) {
        self.socket().take();
    }

    fn close(&self) {
        if let Some(socket) = self.socket().take() {
            // The socket may be closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn socket(&self) -> parking_lot::MutexGuard<'_, Option<TcpStream>> {
        self.0.socket.lock()
    }
}
