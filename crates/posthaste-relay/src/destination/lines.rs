//! Lines: newline-delimited JSON into a file, a pipe or standard output.

use std::borrow::Cow;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

use crate::destination::answer::Answer;
use crate::destination::contract::Destination;
use crate::destination::reason::{Failure, Reason};
use crate::message::Message;

/// Writes one line of JSON for each message: `{"id", "name", "kind", "queue", "enqueued_at", "tag",
/// "attempt", "headers", "payload"}`. The payload is JSON if it is valid JSON, else a string; bytes
/// that are not text are hexadecimal digits, with `"payload_encoding": "hex"`. A message is
/// accepted when it was written and flushed, so durability depends on the writer.
///
/// An interrupted write may leave half a line. The next write first ends it with a line break, and
/// the message is written again as a whole: readers must skip lines that are empty or not JSON.
/// Until a write succeeds again, no attempt is counted. A reader that closed its end never comes
/// back ([`Relay::gone`](crate::Relay::gone)).
pub struct Lines<W> {
    writer: Mutex<Writer<W>>,
    is_gone: AtomicBool,
}

struct Writer<W> {
    inner: W,
    /// Whether the last write failed or was cancelled.
    broke_off: bool,
}

impl<W> Lines<W> {
    /// Writes lines into this writer.
    pub fn new(writer: W) -> Self {
        let writer = Writer {
            inner: writer,
            broke_off: false,
        };
        Self {
            writer: Mutex::new(writer),
            is_gone: AtomicBool::new(false),
        }
    }
}

impl<W: AsyncWrite + Unpin> Lines<W> {
    /// Writes these lines, or none, after ending a partial line. Only a write shows whether a
    /// writer works again: flushing a writer that dropped its buffer succeeds.
    async fn write_lines(&self, lines: &[u8]) -> io::Result<()> {
        let mut writer = self.writer.lock().await;
        // The future may be dropped before the write succeeds.
        let broke_off = std::mem::replace(&mut writer.broke_off, true);
        let written = async {
            if broke_off {
                writer.inner.write_all(b"\n").await?;
            }
            writer.inner.write_all(lines).await?;
            writer.inner.flush().await
        };
        let written = written.await;
        writer.broke_off = written.is_err();
        if let Err(error) = &written
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            self.is_gone.store(true, Ordering::Relaxed);
        }
        written
    }
}

#[derive(Serialize)]
struct LineEntry<'a> {
    id: String,
    name: &'a str,
    kind: &'a str,
    queue: &'a str,
    enqueued_at: String,
    tag: &'a str,
    attempt: i32,
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    headers: std::collections::BTreeMap<&'a str, &'a str>,
    payload: Payload<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_encoding: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Payload<'a> {
    Json(&'a RawValue),
    Text(&'a str),
}

/// Encodes a message as a line, including its end.
pub(crate) fn encode_line(message: &Message) -> Result<Vec<u8>, serde_json::Error> {
    let payload = message.payload();
    // A line break would end the line. Outside of strings, where JSON allows it, a blank replaces
    // it.
    let text = match payload.contains(['\n', '\r']) && message.is_json() {
        true => Cow::Owned(payload.replace(['\n', '\r'], " ")),
        false => Cow::Borrowed(payload),
    };
    let entry = LineEntry {
        id: message.id.to_string(),
        name: &message.job.name,
        kind: &message.kind,
        queue: message.queue.as_deref().unwrap_or(&message.job.queue),
        enqueued_at: message.job.enqueued_at.to_string(),
        tag: &message.job.tag,
        attempt: message.job.attempt,
        headers: message
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect(),
        payload: match (message.binary_body(), serde_json::from_str(&text)) {
            (None, Ok(json)) => Payload::Json(json),
            _ => Payload::Text(payload),
        },
        payload_encoding: message.binary_body().map(|_| "hex"),
    };
    let mut line = serde_json::to_vec(&entry)?;
    line.push(b'\n');
    Ok(line)
}

impl<W: AsyncWrite + Unpin + Send + 'static> Destination for Lines<W> {
    fn label(&self) -> String {
        "lines".into()
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            let mut lines = Vec::new();
            for message in batch {
                match encode_line(message) {
                    Ok(line) => lines.extend(line),
                    Err(error) => return Answer::unavailable(error.to_string()).repeat_for(batch),
                }
            }
            match self.write_lines(&lines).await {
                Ok(()) => Answer::Accepted.repeat_for(batch),
                Err(error) => {
                    let reason = Reason::new(Failure::Connect, error.to_string());
                    Answer::unavailable(reason).repeat_for(batch)
                }
            }
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            self.write_lines(b"")
                .await
                .map_err(|error| error.to_string())
        })
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::encode_line;
    use crate::message::mapping::Mapping;
    use crate::message::template::Template;
    use crate::message::tests::{ID, job};

    #[test]
    fn every_message_is_one_line() {
        let message =
            Mapping::default().message(job("audit", r#"{"n": 12345678901234567890}"#), ID);
        let line = encode_line(&message.expect("a message")).expect("a line");
        assert_eq!(
            String::from_utf8(line).expect("text"),
            "{\"id\":\"01900000-0000-7000-8000-00000000002a\",\"name\":\"audit\",\
             \"kind\":\"audit\",\"queue\":\"mail\",\
             \"enqueued_at\":\"2026-11-21T10:00:00Z\",\"tag\":\"signup\",\"attempt\":1,\"payload\":\
             {\"n\": 12345678901234567890}}\n"
        );
        let mapping = Mapping::default().payload(Template::text("[1,\n2]"));
        let message = mapping.message(job("audit", "{}"), ID);
        let line = encode_line(&message.expect("a message")).expect("a line");
        let line = String::from_utf8(line).expect("text");
        assert!(line.ends_with("\"payload\":[1, 2]}\n"), "{line}");
        let row = concat!(
            r#"{"posthaste.outbox": {"id": "01900000-0000-7000-8000-00000000002a", "#,
            r#""hex": "8812"}}"#
        );
        let message = Mapping::default().message(job("audit", row), ID);
        let line = encode_line(&message.expect("a message")).expect("a line");
        let line = String::from_utf8(line).expect("text");
        let end = "\"payload\":\"8812\",\"payload_encoding\":\"hex\"}\n";
        assert!(line.ends_with(end), "{line}");
    }
}
