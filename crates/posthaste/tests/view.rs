//! Inserts into the view posthaste.job.

use posthaste_testkit::{PgVersion, Sql as _};

use crate::support::{database, unfinished};

/// A column that the store sets is rejected by name, not ignored.
#[tokio::test]
async fn rejects_inserts_into_store_controlled_columns() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let client = db.client().await.unwrap();
        for (field, value) in [
            ("id", "7"),
            ("state", "'dead'"),
            ("last_error", "'none'"),
            ("unique_key", "'once'"),
        ] {
            let rows = "(VALUES (1), (2)) t(n)";
            let insert = format!(
                "INSERT INTO posthaste.job (name, {field}) SELECT 'n', CASE WHEN n = 2 \
                 THEN {value} END FROM {rows}"
            );
            let error = client.batch_execute(&insert).await.unwrap_err();
            let error = error.as_db_error().unwrap();
            assert_eq!(error.code().code(), "22023", "{field}");
            assert!(
                error
                    .message()
                    .starts_with(&format!("posthaste: {field}: ")),
                "{}",
                error.message()
            );
            assert_eq!(unfinished(&client).await, 0);
            let empty = format!(
                "INSERT INTO posthaste.job (name, {field}) VALUES ('n', NULL) RETURNING id"
            );
            client.query_one(&empty, &[]).await.unwrap();
            let claim = "DELETE FROM posthaste.ready_0";
            client.run(claim).await.unwrap();
        }
    }
}
