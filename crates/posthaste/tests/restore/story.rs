//! A store with jobs in every state, its dump, and how it must continue after a restore.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context, ensure};
use posthaste::{Outcome, rebase};
use posthaste_testkit::{PgServer, Sql as _, TestDb, eventually};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use crate::stress::store::Store;
use crate::support;

/// The state of the store when the dump was taken.
#[derive(Debug)]
pub(super) struct Past {
    /// Jobs that must run, with the delivery ids that receivers may know.
    open: BTreeMap<i64, String>,
    awaiting: String,
    /// The range of the transactions of jobs that are done.
    pub(super) claimed_xids: (i64, i64),
}

/// Runs this in each of this many transactions.
async fn each_alone(client: &Client, times: i32, what: &str) -> anyhow::Result<()> {
    client.run("SET synchronous_commit = off").await?;
    let each = format!("DO $$ BEGIN FOR i IN 1..{times} LOOP {what}; COMMIT; END LOOP; END $$");
    client.run(&each).await
}

/// Advances the transaction ids of a cluster.
pub(super) async fn use_up(client: &Client, xids: i32) -> anyhow::Result<()> {
    each_alone(client, xids, "PERFORM pg_current_xact_id()").await
}

pub(super) async fn use_up_to(client: &Client, xid: i64) -> anyhow::Result<()> {
    let left = xid - next_xid(client).await?;
    use_up(client, i32::try_from(left.max(0))?).await
}

pub(super) async fn next_xid(client: &Client) -> anyhow::Result<i64> {
    let next = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    client.one(next).await
}

