//! Events of changes, and the jobs that carry them. Pure.

use std::fmt::Write as _;

use bytes::Bytes;
use jiff::Timestamp;
use posthaste::NewJob;
use posthaste_relay::Outgoing;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::position::Position;

/// An event before its id and position are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventDraft {
    /// The id that the writer set.
    pub(crate) id: Option<Uuid>,
    pub(crate) name: String,
    /// The key by which receivers partition.
    pub(crate) key: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

/// A committed change for receivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The delivery id, the same each time the change is read.
    pub id: Uuid,
    /// The name of its job.
    pub name: String,
    /// The key by which receivers partition.
    pub key: Option<String>,
    /// Headers, the position among them.
    pub headers: Vec<(String, String)>,
    /// The body that receivers get.
    pub body: Bytes,
    /// The time of the commit.
    pub at: Timestamp,
    /// Its position in the stream.
    pub position: Position,
    /// The key of its row, if the row is deleted after the capture.
    pub(crate) row: Option<Map<String, Value>>,
}

impl Event {
    pub(crate) fn new(
        draft: EventDraft,
        id: Uuid,
        at: Timestamp,
        timeline: u32,
        position: Position,
    ) -> Self {
        let mut headers = draft.headers;
        headers.retain(|(name, _)| name != "position");
        headers.push(("position".into(), format!("{timeline:08x}{position}")));
        Self {
            id: draft.id.unwrap_or(id),
            name: draft.name,
            key: draft.key,
            headers,
            body: draft.body,
            at,
            position,
            row: None,
        }
    }

    /// The approximate size of its job in bytes.
    pub(crate) fn job_bytes(&self) -> usize {
        self.body.len() + self.name.len() + 200
    }

    /// The message that is sent without a job.
    pub(crate) fn to_outgoing(&self) -> Outgoing<'_> {
        Outgoing {
            id: self.id,
            name: &self.name,
            key: self.key.as_deref(),
            headers: &self.headers,
            body: &self.body,
            at: self.at,
        }
    }

    /// Refuses an event that no job can carry, on both paths.
    pub(crate) fn check_fits_job(&self) -> Result<(), posthaste::Error> {
        let key = self.key.iter();
        let headers = self.headers.iter().flat_map(|(name, value)| [name, value]);
        let mut texts = headers.chain(key).chain([&self.name]);
        let is_plain = texts.all(|text| text.len() <= MAX_UNCHECKED_TEXT && !text.contains('\0'));
        match is_plain && self.body.len() <= MAX_UNCHECKED_BODY && !self.name.is_empty() {
            true => Ok(()),
            false => self.to_spilled_job("").map(drop),
        }
    }

    /// The job that carries it in the envelope of `posthaste.outbox`, which keeps its id.
    pub(crate) fn to_job(&self, queue: &str) -> Result<NewJob, posthaste::Error> {
        self.job_from_row(queue, self.outbox_row())
    }

    /// As [`Self::to_job`] with the time of the commit, as it would be sent without a job. Older
    /// relays refuse it.
    pub(crate) fn to_spilled_job(&self, queue: &str) -> Result<NewJob, posthaste::Error> {
        let mut row = self.outbox_row();
        row.insert("at".into(), json!(self.at.to_string()));
        self.job_from_row(queue, row)
    }

    fn job_from_row(
        &self,
        queue: &str,
        row: Map<String, Value>,
    ) -> Result<NewJob, posthaste::Error> {
        Ok(NewJob::new(&self.name, &json!({ "posthaste.outbox": row }))?.queue(queue))
    }

    fn outbox_row(&self) -> Map<String, Value> {
        let mut row = Map::new();
        row.insert("id".into(), json!(self.id.to_string()));
        let (field, text) = match std::str::from_utf8(&self.body) {
            // Postgres has no text with a zero byte.
            Ok(text) if !text.contains('\0') => ("text", text.to_owned()),
            _ => ("hex", encode_hex(&self.body)),
        };
        row.insert(field.into(), json!(text));
        if let Some(key) = &self.key {
            row.insert("key".into(), json!(key));
        }
        let headers = self.headers.iter();
        let headers: Map<String, Value> = headers
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        row.insert("headers".into(), Value::Object(headers));
        row
    }
}

/// A shorter body fits into a job of 1 MiB even if all its characters are escaped.
const MAX_UNCHECKED_BODY: usize = 100 << 10;
/// The longest name in bytes.
const MAX_UNCHECKED_TEXT: usize = 255;

fn encode_hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}
