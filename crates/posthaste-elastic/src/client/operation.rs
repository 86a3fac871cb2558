//! Write operations, their conditions and their outcomes. No IO and no clock.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::name;
use crate::{Error, ErrorKind};

pub(super) const BULK_CALL: &str = "bulk";

/// One write to one document.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    pub(super) action: Action,
    index: String,
    pub(super) id: String,
    condition: Condition,
    pipeline: Option<String>,
    retries: u32,
    by_alias: bool,
    /// The line after the action in a bulk request.
    body: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    Index,
    Create,
    Update,
    Delete,
}

/// The condition on which a write is executed; otherwise it is a [`Conflict`](ErrorKind::Conflict).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// No condition.
    #[default]
    None,
    /// The document has not been written since this state was seen.
    Unchanged(Seen),
    /// The version of the document, or of its tombstone while one exists, is lower than this one,
    /// which the document then gets. Not for updates.
    Newer(i64),
    /// As [`Newer`](Self::Newer), or the same version. Not for updates.
    NotOlder(i64),
}

/// The state of a document when it was read or written: each write changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The sequence number of the write.
    pub seq_no: u64,
    /// The term of the primary shard that assigned the number.
    pub primary_term: u64,
}

impl Seen {
    /// Whether it was the first write of its shard: the index may be new.
    pub(crate) fn is_first(self) -> bool {
        self.seq_no == 0
    }
}

/// A [stored](crate::Client::put_script) script and its parameters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Script<'a, P> {
    /// The name under which it is stored.
    pub id: &'a str,
    /// The parameters: an object.
    pub params: P,
}

/// A write that the server has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The effect of the write.
    pub effect: Effect,
    /// The version of the document after the write.
    pub version: i64,
    /// The state of the document after the write.
    pub seen: Seen,
}

/// The effect of an acknowledged write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The document was created.
    Created,
    /// The document was changed or replaced.
    Updated,
    /// The document was deleted.
    Deleted,
    /// The script wrote nothing.
    Noop,
    /// The document to delete did not exist. If a version was given, a tombstone has it now.
    NotFound,
}

/// The reason why one write among several was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// The outcome of the write.
    pub kind: ErrorKind,
    /// The HTTP status that the write would have had alone.
    pub status: u16,
    /// The server's error, in one line.
    pub reason: String,
}

impl Refusal {
    /// Converts the refusal to the error of a call with this write only.
    pub(crate) fn into_error(self, call: &'static str) -> Error {
        Error::new(call, self.kind, self.reason).with_status(self.status, None)
    }
}

impl Operation {
    /// Writes a document, and replaces an existing one.
    ///
    /// # Errors
    /// The document is not a JSON object.
    pub fn index(index: &str, id: &str, document: &impl Serialize) -> Result<Self, Error> {
        Self::new(Action::Index, index, id).with_document(document)
    }

    /// Writes a new document; if one exists, it is a [`Conflict`](ErrorKind::Conflict).
    ///
    /// # Errors
    /// As [`index`](Self::index).
    pub fn create(index: &str, id: &str, document: &impl Serialize) -> Result<Self, Error> {
        Self::new(Action::Create, index, id).with_document(document)
    }

