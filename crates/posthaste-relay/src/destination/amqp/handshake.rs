//! The handshake with RabbitMQ, as one that can be given up. The client goes on with its own on a
//! thread and a socket for as long as a silent server lets it wait, whether anybody still wants the
//! connection or not: an outage would collect them.

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
    /// Lasts as long as the thread.
    static SILENCE: RefCell<Option<DefaultGuard>> = const { RefCell::new(None) };
}

/// Nothing that is logged on this thread is heard any more. The client has a thread of its own for
/// a connection, and logs messages that come back there as a whole, at a level that is on in most
/// programs: a job's arguments are nobody's to read. What is wrong comes as an answer.
fn silence() {
    SILENCE.with_borrow_mut(|silence| {
        // Where nobody listens a listener that hears nothing would change what becomes of
        // everybody's events.
        if silence.is_none() && dispatcher::has_been_set() {
            *silence = Some(dispatcher::set_default(&Dispatch::none()));
        }
    });
}

/// A connection to this address. When the future is dropped, so is the socket.
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
        // The client asks for its socket on that thread.
        async move |uri, runtime| {
            silence();
            if given.is_abandoned() {
                return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
            }
            let stream = uri.connect_with_config_async(TLSConfig::default(), &runtime);
            let stream = stream.await?;
            match &stream {
                AsyncTcpStream::Plain(plain) => given.attach(plain.get_ref().as_fd())?,
                AsyncTcpStream::Rustls(tls) => given.attach(tls.get_ref().0.get_ref().as_fd())?,
                // There is no other kind in this program.
                _ => {}
            }
            Ok(stream)
        },
        properties,
    );
    let connection = open.await?;
    // It is the client's alone from now on.
    asked.0.release();
    Ok(connection)
}

/// As long as somebody asks for the connection.
struct AbortOnDrop(SocketHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.0.is_abandoned.store(true, Ordering::SeqCst);
        self.0.close();
    }
}

/// A second hand on the socket.
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
        // It may have been given up meanwhile.
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
            // One that is closed already is as good.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn socket(&self) -> parking_lot::MutexGuard<'_, Option<TcpStream>> {
        self.0.socket.lock()
    }
}
