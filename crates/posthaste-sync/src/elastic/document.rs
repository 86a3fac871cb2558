//! The document as a server stores it: the fields of the row, and one field of the sync. No IO.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{IndexedVersion, Mark, Write};

/// The name of the sync's field.
pub(super) const POSTHASTE_FIELD: &str = "posthaste";
/// The document's id as a field: servers sort by `_id` only if configured to, which costs memory.
pub(super) const ID_FIELD: &str = "posthaste.id";
const DELETED_AT_FIELD: &str = "posthaste.deleted_at";

/// The longest id that servers accept, in bytes.
const MAX_ID_BYTES: usize = 512;

#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct PosthasteField {
    id: String,
    token: i64,
    /// The version that the document was written with. Partial updates by other clients leave it
    /// unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<i64>,
    /// The time of the deletion in milliseconds since 1970, only in the entry that a deletion
    /// leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_at: Option<i64>,
}

pub(super) fn is_id(id: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&id.len())
}

/// Returns the text to store for a write. The error is the reason of the refusal.
pub(super) fn stored_text(write: &Write, now: i64) -> Result<Box<RawValue>, String> {
    let ours = PosthasteField {
        id: write.id.clone(),
        token: write.token,
        mark: write.mark.as_number(),
        deleted_at: write.document.is_none().then_some(now),
    };
    let ours = serde_json::to_string(&ours).map_err(|error| error.to_string())?;
    let fields = match &write.document {
        None => "}",
        Some(document) => document
            .trim_start()
            .strip_prefix('{')
            .ok_or("a document is a JSON object")?
            .trim_start(),
    };
    let comma = if fields.starts_with('}') { "" } else { "," };
    let text = format!("{{\"{POSTHASTE_FIELD}\":{ours}{comma}{fields}");
    RawValue::from_string(text).map_err(|error| {
        // The error's text may quote the document, and its position is not that in the document.
        format!("the document is not JSON ({:?})", error.classify())
    })
}

/// Returns the state of a stored document.
pub(super) fn parse_entry(version: i64, source: Option<&RawValue>) -> IndexedVersion {
    #[derive(Deserialize)]
    struct Stored {
        posthaste: Option<PosthasteField>,
    }
    let source = source.map_or("{}", RawValue::get);
    let stored: Option<Stored> = serde_json::from_str(source).ok();
    let is_foreign = stored.as_ref().is_some_and(|one| one.posthaste.is_none());
    // A document with an invalid field of this name was not written by a sync either.
    let ours = stored.and_then(|stored| stored.posthaste);
    let is_altered = ours.as_ref().is_none_or(|ours| ours.mark != Some(version));
    let ours = ours.unwrap_or_default();
    IndexedVersion {
        mark: Mark::from_number(version),
        token: ours.token,
        is_live: ours.deleted_at.is_none(),
        is_altered,
        is_foreign,
    }
}

/// Returns whether the stored text is this document with the sync's field.
pub(super) fn matches_document(source: Option<&RawValue>, document: &str) -> bool {
    let stored: Option<Value> = source.and_then(|text| serde_json::from_str(text.get()).ok());
    let Some(Value::Object(mut stored)) = stored else {
        return false;
    };
    stored.remove(POSTHASTE_FIELD);
    serde_json::from_str(document).is_ok_and(|document: Value| document == Value::Object(stored))
}

/// Returns whether the stored text lacks the sync's field, so that no sync wrote it.
pub(super) fn lacks_posthaste_field(source: Option<&RawValue>) -> bool {
    #[derive(Deserialize)]
    struct Stored {
        posthaste: Option<serde::de::IgnoredAny>,
    }
    let source = source.map_or("{}", RawValue::get);
    serde_json::from_str(source).is_ok_and(|stored: Stored| stored.posthaste.is_none())
}

/// The parts of a definition that must be objects, if they exist.
const OBJECT_PATHS: [&str; 5] = [
    "/settings",
    "/aliases",
    "/mappings",
    "/mappings/properties",
    "/mappings/_meta",
];