pub(super) fn dump(server: &PgServer, name: &str, to: &Path) -> anyhow::Result<()> {
    let output = server
        .tool("pg_dump")
        .args(["--format=custom", "--compress=0", "--file"])
        .arg(to)
        .arg(name)
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

pub(super) fn restore(
    server: &PgServer,
    name: &str,
    from: &Path,
    how: &[&str],
) -> anyhow::Result<()> {
    let run = |how: &[&str]| {
        let mut tool = server.tool("pg_restore");
        tool.args(["--dbname", name]).args(how).arg(from).output()
    };
    let mut output = run(&[&["--exit-on-error"], how].concat())?;
    let mut is_restored = output.status.success();
    if is_too_new(&output.stderr) {
        let how = how.iter().filter(|how| **how != "--single-transaction");
        output = run(&how.copied().collect::<Vec<_>>())?;
        is_restored = is_too_new(&output.stderr);
    }
    std::fs::remove_file(from)?;
    ensure!(is_restored, "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Whether the only error is a setting that the server does not know: if a server has no tools of
/// its version, those of the newest set `transaction_timeout` first, which 16 lacks.
fn is_too_new(output: &[u8]) -> bool {
    let output = String::from_utf8_lossy(output);
    let mut errors = output.lines().filter(|line| line.contains("ERROR:"));
    output.contains("transaction_timeout")
        && errors.all(|line| line.contains("transaction_timeout"))
}

/// Enqueues one job of this name in each of this many transactions.
async fn singles(client: &Client, name: &str, jobs: i32) -> anyhow::Result<()> {
    let one = format!("INSERT INTO posthaste.job (name) VALUES ('{name}')");
    each_alone(client, jobs, &one).await
}

impl Past {
    /// Fills the store; this many jobs are done.
    pub(super) async fn fill(db: &TestDb, jobs: i32) -> anyhow::Result<Self> {
        let store = Store::new(db.url()).await?;
        // Done as a batch, one by one, and after promotion.
        singles(&store.client, "done", jobs).await?;
        let mut done = Vec::new();
        while done.len() < usize::try_from(jobs)? {
            let batch = store.claim(1000).await?;
            store.done(&batch).await?;
            done.extend(batch);
        }
        let claimed_xids = store
            .client
            .query_one(
                "SELECT min(xid)::text::bigint, max(xid)::text::bigint FROM posthaste.store \
                 WHERE name = 'done'",
                &[],
            )
            .await?;
        let claimed_xids = (claimed_xids.get(0), claimed_xids.get(1));
        store.enqueue_many("done", 10).await?;
        let singly = store.claim(10).await?;
        store.finish(&singly).await?;
        for _ in 0..3 {
            store.enqueue("done", 100).await?;
        }
        store.until(&store.clock(200).await?).await?;
        ensure!(store.promote(100).await? == 3);
        store.done(&store.claim(3).await?).await?;
        // A job that holds its key and one that has released it, and an ordered pair whose first is
        // running.
        store
            .say("SELECT posthaste.enqueue('done', unique_key => 'free')")
            .await?;
        store.finish(&store.claim(1).await?).await?;
        let line =
            "SELECT posthaste.enqueue('open', ordering_key => 'line') FROM generate_series(1, 2)";
        store.say(line).await?;
        store.say("SELECT posthaste.advance_ordering(10)").await?;
        ensure!(store.claim(1).await?.len() == 1);
        // Dead, awaiting, in flight, running, to be retried, not due, promoted, waiting.
        store.enqueue_many("dead", 2).await?;
        let dead_letter = "SELECT posthaste.settle($1, $2, $3, ARRAY[$4::bigint], '{2}', '{1}', \
                           NULL, NULL, '{dead}', '{why}')";
        for job in store.claim(2).await? {
            let at: [&(dyn ToSql + Sync); 4] = [&job.slot, &job.batch, &job.token, &job.id];
            store.client.execute(dead_letter, &at).await?;
        }
        let awaiting = store.enqueue("awaiting", 0).await?;
        let awaited = store.claim(1).await?;
        let until = "SELECT posthaste.settle($1, $2, $3, ARRAY[$4::bigint], '{4}', '{0}', NULL, \
                     ARRAY[now() + interval '1 hour'], NULL, NULL)";
        let job = awaited.first().context("awaited")?;
        store
            .client
            .execute(until, &[&job.slot, &job.batch, &job.token, &job.id])
            .await?;
        store.enqueue_many("open", 2).await?;
        ensure!(store.claim(2).await?.len() == 2);
        ensure!(
            store
                .value::<i64>("SELECT posthaste.move_running(0, 0, 1)", &[])
                .await?
                == 1
        );
        store.enqueue_many("open", 3).await?;
        for job in store.claim(2).await? {
            store.settle(job, 1, 2000).await?;
        }
        store.enqueue("open", 100).await?;
        store.until(&store.clock(200).await?).await?;
        ensure!(store.promote(100).await? >= 1);
        store.enqueue("open", 2500).await?;
        singles(&store.client, "open", 20).await?;
        store
            .say(
                "SELECT posthaste.enqueue('open', unique_key => 'taken');
                   INSERT INTO posthaste.route VALUES ('routed*', 'elsewhere');
                     SELECT posthaste.pause('elsewhere')",
            )
            .await?;
        let open = store
            .client
            .query(
                "SELECT id, posthaste.delivery_id(id)::text FROM posthaste.job WHERE name = 'open'",
                &[],
            )
            .await?;
        Ok(Self {
            open: open.iter().map(|row| (row.get(0), row.get(1))).collect(),
            awaiting: store
                .value("SELECT posthaste.delivery_id($1)::text", &[&awaiting])
                .await?,
            claimed_xids,
        })
    }

    /// Plays the rest in a database that the dump was restored into.
    pub(super) async fn goes_on_in(
        mut self,
        db: &TestDb,
        ids_are_kept: bool,
    ) -> anyhow::Result<()> {
        let mut client = db.client().await?;
        self.enqueue_before(&client).await?;
        let work = async || {
            let sink = Arc::new(Mutex::new(Vec::new()));
            let sink_of_handler = Arc::clone(&sink);
            let worker = support::worker(&db.pool(2)?)
                .queue_config(support::quick_queue())
                .handler("open", move |context, job| {
                    let delivered = (job.id.0, context.delivery_id().to_string());
                    sink_of_handler
                        .lock()
                        .map(|mut sink| sink.push(delivered))
                        .ok();
                    async { Ok(Outcome::Done) }
                })
                .start()
                .await?;
            anyhow::Ok((worker, sink))
        };
        let refused = work().await.err().context("a worker started")?;
        ensure!(
            refused.to_string().contains("posthaste rebase"),
            "{refused}"
        );
        for looks_at_ids in ["redrive()", "retry()", "cancel(1)"] {
            let refused = client
                .batch_execute(&format!("SELECT posthaste.{looks_at_ids}"))
                .await;
            ensure!(refused.is_err(), "{looks_at_ids} before the rebase");
        }
        let jobs = rebase(&mut client, false).await?;
        // And the one in the paused queue.
        ensure!(
            jobs == u64::try_from(self.open.len())? + 1,
            "{jobs} of {}",
            self.open.len()
        );
        singles(&client, "open", 5).await?;
        let rest = client
            .query(
                "SELECT id, posthaste.delivery_id(id)::text FROM posthaste.job WHERE name = 'open'",
                &[],
            )
            .await?;
        for row in rest {
            let (id, delivery): (i64, String) = (row.get(0), row.get(1));
            if let Some(known) = self.open.insert(id, delivery.clone()) {
                ensure!(
                    !ids_are_kept || known.is_empty() || known == delivery,
                    "job {id} has another delivery id"
                );
            }
        }
        let (worker, sink) = work().await?;
        eventually(support::SOON, "every job has run", async || {
            let left = "SELECT count(*) FROM posthaste.job WHERE name = 'open'";
            Ok(client.one::<i64>(left).await? == 0)
        })
        .await?;
        worker.stop().await?;
        let mut ran = sink
            .lock()
            .map_err(|_| anyhow::anyhow!("a handler panicked"))?
            .clone();
        ran.sort();
        ensure!(ran == self.open.into_iter().collect::<Vec<_>>(), "{ran:?}");
        let kept = "SELECT (SELECT count(*) FROM posthaste.dead
                           WHERE state = 'dead'), posthaste.confirm($1::text::uuid),
                           (SELECT count(*) FROM posthaste.job WHERE state = 'awaiting'),
                             (SELECT count(*) FROM posthaste.unique_key),
                           (SELECT queue FROM posthaste.job WHERE name = 'routed.x')";
        let kept = client.query_one(kept, &[&self.awaiting]).await?;
        ensure!(kept.get::<_, i64>(0) == 2, "dead jobs are kept");
        ensure!(
            kept.get::<_, bool>(1),
            "who awaits is confirmed by the id of before"
        );
        ensure!(support::count(&client, "awaiting").await == 0);
        ensure!(
            kept.get::<_, i64>(3) == 0,
            "keys are free when their jobs are done"
        );
        ensure!(kept.get::<_, String>(4) == "elsewhere", "routes hold");
        Ok(())
    }

    /// Enqueues jobs after the restore and before the rebase: their transactions may resemble old
    /// ones.
    async fn enqueue_before(&mut self, client: &Client) -> anyhow::Result<()> {
        singles(client, "open", 40).await?;
        client
            .run(
                "BEGIN; INSERT INTO posthaste.job (name) VALUES ('open'); SAVEPOINT a; \
                 INSERT INTO posthaste.job (name) VALUES ('open'); RELEASE a; COMMIT;
                 INSERT INTO posthaste.job (name, scheduled_at) VALUES ('open', now() + interval \
                 '2 s');
                 SELECT posthaste.enqueue('routed.x')",
            )
            .await?;
        let known = client
            .query_one(
                "SELECT posthaste.enqueue('open', unique_key => 'taken')",
                &[],
            )
            .await?;
        ensure!(
            self.open.contains_key(&known.get(0)),
            "the key is held by the job of before"
        );
        let new = client
            .query_one(
                "SELECT posthaste.enqueue('open', unique_key => 'free')",
                &[],
            )
            .await?;
        let new: i64 = new.get(0);
        ensure!(!self.open.contains_key(&new));
        let natives = client
            .query(
                "SELECT id FROM posthaste.store WHERE name = 'open' AND id > $1",
                &[&(new - 100)],
            )
            .await?;
        for row in natives {
            self.open.entry(row.get(0)).or_default();
        }
        Ok(())
    }
}
