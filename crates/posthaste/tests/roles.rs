//! The role of a program that only enqueues, with the rights that docs/operations.md gives it and no others.

use posthaste::{NewJob, enqueue, enqueue_many};
use posthaste_testkit::PgVersion;
use serde_json::json;

use crate::support::{database, unfinished};

#[tokio::test]
async fn the_documented_producer_enqueues_in_every_way() {
    for version in PgVersion::ALL {
        let db = database(version).await;
        let owner = db.client().await.unwrap();
        let name: String = owner
            .query_one("SELECT 'app_' || current_database()", &[])
            .await
            .unwrap()
            .get(0);
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
        let page = std::fs::read_to_string(page).unwrap();
        let grants: Vec<String> = page
            .lines()
            .filter(|line| line.starts_with("GRANT "))
            .map(|line| line.replace(" TO app;", &format!(" TO {name};")))
            .collect();
        assert!(grants.len() >= 7, "the page lists the rights of a producer");
        owner
            .batch_execute(&format!("CREATE ROLE {name}; {}", grants.concat()))
            .await
            .unwrap();
        let producer = db.client().await.unwrap();
        producer
            .batch_execute(&format!("SET ROLE {name}"))
            .await
            .unwrap();
        producer
            .batch_execute(
                "INSERT INTO posthaste.job (name) VALUES ('view');
                 INSERT INTO posthaste.job (name, scheduled_at) VALUES ('view', now() + interval '1 hour');
                 SELECT posthaste.enqueue('plain');
                 SELECT posthaste.enqueue('scheduled', scheduled_at => now() + interval '1 hour');
                 SELECT posthaste.enqueue('keyed', unique_key => 'k')",
            )
            .await
            .unwrap();
        let job = NewJob::new("rust", &json!({})).unwrap();
        enqueue(&producer, &job).await.unwrap();
        enqueue(&producer, &job.clone().queue("q")).await.unwrap();
        enqueue_many(&producer, &[job.clone(), job.clone()])
            .await
            .unwrap();
        let pooled = db.pool(1).unwrap().get().await.unwrap();
        pooled
            .batch_execute(&format!("SET ROLE {name}"))
            .await
            .unwrap();
        enqueue(&pooled, &job).await.unwrap();
        owner
            .batch_execute("INSERT INTO posthaste.route (pattern, queue) VALUES ('r*', 'routed')")
            .await
            .unwrap();
        producer
            .batch_execute("SELECT posthaste.enqueue('routed')")
            .await
            .unwrap();
        enqueue(&pooled, &job).await.unwrap();
        assert_eq!(unfinished(&owner).await, 12);
        let routed: i64 = owner
            .query_one(
                "SELECT count(*) FROM posthaste.job WHERE queue = 'routed'",
                &[],
            )
            .await
            .unwrap()
            .get(0);
        assert_eq!(routed, 2, "a route holds for every way to enqueue");
    }
}

#[tokio::test]
async fn a_role_without_the_rights_is_told_so() {
    for version in PgVersion::ALL {
        let db = database(version).await;
        let owner = db.client().await.unwrap();
        let name: String = owner
            .query_one("SELECT 'nobody_' || current_database()", &[])
            .await
            .unwrap()
            .get(0);
        // It may write, but not see where the rings stand.
        owner
            .batch_execute(&format!(
                "CREATE ROLE {name}; GRANT USAGE ON SCHEMA posthaste TO {name};
                 GRANT USAGE ON SEQUENCE posthaste.job_id TO {name};
                 GRANT INSERT, SELECT ON ALL TABLES IN SCHEMA posthaste TO {name}"
            ))
            .await
            .unwrap();
        let client = db.client().await.unwrap();
        client
            .batch_execute(&format!("SET ROLE {name}; SET statement_timeout = '20s'"))
            .await
            .unwrap();
        for statement in [
            "SELECT posthaste.enqueue('a')",
            "SELECT posthaste.enqueue('a', scheduled_at => now() + interval '1 hour')",
            "INSERT INTO posthaste.job (name) VALUES ('a')",
        ] {
            let refused = client.batch_execute(statement).await.unwrap_err();
            let code = refused.code().map(|code| code.code().to_owned());
            assert_eq!(
                code.as_deref(),
                Some("42501"),
                "{} {statement}",
                version.name()
            );
        }
    }
}
