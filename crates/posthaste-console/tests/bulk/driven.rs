//! An action is processed by one console at a time, and by another one when that stops.

use posthaste_testkit::{
    PgServer, PgVersion, Proxy, RequestMatcher, Sql as _, TestDb, TestResult, eventually,
};
use tokio::sync::oneshot;

use super::{Holder, dead, done, ended, held, nth_dead, number, waiting};
use crate::support::{self, Console, SOON, connected, console, database};

/// A console that is killed: all its tasks end, regardless of their progress.
struct Doomed {
    console: Console,
    kill: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Doomed {
    async fn begin(database: &TestDb) -> Self {
        let pool = database.pool(4).unwrap();
        let (kill, killed) = oneshot::channel();
        let (sender, receiver) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let console = support::console_of(pool, support::operator()).await;
                let _ = sender.send(console);
                let _ = killed.await;
            });
            runtime.shutdown_background();
        });
        let console = receiver.await.unwrap();
        Self {
            console,
            kill,
            thread,
        }
    }

    fn kill(self) {
        let _ = self.kill.send(());
        self.thread.join().unwrap();
    }
}

/// Records which console changed an action, and how many jobs each change counted.
const NOTED: &str = "
CREATE TABLE public.noted (driver uuid, jobs bigint);
CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
  IF NEW.jobs > OLD.jobs THEN
    INSERT INTO public.noted VALUES (NEW.driver, NEW.jobs - OLD.jobs);
  END IF;
  RETURN NULL;
END $f$;
CREATE TRIGGER note AFTER UPDATE ON posthaste.bulk_action
  FOR EACH ROW EXECUTE FUNCTION public.note();";

/// Makes an action appear abandoned, as if enough time had passed.
const LATER: &str = "UPDATE posthaste.bulk_action SET driven_until = now() - interval '1 s'";

#[tokio::test]
async fn another_console_resumes_a_killed_ones_action_without_double_counting() -> TestResult {
    let (database, client) = connected().await?;
    client.run(NOTED).await?;
    dead(&client, "old", 5_000).await;
    let row = nth_dead(&client, 2_500).await;
    let of_it = format!("SELECT FROM posthaste.dead WHERE id = {row} FOR UPDATE");
    let holder = Holder::of(&database, &of_it).await;
    let doomed = Doomed::begin(&database).await;
    let fields = [("do", "delete"), ("filter", "state:dead")];
    let path = doomed.console.act("/bulk", &fields).await;
    held(&doomed.console, &path).await;
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND wait_event_type = 'Lock'";
    let is_at_it = async || Ok(number(&client, waits).await > 0);
    posthaste_testkit::eventually(support::SOON, "it is in the middle of a batch", is_at_it)
        .await?;
    doomed.kill();
    holder.lets_go().await;
    client.run(LATER).await?;
    let console = console(&database).await;
    assert_eq!(done(&ended(&console, &path, "finished").await), "5,000");
    assert_eq!(
        number(&client, "SELECT count(*) FROM posthaste.dead").await,
        0
    );
    let counted = "SELECT sum(jobs)::bigint FROM public.noted";
    assert_eq!(number(&client, counted).await, 5_000);
    let drivers = "SELECT count(DISTINCT driver) FROM public.noted";
    assert_eq!(number(&client, drivers).await, 2);
    Ok(())
}

#[tokio::test]
async fn one_of_two_consoles_adopts_an_orphaned_action() {
    let database = database().await;
    let client = database.client().await.unwrap();
    client.run(NOTED).await.unwrap();
    dead(&client, "old", 20_000).await;
    let left = "INSERT INTO posthaste.bulk_action \
                  (id, driven_until, at_most, action, filter, who, identity) \
                VALUES (1, now(), 100000, 'delete', 'state:dead', 'ada', \
                  posthaste.current_identity())";
    client.run(left).await.unwrap();
    let (one, other) = tokio::join!(console(&database), console(&database));
    assert_eq!(done(&ended(&one, "/bulk/1", "finished").await), "20,000");
    assert!(other.page("/bulk/1").await.contains("UTC by ada"));
    let drivers = "SELECT count(DISTINCT driver) FROM public.noted";
    assert_eq!(number(&client, drivers).await, 1);
    let counted = "SELECT sum(jobs)::bigint FROM public.noted";
    assert_eq!(number(&client, counted).await, 20_000);
}

#[tokio::test]
async fn copied_databases_do_not_resume_actions() {
    let database = database().await;
    let client = database.client().await.unwrap();
    dead(&client, "old", 10).await;
    let copied = "INSERT INTO posthaste.bulk_action \
                    (id, driven_until, at_most, action, filter, who, identity) \
                  SELECT n, now() - interval '1 day', 100, 'delete', 'state:dead name:' || name, \
                    'ada', CASE n WHEN 1 THEN i[1:3] || '1'::text ELSE i END \
                  FROM posthaste.current_identity() i, \
                    (VALUES (1, 'old'), (2, 'none')) v(n, name)";
    client.run(copied).await.unwrap();
    let console = console(&database).await;
    // The action of this database has ended, so the other one was checked too.
    ended(&console, "/bulk/2", "finished").await;
    let page = ended(&console, "/bulk/1", "of another database").await;
    assert!(page.contains("This database is a copy"), "{page}");
    assert_eq!(
        number(&client, "SELECT count(*) FROM posthaste.dead").await,
        10
    );
    console.act("/bulk/1/stop", &[]).await;
    console.act("/bulk/1/continue", &[]).await;
    assert_eq!(done(&ended(&console, "/bulk/1", "finished").await), "10");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_console_stalled_during_a_batch_loses_its_locks() {
    let database = database().await;
    let client = database.client().await.unwrap();
    waiting(&client, "wrong", 100).await;
    let server = PgServer::shared(PgVersion::any()).unwrap();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let url = proxy.url(database.name());
    let manager = deadpool_postgres::Manager::new(url.parse().unwrap(), tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).build().unwrap();
    let console = support::console_of(pool, support::operator()).await;
    let cancel = RequestMatcher::statement("FROM posthaste.cancel_many(");
    let stalled = proxy.stall_answer_to(cancel);
    let fields = [
        ("do", "cancel"),
        ("filter", "name:wrong"),
        ("at_most", "100"),
    ];
    let path = console.act("/bulk", &fields).await;
    stalled.wait(SOON).await.unwrap();
    let is_free = async || -> anyhow::Result<bool> {
        let lane = "SELECT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key('mail', 0))";
        client.one(lane).await
    };
    assert!(!is_free().await.unwrap(), "the batch locks the lane");
    eventually(SOON, "the lane is free", is_free).await.unwrap();
    proxy.restore().await.unwrap();
    let page = ended(&console, &path, "finished").await;
    assert_eq!(done(&page), "100");
}
