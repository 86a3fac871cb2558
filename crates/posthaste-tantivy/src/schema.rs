//! The fields of a Tantivy document: its texts, and the mark, token and hash that it was written
//! with.

use std::path::Path;

use serde_json::{Map, Value};
use tantivy::TantivyDocument;
use tantivy::directory::MmapDirectory;
use tantivy::schema::{
    FAST, Field, INDEXED, IndexRecordOption, STORED, STRING, Schema, TextFieldIndexing, TextOptions,
};

use posthaste_sync::Write;

pub(super) const VERSION_FIELD: &str = "_version";
pub(super) const PASS_FIELD: &str = "_pass";
pub(super) const TOKEN_FIELD: &str = "_token";
/// The hash of the document that was indexed.
pub(super) const HASH_FIELD: &str = "_hash";
/// The time of a deletion in milliseconds since 1970, only in the entry that a deletion leaves.
pub(super) const DELETED_AT_FIELD: &str = "_deleted_at";
/// The field of all texts, if no field is configured.
const TEXT_FIELD: &str = "_text";

/// The longest id in bytes: Tantivy does not index longer terms.
const MAX_ID_BYTES: usize = 60_000;

#[derive(Clone)]
pub(super) struct Fields {
    pub(super) id: Field,
    version: Field,
    pass: Field,
    token: Field,
    hash: Field,
    pub(super) deleted_at: Field,
    /// The configured fields by their names in documents; if empty, all texts are indexed in
    /// `text`.
    named: Vec<(String, Field, f32)>,
    text: Option<Field>,
}

pub(super) fn open_index(
    path: &Path,
    fields: &[(String, f32)],
) -> tantivy::Result<(tantivy::Index, Fields)> {
    let mut schema = Schema::builder();
    let words = TextFieldIndexing::default()
        .set_tokenizer("en_stem")
        .set_index_option(IndexRecordOption::WithFreqsAndPositions);
    let words = TextOptions::default().set_indexing_options(words);
    let named = fields
        .iter()
        .map(|(name, boost)| {
            let field = schema.add_text_field(name, words.clone());
            (name.clone(), field, *boost)
        })
        .collect();
    let fields = Fields {
        id: schema.add_text_field("_id", STRING | STORED),
        version: schema.add_i64_field(VERSION_FIELD, FAST),
        pass: schema.add_u64_field(PASS_FIELD, FAST),
        token: schema.add_i64_field(TOKEN_FIELD, FAST),
        hash: schema.add_u64_field(HASH_FIELD, FAST),
        deleted_at: schema.add_i64_field(DELETED_AT_FIELD, FAST | INDEXED),
        text: fields
            .is_empty()
            .then(|| schema.add_text_field(TEXT_FIELD, words)),
        named,
    };
    let index = tantivy::Index::builder().schema(schema.build());
    Ok((index.open_or_create(MmapDirectory::open(path)?)?, fields))
}

impl Fields {
    pub(super) fn searched_fields(&self) -> Vec<Field> {
        let named = self.named.iter().map(|(_, field, _)| *field);
        named.chain(self.text).collect()
    }

    pub(super) fn boosts(&self) -> impl Iterator<Item = (Field, f32)> {
        self.named.iter().map(|(_, field, boost)| (*field, *boost))
    }

    /// Returns the document to store for a write. The error is the reason of the refusal.
    pub(super) fn to_document(&self, write: &Write, now: i64) -> Result<TantivyDocument, String> {
        let mut made = TantivyDocument::new();
        made.add_text(self.id, &write.id);
        made.add_i64(self.version, write.mark.version);
        made.add_u64(self.pass, write.mark.pass.into());
        made.add_i64(self.token, write.token);
        let Some(document) = &write.document else {
            made.add_i64(self.deleted_at, now);
            return Ok(made);
        };
        made.add_u64(self.hash, hash_document(document));
        let document: Map<String, Value> =
            serde_json::from_str(document).map_err(|error| error.to_string())?;
        for (name, field, _) in &self.named {
            document
                .get(name)
                .into_iter()
                .for_each(|value| for_each_text(value, &mut |text| made.add_text(*field, text)));
        }
        if let Some(field) = self.text {
            document
                .values()
                .for_each(|value| for_each_text(value, &mut |text| made.add_text(field, text)));
        }
        Ok(made)
    }
}

pub(super) fn is_id(id: &str) -> bool {
    id.len() <= MAX_ID_BYTES
}

/// Returns the FNV-1a hash of a document, which is the same in every version of this program.
pub(super) fn hash_document(document: &str) -> u64 {
    document.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Passes each text in a value to `take`.
fn for_each_text(value: &Value, take: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => take(text),
        Value::Array(values) => values.iter().for_each(|value| for_each_text(value, take)),
        Value::Object(fields) => fields.values().for_each(|value| for_each_text(value, take)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
