//! Reads the marks, tokens and hashes of committed documents by their ids.

use tantivy::columnar::Column;
use tantivy::index::{InvertedIndexReader, SegmentReader};
use tantivy::postings::TermInfo;
use tantivy::schema::{IndexRecordOption, Term};
use tantivy::{DocId, DocSet, Searcher, TERMINATED};

use super::schema::{DELETED_AT_FIELD, Fields, HASH_FIELD, PASS_FIELD, TOKEN_FIELD, VERSION_FIELD};
use posthaste_sync::{IndexedVersion, Mark};

/// Returns the entries of these ids, in the same order.
pub(super) fn entries_by_ids(
    searcher: &Searcher,
    fields: &Fields,
    ids: &[impl AsRef<str>],
) -> tantivy::Result<Vec<Option<IndexedVersion>>> {
    find_by_ids(searcher, fields, ids, |segment, id| segment.live_entry(id))
}

/// Returns the hashes of the documents of these ids, in the same order.
pub(super) fn hashes_by_ids(
    searcher: &Searcher,
    fields: &Fields,
    ids: &[impl AsRef<str>],
) -> tantivy::Result<Vec<Option<u64>>> {
    find_by_ids(searcher, fields, ids, |segment, id| {
        let (hash, document) = (segment.hash.as_ref(), segment.live_document(id)?);
        Ok(hash.zip(document).and_then(|(hash, at)| hash.first(at)))
    })
}

fn find_by_ids<T: Clone>(
    searcher: &Searcher,
    fields: &Fields,
    ids: &[impl AsRef<str>],
    ask: impl Fn(&SegmentColumns<'_>, &TermInfo) -> tantivy::Result<Option<T>>,
) -> tantivy::Result<Vec<Option<T>>> {
    let mut found = vec![None; ids.len()];
    for reader in searcher.segment_readers() {
        let segment = SegmentColumns::new(reader, fields)?;
        let missing = found.iter_mut().zip(ids);
        for (found, id) in missing.filter(|(found, _)| found.is_none()) {
            let term = Term::from_field_text(fields.id, id.as_ref());
            if let Some(info) = segment.ids.get_term_info(&term)? {
                *found = ask(&segment, &info)?;
            }
        }
    }
    Ok(found)
}

/// Returns the next ids in order. Each segment has its ids in order, so at most one page of each
/// segment is in memory.
pub(super) fn entries_after(
    searcher: &Searcher,
    fields: &Fields,
    after: Option<&str>,
    most: usize,
) -> tantivy::Result<Vec<(String, IndexedVersion)>> {
    let mut page = Vec::new();
    for reader in searcher.segment_readers() {
        let segment = SegmentColumns::new(reader, fields)?;
        let all = segment.ids.terms().range();
        let mut ids = match after {
            Some(after) => all.gt(after.as_bytes()).into_stream()?,
            None => all.into_stream()?,
        };
        let mut of_this = 0;
        while of_this < most && ids.advance() {
            if let Some(seen) = segment.live_entry(ids.value())? {
                page.push((String::from_utf8_lossy(ids.key()).into_owned(), seen));
                of_this += 1;
            }
        }
    }
    page.sort_by(|(one, _), (other, _)| one.as_bytes().cmp(other.as_bytes()));
    page.truncate(most);
    Ok(page)
}

/// A segment with the columns that are read.
struct SegmentColumns<'a> {
    reader: &'a SegmentReader,
    ids: std::sync::Arc<InvertedIndexReader>,
    version: Column<i64>,
    pass: Column<u64>,
    token: Column<i64>,
    /// `None` if the segment contains only deletions.
    hash: Option<Column<u64>>,
    /// `None` if the segment contains no deletion.
    deleted_at: Option<Column<i64>>,
}

impl<'a> SegmentColumns<'a> {
    fn new(reader: &'a SegmentReader, fields: &Fields) -> tantivy::Result<Self> {
        let columns = reader.fast_fields();
        Ok(Self {
            reader,
            ids: reader.inverted_index(fields.id)?,
            version: columns.i64(VERSION_FIELD)?,
            pass: columns.u64(PASS_FIELD)?,
            token: columns.i64(TOKEN_FIELD)?,
            hash: columns.column_opt(HASH_FIELD)?,
            deleted_at: columns.column_opt(DELETED_AT_FIELD)?,
        })
    }

    /// Returns the live entry of an id.
    fn live_entry(&self, id: &TermInfo) -> tantivy::Result<Option<IndexedVersion>> {
        let Some(document) = self.live_document(id)? else {
            return Ok(None);
        };
        let pass = self.pass.first(document).unwrap_or_default();
        let mark = Mark {
            version: self.version.first(document).unwrap_or_default(),
            pass: u16::try_from(pass).unwrap_or(Mark::DELETION_PASS),
        };
        let deleted_at = self.deleted_at.as_ref();
        Ok(Some(IndexedVersion {
            mark,
            token: self.token.first(document).unwrap_or_default(),
            is_live: deleted_at.is_none_or(|column| column.first(document).is_none()),
            is_altered: false,
            is_foreign: false,
        }))
    }

    fn live_document(&self, id: &TermInfo) -> tantivy::Result<Option<DocId>> {
        let mut documents = self
            .ids
            .read_postings_from_terminfo(id, IndexRecordOption::Basic)?;
        let mut document: DocId = documents.doc();
        while document != TERMINATED {
            if !self.reader.is_deleted(document) {
                return Ok(Some(document));
            }
            document = documents.advance();
        }
        Ok(None)
    }
}
