//! Jobs whose effect happens elsewhere: they wait until they are confirmed, in any order, or are
//! retried.

use jiff::{SignedDuration, Timestamp};
use posthaste::{Outcome, enqueue};
use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};

use crate::lifecycle::{job, state};
use crate::support::{SOON, all_done, connected, count, database, hand, unfinished, worker};

#[tokio::test(flavor = "multi_thread")]
async fn confirmation_before_acknowledgement_completes_the_job() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let pool = db.pool(4)?;
    let receiver = pool.clone();
    let worker = worker(&pool)
        .queue("default", 2)
        .handler("send", move |_, job| {
            let receiver = receiver.clone();
            async move {
                receiver
                    .get()
                    .await?
                    .execute(
                        "SELECT posthaste.confirm(posthaste.delivery_id($1))",
                        &[&job.id.0],
                    )
                    .await?;
                Ok(Outcome::Await {
                    until: Timestamp::now() + SignedDuration::from_hours(1),
                })
            }
        })
        .start()
        .await?;
    enqueue(&client, &job("send")).await?;
    all_done(&client).await;
    worker.stop().await?;
    Ok(())
}

/// The receiver's transaction cannot see that the job is held: it is open across the
/// acknowledgement, or its snapshot is older.
#[tokio::test]
async fn confirmation_from_an_older_snapshot_completes_the_job() -> TestResult {
    for isolation in ["READ COMMITTED", "REPEATABLE READ"] {
        let db = database(PgVersion::any()).await;
        let (client, receiver) = (db.client().await?, db.client().await?);
        let worker = hand(&client).await;
        enqueue(&client, &job("send").unique_key("once")).await?;
        let token = "0b5a7a4e-3c57-4f0e-8b8e-2f6d5d1f3a11";
        let claim = format!(
            "SELECT slot, batch, id FROM posthaste.claim('default', '{{0}}', {worker}, '{token}', \
             1, 1)"
        );
        let claimed = client.query_one(&claim, &[]).await?;
        let id: i64 = claimed.get(2);
        let begin = format!("BEGIN ISOLATION LEVEL {isolation}; SELECT 1");
        receiver.run(&begin).await?;
        let done = "SELECT posthaste.confirm(posthaste.delivery_id($1))";
        if isolation == "READ COMMITTED" {
            receiver.execute(done, &[&id]).await?;
        }
        let wait = format!(
            "SELECT posthaste.settle($1, $2, '{token}', ARRAY[$3::bigint], ARRAY[4::smallint], \
             NULL, NULL, ARRAY[clock_timestamp() + interval '1 hour'], NULL, NULL)"
        );
        let place = (claimed.get::<_, i16>(0), claimed.get::<_, i64>(1));
        client.execute(&wait, &[&place.0, &place.1, &id]).await?;
        if isolation != "READ COMMITTED" {
            receiver.execute(done, &[&id]).await?;
        }
        assert_eq!(count(&client, "awaiting").await, 1, "{isolation}");
        receiver.run("COMMIT").await?;
        client
            .run("SELECT posthaste.confirm_in_flight('infinity', 100)")
            .await?;
        assert_eq!(unfinished(&client).await, 0, "{isolation}");
        let keys = "SELECT (SELECT count(*) FROM posthaste.unique_key) + (SELECT count(*) \
                    FROM posthaste.confirmed)";
        let keys: i64 = client.one(keys).await?;
        assert_eq!(
            keys, 0,
            "{isolation}: its key and the confirmation are let go"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unconfirmed_jobs_are_retried_and_count_an_attempt() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let worker = worker(&db.pool(4)?)
        .queue("default", 2)
        .handler("send", |_, _| async {
            Ok(Outcome::Await {
                until: Timestamp::now() + SignedDuration::from_millis(50),
            })
        })
        .start()
        .await?;
    let id = enqueue(&client, &job("send").max_attempts(Some(2)))
        .await?
        .0;
    let wanted = (
        "dead".to_owned(),
        2,
        Some("it was not confirmed in time".to_owned()),
    );
    eventually(SOON, "two sends", async || {
        Ok(state(&client, id).await == Some(wanted.clone()))
    })
    .await?;
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_acknowledgements_leave_the_confirmation_to_the_new_run() -> TestResult {
    for version in PgVersion::tried() {
        let (_database, client) = connected(version).await?;
        let begin =
            "INSERT INTO posthaste.worker (name) VALUES ('hand'); SELECT posthaste.enqueue('x')";
        client.run(begin).await?;
        let claim = "SELECT slot, batch, id, $1::uuid FROM posthaste.claim('default', '{0}', \
                     (SELECT max(id) FROM posthaste.worker), $1, 1, 1000)";
        let awaits = "SELECT cardinality(posthaste.settle($1, $2, $4, ARRAY[$3::bigint], \
                      ARRAY[4::smallint], ARRAY[0], NULL, ARRAY[now() + interval '1 hour'], NULL, \
                      ARRAY[NULL]))";
        let (lost, kept) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
        let late = client.query_one(claim, &[&lost]).await?;
        let give_back = "SELECT posthaste.return_claim((SELECT max(id) FROM posthaste.worker), $1)";
        client.execute(give_back, &[&lost]).await?;
        let now = client.query_one(claim, &[&kept]).await?;
        let confirm = "SELECT posthaste.confirm(posthaste.delivery_id($1))";
        client.execute(confirm, &[&now.get::<_, i64>(2)]).await?;
        for (claimed, ours) in [(late, 0), (now, 1)] {
            let (slot, batch): (i16, i64) = (claimed.get(0), claimed.get(1));
            let (id, token): (i64, uuid::Uuid) = (claimed.get(2), claimed.get(3));
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
                [&slot, &batch, &id, &token];
            let settled = client.one_with::<i32>(awaits, &values).await?;
            assert_eq!(settled, ours, "{version:?}");
        }
        assert_eq!(unfinished(&client).await, 0, "{version:?}");
    }
    Ok(())
}
