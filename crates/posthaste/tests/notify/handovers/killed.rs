//! A leader that is killed: its session ends with it, and a standby polls for that.

use std::process::Command;

use posthaste_testkit::Child;

use super::*;

const URL: &str = "POSTHASTE_TEST_LEADER";

/// A standby requests the lease every 1.25 s.
const STOOD_BY: Duration = Duration::from_millis(1_800);
/// A machine on which a sleep and a query take this much longer than expected proves nothing.
const TOO_SLOW: Duration = Duration::from_millis(300);

/// Not a test: the leading worker, in a separate process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process that another test starts"]
async fn a_worker_process() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let manager = deadpool_postgres::Manager::new(url.parse().unwrap(), NoTls);
    let pool = deadpool_postgres::Pool::builder(manager);
    let pool = pool.max_size(2).build().unwrap();
    let worker = worker(&pool).config(Config::default()).queue("nobody's", 1);
    let worker = worker.handler("*", async |_, _| Ok(Outcome::Done));
    let worker = worker.start().await.unwrap();
    worker.run_until_signal().await.unwrap();
}

async fn once(client: &Client, what: &str, is: &str) {
    eventually(SOON, what, async || Ok(number(client, is).await == 1))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn due_jobs_do_not_wait_for_the_lease_of_a_killed_leader() {
    let mut system = Played::new().await;
    let watched = system.db.client().await.unwrap();
    let mut times = Vec::new();
    for _ in 0..TIMES[0] * 2 {
        // The process leads once the other has released the lease; then the other starts again.
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = "notify::handovers::killed::a_worker_process";
        command.args([name, "--exact", "--ignored", "--nocapture"]);
        let url = system.db.url().to_owned();
        let mut child = Child::spawn(command.env(URL, &url)).unwrap();
        let both = "SELECT (count(*) = 2)::integer::bigint FROM posthaste.worker
                     WHERE stopped_at IS NULL";
        once(&watched, "both work", both).await;
        system.worker.stop().await.unwrap();
        let leads = "SELECT count(*) FROM posthaste.leader l JOIN posthaste.worker w
                         ON w.id = l.worker AND w.stopped_at IS NULL WHERE l.is_own";
        once(&watched, "it leads", leads).await;
        (system.worker, system.started) = started(&system.db, &url).await;
        all_done(&system.client).await;
        let play = async {
            child.kill().unwrap();
            let killed = Instant::now();
            let due = "SELECT posthaste.enqueue('a',
                         scheduled_at => clock_timestamp() + interval '1 ms')";
            system.after(due, 1).await;
            killed.elapsed()
        };
        let (took, slowest) = beside(&watched, play).await;
        if slowest < TOO_SLOW {
            times.push(took);
        }
        // It is never declared dead within this test.
        let dead = "UPDATE posthaste.worker SET stopped_at = clock_timestamp()
                     WHERE id <> (SELECT max(id) FROM posthaste.worker)";
        system.run(dead).await;
        if times.len() == TIMES[0] {
            break;
        }
    }
    system.worker.stop().await.unwrap();
    times.sort_unstable();
    println!("a job that is due behind a leader that was killed: {times:?}");
    if times.len() < TIMES[0] {
        let slow = "a killed leader: the machine was too slow to judge";
        return ran::not_run("notify::handovers::killed", slow);
    }
    let typical = times[TIMES[0] / 2];
    assert!(typical <= STOOD_BY, "it waits for a lease: {times:?}");
}
