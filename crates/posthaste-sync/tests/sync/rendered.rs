//! Documents do not depend on the session's settings for the format of values.

use posthaste_sync::{Body, Query, Row, Source, Table};
use posthaste_testkit::{PgVersion, Sql as _, TestDb};
use tokio_postgres::Client;

use crate::support::database;

const VALUES: &str = "CREATE TABLE doc (id bigint PRIMARY KEY, bytes bytea, days daterange,
      moments tstzrange, moment timestamptz, span interval, whole real, part double precision,
      price money, many date[], kind regclass, \"Upper\" text);
    SELECT posthaste.sync_table('doc');
    INSERT INTO doc VALUES (1, '\\xdeadbeef', '[2026-01-02,2026-02-03)',
      tstzrange('2026-01-02 03:04:05+00', '2026-02-03 03:04:05+00'), '2026-01-02 03:04:05+00',
      '-1 day 2 hours', 0.1::real, 1.0 / 3, 1234.5, '{2026-01-02}', 'posthaste.search', 'x')";

/// Settings that a session may have from its role, its database or its URL.
const OTHERS: [&str; 9] = [
    "bytea_output = escape",
    "datestyle = 'SQL, DMY'",
    "datestyle = German",
    "intervalstyle = iso_8601",
    "extra_float_digits = -5",
    "timezone = 'Asia/Kathmandu'",
    "xmlbinary = hex",
    "quote_all_identifiers = on",
    "search_path = posthaste, public",
];

/// The same values as texts, because a statement may build documents of texts.
const ROWS: &str = "SELECT d.id::text, d.posthaste_version, to_jsonb(d) || jsonb_build_object(
      'bytes', d.bytes::text, 'days', d.days::text, 'moment', d.moment::text,
      'span', d.span::text, 'part', d.part::text, 'price', d.price::text)
    FROM public.doc d WHERE d.id = ANY ($1::bigint[])";

async fn made(db: &TestDb) -> Vec<Row> {
    let ids = ["1".to_owned()];
    let pool = || db.pool(1).unwrap();
    let mut rows = Table::new(pool(), "doc").rows(&ids).await.unwrap();
    // Names that a program's own statement resolves through the search path are not fixed, so
    // `kind` is excluded.
    let own = Query::new(pool(), ROWS.replace("to_jsonb(d)", "to_jsonb(d) - 'kind'"));
    rows.extend(own.rows(&ids).await.unwrap());
    assert!(rows.iter().all(|row| matches!(row.body, Body::Document(_))));
    assert_eq!(rows.len(), 2);
    rows
}

async fn set(client: &Client, db: &TestDb, setting: &str) {
    let name = db.name();
    let settings =
        format!("ALTER DATABASE \"{name}\" RESET ALL; ALTER DATABASE \"{name}\" SET {setting}");
    client.run(&settings).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_ignore_session_formatting_settings() {
    for server in PgVersion::tried() {
        let db = database(server).await;
        let client = db.client().await.unwrap();
        client.run(VALUES).await.unwrap();
        let usual = made(&db).await;
        for setting in OTHERS {
            set(&client, &db, setting).await;
            assert_eq!(made(&db).await, usual, "{setting}");
        }
    }
}
