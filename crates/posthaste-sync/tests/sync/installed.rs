//! Installing a sync does not change what the table's applications use.

use posthaste_testkit::{PgVersion, Sql as _, TestResult};

use crate::support::{connected, number};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn application_columns_are_never_used_for_versions() -> TestResult {
    for server in PgVersion::tried() {
        let (_db, client) = connected(server).await?;
        // Version columns as JPA, EF and Rails create them, and one with the sync's default name.
        client
            .run(
                "CREATE TABLE product (id bigint PRIMARY KEY, name text,
                   version bigint NOT NULL DEFAULT 0, posthaste_version bigint NOT NULL DEFAULT 0);
                 INSERT INTO product VALUES (1, 'a', 0, 0)",
            )
            .await?;
        for own in ["version", "posthaste_version"] {
            let install = format!("SELECT posthaste.sync_table('product', version => '{own}')");
            let refused = client.batch_execute(&install).await.unwrap_err();
            let refused = refused.as_db_error().unwrap();
            assert_eq!(refused.code().code(), "42701");
            assert!(refused.message().contains(own), "{}", refused.message());
            assert!(refused.hint().unwrap().contains("COMMENT ON COLUMN"));
        }
        // The comment hands the column over to the sync; the other column remains the
        // application's.
        client
            .run(
                "COMMENT ON COLUMN product.posthaste_version IS 'posthaste: versions of rows';
                 SELECT posthaste.sync_table('product')",
            )
            .await?;
        for (found, next) in [(0, 1), (1, 2)] {
            let update = format!(
                "UPDATE product SET name = 'b', version = {next} WHERE id = 1 AND version = {found}"
            );
            assert_eq!(client.execute(&update, &[]).await?, 1);
        }
        // A column that an install created is the sync's after repeated installs, and after the
        // sync was removed.
        client
            .run(
                "CREATE TABLE plain (id bigint PRIMARY KEY, version text);
                 SELECT posthaste.sync_table('plain');
                 SELECT posthaste.sync_table('plain');
                 SELECT posthaste.sync_table('plain', name => 'second');
                 SELECT posthaste.unsync_table('plain'), posthaste.unsync_table('second');
                 SELECT posthaste.sync_table('plain');
                 INSERT INTO plain VALUES (1, 'lock')",
            )
            .await?;
        let document = "SELECT count(*) FROM posthaste.sync_rows('plain', '{1}') r
                        WHERE r.document = '{\"id\": 1, \"version\": \"lock\"}'";
        assert_eq!(number(&client, document).await, 1);
    }
    Ok(())
}
