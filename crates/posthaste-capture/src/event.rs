//! Events of changes, and the jobs that carry them. Pure.

use std::fmt::Write as _;

use bytes::Bytes;
use jiff::Timestamp;
use posthaste::NewJob;
use posthaste_relay::Outgoing;
use serde::ser::{Serialize, Serializer};
use serde_json::{Map, Value};
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
        self.job_with_time(queue, None)
    }

    /// As [`Self::to_job`] with the time of the commit, as it would be sent without a job. Older
    /// relays refuse it.
    pub(crate) fn to_spilled_job(&self, queue: &str) -> Result<NewJob, posthaste::Error> {
        self.job_with_time(queue, Some(self.at.to_string()))
    }

    fn job_with_time(&self, queue: &str, at: Option<String>) -> Result<NewJob, posthaste::Error> {
        // Postgres has no text with a zero byte.
        let text = std::str::from_utf8(&self.body).ok();
        let text = text.filter(|text| !text.contains('\0'));
        let row = OutboxRow {
            id: self.id.to_string(),
            text,
            hex: text.is_none().then(|| encode_hex(&self.body)),
            key: self.key.as_deref(),
            headers: Headers(&self.headers),
            at,
        };
        Ok(NewJob::new(&self.name, &Envelope { row })?.queue(queue))
    }
}

/// The arguments of its job, written without copies of the body: a copy makes millions of them.
#[derive(serde::Serialize)]
struct Envelope<'a> {
    #[serde(rename = "posthaste.outbox")]
    row: OutboxRow<'a>,
}

#[derive(serde::Serialize)]
struct OutboxRow<'a> {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    headers: Headers<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
}

struct Headers<'a>(&'a [(String, String)]);

impl Serialize for Headers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
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