/// Refuses a definition that no index can be created with. The error names the invalid part without
/// quoting it.
pub(crate) fn check_definition(users: &Value) -> Result<(), String> {
    if !users.is_object() {
        return Err("definition: must be an object".into());
    }
    let is_wrong = |path: &&&str| users.pointer(path).is_some_and(|part| !part.is_object());
    match OBJECT_PATHS.iter().find(is_wrong) {
        None => Ok(()),
        Some(path) => Err(format!(
            "definition: {} must be an object",
            path[1..].replace('/', ".")
        )),
    }
}

/// Returns the body that an index is created with. The definition must have been
/// [checked](check_definition).
pub(super) fn index_definition(users: &Value, alias: &str, recipe: &str) -> Value {
    let mut definition = users.clone();
    // The token is never searched, so it costs only its place in the source.
    let stored = json!({"type": "long", "index": false, "doc_values": false});
    definition["mappings"]["properties"][POSTHASTE_FIELD] = json!({"dynamic": false, "properties": {
        "id": {"type": "keyword"}, "token": stored, "deleted_at": {"type": "long"},
    }});
    definition["mappings"]["_meta"][POSTHASTE_FIELD] =
        json!({"definition": definition_digest(users, recipe)});
    definition["aliases"][alias] = json!({"is_write_index": true});
    definition
}

