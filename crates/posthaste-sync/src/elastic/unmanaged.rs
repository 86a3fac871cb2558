//! Documents that other clients wrote. Searches find documents without the sync's field, but walks
//! do not show them.

use posthaste_elastic::{Condition, ErrorKind, Operation, Reading, Source};
use serde_json::json;

use super::{Elastic, PAGE_SIZE, document};
use crate::IndexError;

impl Elastic {
    pub(super) async fn find_unmanaged(
        &self,
        most: usize,
    ) -> Result<(u64, Vec<String>), IndexError> {
        self.client().refresh(&self.target).await?;
        let unmanaged = document::unmanaged_query();
        let count = self.client().count(&self.target, Some(&unmanaged)).await?;
        if count == 0 {
            return Ok((0, Vec::new()));
        }
        let query = json!({"query": unmanaged, "size": most.min(PAGE_SIZE), "_source": false});
        let page = self.client().search(&self.target, &query).await?;
        Ok((count, page.hits.into_iter().map(|hit| hit.id).collect()))
    }

    pub(super) async fn delete_unmanaged(&self, ids: &[String]) -> Result<(), IndexError> {
        for ids in ids.chunks(PAGE_SIZE) {
            let shown = self
                .client()
                .multi_get(
                    &self.target,
                    ids,
                    Reading::Latest,
                    Source::Field(document::POSTHASTE_FIELD),
                )
                .await?;
            // A document that cannot be read is found again.
            let shown = shown.into_iter().flatten().flatten();
            let unmanaged =
                shown.filter(|one| document::lacks_posthaste_field(one.source.as_deref()));
            // Conditional on the state that was read: a document that a sync has written since
            // stays.
            let deletions = unmanaged.map(|one| {
                let unchanged = Condition::Unchanged(one.seen);
                Operation::delete(&self.target, &one.id).when(unchanged)
            });
            let deletions: Vec<Operation> = deletions.collect();
            self.client().bulk(&deletions).await?;
        }
        Ok(())
    }

    /// Returns for each of these documents whether it is stored exactly as it is.
    pub(super) async fn compare_documents(
        &self,
        documents: &[(String, String)],
    ) -> Result<Vec<bool>, IndexError> {
        let mut held = Vec::with_capacity(documents.len());
        let (mut rest, mut size) = (documents, PAGE_SIZE);
        while !rest.is_empty() {
            let part = &rest[..size.min(rest.len())];
            let ids: Vec<&String> = part.iter().map(|(id, _)| id).collect();
            let (target, reading) = (&self.target, Reading::Latest);
            let client = self.client();
            let shown = client.multi_get(target, &ids, reading, Source::Whole).await;
            if let (Err(error), 2..) = (&shown, part.len())
                && error.kind() == ErrorKind::TooLong
            {
                size = part.len() / 2;
                continue;
            }
            rest = &rest[part.len()..];
            for ((_, document), shown) in part.iter().zip(shown?) {
                let shown = shown.map_err(|refusal| IndexError(refusal.reason))?;
                let source = shown.as_ref().and_then(|one| one.source.as_deref());
                held.push(document::matches_document(source, document));
            }
        }
        Ok(held)
    }
}