    /// Changes an existing document by a script; if none exists, it is
    /// [`Missing`](ErrorKind::Missing).
    ///
    /// The server reads, runs the script and writes as one step; a concurrent write makes it a
    /// [`Conflict`](ErrorKind::Conflict). It is not retried, unless [`retried`](Self::retried) is
    /// set.
    ///
    /// # Errors
    /// The parameters are not a JSON object.
    pub fn update(
        index: &str,
        id: &str,
        script: &Script<'_, impl Serialize>,
    ) -> Result<Self, Error> {
        #[derive(Serialize)]
        struct Body<'a, S> {
            script: &'a S,
        }
        Self::new(Action::Update, index, id).with_document(&Body { script })
    }

    /// Deletes a document, if it exists.
    pub fn delete(index: &str, id: &str) -> Self {
        Self::new(Action::Delete, index, id)
    }

    fn new(action: Action, index: &str, id: &str) -> Self {
        Self {
            action,
            index: index.into(),
            id: id.into(),
            condition: Condition::None,
            pipeline: None,
            retries: 0,
            by_alias: false,
            body: Vec::new(),
        }
    }

    fn with_document(mut self, document: &impl Serialize) -> Result<Self, Error> {
        let invalid = |reason: String| Error::invalid(BULK_CALL, reason);
        serde_json::to_writer(&mut self.body, document)
            .map_err(|error| invalid(error.to_string()))?;
        if self.body.first() != Some(&b'{') {
            return Err(invalid("a document is a JSON object".into()));
        }
        // Raw values are sent as they were written. JSON strings contain no literal line ends, so
        // these are between tokens.
        for byte in &mut self.body {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        Ok(self)
    }

    /// Sets the condition.
    pub fn when(self, condition: Condition) -> Self {
        Self { condition, ..self }
    }

    /// Sets the ingest pipeline. Not for updates.
    pub fn through(self, pipeline: &str) -> Self {
        let pipeline = Some(pipeline.to_owned());
        Self { pipeline, ..self }
    }

    /// Retries an update on the server up to this many times if other clients write the document
    /// between its read and its write. For updates without a condition.
    pub fn retried(self, retries: u32) -> Self {
        Self { retries, ..self }
    }

    /// Requires that the given name is an alias: otherwise it is [`NoIndex`](ErrorKind::NoIndex),
    /// and the write creates no index of this name. Not for deletions: servers ignore it there.
    pub fn by_alias(self) -> Self {
        let by_alias = true;
        Self { by_alias, ..self }
    }

    /// Returns the index or alias to which it writes, as it was given.
    pub fn at(&self) -> &str {
        &self.index
    }

    /// Returns the id of the document that it writes.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns its approximate size in a request, in bytes.
    pub fn size(&self) -> usize {
        const AROUND: usize = 100;
        AROUND + self.index.len() + self.id.len() + self.body.len()
    }

    pub(super) fn accepts_outcome(&self, outcome: &Result<Written, Refusal>) -> bool {
        let Ok(written) = outcome else { return true };
        match self.action {
            Action::Index => matches!(written.effect, Effect::Created | Effect::Updated),
            Action::Create => written.effect == Effect::Created,
            Action::Update => written.effect != Effect::NotFound,
            Action::Delete => matches!(written.effect, Effect::Deleted | Effect::NotFound),
        }
    }

    /// Checks for errors because of which a server would refuse the whole request.
    pub(super) fn check(&self) -> Result<(), Error> {
        name::check_index_name(BULK_CALL, &self.index)?;
        name::check_id(BULK_CALL, &self.id)?;
        let reason = match (self.action, self.condition) {
            (_, Condition::Newer(version) | Condition::NotOlder(version)) if version < 0 => {
                "a version must not be negative"
            }
            (Action::Create | Action::Update, Condition::Newer(_) | Condition::NotOlder(_)) => {
                "only index and delete operations take a version"
            }
            (Action::Delete, _) if self.by_alias => "a delete operation cannot use require_alias",
            (Action::Create, Condition::Unchanged(_)) => {
                "a create operation cannot have a condition on an earlier state"
            }
            (action, condition)
                if self.retries > 0
                    && (action != Action::Update || condition != Condition::None) =>
            {
                "only an update without a condition is tried again"
            }
            _ => return Ok(()),
        };
        Err(Error::invalid(BULK_CALL, reason))
    }

    pub(super) fn write_to(&self, lines: &mut Vec<u8>) {
        let mut what = Map::new();
        what.insert("_index".into(), self.index.as_str().into());
        what.insert("_id".into(), self.id.as_str().into());
        if let Some(pipeline) = &self.pipeline {
            what.insert("pipeline".into(), pipeline.as_str().into());
        }
        if self.by_alias {
            what.insert("require_alias".into(), true.into());
        }
        if self.retries > 0 {
            what.insert("retry_on_conflict".into(), self.retries.into());
        }
        match self.condition {
            Condition::None => {}
            Condition::Unchanged(seen) => {
                what.insert("if_seq_no".into(), seen.seq_no.into());
                what.insert("if_primary_term".into(), seen.primary_term.into());
            }
            Condition::Newer(version) => put_version(&mut what, version, "external"),
            Condition::NotOlder(version) => put_version(&mut what, version, "external_gte"),
        }
        let head = match self.action {
            Action::Index => json!({"index": what}),
            Action::Create => json!({"create": what}),
            Action::Update => json!({"update": what}),
            Action::Delete => json!({"delete": what}),
        };
        lines.extend_from_slice(head.to_string().as_bytes());
        lines.push(b'\n');
        if self.action != Action::Delete {
            lines.extend_from_slice(&self.body);
            lines.push(b'\n');
        }
    }
}

fn put_version(what: &mut Map<String, Value>, version: i64, kind: &str) {
    what.insert("version".into(), version.into());
    what.insert("version_type".into(), kind.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn multi_line_documents_are_joined_without_changing_values() {
        let raw = "{\n \"a\": \"b\\nc\",\r\n \"n\": 12345678901234567890 }";
        let raw: Box<serde_json::value::RawValue> = serde_json::from_str(raw).unwrap();
        let operation = Operation::index("notes", "1", &raw).unwrap();
        let mut lines = Vec::new();
        operation
            .when(Condition::Newer(7))
            .through("stamp")
            .write_to(&mut lines);
        let lines = String::from_utf8(lines).unwrap();
        let expected = [
            concat!(
                r#"{"index":{"_id":"1","_index":"notes","pipeline":"stamp","version":7,"#,
                r#""version_type":"external"}}"#
            ),
            r#"{  "a": "b\nc",   "n": 12345678901234567890 }"#,
            "",
        ];
        assert_eq!(lines.split('\n').collect::<Vec<_>>(), expected);
        let error = Operation::index("notes", "1", &[1]).unwrap_err();
        assert_eq!(error.to_string(), "bulk: a document is a JSON object");
    }

    #[test]
    fn invalid_bulk_items_are_refused_before_sending() {
        let seen = Seen {
            seq_no: 1,
            primary_term: 1,
        };
        let document = json!({});
        let create = Operation::create("notes", "1", &document).unwrap();
        let index = Operation::index("notes", "1", &document).unwrap();
        for wrong in [
            create.clone().when(Condition::Newer(1)),
            create.clone().when(Condition::Unchanged(seen)),
            index.clone().when(Condition::NotOlder(-1)),
            Operation::delete("notes", ""),
            Operation::delete("no*", "1"),
            Operation::delete("notes", "1").by_alias(),
        ] {
            let error = wrong.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong:?}");
        }
        for right in [create, index.when(Condition::Unchanged(seen))] {
            assert!(right.check().is_ok());
        }
    }
}
