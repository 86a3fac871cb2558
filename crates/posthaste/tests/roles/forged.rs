//! A producer cannot forge facts about other jobs: it cannot take their ids, their places or their
//! keys.

use posthaste::{NewJob, enqueue, enqueue_copy, enqueue_nowait};
use posthaste_testkit::{PgVersion, Sql as _, TestResult};
use serde_json::json;

use super::with_roles;
use crate::support::{number, unfinished};

/// Columns that only the store may set: the id of the job, its writer, its attempts, its key and
/// turn, and its error.
const OURS: [(&str, &str); 7] = [
    ("xid", "'9000000000'"),
    ("id", "1"),
    ("attempt", "24"),
    ("crashes", "3"),
    ("unique_key", "'taken'"),
    ("turn", "1"),
    ("last_error", "'boom'"),
];

#[tokio::test]
async fn producers_cannot_forge_job_ownership() -> TestResult {
    for version in PgVersion::ALL {
        let db = with_roles(version).await;
        let owner = db.client().await?;
        owner
            .run("SELECT posthaste.enqueue('theirs', unique_key => 'taken')")
            .await?;
        let pool = db.pool_as("posthaste_producer", 1)?;
        let mut producer = pool.get().await?;
        let mut statements: Vec<String> = OURS
            .iter()
            .flat_map(|(column, value)| {
                let others = "slot, queue, name, expires_at, kwargs_bytes";
                [
                    format!(
                        "INSERT INTO posthaste.store ({others}, {column})
                         VALUES (0, 'default', 'forged', now() + interval '1 day', 2, {value})"
                    ),
                    format!("COPY posthaste.store ({others}, {column}) FROM STDIN"),
                ]
            })
            .collect();
        for forged in [
            "INSERT INTO posthaste.unique_key (key, id) VALUES ('squatted', 1)",
            "UPDATE posthaste.store SET id = 1",
            "INSERT INTO posthaste.ready_0 (id) VALUES (1)",
            "SELECT setval('posthaste.job_id', 1)",
        ] {
            statements.push(forged.to_owned());
        }
        for statement in statements {
            let refused = producer.batch_execute(&statement).await.unwrap_err();
            let code = refused.code().map(|code| code.code().to_owned());
            assert_eq!(code.as_deref(), Some("42501"), "{statement}: {refused:?}");
        }
        // It can still enqueue by every function.
        let job = NewJob::new("mine", &json!({}))?;
        enqueue(&*producer, &job).await?;
        enqueue(&*producer, &job.clone().unique_key("k")).await?;
        let keyed = job.clone().unique_key("n");
        assert!(enqueue_nowait(&*producer, &keyed).await?.is_some());
        enqueue(&*producer, &job.clone().ordering_key("o")).await?;
        let tx = producer.transaction().await?;
        let copied = [job.clone(), job.clone().ordering_key("o")];
        assert_eq!(enqueue_copy(&tx, &copied).await?, 2);
        tx.commit().await?;
        producer
            .run(
                "INSERT INTO posthaste.job (name) VALUES ('view');
                 INSERT INTO posthaste.staged_jobs (job_name, job_args) VALUES ('staged', '{}');
                 INSERT INTO posthaste.outbox (type, payload) VALUES ('outbox', 'x');
                 SELECT posthaste.enqueue('later', scheduled_at => now() + interval '1 hour')",
            )
            .await?;
        assert_eq!(unfinished(&owner).await, 11);
        let ids = "SELECT count(DISTINCT id) FROM posthaste.job";
        assert_eq!(number(&owner, ids).await, 11);
    }
    Ok(())
}
