//! Searches, and scans of an index as of one moment.

use std::time::Duration;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::operation::Seen;
use super::send::Call;
use super::{Client, Flavour, name};
use crate::{Error, ErrorKind};

const SEARCH_CALL: &str = "search";
const POINT_IN_TIME_CALL: &str = "point in time";

/// A page of search results.
#[derive(Clone, Debug)]
pub struct Page {
    /// The documents that were found, in the requested order.
    pub hits: Vec<Hit>,
    /// The number of all matching documents, if it was
    /// [counted](https://docs.opensearch.org/latest/api-reference/search-apis/search/)
    /// (`track_total_hits`).
    pub total: Option<u64>,
}

/// A document that a search found.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The index that contains it, never an alias.
    pub index: String,
    /// Its id.
    pub id: String,
    /// Its version, if `"version": true` was requested.
    pub version: Option<i64>,
    /// The state of the document, if `"seq_no_primary_term": true` was requested.
    pub seen: Option<Seen>,
    /// The values by which it was sorted: `search_after` continues after them.
    pub sort: Vec<Value>,
    /// The content, unless `"_source": false` was requested.
    pub source: Option<Box<RawValue>>,
}

/// An index as searches see it at one moment. The server keeps it until it is closed, or not used
/// for the agreed time.
#[derive(Clone, Debug)]
pub struct PointInTime {
    id: String,
    keep: String,
    last: &'static str,
}

impl PointInTime {
    /// Returns the last sort key of a query. It makes the order of documents unique, so that
    /// `search_after` skips none.
    ///
    /// Elasticsearch 8 does not sort by `_id` unless a setting allows it, but has a position of
    /// each document in a point in time (`_shard_doc`). OpenSearch 2 sorts by `_id` and has no such
    /// position.
    pub fn last_sort(&self) -> Value {
        json!({(self.last): "asc"})
    }
}

impl Client {
    /// Searches an index, or the indexes of an alias, by a
    /// [query](https://docs.opensearch.org/latest/query-dsl/).
    ///
    /// # Errors
    /// Also if part of the index could not be searched: the results would be incomplete.
    pub async fn search(&self, index: &str, query: &impl Serialize) -> Result<Page, Error> {
        let path = [name::check_index_name(SEARCH_CALL, index)?, "_search"];
        let call = Call::new(SEARCH_CALL, Method::POST, &path).with_json(query)?;
        let found: SearchResponse = self.send_and_parse(refuse_partial_results(call)).await?;
        found.into_page()
    }

    /// Searches as [`search`](Self::search), in a point in time: `sort` and `search_after` page
    /// through all results.
    ///
    /// # Errors
    /// As [`search`](Self::search), and [`Missing`](ErrorKind::Missing) if the server no longer has
    /// the point in time.
    pub async fn search_at(
        &self,
        moment: &mut PointInTime,
        mut query: Map<String, Value>,
    ) -> Result<Page, Error> {
        let pit = json!({"id": moment.id, "keep_alive": moment.keep});
        query.insert("pit".into(), pit);
        let call = Call::new(SEARCH_CALL, Method::POST, &["_search"]).with_json(&query)?;
        let mut found: SearchResponse = self.send_and_parse(refuse_partial_results(call)).await?;
        if let Some(id) = found.pit_id.take() {
            moment.id = id;
        }
        found.into_page()
    }

    /// Opens a point in time of an index. The server keeps it for this long after each use.
    pub async fn open_point_in_time(
        &self,
        index: &str,
        keep: Duration,
    ) -> Result<PointInTime, Error> {
        #[derive(Deserialize)]
        struct OpenBody {
            #[serde(alias = "pit_id")]
            id: String,
        }
        let index = name::check_index_name(POINT_IN_TIME_CALL, index)?;
        let (path, last): (&[&str], _) = match self.flavour().await? {
            Flavour::OpenSearch => (&[index, "_search", "point_in_time"], "_id"),
            Flavour::Elasticsearch => (&[index, "_pit"], "_shard_doc"),
        };
        let keep = format!("{}ms", keep.as_millis().max(1));
        let call = Call::new(POINT_IN_TIME_CALL, Method::POST, path)
            .with_query("keep_alive", keep.as_str());
        let OpenBody { id } = self.send_and_parse(call).await?;
        Ok(PointInTime { id, keep, last })
    }

