//! The roles of producers, workers and observers (roles.sql).

use tokio_postgres::Client;

use crate::error::Error;

const ROLES: &str = include_str!("../../roles.sql");

/// Creates the roles `posthaste_producer`, `posthaste_worker` and `posthaste_observer`, and grants
/// them exactly what they need in this database. Idempotent; call it again after each
/// [`migrate`](crate::migrate). Add members by `GRANT posthaste_producer TO app`.
///
/// The caller must own the schema, and be allowed to create roles if they do not exist. Otherwise
/// it fails with SQLSTATE 42501 and nothing is changed; an administrator can run [`roles_sql`]
/// instead.
pub async fn grant_roles(client: &mut Client) -> Result<(), Error> {
    let failed = "cannot grant roles";
    let transaction = client
        .transaction()
        .await
        .map_err(Error::postgres(failed))?;
    transaction
        .batch_execute(ROLES)
        .await
        .map_err(Error::postgres(failed))?;
    transaction.commit().await.map_err(Error::postgres(failed))
}

/// Returns the statements of [`grant_roles`] as a script for psql.
pub fn roles_sql() -> String {
    format!("-- posthaste: apply with psql -v ON_ERROR_STOP=1 --single-transaction\n{ROLES}")
}
