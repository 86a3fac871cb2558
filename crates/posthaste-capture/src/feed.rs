//! A replication connection: login, commands, and the stream of what was committed.

mod login;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use fallible_iterator::FallibleIterator as _;
use postgres_protocol::message::backend::{ErrorResponseBody, Header, Message};
use postgres_protocol::message::frontend;
use posthaste::__private::{Replication, ReplicationStream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::confirmation::Confirmation;
use crate::error::Error;
use crate::lsn::Lsn;

/// Requests a reply after this long without a message from the server.
const REQUEST_REPLY_AFTER: Duration = Duration::from_secs(15);
/// Disconnects after this long without a message: a half-open connection reports no error.
pub(crate) const DISCONNECT_AFTER: Duration = Duration::from_secs(30);
/// The limit for a login, a command or a write.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// The limit for ending a stream.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// Time between two status messages, less than a third of the default `wal_sender_timeout`;
/// [`Feed::keep_alive_every`] lowers it.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// A message of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A message of the output plugin with the place of its record.
    Data { record: Lsn, message: Bytes },
    /// Everything before this place was sent.
    Alive { end: Lsn, is_asked: bool },
}

pub(crate) struct Feed {
    stream: Box<dyn ReplicationStream>,
    read: BytesMut,
    write: BytesMut,
    last_received: Instant,
    reply_requested: bool,
    last_sent: Instant,
    keep_alive: Duration,
    confirmation: Confirmation,
}

/// The answer of `IDENTIFY_SYSTEM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerIdentity {
    pub(crate) system: String,
    pub(crate) timeline: u32,
    pub(crate) end: Lsn,
}

impl Feed {
    /// Logs in over this connection.
    pub(crate) async fn log_in(replication: Replication) -> Result<Self, Error> {
        let now = Instant::now();
        let (stream, login) = (replication.stream, replication.login);
        let mut feed = Self {
            stream,
            read: BytesMut::with_capacity(1 << 16),
            write: BytesMut::new(),
            last_received: now,
            reply_requested: false,
            last_sent: now,
            keep_alive: KEEP_ALIVE_INTERVAL,
            confirmation: Confirmation::default(),
        };
        within_reply_timeout(feed.exchange_login(&login)).await?;
        Ok(feed)
    }

    pub(crate) async fn identify(&mut self) -> Result<ServerIdentity, Error> {
        let rows = self.query("IDENTIFY_SYSTEM").await?;
        let row = rows.first().map(Vec::as_slice);
        let read = || match row {
            Some([Some(system), Some(timeline), Some(end), ..]) => Some(ServerIdentity {
                system: system.clone(),
                timeline: timeline.parse().ok()?,
                end: end.parse().ok()?,
            }),
            _ => None,
        };
        read().ok_or_else(|| Error::lost("the server does not say who it is"))
    }

    /// The server's history of timelines; empty on timeline 1.
    pub(crate) async fn timeline_history(&mut self, timeline: u32) -> Result<String, Error> {
        if timeline <= 1 {
            return Ok(String::new());
        }
        let rows = self.query(&format!("TIMELINE_HISTORY {timeline}")).await?;
        let content = rows.into_iter().next().and_then(|mut row| row.pop()?);
        content.ok_or_else(|| Error::lost("the server has no history of its timelines"))
    }

