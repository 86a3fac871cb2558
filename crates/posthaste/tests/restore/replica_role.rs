//! Sessions that fire no triggers, because their role or database is set to
//! `session_replication_role = replica`.

use posthaste::{Outcome, WorkerBuilder, grant_roles};
use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};

use crate::support::{SOON, database, number, quick_queue, worker};

fn builder(pool: &deadpool_postgres::Pool) -> WorkerBuilder {
    worker(pool)
        .queue_config(quick_queue())
        .handler("*", async |_, job| match &*job.name {
            "no" => Ok(Outcome::Discard {
                reason: "no".into(),
            }),
            _ => Ok(Outcome::Done),
        })
}

#[tokio::test]
async fn replica_role_sessions_are_reset_or_refused() -> TestResult {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let mut client = db.client().await?;
        grant_roles(&mut client).await?;
        let name = db.name();
        let set = format!("ALTER DATABASE {name} SET session_replication_role = replica");
        client.run(&set).await?;
        let plain = db.pool_as("posthaste_worker", 4)?;
        let refused = builder(&plain).start().await.err().expect("a refusal");
        let refused = format!("{refused} {refused:?}");
        assert!(
            refused.contains("session_replication_role is replica"),
            "{refused}"
        );

        let working = builder(&db.pool(4)?).start().await?;
        let silent = db.client().await?;
        let enqueue = "SELECT posthaste.enqueue('ok') FROM generate_series(1, 3);
                       SELECT posthaste.enqueue('no', unique_key => 'k')";
        silent.run(enqueue).await?;
        let left = "SELECT count(*) FROM posthaste.job WHERE state <> 'discarded'";
        eventually(SOON, "all are worked", async || {
            Ok(number(&client, left).await == 0)
        })
        .await?;
        let leads = "SELECT count(*) FROM posthaste.leader WHERE until > clock_timestamp()";
        eventually(SOON, "it leads", async || {
            Ok(number(&client, leads).await == 1)
        })
        .await?;
        let counted = "SELECT sum(discarded)::bigint FROM posthaste.counts()";
        assert_eq!(number(&client, counted).await, 1);
        let held = "SELECT count(*) FROM posthaste.unique_key";
        assert_eq!(number(&client, held).await, 0);
        for act in [
            "SELECT posthaste.redrive()",
            "SELECT posthaste.cancel(1)",
            "SELECT posthaste.lock_out_workers(true)",
        ] {
            let refused = silent.batch_execute(act).await.unwrap_err();
            assert_eq!(refused.code().unwrap().code(), "55000", "{act}");
        }
        let direct = "UPDATE posthaste.leader SET until = until, pid = pg_backend_pid()";
        let refused = silent.batch_execute(direct).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "55000");
        working.stop().await?;

        let reset = format!("ALTER DATABASE {name} RESET session_replication_role");
        client.run(&reset).await?;
        let plain = db.pool_as("posthaste_worker", 4)?;
        let working = builder(&plain).start().await?;
        client.run("SELECT posthaste.redrive()").await?;
        let discarded = "SELECT coalesce(sum(discarded_total), 0)::bigint FROM posthaste.counts()";
        eventually(SOON, "work goes on", async || {
            Ok(number(&client, discarded).await == 2)
        })
        .await?;
        working.stop().await?;
    }
    Ok(())
}
