//! A second copy of the table: lines of a file, one for each change read from the write-ahead log.
//! Folded by key they must equal the table, and the index, which the capture does not read.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use posthaste_capture::Capture;
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;
use uuid::Uuid;

use super::proof::CountAndDigest;
use crate::connect::Address;
use crate::file::{self, NeededSections};

/// The file in the folder of the database.
const LINES_FILE: &str = "packages.captured.ndjson";

/// The settings of the capture as a user would write them.
pub(super) const CAPTURE_SETTINGS: &str = "
# Changes of the table, read from the write-ahead log and written as lines.
[capture.package]
tables = [\"public.package\"]
route = \"package_changes\"

[capture.package.table.\"public.package\"]
columns = [\"name\", \"hidden\", \"posthaste_version\"]

[route.package_changes]
to = \"stdout:\"
ordered = true
";

/// An installed capture of the table.
pub(super) struct Captured {
    capture: Capture,
    file: PathBuf,
}

/// The result of folding the lines.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) file: PathBuf,
    pub(super) changes: u64,
    /// Changes that were repeated under the same id, because the process was killed before it had
    /// recorded its progress.
    pub(super) repeats: u64,
    pub(super) rows: u64,
    pub(super) digest: String,
}

impl Captured {
    /// Installs a capture that begins with the present rows, or continues with the file of the load
    /// before. The inner error is the reason why this database cannot be captured.
    pub(super) async fn install(
        client: &Client,
        address: &Address,
        folder: &Path,
        is_new: bool,
    ) -> anyhow::Result<Result<Self, String>> {
        let captures = file::parse_sections(CAPTURE_SETTINGS, NeededSections::Captures)?.captures;
        let capture = captures.into_iter().next().context("no capture")?;
        let file = folder.join(LINES_FILE);
        let database = address.database();
        let installed = async {
            if is_new || !file.exists() {
                capture.remove(&database).await?;
                let _ = fs::remove_file(&file);
            }
            capture.install(&database).await
        };
        if let Err(problem) = installed.await {
            return Ok(Err(problem.to_string()));
        }
        // After the slot is made: rows that change from then on are captured again as changes.
        if !file.exists() {
            write_rows(client, &file).await?;
        }
        Ok(Ok(Self { capture, file }))
    }

    /// Opens the file for the next process and adds empty lines, since the last line of a killed
    /// process may be incomplete.
    pub(super) fn output(&self) -> anyhow::Result<Stdio> {
        let open = || {
            let mut file = File::options().append(true).open(&self.file)?;
            file.write_all(b"\n\n")?;
            Ok::<_, std::io::Error>(file.into())
        };
        open().with_context(|| format!("cannot write {}", self.file.display()))
    }

    /// Folds the lines and removes the capture: a slot without a reader retains the log.
    pub(super) async fn fold_and_remove(self, address: &Address) -> anyhow::Result<Report> {
        self.capture.remove(&address.database()).await?;
        let place = || self.file.display().to_string();
        let lines = BufReader::new(File::open(&self.file).with_context(place)?);
        let folded = FoldedTable::from_lines(lines).with_context(place)?;
        let (rows, digest) = folded.count_and_digest();
        Ok(Report {
            changes: folded.ids.len().try_into()?,
            repeats: folded.repeats,
            rows,
            digest,
            file: self.file,
        })
    }
}

/// Writes the present rows as if they were changes.
async fn write_rows(client: &Client, file: &Path) -> anyhow::Result<()> {
    let rows = client
        .query_typed(include_str!("rows.sql"), &[])
        .await
        .context("cannot read the packages")?;
    let mut text = String::new();
    for row in rows {
        text.push_str(row.try_get(0)?);
        text.push('\n');
    }
    let draft = file.with_extension("new");
    fs::write(&draft, text).with_context(|| format!("cannot write {}", draft.display()))?;
    Ok(fs::rename(&draft, file)?)
}

/// The fields of a line that are compared.
#[derive(Deserialize)]
struct Line {
    /// `None` for rows that were present at the start.
    id: Option<Uuid>,
    payload: Change,
}

#[derive(Deserialize)]
struct Change {
    operation: String,
    before: Option<Key>,
    after: Option<Row>,
}

#[derive(Deserialize)]
struct Key {
    name: String,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    hidden: bool,
    posthaste_version: i64,
}

/// The table that results from the changes.
#[derive(Default)]
struct FoldedTable {
    /// The versions of rows that are not hidden.
    rows: BTreeMap<String, Option<i64>>,
    ids: HashSet<Uuid>,
    repeats: u64,
}

impl FoldedTable {
    fn from_lines(lines: impl BufRead) -> anyhow::Result<Self> {
        let mut folded = Self::default();
        let mut torn = None;
        for (at, line) in lines.lines().enumerate() {
            let line = line?;
            if line.is_empty() {
                torn = None;
                continue;
            }
            if let Some(at) = torn {
                bail!("line {at} is incomplete, and no killed process left it");
            }
            match serde_json::from_str(&line) {
                Ok(line) => folded.apply(line),
                Err(_) => torn = Some(at + 1),
            }
        }
        match torn {
            Some(at) => bail!("line {at} is incomplete"),
            None => Ok(folded),
        }
    }

    /// Applies a change. Repeats are applied too: all later changes are repeated as well.
    fn apply(&mut self, line: Line) {
        if let Some(id) = line.id
            && !self.ids.insert(id)
        {
            self.repeats += 1;
        }
        let change = line.payload;
        if change.operation == "truncate" {
            self.rows.clear();
        }
        if let Some(before) = change.before {
            self.rows.remove(&before.name);
        }
        if let Some(after) = change.after {
            let version = (!after.hidden).then_some(after.posthaste_version);
            self.rows.insert(after.name, version);
        }
    }

    fn count_and_digest(&self) -> (u64, String) {
        let mut counted = CountAndDigest::default();
        for (name, version) in &self.rows {
            if let Some(version) = version {
                counted.add(name, *version);
            }
        }
        counted.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{CountAndDigest, FoldedTable};

    fn change(id: u8, operation: &str, before: &str, after: &str) -> String {
        format!(
            "{{\"id\": \"01900000-0000-7000-8000-{id:012}\", \"payload\": {{\"operation\": \
             \"{operation}\", \"before\": {before}, \"after\": {after}}}}}\n"
        )
    }

    fn row(name: &str, hidden: bool, version: i64) -> String {
        format!("{{\"name\": \"{name}\", \"hidden\": {hidden}, \"posthaste_version\": {version}}}")
    }

    #[test]
    fn changes_fold_into_the_rows_that_they_left() {
        let read = format!(
            "{{\"payload\": {{\"operation\": \"read\", \"after\": {}}}}}\n",
            row("a", false, 1)
        );
        let lines = [
            read,
            change(1, "insert", "null", &row("b", false, 2)),
            change(2, "update", "null", &row("a", true, 3)),
            change(3, "update", "{\"name\": \"b\"}", &row("c", false, 4)),
            "{\"id\": \"0190".to_owned(),
            "\n\n".to_owned(),
            change(3, "update", "{\"name\": \"b\"}", &row("c", false, 4)),
            change(4, "insert", "null", &row("d", false, 5)),
            change(5, "delete", "{\"name\": \"d\"}", "null"),
        ];
        let folded = FoldedTable::from_lines(lines.concat().as_bytes()).unwrap();
        let mut wanted = CountAndDigest::default();
        wanted.add("c", 4);
        assert_eq!(folded.count_and_digest(), wanted.finish());
        assert_eq!((folded.ids.len(), folded.repeats), (5, 1));
        let emptied = change(6, "truncate", "null", "null");
        let folded = FoldedTable::from_lines((lines.concat() + &emptied).as_bytes()).unwrap();
        assert_eq!(
            folded.count_and_digest(),
            CountAndDigest::default().finish()
        );
    }

    #[test]
    fn incomplete_lines_are_errors_unless_a_killed_writer_left_them() {
        let whole = change(1, "insert", "null", &row("a", false, 1));
        for torn in [format!("{{\"id\n{whole}"), format!("{whole}{{\"id")] {
            assert!(FoldedTable::from_lines(torn.as_bytes()).is_err(), "{torn}");
        }
    }
}
