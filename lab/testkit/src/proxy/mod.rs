//! A proxy that loses connections, bytes and single answers between a client and Postgres or any
//! other server.

mod carry;
mod exchange;
mod frames;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::ports;
use exchange::Interception;
pub use exchange::RequestMatcher;

/// A proxy on loopback, which ends with all its connections when it is dropped.
///
/// It must live on the runtime that it was started on.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

/// The state that all connections share.
#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    conditions: watch::Sender<Conditions>,
    interception: Mutex<Option<Interception>>,
    /// Connections that lost bytes while they were half open.
    lost: AtomicUsize,
    /// Whether the server is not Postgres: bytes are forwarded without being parsed.
    is_raw: bool,
}

/// The state of the network.
#[derive(Clone, Copy, Debug, Default)]
struct Conditions {
    /// Connections of a lower age are reset.
    age: u64,
    /// Bytes are read from both sides and delivered to neither.
    half_open: bool,
    /// The server's bytes are lost.
    mute: bool,
    /// Bytes are read from neither side.
    stalled: bool,
    /// How often the network was restored.
    restored: u64,
    /// The delay in each direction.
    delay: Duration,
}

/// Reports when the chosen answer has been lost.
#[derive(Debug)]
pub struct LostAnswer(oneshot::Receiver<()>);

impl Proxy {
    /// Listens on a free port and forwards every connection to this address of a Postgres server.
    pub async fn start(target: SocketAddr) -> anyhow::Result<Self> {
        Self::start_at(ports::free()?, target, false).await
    }

    /// As [`start`](Self::start), for any server: single answers cannot be lost, but
    /// [`mute`](Self::mute) loses all of them.
    pub async fn start_raw(target: SocketAddr) -> anyhow::Result<Self> {
        Self::start_at(ports::free()?, target, true).await
    }

    /// Starts on a port that a server advertises to its clients.
    pub(crate) async fn start_at(
        port: u16,
        target: SocketAddr,
        is_raw: bool,
    ) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            target,
            conditions: watch::Sender::new(Conditions::default()),
            interception: Mutex::default(),
            lost: AtomicUsize::new(0),
            is_raw,
        });
        let proxy = Self {
            port,
            shared,
            accepting: Mutex::default(),
        };
        proxy.listen().await?;
        Ok(proxy)
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The URL of a database through the proxy.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Resets every connection on both sides, and refuses new ones until
    /// [`restore`](Self::restore).
    pub async fn cut(&self) {
        let accepting = self.accepting().take();
        if let Some(accepting) = accepting {
            accepting.abort();
            // The port refuses connections only once the listener is closed.
            let _ = accepting.await;
        }
        self.reset();
    }

    /// Resets every connection on both sides; new ones are forwarded as before.
    pub fn reset(&self) {
        self.shared
            .conditions
            .send_modify(|conditions| conditions.age += 1);
    }

    /// From now on reads bytes from both sides and delivers them to neither, without an error.
    ///
    /// New connections seem to succeed and are never answered.
    pub fn half_open(&self) {
        self.shared
            .conditions
            .send_modify(|conditions| conditions.half_open = true);
    }

    /// The number of connections that have died until now because they lost bytes while they were
    /// [half open](Self::half_open). A connection that lost nothing continues after
    /// [`restore`](Self::restore).
    pub fn lost_connections(&self) -> usize {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// From now on loses the server's bytes on connections through [`start_raw`](Self::start_raw):
    /// the server receives requests, and its answers are lost. [`reset`](Self::reset) ends the
    /// connections that lost something.
    pub fn mute(&self) {
        self.shared
            .conditions
            .send_modify(|conditions| conditions.mute = true);
    }

    /// From now on reads no bytes from either side, like a stalled link or a frozen machine:
    /// nothing is lost, and everything continues after [`restore`](Self::restore).
    pub fn stall(&self) {
        self.shared
            .conditions
            .send_modify(|conditions| conditions.stalled = true);
    }

    /// Adds this delay in each direction.
    pub fn delay(&self, delay: Duration) {
        self.shared
            .conditions
            .send_modify(|conditions| conditions.delay = delay);
    }

    /// Forwards new connections immediately again. Connections that lost bytes while they were half
    /// open stay dead, as they do after a router has dropped them.
    pub async fn restore(&self) -> anyhow::Result<()> {
        *self.shared.interception() = None;
        self.shared.conditions.send_modify(|conditions| {
            conditions.half_open = false;
            conditions.mute = false;
            conditions.stalled = false;
            conditions.restored += 1;
            conditions.delay = Duration::ZERO;
        });
        if self.accepting().is_none() {
            self.listen().await?;
        }
        Ok(())
    }

    /// Lets the next such request pass, waits until the server has answered it completely, drops
    /// only that answer and resets the connection. Other connections, and earlier answers, are
    /// forwarded.
    ///
    /// The client then does not know whether its COMMIT happened.
    pub fn drop_answer_to(&self, request: RequestMatcher) -> LostAnswer {
        let (told, lost) = oneshot::channel();
        *self.shared.interception() = Some(Interception::new(request, told));
        LostAnswer(lost)
    }

    /// As [`drop_answer_to`](Self::drop_answer_to), but without a reset: the connection stays open
    /// and neither side receives anything more, as after a router has dropped it.
    pub fn lose_answer_to(&self, request: RequestMatcher) -> LostAnswer {
        let (told, lost) = oneshot::channel();
        *self.shared.interception() = Some(Interception::new(request, told).silent());
        LostAnswer(lost)
    }

    /// Lets the next such request pass and reads no more of its connection's answers, beginning
    /// with the first byte of this one, until [`restore`](Self::restore): the behaviour of a frozen
    /// client. Reports when the answer begins.
    pub fn stall_answer_to(&self, request: RequestMatcher) -> LostAnswer {
        let (told, stalled) = oneshot::channel();
        *self.shared.interception() = Some(Interception::new(request, told).stalled());
        LostAnswer(stalled)
    }

    async fn listen(&self) -> anyhow::Result<()> {
        let listener = TcpListener::bind(self.address())
            .await
            .context("listening as a proxy")?;
        let shared = Arc::clone(&self.shared);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // Read here, so that a cut also includes connections that are not forwarded yet.
                let age = shared.conditions.borrow().age;
                tokio::spawn(carry::forward_connection(client, age, Arc::clone(&shared)));
            }
        });
        *self.accepting() = Some(accepting);
        Ok(())
    }

    fn accepting(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.accepting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(accepting) = self.accepting().take() {
            accepting.abort();
        }
        self.reset();
    }
}

impl Shared {
    fn interception(&self) -> std::sync::MutexGuard<'_, Option<Interception>> {
        self.interception
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl LostAnswer {
    /// Waits until the answer was lost and the connection was reset.
    pub async fn wait(self, within: Duration) -> anyhow::Result<()> {
        tokio::time::timeout(within, self.0)
            .await
            .with_context(|| format!("no answer was lost within {within:?}"))?
            .context("the interception was removed before a request matched it")
    }
}
