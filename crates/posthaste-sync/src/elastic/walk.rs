//! Walks over the documents of an index, page by page.

use serde_json::{Value, json};

use super::document::{self, ID_FIELD, POSTHASTE_FIELD};
use super::{Elastic, IndexError, IndexedVersion};

impl Elastic {
    pub(super) async fn read_page(
        &self,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<(String, IndexedVersion)>, IndexError> {
        if after.is_none() {
            self.client().refresh(&self.target).await?;
        }
        let all = json!({"exists": {"field": ID_FIELD}});
        self.search_page(all, after, most).await
    }

    /// Returns the documents that match a query, with their marks, in the order of the ids that
    /// they were written with.
    pub(super) async fn search_page(
        &self,
        query: Value,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<(String, IndexedVersion)>, IndexError> {
        let mut query = json!({"query": {"bool": {"filter": [query]}}, "size": most,
            "version": true,
            "_source": POSTHASTE_FIELD, "sort": [{ID_FIELD: "asc"}], "track_total_hits": false});
        if let Some(after) = after {
            query["search_after"] = json!([self.stored_id(after)]);
        }
        let found = self.client().search(&self.target, &query).await?;
        if let Some(last) = found.hits.last() {
            self.remember_sort_value(&last.id, last.sort.first());
        }
        let seen = found.hits.into_iter().map(|hit| {
            let version = hit.version.unwrap_or_default();
            (
                hit.id,
                document::parse_entry(version, hit.source.as_deref()),
            )
        });
        Ok(seen.collect())
    }

    /// Stores the sort value of the last document of a page if it differs from the document's id,
    /// because another client copied the document. Continuing after the document's own id would
    /// begin at an arbitrary place, and a walk might repeat the same page forever.
    fn remember_sort_value(&self, id: &str, sorted_by: Option<&Value>) {
        let mut strays = self.shared.strays.lock();
        let place = (self.target.to_string(), id.to_owned());
        match sorted_by.and_then(Value::as_str) {
            Some(other) if other != id => strays.insert(place, other.to_owned()),
            _ => strays.remove(&place),
        };
    }

    /// Returns the id that the last document of a page was written with.
    fn stored_id(&self, id: &str) -> String {
        let strays = self.shared.strays.lock();
        let place = (self.target.to_string(), id.to_owned());
        strays.get(&place).cloned().unwrap_or_else(|| id.to_owned())
    }
}
