//! Whatever a schema of the search_path contains, posthaste calls the functions that it intends
//! (sql/README.md).

mod hostile;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;

use posthaste_testkit::{PgVersion, Sql as _, TestDb};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::support::database;
use tree::Catalogue;

/// A session that receives the parse tree of each statement, with its source text.
struct Printing {
    client: Client,
    printed: UnboundedReceiver<(String, String)>,
}

impl Printing {
    async fn begin(db: &TestDb) -> Self {
        let (client, mut connection) = tokio_postgres::connect(db.url(), NoTls).await.unwrap();
        let (tell, printed) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notice(notice) = message
                    && notice.message().starts_with("parse tree")
                {
                    let tree = notice.detail().unwrap_or_default().to_owned();
                    let _ = tell.send((tree, notice.where_().unwrap_or_default().to_owned()));
                }
            }
        });
        client
            .run(
                "SET debug_pretty_print = off; SET debug_print_parse = on; \
                 SET client_min_messages = log",
            )
            .await
            .unwrap();
        let mut this = Self { client, printed };
        this.trees();
        this
    }

    /// Returns the trees printed since, except for utility statements.
    fn trees(&mut self) -> Vec<(String, String)> {
        let mut trees = Vec::new();
        while let Ok((tree, context)) = self.printed.try_recv() {
            if !tree.contains(":commandType 6") {
                trees.push((tree, context));
            }
        }
        trees
    }
}

/// Returns the function in which a tree was printed and its source text; the innermost one is
/// first.
fn origin(context: &str) -> Option<(&str, &str)> {
    let (statement, rest) = context.split_once("\"\nPL/pgSQL function ")?;
    Some((rest.split_once('(')?.0, statement.split_once('"')?.1))
}

/// Returns the functions of the schema without a fixed search_path, with their text and whether
/// they are SQL.
async fn unpinned(client: &Client) -> BTreeMap<String, (String, bool)> {
    let rows = client
        .query(
            "SELECT p.proname::text, p.prosrc, l.lanname = 'sql'
               FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
              WHERE p.pronamespace = 'posthaste'::regnamespace
                AND coalesce(p.proconfig::text, '') NOT LIKE '%search_path=pg_catalog, pg_temp%'",
            &[],
        )
        .await
        .unwrap();
    rows.iter()
        .map(|row| (row.get(0), (row.get(1), row.get(2))))
        .collect()
}

/// Returns the functions of the schema that a text calls.
fn calls(text: &str) -> BTreeSet<String> {
    let names = text.split("posthaste.").skip(1);
    names
        .filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
            rest[end..].starts_with('(').then(|| rest[..end].to_owned())
        })
        .collect()
}

/// Returns the statements of the libraries and of the command.
fn statements() -> Vec<(String, String)> {
    let mut found = crate::tidy::statements();
    let commands = crate::tidy::files("crates/posthaste-cli/src/commands", &["sql"]);
    found.extend(commands.into_iter().map(|file| {
        let text = std::fs::read_to_string(&file).unwrap();
        (file.display().to_string(), text)
    }));
    found
}

/// Returns the functions that are called from outside the schema's functions: by statements, by
/// commands in documents, views and rules, triggers, and defaults.
async fn entries(client: &Client) -> BTreeSet<String> {
    let mut texts: String = statements().into_iter().map(|(_, text)| text).collect();
    for page in crate::tidy::files("docs", &["md"]) {
        texts.push_str(&std::fs::read_to_string(page).unwrap());
    }
    let rows = client
        .query(
            "SELECT pg_get_ruledef(r.oid) FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
              WHERE c.relnamespace = 'posthaste'::regnamespace
             UNION ALL
             SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
              WHERE c.relnamespace = 'posthaste'::regnamespace AND NOT t.tgisinternal
             UNION ALL
             SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d JOIN pg_class c
               ON c.oid = d.adrelid
              WHERE c.relnamespace = 'posthaste'::regnamespace",
            &[],
        )
        .await
        .unwrap();
    for row in rows {
        texts.push_str(row.get(0));
    }
    calls(&texts)
}

