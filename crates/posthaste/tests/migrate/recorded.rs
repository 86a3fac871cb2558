//! The statements of programs of each version, recorded, and run against the schema of this one: an
//! older program continues to work after a newer one has migrated.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use posthaste_testkit::PgVersion;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use crate::support::database;
use crate::tidy::{files, statements};

const AGAIN: &str = "POSTHASTE_WRITE=1 cargo test -p posthaste --all-features --test main -- \
                     migrate::recorded";

/// The longest line of a record.
const COLUMNS: usize = 100;

/// A statement, and what a program depends on besides its text: the types that it sends and reads,
/// by the server's names.
#[derive(Clone, Debug, PartialEq)]
struct Recorded {
    origin: String,
    takes: Vec<String>,
    returns: Vec<String>,
    text: String,
}

impl Recorded {
    /// Prepares the statement with these types, or else with those that the server infers.
    async fn of(
        client: &Client,
        origin: &str,
        text: &str,
        bound: Option<&[String]>,
    ) -> Result<Self, Error> {
        let (takes, returns) = match copied(text) {
            Some(columns) => {
                // Data of a COPY is bound only by the types of its columns.
                nothing_copied(client, text).await?;
                let columns = client.prepare(&columns).await?;
                let columns = columns.columns().iter();
                (
                    columns.map(|column| named(column.type_())).collect(),
                    Vec::new(),
                )
            }
            None => {
                let types = types(client, bound.unwrap_or_default()).await?;
                let prepared = client.prepare_typed(text, &types).await?;
                let columns = prepared.columns().iter();
                let shown = |column: &tokio_postgres::Column| {
                    format!("{} {}", column.name(), named(column.type_()))
                };
                (
                    prepared.params().iter().map(named).collect(),
                    columns.map(shown).collect(),
                )
            }
        };
        Ok(Self {
            origin: origin.to_owned(),
            takes,
            returns,
            text: text.to_owned(),
        })
    }

    fn shown(&self) -> String {
        let Self { origin, text, .. } = self;
        let mut shown = format!("-- {origin}\n");
        for (word, types) in [("takes", &self.takes), ("returns", &self.returns)] {
            for line in lines_of(types, COLUMNS - word.len() - "-- : ".len()) {
                writeln!(shown, "-- {word}: {line}").unwrap();
            }
        }
        let last = text.lines().last().unwrap_or_default();
        let is_full = last.chars().count() == COLUMNS;
        let end = if is_full { "\n;" } else { ";" };
        writeln!(shown, "{text}{end}").unwrap();
        shown
    }

    fn read(block: &str) -> Self {
        let (head, text): (Vec<&str>, Vec<&str>) =
            block.lines().partition(|line| line.starts_with("-- "));
        let types_of = |word: &str| {
            let types_of = head.iter().filter_map(|line| line.strip_prefix(word));
            types_of
                .flat_map(|types| types.split(", ").map(str::to_owned))
                .collect()
        };
        Self {
            origin: head[0].trim_start_matches("-- ").to_owned(),
            takes: types_of("-- takes: "),
            returns: types_of("-- returns: "),
            text: text.join("\n").trim_end_matches(['\n', ';']).to_owned(),
        }
    }
}

/// Returns these words separated by commas, in as many lines as are needed.
fn lines_of(words: &[String], columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + ", ".len() + word.len() <= columns => {
                line.push_str(", ");
                line.push_str(word);
            }
            _ => lines.push(word.clone()),
        }
    }
    lines
}

fn named(kind: &Type) -> String {
    format!("{}.{}", kind.schema(), kind.name()).replace("pg_catalog.", "")
}

/// Returns the types of these names.
async fn types(client: &Client, names: &[String]) -> Result<Vec<Type>, Error> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let nulls = names.iter().map(|name| {
        let (schema, name) = name.split_once('.').unwrap_or(("pg_catalog", name));
        format!("NULL::{schema}.\"{name}\"")
    });
    let nulls: Vec<String> = nulls.collect();
    let prepared = client
        .prepare(&format!("SELECT {}", nulls.join(", ")))
        .await?;
    let columns = prepared.columns().iter();
    Ok(columns.map(|column| column.type_().clone()).collect())
}

/// Returns, for a COPY, the statement that reads the columns it writes.
fn copied(text: &str) -> Option<String> {
    let (table, rest) = text.strip_prefix("COPY ")?.split_once('(')?;
    let (columns, _) = rest.split_once(')')?;
    Some(format!("SELECT {columns} FROM {table}"))
}

