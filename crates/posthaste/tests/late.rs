//! Transactions that commit 1 to 60 seconds after they began, ended by every kind of COMMIT and
//! ROLLBACK, while claims, promotion and truncation continue.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use posthaste_testkit::{PgVersion, Sql as _, connect, eventually};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use crate::crash::{Worked, remembering};
use crate::stress::{self, store::Store};
use crate::support;

/// Seconds that a transaction stays open.
const LATE: [u64; 4] = [1, 5, 20, 60];
/// The duration of a run: the longest transactions fit in once.
const RUN: Duration = Duration::from_secs(61);

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Commit,
    /// One of three parts is rolled back.
    Savepoint,
    CommitPrepared,
    RepeatableRead,
    Serializable,
    Rollback,
    RollbackPrepared,
}

const ENDS: [End; 7] = [
    End::Commit,
    End::Savepoint,
    End::CommitPrepared,
    End::RepeatableRead,
    End::Serializable,
    End::Rollback,
    End::RollbackPrepared,
];

/// When a transaction writes its jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writes {
    /// When it begins: its segments stay until it ends, and its scheduled jobs become due before it
    /// ends.
    AtOnce,
    /// Before it ends: its snapshot and xid are then older than many segments.
    AtTheEnd,
}

/// The state that all transactions of a run share.
struct Run {
    url: String,
    worked: Worked,
    writes: Writes,
    keys: AtomicI64,
}

/// Keys of jobs and whether they were committed.
type Results = HashMap<i64, bool>;

const SINGLE: &str =
    "SELECT posthaste.enqueue('crash', jsonb_build_object('key', $1::bigint), priority => $2)";
const SCHEDULED: &str = "INSERT INTO posthaste.job (name, kwargs, scheduled_at)
    SELECT 'crash', jsonb_build_object('key', $1::bigint + i),
      clock_timestamp() + i * $2::float8 * interval '1 s' FROM generate_series(1, 3) i";
const FILLING: &str = "INSERT INTO posthaste.job (name, kwargs, scheduled_at)
    SELECT 'crash', jsonb_build_object('key', $1::bigint + i, 'pad', repeat('x', 900)),
      clock_timestamp() + CASE WHEN i % 4 = 0 THEN random() * interval '1 s' ELSE '0' END
      FROM generate_series(0, 99) i";

impl Run {
    fn keys(&self, count: i64) -> i64 {
        self.keys.fetch_add(count, Ordering::Relaxed)
    }

    /// Enqueues one job that is due and three that become due within this many seconds.
    async fn write(&self, client: &Client, ahead: f64) -> anyhow::Result<Vec<i64>> {
        let key = self.keys(4);
        let priority = fastrand::i32(-1..2);
        client.query(SINGLE, &[&key, &priority]).await?;
        client.execute(SCHEDULED, &[&key, &(ahead / 3.0)]).await?;
        Ok((key..key + 4).collect())
    }

    /// Runs one transaction that ends after this delay.
    async fn one(&self, client: &Client, end: End, late: Duration) -> anyhow::Result<Results> {
        let say = async |sql: &str| client.batch_execute(sql).await;
        // The server shares these names among all databases.
        let name = format!("{:?} {}", self.writes, self.keys(1));
        let is_prepared = matches!(end, End::CommitPrepared | End::RollbackPrepared);
        let is_kept = !matches!(end, End::Rollback | End::RollbackPrepared);
        say(match end {
            End::RepeatableRead => "BEGIN ISOLATION LEVEL REPEATABLE READ",
            End::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE",
            _ => "BEGIN",
        })
        .await?;
        // Its snapshot and its xid are taken now.
        say("SELECT pg_current_xact_id() FROM posthaste.worker").await?;
        let at_once = self.writes == Writes::AtOnce;
        if !at_once {
            sleep(late).await;
        }
        let ahead = if at_once { late.as_secs_f64() } else { 0.5 };
        let mut kept = self.write(client, ahead).await?;
        let mut undone = Vec::new();
        if end == End::Savepoint {
            say("SAVEPOINT kept").await?;
            kept.extend(self.write(client, ahead).await?);
            say("SAVEPOINT undone").await?;
            undone.extend(self.write(client, ahead).await?);
        }
        if is_prepared {
            say(&format!("PREPARE TRANSACTION '{name}'")).await?;
        }
        if at_once {
            sleep(late).await;
        }
        match end {
            End::CommitPrepared | End::RollbackPrepared => {}
            End::Savepoint => say("ROLLBACK TO undone; RELEASE kept").await?,
            // Again, perhaps into a newer segment.
            _ => kept.extend(self.write(client, 0.5).await?),
        }
        for key in kept.iter().chain(&undone) {
            ensure!(
                !self.worked.has(*key),
                "job {key} was worked before its commit"
            );
        }
        match end {
            End::CommitPrepared => say(&format!("COMMIT PREPARED '{name}'")).await?,
            End::RollbackPrepared => say(&format!("ROLLBACK PREPARED '{name}'")).await?,
            End::Rollback => say("ROLLBACK").await?,
            _ => say("COMMIT").await?,
        }
        let kept = kept.into_iter().map(|key| (key, is_kept));
        Ok(kept
            .chain(undone.into_iter().map(|key| (key, false)))
            .collect())
    }

