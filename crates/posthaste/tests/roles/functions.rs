//! Functions: one of them runs with its owner's rights, and lends them for nothing else.

use posthaste_testkit::PgVersion;
use tokio_postgres::Client;

use super::{ROLES, with_roles};
use crate::support::number;

/// It makes a sequence for each queue that has a rate.
const WITH_OWNERS_RIGHTS: &str = "posthaste.limit_rate(text,integer,interval,integer)";

#[tokio::test]
async fn the_rate_alone_runs_with_its_owners_rights_and_workers_alone_may_call_it() {
    for version in PgVersion::ALL {
        let db = with_roles(version).await;
        let client = db.client().await.unwrap();
        let functions = client
            .query(
                "SELECT p.oid::regprocedure::text, p.prosecdef, coalesce(p.proconfig, '{}'), r, has_function_privilege(r, p.oid, 'EXECUTE')
                   FROM pg_proc p, unnest($1::text[]) r WHERE p.pronamespace = 'posthaste'::regnamespace",
                &[&ROLES.as_slice()],
            )
            .await
            .unwrap();
        assert!(functions.len() > 300, "{}", functions.len());
        for row in &functions {
            let (function, role): (&str, &str) = (row.get(0), row.get(3));
            let (is_owners, may_call): (bool, bool) = (row.get(1), row.get(4));
            let is_known = function == WITH_OWNERS_RIGHTS;
            assert_eq!(is_owners, is_known, "{function}");
            let may = !is_known || role == "posthaste_worker";
            assert_eq!(may_call, may, "{role}: {function}");
            if is_owners {
                let path = "search_path=pg_catalog, pg_temp";
                assert_eq!(row.get::<_, Vec<String>>(2), [path], "{function}");
            }
        }
    }
}

/// A session in the worker's role.
async fn as_worker(client: &Client, sql: &str) {
    let sql = format!("SET ROLE posthaste_worker; {sql}; RESET ROLE");
    client.batch_execute(&sql).await.unwrap();
}

/// Workers write into posthaste.queue, where each queue's cell stands.
#[tokio::test]
async fn a_worker_cannot_have_the_rates_owner_move_another_sequence() {
    for version in PgVersion::ALL {
        let db = with_roles(version).await;
        let client = db.client().await.unwrap();
        client
            .batch_execute(
                "CREATE SEQUENCE public.bill MINVALUE 0; CREATE SEQUENCE public.pace_1 MINVALUE 0;
                 SELECT setval('public.bill', 900), setval('public.pace_1', 900), setval('posthaste.job_id', 900)",
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
            let cell: String = client.query_one(cell, &[&foreign]).await.unwrap().get(0);
            assert!(cell.starts_with("posthaste.pace_"), "{foreign}: {cell}");
            // A second call keeps the cell that the first made.
            as_worker(&client, &limit).await;
            let kept =
                format!("SELECT count(*) FROM posthaste.queue WHERE pace = '{cell}'::regclass");
            assert_eq!(number(&client, &kept).await, 1, "{foreign}");
        }
    }
}