    /// Runs a command or a statement, and returns its rows as texts.
    pub(crate) async fn query(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Error> {
        frontend::query(sql, &mut self.write).map_err(Error::io)?;
        within_reply_timeout(async {
            self.flush().await?;
            self.read_rows().await
        })
        .await
    }

    async fn read_rows(&mut self) -> Result<Vec<Vec<Option<String>>>, Error> {
        let (mut rows, mut refusal) = (Vec::new(), None);
        loop {
            match self.read_message().await? {
                Message::DataRow(body) => {
                    let bytes = body.buffer_bytes().clone();
                    let row = body.ranges().map(|range| {
                        Ok(range.map(|range| String::from_utf8_lossy(&bytes[range]).into_owned()))
                    });
                    rows.push(row.collect().map_err(Error::io)?);
                }
                Message::ErrorResponse(body) => refusal = Some(error_from_response(&body)),
                Message::ReadyForQuery(_) => return refusal.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }

    /// Sets whether the server synchronizes the slot to its standbys. The slot must be inactive.
    pub(crate) async fn set_failover(&mut self, slot: &str, is_on: bool) -> Result<(), Error> {
        let sql = format!("ALTER_REPLICATION_SLOT {slot} (FAILOVER {is_on})");
        self.query(&sql).await.map(drop)
    }

    /// Begins to stream from this place, or from the slot's place if that is later.
    pub(crate) async fn start_streaming(
        &mut self,
        slot: &str,
        from: Lsn,
        confirmed: Lsn,
        options: &str,
    ) -> Result<(), Error> {
        let sql = format!("START_REPLICATION SLOT {slot} LOGICAL {from} ({options})");
        frontend::query(&sql, &mut self.write).map_err(Error::io)?;
        self.confirmation = Confirmation::new(confirmed);
        within_reply_timeout(async {
            self.flush().await?;
            loop {
                // CopyBothResponse, which postgres-protocol does not parse.
                let header = self.read_header().await?;
                if header.tag() == b'W' {
                    self.read
                        .advance(1 + usize::try_from(header.len()).unwrap_or(0));
                    return Ok(());
                }
                if let Message::ErrorResponse(body) = self.read_message().await? {
                    return Err(error_from_response(&body));
                }
            }
        })
        .await?;
        self.last_received = Instant::now();
        Ok(())
    }

    /// Sends a status message often enough for this `wal_sender_timeout`.
    pub(crate) fn keep_alive_every(&mut self, sender_timeout: Duration) {
        if !sender_timeout.is_zero() {
            self.keep_alive = KEEP_ALIVE_INTERVAL.min(sender_timeout / 3);
        }
    }

    /// Reads the next frame. Safe to cancel: bytes that were read stay here. Sends status messages
    /// while it waits, and requests a reply from a silent server.
    pub(crate) async fn next_frame(&mut self) -> Result<Frame, Error> {
        loop {
            if let Some(frame) = self.take_frame()? {
                self.last_received = Instant::now();
                self.reply_requested = false;
                let place = match &frame {
                    Frame::Data { record, .. } => *record,
                    Frame::Alive { end, .. } => *end,
                };
                match self.confirmation.advance_stream_to(place) {
                    true => self.send_status(false).await?,
                    false => self.keep_alive().await?,
                }
                return Ok(frame);
            }
            let wait = self.keep_alive.saturating_sub(self.last_sent.elapsed());
            match timeout(wait, self.fill_buffer()).await {
                Ok(filled) => filled?,
                Err(_) => self.check_liveness().await?,
            }
        }
    }

    /// Sends a status message if one is due. Call it while no frames are read.
    pub(crate) async fn keep_alive(&mut self) -> Result<(), Error> {
        match self.last_sent.elapsed() >= self.keep_alive {
            true => self.send_status(false).await,
            false => Ok(()),
        }
    }

    /// Requests a reply from a silent server, and fails if it does not come.
    async fn check_liveness(&mut self) -> Result<(), Error> {
        let silent = self.last_received.elapsed();
        if silent > DISCONNECT_AFTER && self.reply_requested {
            let silent = silent.as_secs();
            return Err(Error::lost(format!(
                "the server has been silent for {silent} s"
            )));
        }
        if silent > REQUEST_REPLY_AFTER && !self.reply_requested {
            self.reply_requested = true;
            return self.send_status(true).await;
        }
        self.keep_alive().await
    }

    /// Confirms everything before this place: at once, or when the stream has passed the other
    /// place.
    pub(crate) async fn confirm(&mut self, done: Lsn, after: Option<Lsn>) -> Result<(), Error> {
        self.confirmation.confirm(done, after);
        self.send_status(false).await
    }

    /// Sends a status message.
    pub(crate) async fn report_progress(&mut self) -> Result<(), Error> {
        self.send_status(false).await
    }

    /// Requests a keepalive with the server's place.
    pub(crate) async fn request_reply(&mut self) -> Result<(), Error> {
        self.send_status(true).await
    }

    /// Ends the stream, so that the server takes the last confirmation and releases the slot. A
    /// connection that is closed instead may lose both: bytes that were not read reset it.
    pub(crate) async fn end_stream(mut self) {
        let ended = async {
            if self.confirmation.has_unconfirmed() {
                self.request_reply().await?;
            }
            while self.confirmation.has_unconfirmed() {
                self.next_frame().await?;
            }
            frontend::copy_done(&mut self.write);
            self.flush().await?;
            while !matches!(self.read_message().await?, Message::ReadyForQuery(_)) {}
            Ok::<_, Error>(())
        };
        if !matches!(timeout(END_TIMEOUT, ended).await, Ok(Ok(()))) {
            tracing::debug!("the server did not end the stream in order");
        }
    }

    async fn send_status(&mut self, asks: bool) -> Result<(), Error> {
        let mut status = BytesMut::with_capacity(34);
        status.put_u8(b'r');
        for _ in ["written", "flushed", "applied"] {
            status.put_u64(self.confirmation.confirmed_lsn().0);
        }
        status.put_i64(0);
        status.put_u8(u8::from(asks));
        let copy = frontend::CopyData::new(status.freeze()).map_err(Error::io)?;
        copy.write(&mut self.write);
        self.last_sent = Instant::now();
        within_reply_timeout(self.flush()).await
    }

    /// Takes a complete frame from the buffer.
    fn take_frame(&mut self) -> Result<Option<Frame>, Error> {
        while let Some(header) = self.peek_header()? {
            let message = match header.tag() {
                b'd' | b'E' | b'N' | b'S' => self.take_message()?,
                tag => {
                    let tag = char::from(tag);
                    return Err(Error::lost(format!("the server ended the stream ({tag})")));
                }
            };
            match message {
                Some(Message::CopyData(body)) => return parse_frame(body.into_bytes()).map(Some),
                Some(Message::ErrorResponse(body)) => return Err(error_from_response(&body)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The header of the next message, if the whole message was read.
    fn peek_header(&mut self) -> Result<Option<Header>, Error> {
        let Some(header) = Header::parse(&self.read).map_err(Error::io)? else {
            return Ok(None);
        };
        let length = usize::try_from(header.len()).unwrap_or(0);
        if self.read.len() > length {
            return Ok(Some(header));
        }
        self.read.reserve(length + 1 - self.read.len());
        Ok(None)
    }

    fn take_message(&mut self) -> Result<Option<Message>, Error> {
        Message::parse(&mut self.read).map_err(Error::io)
    }

    async fn fill_buffer(&mut self) -> Result<(), Error> {
        match self.stream.read_buf(&mut self.read).await {
            Ok(0) => Err(Error::lost("the server closed the connection")),
            Ok(_) => Ok(()),
            Err(error) => Err(Error::io(error)),
        }
    }

    async fn flush(&mut self) -> Result<(), Error> {
        let written = self.stream.write_all_buf(&mut self.write).await;
        written.map_err(Error::io)?;
        self.stream.flush().await.map_err(Error::io)
    }

    async fn read_header(&mut self) -> Result<Header, Error> {
        loop {
            if let Some(header) = self.peek_header()? {
                return Ok(header);
            }
            self.fill_buffer().await?;
        }
    }

    async fn read_message(&mut self) -> Result<Message, Error> {
        self.read_header().await?;
        let message = self.take_message()?;
        message.ok_or_else(|| Error::lost("the server sent half a message"))
    }
}

fn parse_frame(mut data: Bytes) -> Result<Frame, Error> {
    let short = || Error::lost("the server sent a frame that is cut short");
    let tag = data.first().copied().ok_or_else(short)?;
    let least = match tag {
        b'w' => 25,
        b'k' => 18,
        _ => {
            return Err(Error::lost(format!(
                "the server sent the unknown frame {tag}"
            )));
        }
    };
    if data.len() < least {
        return Err(short());
    }
    data.advance(1);
    let place = Lsn(data.get_u64());
    Ok(match tag {
        b'w' => {
            data.advance(16);
            Frame::Data {
                record: place,
                message: data,
            }
        }
        _ => {
            data.advance(8);
            Frame::Alive {
                end: place,
                is_asked: data.get_u8() == 1,
            }
        }
    })
}

async fn within_reply_timeout<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match timeout(REPLY_TIMEOUT, work).await {
        Ok(done) => done,
        Err(_) => Err(Error::lost(format!(
            "the server did not answer within {} s",
            REPLY_TIMEOUT.as_secs()
        ))),
    }
}

/// The server's error with its SQLSTATE.
fn error_from_response(body: &ErrorResponseBody) -> Error {
    let (mut code, mut text) = (String::new(), String::new());
    let mut fields = body.fields();
    while let Ok(Some(field)) = fields.next() {
        let value = String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'C' => code = value,
            b'M' => text = value,
            _ => {}
        }
    }
    Error::refused(code, text)
}
