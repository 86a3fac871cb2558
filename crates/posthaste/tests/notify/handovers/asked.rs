//! Events caused by operators and schedules: a shortened delay, a released turn, a tick, the second
//! phase of a commit.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn externally_released_jobs_run_without_a_poll() {
    let mut system = Played::new().await;
    judge(
        "a job of an hour ahead that is to run now",
        WOKEN,
        &mut system,
        async |system: &mut Played| {
            system
                .run("SELECT posthaste.enqueue('a', scheduled_at => now() + interval '1 h')")
                .await;
            all_asleep(&system.client).await;
            system
                .after("SELECT * FROM posthaste.retry(name => 'a')", 1)
                .await
        },
    )
    .await;
    judge(
        "a turn behind an awaited job that is cancelled",
        WOKEN,
        &mut system,
        async |system: &mut Played| {
            let line = "SELECT posthaste.enqueue('awaits', ordering_key => 'k');
                SELECT posthaste.enqueue('a', ordering_key => 'k')";
            system.after(line, 1).await;
            let held = async || {
                let held = "SELECT count(*) FROM posthaste.job WHERE state = 'awaiting'";
                Ok(number(&system.client, held).await == 1)
            };
            eventually(SOON, "it is awaited", held).await.unwrap();
            all_asleep(&system.client).await;
            let cancel = "SELECT posthaste.cancel(id) FROM posthaste.job
                WHERE state = 'awaiting'";
            let took = system.after(cancel, 1).await;
            system.run("DELETE FROM posthaste.dead").await;
            took
        },
    )
    .await;
    judge(
        "a periodic job that is due when its row comes",
        LOOKED,
        &mut system,
        async |system: &mut Played| {
            let due = "INSERT INTO posthaste.periodic (name, schedule, job, next_at)
                VALUES ('due', '* * * * *', 'a', date_trunc('minute', clock_timestamp()))";
            let took = system.after(due, 1).await;
            system.run("DELETE FROM posthaste.periodic").await;
            took
        },
    )
    .await;
    let prepare = |system: &Played| {
        format!(
            "BEGIN; SET LOCAL posthaste.notify = off; SELECT posthaste.enqueue('a');
             PREPARE TRANSACTION '{}'",
            system.db.name()
        )
    };
    let commit = |system: &Played| format!("COMMIT PREPARED '{}'", system.db.name());
    // The first job without a notification is found by a poll. After that the worker polls as
    // without a notifier, for a while.
    system.run(&prepare(&system)).await;
    system.after(&commit(&system), 1).await;
    judge(
        "a prepared transaction",
        POLLED,
        &mut system,
        async |system: &mut Played| {
            system.run(&prepare(system)).await;
            system.after(&commit(system), 1).await
        },
    )
    .await;
    system.worker.stop().await.unwrap();
}

/// The leader polls for ticks once a second, and enqueues those of the next second on time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedule_ticks_run_without_a_poll() {
    let mut system = Played::new().await;
    judge("a tick", WOKEN, &mut system, async |system: &mut Played| {
        let row = "INSERT INTO posthaste.periodic (name, schedule, job, next_at, looked_at)
            VALUES ('tick', '@yearly', 'a', clock_timestamp() + interval '1200 ms', now())
            RETURNING (extract(epoch FROM next_at) * 1000000)::bigint";
        let at = number(&system.client, row).await;
        let checked = "SELECT (extract(epoch FROM looked_at) * 1000000)::bigint
            FROM posthaste.periodic";
        let mut looked_at = 0;
        let is_over = async || {
            looked_at = number(&system.client, checked).await;
            Ok(looked_at >= at)
        };
        eventually(SOON, "it is checked", is_over).await.unwrap();
        system.run("DELETE FROM posthaste.periodic").await;
        Duration::from_micros((looked_at - at).unsigned_abs())
    })
    .await;
    system.worker.stop().await.unwrap();
}
