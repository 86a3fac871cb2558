//! Forwards one connection.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::exchange::{Exchange, Verdict};
use super::frames::{ClientFrames, Message, ServerFrames};
use super::{Conditions, Shared};

/// Data in flight, with its time of arrival.
type InFlight = (Instant, Chunk);

enum Chunk {
    Bytes(Vec<u8>),
    /// The sender has closed its side.
    Finished,
    /// In place of the lost answer, so that everything before it arrives.
    Lost(oneshot::Sender<()>),
}

/// The reason for the end of a connection.
enum End {
    Cut,
    LostAnswer(oneshot::Sender<()>),
}

impl From<std::io::Error> for End {
    fn from(_: std::io::Error) -> Self {
        Self::Cut
    }
}

/// One connection, shared by its four ends.
struct Connection<'a> {
    shared: &'a Shared,
    exchange: Mutex<Exchange>,
    /// Bytes were lost, so neither side may receive anything more.
    dead: AtomicBool,
}

/// Forwards a connection that was accepted with this number of the conditions.
pub(super) async fn forward_connection(mut client: TcpStream, age: u64, shared: Arc<Shared>) {
    let mut conditions = shared.conditions.subscribe();
    let half_open = conditions.borrow().half_open;
    if half_open {
        let _ = conditions.wait_for(|conditions| conditions.age > age).await;
        let _ = client.set_zero_linger();
        return;
    }
    let Ok(mut server) = TcpStream::connect(shared.target).await else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let outcome = tokio::select! {
        outcome = forward_both_ways(&mut client, &mut server, &shared) => outcome,
        _ = conditions.wait_for(|conditions| conditions.age > age) => Err(End::Cut),
    };
    if outcome.is_err() {
        // With zero linger the kernel sends a reset instead of an orderly end.
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
    drop((client, server));
    if let Err(End::LostAnswer(told)) = outcome {
        let _ = told.send(());
    }
}

async fn forward_both_ways(
    client: &mut TcpStream,
    server: &mut TcpStream,
    shared: &Shared,
) -> Result<(), End> {
    let connection = Connection {
        shared,
        exchange: Mutex::default(),
        dead: AtomicBool::new(false),
    };
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let (up, arriving_up) = channel(64);
    let (down, arriving_down) = channel(64);
    tokio::try_join!(
        connection.read_client(from_client, up),
        connection.read_server(from_server, down),
        connection.deliver(arriving_up, to_server),
        connection.deliver(arriving_down, to_client),
    )?;
    Ok(())
}

impl Connection<'_> {
    async fn read_client(&self, mut from: ReadHalf<'_>, to: Sender<InFlight>) -> Result<(), End> {
        let mut frames = ClientFrames::default();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let length = self.read(&mut from, &mut buffer).await?;
            if length == 0 {
                return self.send(&to, Chunk::Finished).await;
            }
            if self.shared.is_raw {
                let bytes = buffer[..length].to_vec();
                self.send(&to, Chunk::Bytes(bytes)).await?;
                continue;
            }
            frames.push(&buffer[..length]);
            while let Some(message) = frames.next() {
                self.exchange()
                    .client_sends(&message, &mut self.shared.interception());
                self.send(&to, Chunk::Bytes(message.bytes)).await?;
            }
        }
    }

    async fn read_server(&self, mut from: ReadHalf<'_>, to: Sender<InFlight>) -> Result<(), End> {
        let mut frames = ServerFrames::default();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let length = self.read(&mut from, &mut buffer).await?;
            if length == 0 {
                return self.send(&to, Chunk::Finished).await;
            }
            if self.shared.is_raw {
                if !self.shared.conditions.borrow().mute {
                    let bytes = buffer[..length].to_vec();
                    self.send(&to, Chunk::Bytes(bytes)).await?;
                }
                continue;
            }
            frames.push(&buffer[..length]);
            while let Some((message, verdict)) = self.next_answer(&mut frames) {
                match verdict {
                    Verdict::Forward => self.send(&to, Chunk::Bytes(message.bytes)).await?,
                    Verdict::Swallow => {}
                    Verdict::Reset(told) => self.send(&to, Chunk::Lost(told)).await?,
                    Verdict::Silence(told) => {
                        self.dead.store(true, Ordering::Relaxed);
                        let _ = told.send(());
                    }
                    Verdict::Stall(told) => {
                        let restored = self.shared.conditions.borrow().restored;
                        let _ = told.send(());
                        self.wait_for(|now| now.restored > restored).await;
                        self.send(&to, Chunk::Bytes(message.bytes)).await?;
                    }
                }
            }
        }
    }

    fn next_answer(&self, frames: &mut ServerFrames) -> Option<(Message, Verdict)> {
        let mut exchange = self.exchange();
        let message = frames.next(&mut exchange.bare_bytes)?;
        let verdict = exchange.server_sends(&message);
        Some((message, verdict))
    }

    /// Reads from one side. On a dead connection, its failure is not shown to the other side.
    async fn read(&self, from: &mut ReadHalf<'_>, buffer: &mut [u8]) -> Result<usize, End> {
        self.wait_for(|now| !now.stalled).await;
        let outcome = from.read(buffer).await;
        self.wait_for(|now| !now.stalled).await;
        match outcome {
            Err(_) if self.is_dead() => pending().await,
            outcome => Ok(outcome?),
        }
    }

    async fn wait_for(&self, holds: impl FnMut(&Conditions) -> bool) {
        // Cannot fail: the sender lives as long as this connection.
        let _ = self.shared.conditions.subscribe().wait_for(holds).await;
    }

    async fn send(&self, to: &Sender<InFlight>, chunk: Chunk) -> Result<(), End> {
        let delay = self.shared.conditions.borrow().delay;
        to.send((Instant::now() + delay, chunk))
            .await
            .map_err(|_| End::Cut)
    }

    /// Delivers data when it is due; on a dead connection it is lost.
    async fn deliver(
        &self,
        mut arriving: Receiver<InFlight>,
        mut to: WriteHalf<'_>,
    ) -> Result<(), End> {
        while let Some((due, chunk)) = arriving.recv().await {
            sleep_until(due).await;
            match chunk {
                _ if self.is_dead() => {
                    // A dead connection is counted once: its server may continue to send.
                    if !self.dead.swap(true, Ordering::Relaxed) {
                        self.shared.lost.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Chunk::Bytes(bytes) => to.write_all(&bytes).await?,
                Chunk::Finished => {
                    to.shutdown().await?;
                    return Ok(());
                }
                Chunk::Lost(told) => return Err(End::LostAnswer(told)),
            }
        }
        pending().await
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed) || self.shared.conditions.borrow().half_open
    }

    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