/// Starts a COPY without rows, because a COPY is not prepared before it runs.
async fn nothing_copied(client: &Client, text: &str) -> Result<(), Error> {
    let writer = BinaryCopyInWriter::new(client.copy_in(text).await?, &[]);
    let mut writer = std::pin::pin!(writer);
    writer.as_mut().finish().await.map(drop)
}

/// Returns all statements of the libraries and the command, without comments. Those of the demo use
/// separate tables.
fn sent() -> Vec<(String, String)> {
    let mut all = statements();
    let commands = "crates/posthaste-cli/src/commands";
    for file in files(commands, &["sql"]) {
        let path = file.display().to_string();
        let name = path.split("commands/").last().unwrap().to_owned();
        if !name.starts_with("demo/") {
            all.push((name, fs::read_to_string(&file).unwrap()));
        }
    }
    for (name, text) in &mut all {
        let lines = text.lines().filter(|line| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with("--")
        });
        let lines: Vec<&str> = lines.collect();
        *text = lines.join("\n").trim_end_matches(';').to_owned();
        if !name.ends_with(".sql") {
            "in the code".clone_into(name);
        }
    }
    all.sort();
    all.dedup();
    all
}

fn record_of(version: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/migrate");
    folder.join(format!("statements-{version}.sql"))
}

/// Returns each recorded version whose programs may meet this one's schema: those of this minor
/// version and of the one before.
fn recorded() -> Vec<(String, Vec<Recorded>)> {
    let numbers = |version: &str| -> Option<[u32; 3]> {
        let numbers: Option<Vec<u32>> = version.split('.').map(|one| one.parse().ok()).collect();
        numbers?.try_into().ok()
    };
    let [major, minor, _] = numbers(env!("CARGO_PKG_VERSION")).unwrap();
    let mut found = Vec::new();
    for file in files("crates/posthaste/tests/migrate", &["sql"]) {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let version = name.trim_start_matches("statements-").to_owned();
        let [of_major, of_minor, _] = numbers(&version).expect("a version in the file's name");
        if of_major == major && of_minor + 1 >= minor {
            let text = fs::read_to_string(&file).unwrap();
            let statements = text.split("\n\n").skip(1).map(Recorded::read).collect();
            found.push((version, statements));
        }
    }
    found
}

/// Fails early, because it needs no server.
#[test]
fn the_record_holds_the_statements_of_this_version() {
    let file = record_of(env!("CARGO_PKG_VERSION"));
    let record = fs::read_to_string(&file).unwrap();
    for (origin, text) in sent() {
        let file = file.display();
        assert!(record.contains(&text), "{file} lacks {origin}: {AGAIN}");
    }
}

/// A version is released with its record: until the version changes, both must be the same. A
/// released record is not written again, because the version changes with the release.
#[tokio::test]
async fn the_record_matches_the_statements_of_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    let file = record_of(version);
    for pg in PgVersion::ALL {
        let db = database(pg).await;
        let client = db.client().await.unwrap();
        let mut now = format!(
            "-- What programs of posthaste {version} send: one file because it is one version's.\n\
             -- Until it is released, make it again:\n-- {AGAIN}\n"
        );
        for (origin, text) in sent() {
            let statement = Recorded::of(&client, &origin, &text, None).await;
            let statement = statement.unwrap_or_else(|error| panic!("{origin}: {error:?}"));
            now.push('\n');
            now.push_str(&statement.shown());
        }
        if pg == PgVersion::V15 && std::env::var_os("POSTHASTE_WRITE").is_some() {
            fs::write(&file, &now).unwrap();
        }
        let then = fs::read_to_string(&file).unwrap_or_default();
        let other = now.split("\n\n").find(|one| !then.contains(one));
        assert!(
            then == now,
            "{} says something else; if {version} is not released, make it again: {AGAIN}\n{}",
            file.display(),
            other.unwrap_or("It says more than is sent.")
        );
    }
}

#[tokio::test]
async fn statements_of_every_version_that_may_meet_this_schema_run_on_it() {
    let recorded = recorded();
    assert!(!recorded.is_empty(), "nothing was recorded: {AGAIN}");
    for pg in PgVersion::ALL {
        let db = database(pg).await;
        let client = db.client().await.unwrap();
        for (version, statements) in &recorded {
            assert!(statements.len() > 60, "the record of {version} is cut off");
            for then in statements {
                let Recorded { origin, text, .. } = then;
                let now = Recorded::of(&client, origin, text, Some(&then.takes)).await;
                let now = now.unwrap_or_else(|error| {
                    panic!("{origin} of {version} is refused on {pg:?}: {error:?}\n{text}")
                });
                assert_eq!(now, *then, "{origin} of {version} on {pg:?}");
            }
        }
    }
}