    /// Runs such transactions one by one, as many as fit into the run.
    async fn come_late(self: Arc<Self>, end: End, late: Duration) -> anyhow::Result<Results> {
        let client = connect(&self.url).await?;
        // Starts here: a machine may take long to connect this many sessions at once.
        let until = Instant::now() + RUN;
        let mut results = Results::new();
        // At least once, even on a slow machine.
        loop {
            results.extend(self.one(&client, end, late).await?);
            posthaste_testkit::ran::count("late", 1);
            if late.as_secs() == 60 {
                posthaste_testkit::ran::count("late60", 1);
            }
            if Instant::now() + late > until {
                return Ok(results);
            }
        }
    }

    /// Runs short transactions that rotate the slots, until they are stopped.
    async fn fill(self: Arc<Self>, stop: CancellationToken) -> anyhow::Result<Results> {
        let client = connect(&self.url).await?;
        let mut results = Results::new();
        while !stop.is_cancelled() {
            let key = self.keys(100);
            client.execute(FILLING, &[&key]).await?;
            results.extend((key..key + 100).map(|key| (key, true)));
            client.run("SELECT posthaste.tidy_scheduled(40)").await?;
            sleep(Duration::from_millis(200)).await;
        }
        Ok(results)
    }
}

/// Returns the positions of the slots.
async fn positions(store: &Store) -> anyhow::Result<(i64, i64, i64)> {
    Ok((
        store.position("ready_low").await?,
        store.position("ready_current").await?,
        store.position("scheduled_low").await?,
    ))
}

async fn late_commits_are_run(version: PgVersion, writes: Writes) -> anyhow::Result<()> {
    let database = support::migrated(stress::server(version)).await;
    let run = Arc::new(Run {
        url: database.url().to_owned(),
        worked: Worked::default(),
        writes,
        keys: AtomicI64::new(1),
    });
    let worker = remembering(database.url(), &run.worked).await;
    let store = Store::new(database.url()).await?;
    let (started, before) = (Instant::now(), positions(&store).await?);
    let mut late = JoinSet::new();
    for seconds in LATE {
        for end in ENDS {
            late.spawn(Arc::clone(&run).come_late(end, Duration::from_secs(seconds)));
        }
    }
    let stop = CancellationToken::new();
    let filling = tokio::spawn(Arc::clone(&run).fill(stop.clone()));
    sleep_until(started + Duration::from_secs(55)).await;
    let open = positions(&store).await?;
    ensure!(run.worked.len() > 1_000, "claims did not go on");
    match writes {
        Writes::AtOnce => ensure!(open.1 >= before.1 + 3, "{before:?}, {open:?}"),
        Writes::AtTheEnd => ensure!(
            open.0 >= before.0 + 10 && open.2 >= before.2 + 3,
            "{before:?}, {open:?}"
        ),
    }
    let mut results = Results::new();
    while let Some(ended) = late.join_next().await {
        results.extend(ended??);
    }
    // No transaction holds a segment any more.
    eventually(support::SOON, "the ready log rotates", async || {
        Ok(store.position("ready_low").await? >= open.1 + 2)
    })
    .await?;
    stop.cancel();
    results.extend(filling.await??);
    let client = database.client().await?;
    support::all_done(&client).await;
    worker.stop().await?;
    let times = run.worked.all();
    for (key, kept) in &results {
        let times = times.get(key).copied().unwrap_or_default();
        ensure!(
            times == u32::from(*kept),
            "job {key} ran {times} times, committed: {kept}"
        );
    }
    ensure!(
        times.keys().all(|key| results.contains_key(key)),
        "a job came from nowhere"
    );
    println!(
        "late {}: {writes:?}, {before:?}, {open:?}, {} jobs",
        version.name(),
        results.len()
    );
    Ok(())
}

/// All kinds run concurrently: they only wait for time to pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_late_commits_run_once() {
    let runs = PgVersion::ALL.into_iter().flat_map(|version| {
        [Writes::AtOnce, Writes::AtTheEnd].map(|writes| late_commits_are_run(version, writes))
    });
    futures_util::future::try_join_all(runs).await.unwrap();
}