    /// Closes a point in time before it expires.
    pub async fn close_point_in_time(&self, moment: PointInTime) -> Result<(), Error> {
        let (path, body): (&[&str], _) = match self.flavour().await? {
            Flavour::OpenSearch => (
                &["_search", "point_in_time"],
                json!({"pit_id": [moment.id]}),
            ),
            Flavour::Elasticsearch => (&["_pit"], json!({"id": moment.id})),
        };
        let call = Call::new(POINT_IN_TIME_CALL, Method::DELETE, path).with_json(&body)?;
        let answer = self.send(call).await?;
        // A point in time that no longer exists counts as closed.
        if answer.is_success() || answer.status == 404 {
            Ok(())
        } else {
            Err(answer.to_error(POINT_IN_TIME_CALL))
        }
    }

    /// Counts the documents that match a query, or all documents.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub async fn count(&self, index: &str, query: Option<&Value>) -> Result<u64, Error> {
        #[derive(Deserialize)]
        struct CountBody {
            count: u64,
            #[serde(rename = "_shards")]
            shards: Shards,
        }
        let all = json!({"match_all": {}});
        let path = [name::check_index_name("count", index)?, "_count"];
        let body = json!({"query": query.unwrap_or(&all)});
        let call = Call::new("count", Method::POST, &path).with_json(&body)?;
        let counted: CountBody = self.send_and_parse(call).await?;
        counted.shards.require_all("count")?;
        Ok(counted.count)
    }
}

/// Refuses partial results: a search that skips unreachable shards is incomplete.
fn refuse_partial_results(call: Call<'_>) -> Call<'_> {
    call.with_query("allow_partial_search_results", "false")
}

#[derive(Deserialize)]
struct SearchResponse {
    timed_out: bool,
    #[serde(rename = "_shards")]
    shards: Shards,
    hits: Hits,
    pit_id: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Shards {
    #[serde(default)]
    failed: u64,
}

#[derive(Deserialize)]
struct Hits {
    total: Option<Total>,
    hits: Vec<RawHit>,
}

#[derive(Deserialize)]
struct Total {
    value: u64,
    relation: String,
}

#[derive(Deserialize)]
struct RawHit {
    #[serde(rename = "_index")]
    index: String,
    #[serde(rename = "_id")]
    id: String,
    #[serde(rename = "_version")]
    version: Option<i64>,
    #[serde(rename = "_seq_no")]
    seq_no: Option<u64>,
    #[serde(rename = "_primary_term")]
    primary_term: Option<u64>,
    #[serde(default)]
    sort: Vec<Value>,
    #[serde(rename = "_source")]
    source: Option<Box<RawValue>>,
}

impl Shards {
    pub(super) fn require_all(&self, call: &'static str) -> Result<(), Error> {
        if self.failed == 0 {
            return Ok(());
        }
        let reason = format!("{} shards did not answer", self.failed);
        Err(Error::new(call, ErrorKind::Unavailable, reason))
    }
}

impl SearchResponse {
    fn into_page(self) -> Result<Page, Error> {
        self.shards.require_all(SEARCH_CALL)?;
        if self.timed_out {
            let reason = "it was cut short by its own timeout";
            return Err(Error::new(SEARCH_CALL, ErrorKind::TimedOut, reason));
        }
        let total = self.hits.total.filter(|total| total.relation == "eq");
        Ok(Page {
            hits: self.hits.hits.into_iter().map(RawHit::into_hit).collect(),
            total: total.map(|total| total.value),
        })
    }
}

impl RawHit {
    fn into_hit(self) -> Hit {
        let seen = self.seq_no.zip(self.primary_term);
        Hit {
            index: self.index,
            id: self.id,
            version: self.version,
            seen: seen.map(|(seq_no, primary_term)| Seen {
                seq_no,
                primary_term,
            }),
            sort: self.sort,
            source: self.source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_searches_and_estimated_totals_are_errors() {
        let found = |failed: u64, timed_out: bool, relation: &str| {
            let found = json!({"timed_out": timed_out, "_shards": {"failed": failed},
                "hits": {"total": {"value": 7, "relation": relation}, "hits": []}});
            serde_json::from_value::<SearchResponse>(found)
                .unwrap()
                .into_page()
        };
        assert_eq!(found(0, false, "eq").unwrap().total, Some(7));
        assert_eq!(found(0, false, "gte").unwrap().total, None);
        assert_eq!(
            found(1, false, "eq").unwrap_err().kind(),
            ErrorKind::Unavailable
        );
        assert_eq!(
            found(0, true, "eq").unwrap_err().kind(),
            ErrorKind::TimedOut
        );
    }
}
