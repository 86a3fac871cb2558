//! Builds a new index beside the old one, fills it while both are synced, and then replaces the old
//! one.
//!
//! A process may end after any step: the next one continues with the existing index. Nothing is
//! missed because of the order: a pass reads which indexes exist before it checks documents, and
//! again before a job is done. Every job that was done before the new index was known is therefore
//! in the old index and in Postgres when the walks over both begin, and every later job was
//! verified in both.

use posthaste_elastic::AliasChange;
use serde_json::Value;

use super::{Elastic, PAGE_SIZE, document, mapping};
use crate::decide::IndexedVersion;
use crate::index::{Index as _, IndexError, Proof, Write};
use crate::{Audit, AuditReport, Field, Source};

/// The most attempts of walks and of writes.
const MAX_TRIES: usize = 5;

/// The result of a rebuild.
#[derive(Clone, Debug, PartialEq)]
pub struct Rebuilt {
    /// The name of the new index.
    pub index: String,
    /// The name of the index that the alias pointed to before. It is left unchanged, and no longer
    /// synced: delete it when no earlier pass can be in progress.
    pub replaced: String,
    /// The differences that the last walk found and repaired.
    pub found: AuditReport,
}

impl Elastic {
    /// Creates an index by the [`definition`](Self::definition), fills it from Postgres, and points
    /// the alias to it, while the old index is searched and written. Syncs in any process update
    /// both. After a failure, call this again: it continues with the index that was begun.
    ///
    /// # Errors
    ///
    /// Also fails if documents cannot be made equal in the new index because its mapping refuses
    /// them. The alias is then unchanged, and the new index is synced beside the old one until this
    /// is called again or the rebuild is [abandoned](Self::give_up_rebuild). An index that was
    /// begun with another definition is not continued, because another process may be filling it.
    pub async fn rebuild(&self, source: &dyn Source, audit: Audit) -> Result<Rebuilt, IndexError> {
        source.check().await?;
        let fields = source.fields().await?;
        let old = self.current_index(&fields).await?;
        let new = self
            .open_next_index(&old, &fields, &source.recipe())
            .await?;
        let next = &*self.next_alias();
        let begun = self.index_uuid(&new).await?;
        let (from, to) = (
            self.for_index(&old, &self.shared.alias),
            self.for_index(&new, next),
        );
        // Before the new index is filled: a row that was hidden and is shown again at the same
        // version must be written above the mark that hiding it left.
        from.copy_deletions(&to).await?;
        let found = to.fill_by_audits(source, audit).await?;
        self.client().refresh(&new).await?;
        if self.index_uuid(&new).await? != begun {
            return Err(IndexError(format!(
                "{new} was abandoned and started again meanwhile"
            )));
        }
        self.switch_alias(&old, &new).await?;
        Ok(Rebuilt {
            index: new,
            replaced: old,
            found,
        })
    }

    /// Points the alias to the new index. If the answer is lost, reads the alias to learn the
    /// outcome.
    async fn switch_alias(&self, old: &str, new: &str) -> Result<(), IndexError> {
        let (alias, next) = (&*self.shared.alias, &*self.next_alias());
        let changes = [
            AliasChange::Remove { alias, index: old },
            AliasChange::Add { alias, index: new },
            AliasChange::Remove {
                alias: next,
                index: new,
            },
        ];
        let Err(error) = self.client().change_aliases(&changes).await else {
            return Ok(());
        };
        let stands_for = match error.may_have_been_done() {
            true => self.alias_target(alias).await.ok().flatten(),
            false => return Err(error.into()),
        };
        match stands_for {
            Some(index) if index == new => Ok(()),
            Some(_) => Err(error.into()),
            None => Err(IndexError(format!(
                "{}; it is unknown whether {alias} now points to {new}",
                IndexError::from(error).0
            ))),
        }
    }

    /// Deletes the index that a rebuild began and did not complete. Returns whether one existed.
    pub async fn give_up_rebuild(&self) -> Result<bool, IndexError> {
        let current = self.alias_target(&self.shared.alias).await?;
        let mut begun = self.client().resolve_alias(&self.next_alias()).await?;
        begun.retain(|index| Some(index) != current.as_ref());
        let alias = &*self.next_alias();
        for index in &begun {
            // A rebuild that is about to switch fails after this, or has switched before.
            let change = [AliasChange::Remove { alias, index }];
            self.client().change_aliases(&change).await?;
            self.client().delete_index(index).await?;
        }
        Ok(!begun.is_empty())
    }

