//! A proxy that loses connections, bytes and single answers between a client and Postgres, or any
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

/// A proxy on loopback, gone with all its connections when it is dropped.
///
/// It must live on the runtime that it was started on.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

/// What every connection looks at.
#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    conditions: watch::Sender<Conditions>,
    interception: Mutex<Option<Interception>>,
    /// Connections that lost something while they were half open.
    lost: AtomicUsize,
    /// It is not Postgres, so that nothing but bytes is known of what is said.
    is_raw: bool,
}

/// How the network behaves.
#[derive(Clone, Copy, Debug, Default)]
struct Conditions {
    /// Connections of an age below this one are reset.
    age: u64,
    /// Bytes are taken from both sides and delivered to neither.
    half_open: bool,
    /// What the server says is lost.
    mute: bool,
    /// Bytes are taken from neither side.
    stalled: bool,
    /// How often the network was restored.
    restored: u64,
    /// Added in each direction.
    delay: Duration,
}

/// Tells when the answer that was to be lost has been lost.
#[derive(Debug)]
pub struct LostAnswer(oneshot::Receiver<()>);

impl Proxy {
    /// Listens on a port of its own and carries every connection on to this address, where Postgres
    /// listens.
    pub async fn start(target: SocketAddr) -> anyhow::Result<Self> {
        Self::start_at(ports::free()?, target, false).await
    }

    /// As [`start`](Self::start) before any server: single answers cannot be told apart, but all of
    /// them can be lost by [`mute`](Self::mute).
    pub async fn start_raw(target: SocketAddr) -> anyhow::Result<Self> {
        Self::start_at(ports::free()?, target, true).await
    }

    /// On a port that a server tells its clients to go on to.
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

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The URL of a database behind the proxy.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Resets every connection on both sides, and refuses new ones until
    /// [`restore`](Self::restore).
    pub async fn cut(&self) {
        let accepting = self.accepting().take();
        if let Some(accepting) = accepting {
            accepting.abort();
            // The port refuses only once the listener is really gone.
            let _ = accepting.await;
        }
        self.reset();
    }

    /// Resets every connection on both sides; new ones are carried as before.
    pub fn reset(&self) {
        self.shared
            .conditions
            .send_modify(|conditions| conditions.age += 1);
    }

    /// From now on takes bytes from both sides and delivers them to neither, and tells nobody.
    ///
    /// New connections seem to succeed and are never answered.
    pub fn half_open(&self) {
        self.shared
            .conditions
            .send_modify(|conditions| conditions.half_open = true);
    }

    /// How many connections have died until now, because they lost something while they were
    /// [half open](Self::half_open). One that has lost nothing lives on behind
    /// [`restore`](Self::restore).
    pub fn lost(&self) -> usize {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// From now on loses what the server says on connections that were opened by
    /// [`start_raw`](Self::start_raw): it gets what it is sent, and its answers are lost.
    /// [`reset`](Self::reset) ends the connections that lost something.
    pub fn mute(&self) {
        self.shared
            .conditions
            .send_modify(|conditions| conditions.mute = true);
    }

    /// From now on takes no bytes from either side, as a link that stalls or a machine that is
    /// frozen: nothing is lost, and all goes on after [`restore`](Self::restore).
    pub fn stall(&self) {
        self.shared
            .conditions
            .send_modify(|conditions| conditions.stalled = true);
    }

    /// Adds this much to each direction.
    pub fn delay(&self, delay: Duration) {
        self.shared
            .conditions
            .send_modify(|conditions| conditions.delay = delay);
    }

    /// Carries new connections at once again. Those that were half open have lost bytes and stay
    /// dead, as they would behind a router that forgot them.
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

    /// Lets the next such request through, waits until the server has answered it in full, swallows
    /// that answer alone and resets the connection. Other connections, and answers before that one,
    /// are carried.
    ///
    /// This is how a client comes not to know whether its COMMIT happened.
    pub fn drop_answer_to(&self, request: RequestMatcher) -> LostAnswer {
        let (told, lost) = oneshot::channel();
        *self.shared.interception() = Some(Interception::new(request, told));
        LostAnswer(lost)
    }

    /// As [`drop_answer_to`](Self::drop_answer_to), but nobody is told: the connection stays open
    /// and neither side hears of the other again, as behind a router that forgot it.
    pub fn lose_answer_to(&self, request: RequestMatcher) -> LostAnswer {
        let (told, lost) = oneshot::channel();
        *self.shared.interception() = Some(Interception::new(request, told).silent());
        LostAnswer(lost)
    }

    /// Lets the next such request through and reads no more of its connection's answers, from the
    /// first byte of this one on, until [`restore`](Self::restore): what a client does that is
    /// frozen. Tells when the answer begins.
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
                // Taken here, so that a cut also finds connections that are not carried yet.
                let age = shared.conditions.borrow().age;
                tokio::spawn(carry::carry(client, age, Arc::clone(&shared)));
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
    /// Waits until the answer was lost and the connection reset.
    pub async fn wait(self, within: Duration) -> anyhow::Result<()> {
        tokio::time::timeout(within, self.0)
            .await
            .with_context(|| format!("no answer was lost within {within:?}"))?
            .context("the interception was removed before a request matched it")
    }
}