/// Returns the functions that run under the caller's search_path: called from outside, or by such a
/// function.
async fn in_foreign_paths(client: &Client) -> BTreeMap<String, (String, bool)> {
    let mut unpinned = unpinned(client).await;
    let mut reached = BTreeMap::new();
    let mut next: Vec<String> = entries(client).await.into_iter().collect();
    while let Some(name) = next.pop() {
        if let Some((text, is_sql)) = unpinned.remove(&name) {
            next.extend(calls(&text));
            reached.insert(name, (text, is_sql));
        }
    }
    reached
}

#[tokio::test]
async fn statements_call_only_qualified_functions() {
    let db = database(PgVersion::any()).await;
    let mut session = Printing::begin(&db).await;
    let catalogue = Catalogue::read(&db.client().await.unwrap()).await;
    let statements = statements();
    let (schemas, statements): (Vec<_>, Vec<_>) = statements
        .iter()
        .partition(|(name, _)| name.ends_with("schema.sql"));
    for (_, schema) in schemas {
        session.client.run(schema).await.unwrap();
    }
    let mut wrong = Vec::new();
    let mut judged = 0;
    for (name, text) in statements {
        session.trees();
        if let Err(error) = session.client.prepare(text).await {
            panic!("{name}: {error:?}");
        }
        for (tree, _) in session.trees() {
            judged += 1;
            let found = catalogue.inexact(&tree, text);
            wrong.extend(found.iter().map(|one| format!("{name}: {one}")));
        }
    }
    assert!(judged > 100, "{judged} statements were printed");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn inlined_functions_call_only_qualified_functions() {
    // Version 18 prints no locations in a tree, which find a call in its text.
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    let catalogue = Catalogue::read(&client).await;
    let mut wrong = Vec::new();
    for (name, (text, is_sql)) in in_foreign_paths(&client).await {
        if !is_sql {
            continue;
        }
        // A SQL-standard body is parsed when it is created, so its tree can be read.
        let signature = format!(
            "SELECT pg_get_function_arguments(oid), pg_get_function_result(oid) FROM pg_proc
              WHERE pronamespace = 'posthaste'::regnamespace AND proname = '{name}'"
        );
        let signature = client.query_one(&signature, &[]).await.unwrap();
        let (arguments, result): (&str, &str) = (signature.get(0), signature.get(1));
        let made = format!(
            "CREATE OR REPLACE FUNCTION pg_temp.judged_{name}({arguments}) RETURNS {result}
             LANGUAGE sql BEGIN ATOMIC {}; END",
            text.trim()
        );
        client
            .batch_execute(&made)
            .await
            .unwrap_or_else(|error| panic!("{made}: {error:?}"));
        let tree = format!("SELECT prosqlbody::text FROM pg_proc WHERE proname = 'judged_{name}'");
        let tree: String = client.one(&tree).await.unwrap();
        let found = catalogue.inexact(&tree, &made);
        wrong.extend(found.iter().map(|one| format!("{name}: {one}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Statements of a producer that call, in each variant, every function whose cost it bears, and the
/// call that the engine adds to statements that it sends alone.
const PRODUCED: [&str; 23] = [
    "SELECT setval('posthaste.flags', 9223372036854775807),
            setval('posthaste.listeners_until', extract(epoch FROM now())::bigint + 1000)",
    "INSERT INTO posthaste.route (pattern, queue) VALUES ('r.*', 'q')",
    "SELECT posthaste.enqueue('x'), posthaste.enqueue('r.x', queue => 'q')",
    "SELECT posthaste.enqueue('x', scheduled_at => now() + interval '1 h')",
    "SELECT posthaste.enqueue('x', unique_key => 'k'), posthaste.enqueue('x', ordering_key => 'k')",
    "SELECT posthaste.enqueue_nowait('x', unique_key => 'n'), posthaste.enqueue_nowait('x')",
    "INSERT INTO posthaste.job (name, trace)
     VALUES ('x', NULL), ('x', '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 a=b')",
    "INSERT INTO posthaste.job (name, scheduled_at) VALUES ('r.x', now() + interval '1 h')",
    "INSERT INTO posthaste.staged_jobs (job_name, job_args) VALUES ('x', '[1]')",
    "INSERT INTO posthaste.outbox (type, payload) VALUES ('x', 'text'), ('x', '\\xff')",
    "SELECT posthaste.enter_ready(), posthaste.enter_scheduled(), posthaste.promote_horizon()",
    "SELECT posthaste.receive(posthaste.delivery_id(1)), posthaste.session_identity()",
    "SET LOCAL synchronous_commit = off; SELECT posthaste.wait_for_disk()",
    "CREATE TABLE note (id varchar PRIMARY KEY, body text); SELECT posthaste.sync_table('note')",
    "INSERT INTO note VALUES ('a', 'x'), ('b', 'y')",
    "UPDATE note SET body = 'z'; UPDATE note SET id = 'c' WHERE id = 'a'",
    "DELETE FROM note WHERE id = 'b'; SELECT posthaste.sync('note', 'd')",
    "SELECT posthaste.sync_raise('note', 100, ARRAY['c'])",
    "TRUNCATE note; SELECT * FROM posthaste.job",
    "CREATE TABLE part (id varchar PRIMARY KEY, body text) PARTITION BY LIST (id);
     CREATE TABLE part_a PARTITION OF part DEFAULT; SELECT posthaste.sync_table('part')",
    "INSERT INTO part VALUES ('a', 'x'), ('b', 'y'); UPDATE part SET body = 'z'",
    "UPDATE part SET id = 'c' WHERE id = 'a'; DELETE FROM part WHERE id = 'b'; TRUNCATE part",
    "SELECT posthaste.begin_single_statement()",
];

/// Functions that only these sessions reach.
const TRIGGERS: [&str; 13] = [
    "sync_stamp_note",
    "sync_begin_note",
    "sync_insert_note",
    "sync_update_note",
    "sync_move_note",
    "sync_delete_note",
    "sync_truncate_note",
    "sync_stamp_part",
    "sync_insert_part",
    "sync_update_part",
    "sync_move_part",
    "sync_delete_part",
    "sync_truncate_part",
];

#[tokio::test]
async fn producer_functions_call_only_qualified_functions() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let mut session = Printing::begin(&db).await;
    for statement in PRODUCED {
        session.client.run(statement).await.unwrap();
    }
    let catalogue = Catalogue::read(&client).await;
    let unpinned = unpinned(&client).await;
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for (tree, context) in session.trees() {
        let Some((function, source)) = origin(&context) else {
            continue;
        };
        let name = function.trim_start_matches("posthaste.").trim_matches('"');
        // A pinned function runs its callees under its search_path too.
        let is_pinned = |name: &str| !unpinned.contains_key(name) && !TRIGGERS.contains(&name);
        let callers = context.lines().filter_map(|line| {
            let name = line.strip_prefix("PL/pgSQL function posthaste.")?;
            Some(name.split_once('(')?.0.trim_matches('"').to_owned())
        });
        if callers.into_iter().any(|caller| is_pinned(&caller)) {
            continue;
        }
        seen.insert(name.to_owned());
        let found = catalogue.inexact(&tree, source);
        wrong.extend(found.iter().map(|one| format!("{name}: {one}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let reached = in_foreign_paths(&client).await;
    let expected = reached
        .iter()
        .filter(|(_, (_, is_sql))| !is_sql)
        .map(|(name, _)| name.clone())
        .chain(TRIGGERS.map(str::to_owned));
    let unseen: Vec<String> = expected.filter(|name| !seen.contains(name)).collect();
    assert!(
        unseen.is_empty(),
        "these run under the path of the one that calls them, and nothing here enters them: \
         {unseen:?}"
    );
}
