//! Documents that somebody has put into the index beside the sync. They lack our field, so that no walk shows them, and searches find them.

use posthaste_elastic::{Condition, Operation, Reading, Source};
use serde_json::json;

use super::{Elastic, PAGE, document};
use crate::sync::Trouble;

impl Elastic {
    pub(super) async fn strange(&self, most: usize) -> Result<(u64, Vec<String>), Trouble> {
        self.client().refresh(&self.target).await?;
        let strange = document::is_strange();
        let count = self.client().count(&self.target, Some(&strange)).await?;
        if count == 0 {
            return Ok((0, Vec::new()));
        }
        let query = json!({"query": strange, "size": most.min(PAGE), "_source": false});
        let page = self.client().search(&self.target, &query).await?;
        Ok((count, page.hits.into_iter().map(|hit| hit.id).collect()))
    }

    pub(super) async fn remove_strange(&self, ids: &[String]) -> Result<(), Trouble> {
        for ids in ids.chunks(PAGE) {
            let shown = self
                .client()
                .multi_get(
                    &self.target,
                    ids,
                    Reading::Latest,
                    Source::Field(document::OURS),
                )
                .await?;
            // One that cannot be read is found again.
            let shown = shown.into_iter().flatten().flatten();
            let strange = shown.filter(|one| document::lacks_ours(one.source.as_deref()));
            // By what was seen: what a sync has put in its place meanwhile stays.
            let deletions = strange.map(|one| {
                let unchanged = Condition::Unchanged(one.seen);
                Operation::delete(&self.target, &one.id).when(unchanged)
            });
            let deletions: Vec<Operation> = deletions.collect();
            self.client().bulk(&deletions).await?;
        }
        Ok(())
    }
}
