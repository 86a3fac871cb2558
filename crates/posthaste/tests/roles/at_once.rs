//! Roles belong to the whole server, and locks of one database do not apply in another.

use futures_util::future::join_all;
use posthaste_testkit::{PgServer, PgVersion, Sql as _};

use super::ROLES;
use crate::support::{migrated, number};

#[tokio::test]
async fn six_databases_create_the_roles_concurrently() {
    for version in PgVersion::ALL {
        let server = PgServer::start(version, &[]).unwrap();
        let mut databases = Vec::new();
        for _ in 0..6 {
            databases.push(migrated(&server).await);
        }
        let mut clients = Vec::new();
        for database in &databases {
            clients.push(database.client().await.unwrap());
        }
        let roles = ROLES.join(", ");
        for round in 1..=2 {
            let granted = clients.iter_mut().map(posthaste::grant_roles);
            for granted in join_all(granted).await {
                granted
                    .unwrap_or_else(|error| panic!("{} round {round}: {error:?}", version.name()));
            }
            for client in &clients {
                let given =
                    "SELECT count(*) FROM unnest(ARRAY['posthaste_producer', 'posthaste_worker']) r
                              WHERE has_any_column_privilege(r, 'posthaste.store', 'INSERT')";
                assert_eq!(number(client, given).await, 2);
                let sees =
                    "SELECT count(*) FROM unnest(ARRAY['posthaste_observer', 'posthaste_worker']) r
                             WHERE pg_has_role(r, 'pg_read_all_stats', 'USAGE')";
                assert_eq!(number(client, sees).await, 2);
            }
            // The server has no such roles again.
            for client in &clients {
                let drop = format!("DROP OWNED BY {roles}");
                client.run(&drop).await.unwrap();
            }
            let drop = format!("DROP ROLE {roles}");
            clients[0].run(&drop).await.unwrap();
        }
    }
}
