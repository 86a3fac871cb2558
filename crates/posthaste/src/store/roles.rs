//! Roles: what a producer, a worker and an observer may do (roles.sql).

use tokio_postgres::Client;

use crate::error::Error;

const ROLES: &str = include_str!("../../roles.sql");

/// Makes the roles `posthaste_producer`, `posthaste_worker` and `posthaste_observer`, and gives
/// them what they need in this database, no more. Idempotent; to be called again after each
/// [`migrate`](crate::migrate). Members are added by `GRANT posthaste_producer TO app`.
///
/// The caller owns the schema, and may create roles where they are not there yet. Who may not gets
/// SQLSTATE 42501 and nothing is changed; [`roles_sql`] is for somebody who may.
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

/// What [`grant_roles`] runs, as a script for psql.
pub fn roles_sql() -> String {
    format!("-- posthaste: apply with psql -v ON_ERROR_STOP=1 --single-transaction\n{ROLES}")
}
