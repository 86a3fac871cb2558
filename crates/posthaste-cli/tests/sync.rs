//! `posthaste sync run`, `install`, `audit`, `reindex` and `search`: a table and its index without
//! a Rust program.

mod asked;
mod behind;
mod documents;
mod placed;
mod rebuild;
mod stopped;

use posthaste_testkit::receivers::{self, OpenSearch, Receiver};
use posthaste_testkit::{Child, Sql as _, TestDb, eventually, number, ran};
use serde_json::Value;
use tokio_postgres::Client;

use crate::stage::{self, BOUND, Stage};

const PAGES: &str = "CREATE TABLE page (id bigint GENERATED ALWAYS
                                        AS IDENTITY PRIMARY KEY, title text NOT NULL, body text,
                                        gone boolean NOT NULL DEFAULT false,
                                        edited_at timestamptz NOT NULL DEFAULT now());
                     INSERT INTO page (title, body) SELECT 'old page ' || n, 'words'
                       FROM generate_series(1, 20) n";

/// Settings of both indexes.
const TABLE: &str = "[sync.pages]\ntable = 'page'\ndeleted = 'gone'\ndelay = '0s'\nperiod = '1s'\n\
                     document = { title = 'title', text = 'body' }\n";

/// Makes a database with a prepared table of twenty rows that are not in the index.
async fn with_pages(index: &str) -> anyhow::Result<(Stage, TestDb, Client)> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    client.run(PAGES).await?;
    stage.write("posthaste.toml", &format!("{TABLE}index = '{index}'\n"))?;
    stage
        .run_on(&database, &["sync", "install"])
        .await?
        .good()?;
    Ok((stage, database, client))
}

/// Adds one document to the index: an empty index would be filled automatically.
async fn with_one_document(
    stage: &Stage,
    database: &TestDb,
    client: &Client,
) -> anyhow::Result<()> {
    good(stage, database, &["sync", "run", "--once"]).await?;
    client
        .run("DELETE FROM posthaste.search WHERE id <> '20'")
        .await?;
    Ok(())
}

async fn good(stage: &Stage, database: &TestDb, arguments: &[&str]) -> anyhow::Result<String> {
    stage.run_on(database, arguments).await?.good()
}

