//! Rows of `posthaste.outbox`: jobs whose arguments are `{"posthaste.outbox": {…}}`. A row has the
//! id that its writer set, and a payload of any bytes or a reference to a row of another table.
//! Pure; sql/functions/relay.sql writes them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use posthaste::Job;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

/// The first characters of such a job's arguments, as the database prints them.
const ENVELOPE_BEGINNING: &str = "{\"posthaste.outbox\": {";

/// A job that was taken out of its envelope.
pub(crate) struct OutboxJob {
    pub(crate) job: Arc<Job>,
    /// The id that receivers see.
    pub(crate) id: Uuid,
    /// The payload, if it is not text.
    pub(crate) bytes: Option<Arc<[u8]>>,
    /// The row that the job refers to, if it has no payload.
    pub(crate) reference: Option<Reference>,
    /// Headers that the writer of the row set.
    pub(crate) headers: Vec<(String, String)>,
    /// The arguments are those that were enqueued, not a payload of the outbox.
    pub(crate) is_call: bool,
}

/// A row of another table, as the outbox refers to it.
pub(crate) struct Reference {
    pub(crate) table: String,
    pub(crate) id: String,
}

impl OutboxJob {
    /// Replaces the reference by the payload that was read.
    pub(crate) fn with_payload(self, payload: Vec<u8>) -> Self {
        let (text, bytes) = match String::from_utf8(payload) {
            Ok(text) => (text, None),
            Err(error) => {
                let bytes: Arc<[u8]> = error.into_bytes().into();
                (encode_hex(&bytes), Some(bytes))
            }
        };
        let job = Job::clone(&self.job).with_kwargs_json(text);
        Self {
            job: Arc::new(job),
            id: self.id,
            bytes,
            reference: None,
            headers: self.headers,
            is_call: false,
        }
    }
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(rename = "posthaste.outbox")]
    row: OutboxRow,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutboxRow {
    id: String,
    /// A payload that is valid UTF-8.
    text: Option<String>,
    /// Any other payload, as hexadecimal digits.
    hex: Option<String>,
    table_name: Option<String>,
    table_id: Option<String>,
    /// The key by which receivers partition. The job's own ordering key also decides its order.
    key: Option<String>,
    /// When the event occurred, if that was before it was enqueued.
    at: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// Takes a row of the outbox out of its envelope; returns every other job unchanged.
pub(crate) fn unwrap_envelope(job: Arc<Job>, id: Uuid) -> Result<OutboxJob, String> {
    if !job.kwargs_json().starts_with(ENVELOPE_BEGINNING) {
        return Ok(OutboxJob {
            job,
            id,
            bytes: None,
            reference: None,
            headers: Vec::new(),
            is_call: true,
        });
    }
    let Envelope { row } = serde_json::from_str(job.kwargs_json())
        .map_err(|_| "the row of the outbox cannot be read".to_owned())?;
    let id = row.id.parse();
    let id = id.map_err(|_| "the row of the outbox has no id".to_owned())?;
    let bytes = row.hex.as_deref().map(decode_hex).transpose()?;
    let mut reference = None;
    let kwargs = match (row.text, row.hex, row.table_name, row.table_id) {
        (Some(text), None, None, None) => text,
        (None, Some(hex), None, None) => hex,
        (None, None, Some(table), Some(id)) => {
            let kwargs = json!({ "table_name": table, "table_id": id }).to_string();
            reference = Some(Reference { table, id });
            kwargs
        }
        _ => return Err("the row of the outbox has no payload".into()),
    };
    let mut job = Job::clone(&job).with_kwargs_json(kwargs);
    if let Some(key) = row.key {
        job.ordering_key = Some(key.into());
    }
    if let Some(at) = row.at {
        let at = at.parse();
        job.enqueued_at = at.map_err(|_| "the row of the outbox has an invalid time")?;
    }
    Ok(OutboxJob {
        job: Arc::new(job),
        id,
        bytes,
        reference,
        headers: row.headers.into_iter().collect(),
        is_call: false,
    })
}

pub(crate) fn encode_hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

fn decode_hex(digits: &str) -> Result<Arc<[u8]>, String> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    let bytes: Option<Vec<u8>> = pairs.collect();
    bytes
        .filter(|_| digits.len().is_multiple_of(2))
        .map(Into::into)
        .ok_or_else(|| "the payload of the outbox's row cannot be read".into())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use crate::message::mapping::Mapping;
    use crate::message::template::Template;
    use crate::message::tests::{ID, job};
    use crate::message::{Arguments, Message};

    const OWN: Uuid = Uuid::from_u128(7);

    fn sent(mapping: &Mapping, row: &str) -> Result<Message, String> {
        let kwargs = format!("{{\"posthaste.outbox\": {{\"id\": \"{OWN}\", {row}}}}}");
        mapping.message(job("mail:send", &kwargs), ID)
    }

    #[test]
    fn outbox_rows_keep_their_id_and_payload() {
        let message = sent(&Mapping::default(), r#""text": "{\"to\": \"ü\"}""#);
        let message = message.expect("a message");
        assert_eq!((message.id, &*message.kind), (OWN, "mail:send"));
        assert_eq!(message.payload(), "{\"to\": \"ü\"}");
        assert_eq!(message.body(), "{\"to\": \"ü\"}".as_bytes());
        let by_its_arguments = Template::parse("{kwargs.to} {id}").expect("a template");
        let mapping = Mapping::default().payload(by_its_arguments);
        let message = sent(&mapping, r#""text": "{\"to\": \"ada\"}""#);
        let message = message.expect("a message");
        assert_eq!(message.payload(), format!("ada {OWN}"));
    }

    #[test]
    fn binary_payloads_are_sent_unchanged() {
        let message = sent(&Mapping::default(), r#""hex": "00ff7b""#).expect("a message");
        assert_eq!(message.body(), [0, 255, b'{']);
        assert_eq!(message.payload(), "00ff7b");
        for hex in ["0", "0g", "ü"] {
            assert!(sent(&Mapping::default(), &format!("\"hex\": \"{hex}\"")).is_err());
        }
    }

    #[test]
    fn route_headers_override_row_headers() {
        let row = r#""text": "x", "key": "7", "headers": {"a": "row", "b": "row"}"#;
        let mapping = Mapping::default()
            .header("a", Template::text("route"))
            .kind(Template::parse("{ordering_key}").expect("a template"));
        let message = sent(&mapping, row).expect("a message");
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(message.headers, [header("a", "route"), header("b", "row")]);
        assert_eq!(message.kind, "7");
    }

    #[test]
    fn references_are_parsed() {
        let row = r#""table_name": "orders; DROP", "table_id": "7""#;
        let message = sent(&Mapping::default(), row).expect("a message");
        let reference = r#"{"table_id":"7","table_name":"orders; DROP"}"#;
        assert_eq!(message.arguments(), Arguments::Payload(reference));
    }

    #[test]
    fn malformed_outbox_rows_are_refused() {
        assert!(sent(&Mapping::default(), r#""table_id": "7""#).is_err());
        assert!(sent(&Mapping::default(), r#""text": 7"#).is_err());
        assert!(sent(&Mapping::default(), r#""text": "7", "at": "soon""#).is_err());
    }
}
