//! Five functions run with their owner's rights, for their own purpose only.

use posthaste_testkit::{PgVersion, Sql as _};
use tokio_postgres::Client;

use super::{ROLES, with_roles};
use crate::support::number;

/// They record that rows entered a slot directly, under any role; write a job with the id that its
/// key was taken under; advance sequences after a crash; and read which server this is. Each is
/// listed with the roles that may call it.
const WITH_OWNERS_RIGHTS: [(&str, &[&str]); 5] = [
    ("posthaste.note_copied()", &[]),
    (
        "posthaste.cluster()",
        &["posthaste_worker", "posthaste_observer"],
    ),
    (
        "posthaste.timeline()",
        &["posthaste_worker", "posthaste_observer"],
    ),
    (
        "posthaste.recover()",
        &["posthaste_producer", "posthaste_worker"],
    ),
    (
        "posthaste.enqueue_slow(text,jsonb,text,integer,timestamp with time zone,\
         timestamp with time zone,text,text,integer,text,text,boolean)",
        &["posthaste_producer", "posthaste_worker"],
    ),
];

#[tokio::test]
async fn security_definer_functions_are_limited_to_their_roles() {
    for version in PgVersion::ALL {
        let db = with_roles(version).await;
        let client = db.client().await.unwrap();
        let functions = client
            .query(
                "SELECT p.oid::regprocedure::text, p.prosecdef, coalesce(p.proconfig, '{}'), r,
                   has_function_privilege(r, p.oid, 'EXECUTE')
                   FROM pg_proc p, unnest($1::text[]) r
                     WHERE p.pronamespace = 'posthaste'::regnamespace",
                &[&ROLES.as_slice()],
            )
            .await
            .unwrap();
        assert!(functions.len() > 300, "{}", functions.len());
        for row in &functions {
            let (function, role): (&str, &str) = (row.get(0), row.get(3));
            let (is_owners, may_call): (bool, bool) = (row.get(1), row.get(4));
            let known = WITH_OWNERS_RIGHTS
                .iter()
                .find(|(name, _)| *name == function);
            assert_eq!(is_owners, known.is_some(), "{function}");
            let may = known.is_none_or(|(_, callers)| callers.contains(&role));
            assert_eq!(may_call, may, "{role}: {function}");
            if is_owners {
                let path = "search_path=pg_catalog, pg_temp";
                assert_eq!(row.get::<_, Vec<String>>(2), [path], "{function}");
            }
        }
    }
}

/// Runs statements in the worker's role.
async fn as_worker(client: &Client, sql: &str) {
    let sql = format!("SET ROLE posthaste_worker; {sql}; RESET ROLE");
    client.run(&sql).await.unwrap();
}

/// Workers write to posthaste.queue, which contains the cell of each queue.
#[tokio::test]
async fn rate_limits_change_only_their_own_sequence() {
    for version in PgVersion::ALL {
        let db = with_roles(version).await;
        let client = db.client().await.unwrap();
        client
            .run(
                "CREATE SEQUENCE public.bill MINVALUE 0; CREATE SEQUENCE public.pace_1 MINVALUE 0;
                 SELECT setval('public.bill', 900), setval('public.pace_1', 900),
                   setval('posthaste.job_id', 900)",
            )
            .await
            .unwrap();
        for foreign in ["public.bill", "public.pace_1", "posthaste.job_id"] {
            let queue = "INSERT INTO posthaste.queue (name, pace) VALUES";
            as_worker(&client, &format!("{queue} ('{foreign}', '{foreign}')")).await;
            let limit = format!("SELECT posthaste.limit_rate('{foreign}', 5)");
            as_worker(&client, &limit).await;
            let last = format!("SELECT last_value FROM {foreign}");
            assert_eq!(number(&client, &last).await, 900, "{foreign}");
            let cell = "SELECT pace::text FROM posthaste.queue WHERE name = $1";
            let cell: String = client.one_with(cell, &[&foreign]).await.unwrap();
            assert!(cell.starts_with("posthaste.pace_"), "{foreign}: {cell}");
            // A second call uses the cell that the first took.
            as_worker(&client, &limit).await;
            let kept =
                format!("SELECT count(*) FROM posthaste.queue WHERE pace = '{cell}'::regclass");
            assert_eq!(number(&client, &kept).await, 1, "{foreign}");
        }
    }
}