async fn sync_from_scratch(index: &str) -> anyhow::Result<()> {
    let (stage, database, client) = with_pages(index).await?;
    let ours = async |arguments: &[&str]| good(&stage, &database, arguments).await;
    let begun = ours(&["sync", "reindex", "pages", "--all"]).await?;
    assert_eq!(begun, "pages: 20 documents will be written again");
    client
        .run(
            "INSERT INTO page (title, body) VALUES ('new', 'haste');
             UPDATE page SET body = 'haste' WHERE id = 3; UPDATE page SET gone = true
               WHERE id = 4; DELETE FROM page WHERE id = 5",
        )
        .await?;
    let did: Value = serde_json::from_str(&ours(&["sync", "run", "--once", "--json"]).await?)?;
    assert_eq!(
        (&did[0]["table"], &did[0]["failed"]),
        (&"pages".into(), &0.into())
    );
    // The reasons of writes, by the tag of the jobs.
    let counts = did[0]["counts"].as_array().into_iter().flatten();
    // The index was empty: it has jobs that fill it and those of the re-index.
    let indexed: u64 = counts
        .filter(|one| one["tag"] == "reindex" || one["tag"] == "fill")
        // A pass that failed after its write finds equal documents when it is retried.
        .filter(|one| one["reason"] == "missing" || one["reason"] == "equal")
        .filter_map(|one| one["jobs"].as_u64())
        .sum();
    assert!(indexed >= 17, "{did}");
    let audit: Value = serde_json::from_str(&ours(&["sync", "audit", "--json"]).await?)?;
    assert_eq!(
        (
            &audit[0]["is_equal"],
            &audit[0]["rows"],
            &audit[0]["documents"]
        ),
        (&true.into(), &19.into(), &19.into())
    );
    let found: Value = serde_json::from_str(&ours(&["sync", "search", "haste", "--json"]).await?)?;
    let mut ids: Vec<&str> = found
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["id"].as_str())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, ["21", "3"], "{found}");
    // The result has the present row of Postgres, although the index has an older text.
    client
        .run("UPDATE page SET body = 'other' WHERE id = 3; DELETE FROM page WHERE id = 21")
        .await?;
    let shown = ours(&["sync", "search", "haste"]).await?;
    assert_eq!(shown, "3  other | old page 3");
    assert_eq!(ours(&["sync", "search", "nowhere"]).await?, "nothing found");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sync_commands_alone_index_audit_and_search_in_postgres() -> anyhow::Result<()> {
    sync_from_scratch("postgres:").await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sync_commands_alone_index_audit_and_search_in_tantivy() -> anyhow::Result<()> {
    sync_from_scratch("tantivy:index").await?;
    ran::note("sync-command");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sync_commands_alone_index_audit_and_search_on_a_server() -> anyhow::Result<()> {
    if receivers::are_here("a table on a server", &[Receiver::OpenSearch]) {
        let server = OpenSearch::shared()?;
        sync_from_scratch(&format!("{}/pages-of-a-file", server.url())).await?;
        ran::note("sync-server");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_are_searched_and_audited_beside_a_running_sync() -> anyhow::Result<()> {
    let (stage, database, client) = with_pages("tantivy:index").await?;
    let mut sync = stage.spawn_on(&database, &["sync", "run"])?;
    sync.error_line("Ctrl-C stops", BOUND).await?;
    client
        .run("INSERT INTO page (title) VALUES ('beside')")
        .await?;
    eventually(BOUND, "it is found", async || {
        Ok(good(&stage, &database, &["sync", "search", "beside"]).await? == "21  beside")
    })
    .await?;
    // All rows come into an index that is empty, and twenty more never do.
    eventually(BOUND, "it is filled", async || {
        let audit = stage.run_on(&database, &["sync", "audit"]).await?;
        Ok(audit.out == "pages: 21 rows, 21 documents; equal")
    })
    .await?;
    client
        .run(
            "ALTER TABLE page DISABLE TRIGGER USER; INSERT INTO page (title) SELECT 'past'
             FROM generate_series(1, 20);
             ALTER TABLE page ENABLE TRIGGER USER",
        )
        .await?;
    // The audit reports this, and cannot write while the sync runs.
    let audit = stage.run_on(&database, &["sync", "audit"]).await?;
    assert_eq!(audit.code, Some(3), "{audit:?}");
    assert!(
        audit
            .out
            .contains("41 rows, 21 documents, 20 missing; they DIFFER"),
        "{audit:?}"
    );
    let repair = stage
        .run_on(&database, &["sync", "audit", "--repair"])
        .await?
        .failure()?;
    assert!(repair.contains("lock"), "{repair}");
    let status = good(&stage, &database, &["status"]).await?;
    assert!(status.contains("pages  page"), "{status}");
    sync.terminate()?;
    assert!(sync.exit(BOUND).await?.success());
    // The totals are printed at the end.
    sync.line("pages: ", BOUND).await?;
    let repair = good(&stage, &database, &["sync", "audit", "--repair"]).await?;
    assert!(
        repair.contains("20 missing; all repaired, equal now"),
        "{repair}"
    );
    let recorded = async || {
        let query = "SELECT concat_ws(' ', name, rows, documents, differed, repaired, contents)
                      FROM posthaste.audited";
        anyhow::Ok(client.one::<String>(query).await?)
    };
    assert_eq!(recorded().await?, "pages 41 41 20 20 f");
    assert!(
        good(&stage, &database, &["sync", "audit", "--contents"])
            .await?
            .ends_with("; equal")
    );
    assert_eq!(recorded().await?, "pages 41 41 0 0 t");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn document_statements_can_hide_rows() -> anyhow::Result<()> {
    let (stage, database, client) = with_pages("postgres:").await?;
    let rows = "rows = \"SELECT p.id::text, p.posthaste_version, CASE WHEN p.body <> 'secret' THEN \
                jsonb_build_object('all', p.title || ' by ann') END FROM page p WHERE p.id = ANY \
                ($1::bigint[])\"";
    let settings =
        "[sync.pages]\ntable = 'page'\ndelay = '0s'\nperiod = '1s'\nindex = 'postgres:'\n";
    stage.write("posthaste.toml", &format!("{settings}{rows}\n"))?;
    client
        .run("UPDATE page SET body = 'secret' WHERE id = 2")
        .await?;
    let ours = async |arguments: &[&str]| good(&stage, &database, arguments).await;
    ours(&["sync", "install"]).await?;
    ours(&["sync", "reindex", "pages", "--all"]).await?;
    ours(&["sync", "run", "--once"]).await?;
    let audit = ours(&["sync", "audit"]).await?;
    assert_eq!(audit, "pages: 19 rows, 19 documents; equal");
    let found = ours(&["sync", "search", "ann", "--limit", "50"]).await?;
    assert_eq!(found.lines().count(), 19);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_documents_set_the_exit_code_of_a_sync() -> anyhow::Result<()> {
    let (stage, database, client) = with_pages("postgres:").await?;
    with_one_document(&stage, &database, &client).await?;
    let rows = "rows = \"SELECT p.id::text, p.posthaste_version, jsonb_build_object('all', \
                p.title, 'n', 1 / (p.id - 7)) FROM page p WHERE p.id = ANY ($1::bigint[]);\"";
    let text = format!("{TABLE}index = 'postgres:'\n").replace("document =", "# document =");
    stage.write("posthaste.toml", &format!("{text}{rows}\n"))?;
    good(&stage, &database, &["sync", "install"]).await?;
    good(&stage, &database, &["sync", "reindex", "pages", "--all"]).await?;
    let once = stage.run_on(&database, &["sync", "run", "--once"]).await?;
    assert_eq!(once.code, Some(3), "{once:?}");
    assert!(once.out.contains("19 jobs completed"), "{once:?}");
    let expected = "error: pages: documents could not be built or were rejected";
    assert!(once.err.contains(expected), "{once:?}");
    // Once the document can be built, no problem is reported.
    client
        .run("DELETE FROM page WHERE id = 7; SELECT posthaste.retry(queue => 'sync.pages.reindex')")
        .await?;
    good(&stage, &database, &["sync", "run", "--once"]).await?;
    let audit = good(&stage, &database, &["sync", "audit"]).await?;
    assert_eq!(audit, "pages: 19 rows, 19 documents; equal");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_prerequisites_are_reported_with_a_remedy() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let failure = async |arguments: &[&str]| stage.run_on(&database, arguments).await?.failure();
    let none = failure(&["sync", "run"]).await?;
    assert!(
        none.contains("posthaste.toml does not exist. Create it with a section [sync.<name>]"),
        "{none}"
    );
    stage.write("posthaste.toml", "[route.a]\nto = 'stdout:'\n")?;
    let no_table = failure(&["sync", "search", "x"]).await?;
    assert!(no_table.contains("has no synced table"), "{no_table}");
    stage.write(
        "posthaste.toml",
        "[sync.pages]\ntable = 'page'\nindex = 'tantivy:index'\n",
    )?;
    let not_yet = failure(&["sync", "run"]).await?;
    assert!(
        not_yet
            .contains("sync pages: its table has no triggers yet. Run 'posthaste sync install'."),
        "{not_yet}"
    );
    let no_relation = failure(&["sync", "install"]).await?;
    assert!(
        no_relation.contains("relation \"page\" does not exist"),
        "{no_relation}"
    );
    let printed = good(&stage, &database, &["sync", "install", "--dry-run"]).await?;
    assert!(
        printed.starts_with(
            "SELECT posthaste.sync_table('page', key => 'id', version => 'posthaste_version', \
             name => 'pages'"
        ),
        "{printed}"
    );
    let client = database.client().await?;
    client.run(PAGES).await?;
    let written = std::fs::read_to_string(stage.folder.join("posthaste.toml"))?;
    for setting in ["id", "deleted"] {
        stage.write(
            "posthaste.toml",
            &format!("{written}{setting} = 'nosuch'\n"),
        )?;
        let missing = failure(&["sync", "install"]).await?;
        let expected = "page: there is no column \"nosuch\" for its";
        assert!(missing.contains(expected), "{missing}");
        assert!(!missing.contains("posthaste migrate"), "{missing}");
    }
    let document = format!("{written}document = {{ title = 'nosuch' }}\n");
    stage.write("posthaste.toml", &document)?;
    let installed = stage.run_on(&database, &["sync", "install"]).await?;
    let expected = "sync pages: the document of the first row cannot be built: ";
    assert!(installed.err.contains(expected), "{installed:?}");
    assert!(installed.err.contains("no column nosuch"), "{installed:?}");
    stage.write("posthaste.toml", &written)?;
    good(&stage, &database, &["sync", "install"]).await?;
    let no_index = failure(&["sync", "search", "x"]).await?;
    assert!(
        no_index.contains("there is no index in this folder yet"),
        "{no_index}"
    );
    let nothing = failure(&["sync", "reindex", "pages"]).await?;
    assert!(nothing.contains("select documents: --all"), "{nothing}");
    let unknown = failure(&["sync", "audit", "books"]).await?;
    assert_eq!(unknown, "error: no sync is named books; the file has pages");
    client
        .run("ALTER TABLE page DISABLE TRIGGER posthaste_update_pages")
        .await?;
    let doctor = stage.run_on(&database, &["doctor"]).await?;
    assert!(
        doctor.out.contains(
            "sync.triggers: Sync pages: triggers are missing, disabled or foreign on page."
        ),
        "{doctor:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_kills_do_not_stop_thousands_of_packages_from_being_indexed() -> anyhow::Result<()>
{
    const PACKAGES: u64 = 3_000;
    let stage = Stage::new()?;
    let (_server, database) = stage::with_logical_log().await?;
    std::fs::create_dir(stage.folder.join("files"))?;
    stage.write("files/one", "x")?;
    let line = |n: u64| {
        format!(
            "{{\"name\": \"p{n}\", \"summary\": \"message queue number {n}\", \"section\": \
             \"net\", \"else\": 1}}\n"
        )
    };
    stage.write("packages", &(0..PACKAGES).map(line).collect::<String>())?;
    let up = "demo --once --json --rescue-after 3 --packages-from packages files";
    let up: Vec<&str> = up.split(' ').collect();
    let mut command = stage.command(&up);
    let child = Child::spawn(command.env("DATABASE_URL", database.url()))?;
    let report: Value = serde_json::from_str(&stage::CommandOutput::by(child).await?.good()?)?;
    let report = &report["packages"];
    assert_eq!(
        (&report["packages"], &report["problem"]),
        (&PACKAGES.into(), &Value::Null),
        "{report}"
    );
    let kills = report["kills"].as_u64().unwrap_or_default();
    assert!(kills >= 3, "{report}");
    assert_eq!(report["rows"], report["documents"]);
    stopped::assert_captured(report, PACKAGES)?;
    assert!(
        report["changed"].as_u64() > Some(0) && report["deleted"].as_u64() > Some(0),
        "{report}"
    );
    // The command finds the documents of the run, and a separate count agrees.
    let audit: Value =
        serde_json::from_str(&good(&stage, &database, &["sync", "audit", "--json"]).await?)?;
    let client = database.client().await?;
    let live = number(
        &client,
        "SELECT count(*) FROM public.package WHERE NOT hidden",
    )
    .await?;
    assert_eq!(
        (&audit[0]["is_equal"], &audit[0]["documents"]),
        (&true.into(), &live.into())
    );
    let found = good(
        &stage,
        &database,
        &["sync", "search", "message queue", "--limit", "5"],
    )
    .await?;
    assert_eq!(found.lines().count(), 5, "{found}");
    ran::count("sync-kills", kills);
    Ok(())
}
