//! Reads of documents by their ids.

use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::RawValue;

use super::answer::ErrorBody;
use super::operation::{Refusal, Seen};
use super::send::Call;
use super::{Client, name};
use crate::{Error, ErrorKind};

const GET_CALL: &str = "get";

/// An existing document.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: i64,
    /// The state of the document, for [`Condition::Unchanged`](crate::Condition::Unchanged).
    pub seen: Seen,
    /// The content, if it was requested.
    pub source: Option<Box<RawValue>>,
}

/// The state of a document that a read returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The state after the last write, even if no search finds it yet.
    Latest,
    /// The state that searches have seen since the last refresh.
    Searchable,
}

/// The part of a document that is read in addition to its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The whole document.
    Whole,
    /// One of its fields, with nested fields.
    Field(&'static str),
    /// No content.
    None,
}

impl Document {
    /// Deserializes the content.
    ///
    /// # Errors
    /// The content has another structure, or the document was read without its content.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let source = self.source.as_deref().map_or("null", RawValue::get);
        serde_json::from_str(source).map_err(|error| {
            let place = format!("line {} column {}", error.line(), error.column());
            Error::invalid(
                GET_CALL,
                format!("the document {} is not the requested one, {place}", self.id),
            )
        })
    }
}

impl Client {
    /// Reads one document, `None` if it does not exist.
    ///
    /// # Errors
    /// Also if the index does not exist: that is not an answer about a document.
    pub async fn get(&self, index: &str, id: &str) -> Result<Option<Document>, Error> {
        let found = self
            .multi_get(index, &[id], Reading::Latest, Source::Whole)
            .await?;
        match found.into_iter().next() {
            Some(Ok(document)) => Ok(document),
            Some(Err(refusal)) => Err(refusal.into_error(GET_CALL)),
            None => Err(mismatch_error()),
        }
    }

    /// Reads these documents in one request, in their order: each as the document, `None` if it
    /// does not exist, or the reason why it could not be read.
    ///
    /// A stale copy of the shard may answer a read: the result was true once, and may be outdated.
    ///
    /// # Errors
    /// The request as a whole got no answer.
    pub async fn multi_get(
        &self,
        index: &str,
        ids: &[impl AsRef<str>],
        reading: Reading,
        source: Source,
    ) -> Result<Vec<Result<Option<Document>, Refusal>>, Error> {
        name::check_index_name(GET_CALL, index)?;
        let ids: Vec<&str> = ids.iter().map(AsRef::as_ref).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        for id in &ids {
            name::check_id(GET_CALL, id)?;
        }
        let path = [index, "_mget"];
        let mut call = Call::new(GET_CALL, Method::POST, &path).with_json(&json!({"ids": ids}))?;
        if reading == Reading::Searchable {
            call = call.with_query("realtime", "false");
        }
        call = match source {
            Source::Whole => call,
            Source::Field(field) => call.with_query("_source_includes", field),
            Source::None => call.with_query("_source", "false"),
        };
        let got: MultiGetResponse = self.send_and_parse(call).await?;
        if got.docs.len() != ids.len() {
            return Err(mismatch_error());
        }
        let pairs = got.docs.into_iter().zip(ids);
        pairs
            .map(|(got, id)| got.into_document(id).ok_or_else(mismatch_error))
            .collect()
    }
}

#[derive(Deserialize)]
struct MultiGetResponse {
    docs: Vec<GetResponse>,
}

#[derive(Deserialize)]
struct GetResponse {
    #[serde(rename = "_id")]
    id: String,
    found: Option<bool>,
    error: Option<ErrorBody>,
    #[serde(rename = "_version")]
    version: Option<i64>,
    #[serde(rename = "_seq_no")]
    seq_no: Option<u64>,
    #[serde(rename = "_primary_term")]
    primary_term: Option<u64>,
    #[serde(rename = "_source")]
    source: Option<Box<RawValue>>,
}

impl GetResponse {
    fn into_document(self, id: &str) -> Option<Result<Option<Document>, Refusal>> {
        if self.id != id {
            return None;
        }
        if let Some(error) = self.error {
            let kind = match error.error_type() {
                "index_not_found_exception" => ErrorKind::NoIndex,
                _ => ErrorKind::Unavailable,
            };
            let status = if kind == ErrorKind::NoIndex { 404 } else { 503 };
            let reason = error.to_line();
            return Some(Err(Refusal {
                kind,
                status,
                reason,
            }));
        }
        if !self.found? {
            return Some(Ok(None));
        }
        let seen = Seen {
            seq_no: self.seq_no?,
            primary_term: self.primary_term?,
        };
        Some(Ok(Some(Document {
            id: self.id,
            version: self.version?,
            seen,
            source: self.source,
        })))
    }
}

fn mismatch_error() -> Error {
    let reason = "the answer's documents are not the requested ones";
    Error::new(GET_CALL, ErrorKind::Unanswered, reason)
}