/// Returns a digest that distinguishes definitions, whatever the order of their fields, and recipes
/// of documents.
pub(super) fn definition_digest(users: &Value, recipe: &str) -> String {
    let digest = Sha256::digest([&canonical_json(users), recipe].concat());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn canonical_json(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, &Value> = fields.iter().collect();
            let fields = fields.into_iter();
            let fields = fields.map(|(name, value)| format!("{name:?}:{}", canonical_json(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(canonical_json).collect();
            format!("[{}]", values.join(","))
        }
        plain => plain.to_string(),
    }
}

/// Returns the digest of the definition that an index was created with, if it is recorded.
pub(super) fn definition_digest_of(described: &Value) -> Option<&str> {
    described["mappings"]["_meta"][POSTHASTE_FIELD]["definition"].as_str()
}

/// Returns whether an index has the mappings of the sync's field.
pub(super) fn has_posthaste_field(described: &Value) -> bool {
    let ours = &described["mappings"]["properties"][POSTHASTE_FIELD]["properties"];
    ours["id"]["type"] == "keyword" && ours["deleted_at"]["type"] == "long"
}

/// Returns the name of the alias's index of this number.
pub(super) fn numbered_index(alias: &str, number: u64) -> String {
    format!("{alias}-{number}")
}

/// Returns the number of an index of this alias.
pub(super) fn index_number(alias: &str, index: &str) -> Option<u64> {
    let number = index.strip_prefix(alias)?.strip_prefix('-')?;
    number.parse().ok()
}

pub(super) fn deletion_query() -> Value {
    json!({"exists": {"field": DELETED_AT_FIELD}})
}

pub(super) fn unmanaged_query() -> Value {
    json!({"bool": {"must_not": [{"exists": {"field": ID_FIELD}}]}})
}

pub(super) fn deleted_before_query(ms: i64) -> Value {
    json!({"range": {DELETED_AT_FIELD: {"lt": ms}}})
}

pub(super) fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

pub(super) fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(document: Option<&str>) -> Write {
        Write {
            id: "ä\"1".into(),
            mark: Mark {
                version: 7,
                pass: 2,
            },
            token: 5,
            document: document.map(str::to_owned),
        }
    }

    #[test]
    fn stored_documents_have_one_extra_field() {
        for (document, stored) in [
            (Some("{}"), json!({})),
            (Some(" {\n} "), json!({})),
            (Some("{\"a\": [1, {}]}"), json!({"a": [1, {}]})),
        ] {
            let mut stored = stored;
            let plain = stored.to_string();
            stored[POSTHASTE_FIELD] = json!({"id": "ä\"1", "token": 5, "mark": 7 << 12 | 2});
            let text = stored_text(&write(document), 9).unwrap();
            assert_eq!(serde_json::from_str::<Value>(text.get()).unwrap(), stored);
            let shown = parse_entry(7 << 12 | 2, Some(&text));
            assert_eq!((shown.mark, shown.token), (write(None).mark, 5));
            assert!(shown.is_live && !shown.is_altered);
            assert!(
                matches_document(Some(&text), &plain)
                    && !matches_document(Some(&text), r#"{"a": [1]}"#)
            );
            // A partial update retains the sync's field and increments the version.
            assert!(parse_entry(7 << 12 | 3, Some(&text)).is_altered);
        }
        let gone = stored_text(&write(None), 9).unwrap();
        assert_eq!(
            gone.get(),
            r#"{"posthaste":{"id":"ä\"1","token":5,"mark":28674,"deleted_at":9}}"#
        );
        assert!(!parse_entry(0, Some(&gone)).is_live);
        // A document of another client is not the sync's, whatever its version is.
        for source in [
            "{}",
            r#"{"posthaste": 5}"#,
            r#"{"posthaste": {"id": 7, "mark": 1}}"#,
        ] {
            let source = RawValue::from_string(source.into()).unwrap();
            let shown = parse_entry(1, Some(&source));
            assert!(shown.is_altered && shown.is_live, "{source}");
            assert_eq!(shown.mark.version, 0);
        }
    }

    #[test]
    fn non_object_documents_are_refused_without_quoting() {
        for wrong in ["", "[1]", "{", "{\"geheim\"", "{} {}", "{\"geheim\": }"] {
            let reason = stored_text(&write(Some(wrong)), 9).unwrap_err();
            assert!(!reason.contains("geheim"), "{reason}");
        }
    }

    #[test]
    fn definitions_differ_by_content() {
        let one: Value =
            serde_json::from_str(r#"{"settings": {"a": 1, "b": [2, {}]}, "mappings": {}}"#)
                .unwrap();
        let same: Value =
            serde_json::from_str(r#"{"mappings": {}, "settings": {"b": [2, {}], "a": 1}}"#)
                .unwrap();
        let made = index_definition(&one, "notes", "");
        assert_eq!(
            definition_digest_of(&made),
            Some(&*definition_digest(&same, ""))
        );
        assert!(has_posthaste_field(&made) && made["aliases"]["notes"]["is_write_index"] == true);
        for other in [
            json!({}),
            json!({"settings": {"a": "1", "b": [2, {}]}, "mappings": {}}),
            json!({"settings": {"a": 1, "b": [{}, 2]}, "mappings": {}}),
        ] {
            assert_ne!(
                definition_digest(&other, ""),
                definition_digest(&one, ""),
                "{other}"
            );
        }
        assert_ne!(
            definition_digest(&one, "other documents"),
            definition_digest(&one, "")
        );
        assert_eq!(definition_digest_of(&json!({"mappings": {}})), None);
    }

    #[test]
    fn invalid_definitions_are_refused_by_name_without_quoting() {
        for (wrong, expected) in [
            (json!("geheim"), "definition: must be an object"),
            (
                json!({"settings": "geheim"}),
                "definition: settings must be",
            ),
            (
                json!({"aliases": ["geheim"]}),
                "definition: aliases must be",
            ),
            (json!({"mappings": null}), "definition: mappings must be"),
            (
                json!({"mappings": {"properties": "geheim"}}),
                "definition: mappings.properties must be",
            ),
            (
                json!({"mappings": {"_meta": 5}}),
                "definition: mappings._meta must be",
            ),
        ] {
            let reason = check_definition(&wrong).unwrap_err();
            assert!(
                reason.contains(expected) && !reason.contains("geheim"),
                "{reason}"
            );
        }
        let right = json!({"settings": {}, "mappings": {"properties": {}, "_meta": {"team": 1}}});
        check_definition(&right).unwrap();
        assert_eq!(
            index_definition(&right, "notes", "")["mappings"]["_meta"]["team"],
            1
        );
    }

    #[test]
    fn indexes_are_named_after_their_alias_and_number() {
        assert_eq!(
            index_number("notes", &numbered_index("notes", 12)),
            Some(12)
        );
        for other in ["notes", "notes-", "notes-next", "other-1", "notes-a-1"] {
            assert_eq!(index_number("notes", other), None);
        }
    }
}
