//! Commands that a superuser runs where all users may create objects in `public`, and one has.

use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, connect};
use tokio_postgres::Client;

use super::ask;
use crate::stage::Stage;

/// Functions and operators in `public` that match better than those of the server.
const TRAPS: &str = include_str!("../../../posthaste/tests/exact/traps.sql");

async fn are_untouched(client: &Client, by: &[&str]) -> anyhow::Result<()> {
    let called = "SELECT is_called FROM public.trapped";
    let called: bool = client.one(called).await?;
    anyhow::ensure!(!called, "{by:?} fell into one");
    Ok(())
}

/// A superuser runs the doctor where all users may create objects in `public`.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_world_writable_schemas_and_calls_nothing_in_them() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    for version in PgVersion::tried() {
        let db = TestDb::empty(PgServer::shared(version)?).await?;
        let mut client = connect(db.url()).await?;
        posthaste::migrate(&mut client).await?;
        assert!(
            !ask(&stage, db.url())
                .await?
                .has("hint", "server.open_schema")
        );
        client
            .run("GRANT CREATE ON SCHEMA public TO PUBLIC")
            .await?;
        client.run(TRAPS).await?;
        // With a waiting lock the doctor also reads its holder.
        let holder = db.client().await?;
        holder
            .run("BEGIN; INSERT INTO posthaste.job (name) VALUES ('x')")
            .await?;
        let report = ask(&stage, db.url()).await?;
        report.finds("hint", "server.open_schema");
        report.finds("hint", "transaction.lock");
        are_untouched(&client, &["doctor"]).await?;
    }
    Ok(())
}

/// Routes and syncs over a column of each type whose operators match exactly only if another user
/// makes them.
const FILE: &str = "[route.audit]\nqueue = 'a'\nto = 'stdout:'\n
    [sync.pages]\ntable = 'page'\ndelay = '0s'\nperiod = '1s'\nindex = 'postgres:'
    document = { title = 'title', text = 'body' }\n";

const PAGES: &str = "CREATE DOMAIN public.label AS varchar;
    CREATE DOMAIN public.short AS public.label;
    CREATE TABLE public.page (id varchar PRIMARY KEY, title text NOT NULL, body varchar,
      kind varchar(20), marked public.short);
    INSERT INTO public.page (id, title, body, kind, marked)
    SELECT n::text, 'page ' || n::text, 'words', left(n::text, 1), left(n::text, 1)
      FROM generate_series(10, 29) n";

#[tokio::test(flavor = "multi_thread")]
async fn commands_never_call_functions_in_public() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    stage.write("posthaste.toml", FILE)?;
    for version in PgVersion::tried() {
        let db = TestDb::empty(PgServer::shared(version)?).await?;
        let mut client = connect(db.url()).await?;
        posthaste::migrate(&mut client).await?;
        client.run(PAGES).await?;
        // Operators of another user over a domain match exactly too.
        let over_a_domain = "CREATE FUNCTION public.judge_short(public.short, public.short)
              RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
                PERFORM pg_catalog.nextval('public.trapped'); RETURN true; END $$;
            CREATE OPERATOR public.>= (LEFTARG = public.short, RIGHTARG = public.short,
              FUNCTION = public.judge_short)";
        client
            .run(&format!(
                "GRANT CREATE ON SCHEMA public TO PUBLIC; {TRAPS}; {over_a_domain};
                 SELECT posthaste.enqueue('n', queue => 'a')"
            ))
            .await?;
        for (arguments, expected) in [
            ("status", "ERROR worker.none: No worker is running"),
            ("queues list", ""),
            ("queues limit q 5/s", ""),
            ("jobs list", ""),
            ("sync install", "pages"),
            (
                "sync reindex pages --column kind --since 2",
                "pages: 10 documents will be written again",
            ),
            (
                "sync reindex pages --column kind --since 1 --until 2",
                "pages: 10 documents will be written again",
            ),
            (
                "sync reindex pages --column marked --since 2",
                "pages: 10 documents will be written again",
            ),
            ("sync reindex pages --progress", "left"),
            ("sync run --once", "pages"),
            ("sync audit", "20 rows, 20 documents; equal"),
            ("sync audit --contents", "20 rows, 20 documents; equal"),
            ("sync search words", "10"),
            ("relay run --once", "audit: 1 sent"),
            ("rebase --force", "unfinished jobs were taken over"),
            ("adopt --force --discard", "unfinished jobs were discarded"),
            ("doctor", "public"),
        ] {
            let arguments: Vec<&str> = arguments.split(' ').collect();
            let ended = stage.run_with_url(db.url(), &arguments).await?;
            are_untouched(&client, &arguments).await?;
            assert!(
                ended.out.contains(expected),
                "{arguments:?}: {} {}",
                ended.out,
                ended.err
            );
        }
    }
    Ok(())
}