    /// Returns the uuid, which distinguishes an index from another of the same name, if the server
    /// reports it.
    async fn index_uuid(&self, index: &str) -> Result<Option<Value>, IndexError> {
        let described = self.client().describe_index(index).await?;
        let uuid = described
            .as_ref()
            .map(|index| &index["settings"]["index"]["uuid"]);
        Ok(uuid.cloned())
    }

    /// Returns the index beside this one; creates it if it does not exist.
    async fn open_next_index(
        &self,
        old: &str,
        fields: &[Field],
        recipe: &str,
    ) -> Result<String, IndexError> {
        let (alias, next) = (&*self.shared.alias, &*self.next_alias());
        let users = mapping::with_mappings(&self.shared.definition, fields);
        let definition = document::index_definition(&users, next, recipe);
        let mut number = document::index_number(alias, old).unwrap_or_default();
        loop {
            if let Some(begun) = self.alias_target(next).await? {
                let digest = document::definition_digest(&users, recipe);
                return self
                    .check_definition_digest(&begun, &digest)
                    .await
                    .map(|()| begun);
            }
            // An index of this number may be left from an earlier time.
            number += 1;
            let index = document::numbered_index(alias, number);
            self.client().create_index(&index, &definition).await?;
        }
    }

    /// Fails if an index was created with another definition.
    async fn check_definition_digest(&self, begun: &str, digest: &str) -> Result<(), IndexError> {
        let described = self.client().describe_index(begun).await?;
        let made_with = described.as_ref().and_then(document::definition_digest_of);
        if made_with == Some(digest) {
            return Ok(());
        }
        Err(IndexError(format!(
            "{begun} was started with another definition, or for other documents: abandon it \
             before starting another"
        )))
    }

    /// Repeats audits until all differences of one are verified as repaired. Rows that change
    /// during an audit are excluded: their jobs update both indexes by now.
    async fn fill_by_audits(
        &self,
        source: &dyn Source,
        audit: Audit,
    ) -> Result<AuditReport, IndexError> {
        let audit = Audit {
            repair: true,
            ..audit
        };
        let mut found = AuditReport::default();
        for _ in 0..MAX_TRIES {
            found = audit.run(source, self).await?;
            if found.unrepaired() == 0 {
                return Ok(found);
            }
        }
        let left = found.unrepaired();
        let some: Vec<&str> = found.named.iter().map(|(id, _)| &**id).take(10).collect();
        let index = &self.target;
        Err(IndexError(format!(
            "{left} documents still differ in {index}; some of them: {some:?}"
        )))
    }

    /// Copies the marks of deletions to the new index: earlier writes may still be in transit.
    async fn copy_deletions(&self, to: &Self) -> Result<(), IndexError> {
        self.client().refresh(&self.target).await?;
        let mut after: Option<String> = None;
        loop {
            let deletions = document::deletion_query();
            let page = self
                .search_page(deletions, after.as_deref(), PAGE_SIZE)
                .await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            let is_last = page.len() < PAGE_SIZE;
            to.write_deletions(page).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Writes deletions until all of them can be read back.
    async fn write_deletions(
        &self,
        mut deletions: Vec<(String, IndexedVersion)>,
    ) -> Result<(), IndexError> {
        for _ in 0..MAX_TRIES {
            let ids: Vec<String> = deletions.iter().map(|(id, _)| id.clone()).collect();
            let mut seen = self.read(&ids, Proof::Stored).await?.into_iter();
            deletions.retain(|(_, wanted)| {
                let seen = seen.next().flatten();
                seen.is_none_or(|seen| seen.mark < wanted.mark)
            });
            if deletions.is_empty() {
                return Ok(());
            }
            let write = |(id, seen): &(String, IndexedVersion)| Write {
                id: id.clone(),
                mark: seen.mark,
                token: seen.token,
                document: None,
            };
            let writes: Vec<Write> = deletions.iter().map(write).collect();
            self.write(&writes).await?;
        }
        let (left, index) = (deletions.len(), &self.target);
        let problem = format!(
            "{left} deletions were not visible in {index} after they were \
                               written"
        );
        Err(IndexError(problem))
    }
}
