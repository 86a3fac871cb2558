//! Kinds of jobs: a type defines the name, its values are the arguments, and a handler receives
//! them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use posthaste::{
    Backoff, Context, JobArgs, NewJob, Next, Outcome, QueueConfig, WorkerBuilder, enqueue,
    enqueue_many,
};
use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::lifecycle::state;
use crate::support::{SOON, connected, database, quick_queue, unfinished, worker};

#[derive(Deserialize, Serialize)]
struct Mail {
    to: String,
}

impl JobArgs for Mail {
    const NAME: &'static str = "mail.send";

    fn options(&self, job: NewJob) -> NewJob {
        let job = job.queue("mail").priority(7).tag("kinds");
        job.unique_key(format!("mail/{}", self.to))
    }
}

#[derive(Deserialize, Serialize)]
struct Note {
    n: u32,
}

impl JobArgs for Note {
    const NAME: &'static str = "note";
}

#[tokio::test]
async fn kinds_set_defaults_that_a_job_can_override() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let mail = |to: &str| Mail { to: to.to_owned() };
    let first = enqueue(&client, mail("ada")).await.unwrap();
    let same = enqueue(&client, &mail("ada")).await.unwrap();
    assert_eq!(first, same, "its key is taken");
    let other = mail("bob").job().queue("slow").max_attempts(Some(1));
    enqueue(&client, other).await.unwrap();
    let jobs = "SELECT name, queue, priority, tag, unique_key, kwargs::text, max_attempts
                  FROM posthaste.job ORDER BY id";
    let rows = client.query(jobs, &[]).await.unwrap();
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let text = |at| row.get::<_, String>(at);
            let max_attempts: Option<i32> = row.get(6);
            assert_eq!((text(0), text(3)), ("mail.send".into(), "kinds".into()));
            assert_eq!(row.get::<_, i32>(2), 7);
            (text(1), text(4), text(5), max_attempts)
        })
        .collect();
    let text = str::to_owned;
    let expected = [
        (
            text("mail"),
            text("mail/ada"),
            text(r#"{"to": "ada"}"#),
            Some(25),
        ),
        (
            text("slow"),
            text("mail/bob"),
            text(r#"{"to": "bob"}"#),
            Some(1),
        ),
    ];
    assert_eq!(rows, expected);
}

#[tokio::test]
async fn delays_count_from_the_enqueue() {
    let db = database(PgVersion::any()).await;
    let mut client = db.client().await.unwrap();
    let minute = Duration::from_secs(60);
    enqueue(&client, Note { n: 1 }.job().delay(minute))
        .await
        .unwrap();
    let many = [2, 3].map(|n| Note { n }.job().delay(minute));
    enqueue_many(&client, many).await.unwrap();
    let tx = client.transaction().await.unwrap();
    let copied = [Note { n: 4 }.job().delay(minute)];
    posthaste::enqueue_copy(&tx, copied).await.unwrap();
    tx.commit().await.unwrap();
    let wait = "SELECT count(*), bool_and(state = 'scheduled'),
                       bool_and(scheduled_at - clock_timestamp() BETWEEN '30 s' AND '70 s')
                  FROM posthaste.job";
    let row = client.query_one(wait, &[]).await.unwrap();
    assert_eq!((row.get(0), row.get(1), row.get(2)), (4_i64, true, true));
}

#[tokio::test]
async fn rejects_invalid_arguments_by_name_before_sending() {
    #[derive(Serialize)]
    struct Bare(u32);
    impl JobArgs for Bare {
        const NAME: &'static str = "bare";
    }
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let error = enqueue(&client, Bare(7)).await.unwrap_err().to_string();
    assert!(error.starts_with("kwargs: "), "{error}");
    let error = enqueue(&client, Bare(7).job().delay(SOON)).await;
    assert!(error.unwrap_err().to_string().starts_with("kwargs: "));
    let far = Note { n: 1 }.job().delay(Duration::MAX);
    let error = enqueue(&client, far).await.unwrap_err().to_string();
    assert!(error.starts_with("scheduled_at: "), "{error}");
}

/// The state that handlers share.
#[derive(Default)]
struct App {
    events: Mutex<Vec<String>>,
    gate: Option<Semaphore>,
    running: AtomicUsize,
    most: AtomicUsize,
}

impl App {
    fn say(&self, what: impl Into<String>) {
        self.events.lock().unwrap().push(what.into());
    }
}

async fn note(context: Context<&'static App>, note: Note) -> anyhow::Result<()> {
    context.state().say(format!("note {}", note.n));
    anyhow::ensure!(note.n > 0 || context.job().attempt > 1, "nothing to note");
    Ok(())
}

fn app() -> &'static App {
    Box::leak(Box::default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_return_unit_outcomes_or_errors_and_receive_state() -> TestResult {
    #[derive(Deserialize, Serialize)]
    struct Quiet {}
    impl JobArgs for Quiet {
        const NAME: &'static str = "quiet";
    }
    #[derive(Deserialize, Serialize)]
    struct Useless {}
    impl JobArgs for Useless {
        const NAME: &'static str = "useless";
    }
    let (db, client) = connected(PgVersion::any()).await?;
    let app = app();
    let useless = enqueue(&client, Useless {}).await?;
    enqueue(&client, Quiet {}).await?;
    enqueue(&client, Note { n: 0 }).await?;
    let running = worker(&db.pool(2)?)
        .state(app)
        .queue_config(quick_queue())
        .job(note)
        .job(async |_, _: Quiet| {})
        .job(async |_, _: Useless| Outcome::Discard {
            reason: "no use".into(),
        })
        .start()
        .await?;
    eventually(SOON, "each has ended", async || {
        let discarded = state(&client, useless.0).await;
        let events = app.events.lock().unwrap().len();
        Ok(events == 2 && discarded.is_some_and(|(state, ..)| state == "discarded"))
    })
    .await?;
    let rest = async || Ok(unfinished(&client).await == 1);
    eventually(SOON, "all else is done", rest).await?;
    running.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layers_wrap_each_run_outermost_first_within_its_timeout() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let app = app();
    let id = enqueue(&client, Note { n: 0 }.job().max_attempts(Some(1))).await;
    let id = id.unwrap();
    let running = worker(&db.pool(2)?)
        .state(app)
        .queue("default", 2)
        .layer(async |context: Context<&'static App>, next: Next| {
            context.state().say("outer");
            let result = next.await;
            context.state().say("outer again");
            result.map_err(|error| format!("around: {error}").into())
        })
        .job(note)
        .layer(async |context: Context<&'static App>, next: Next| {
            context.state().say(format!("inner {}", context.job().name));
            next.await
        })
        .start()
        .await?;
    let expected = Some(("dead".into(), 1, Some("around: nothing to note".into())));
    let is_dead = async || Ok(state(&client, id.0).await == expected);
    eventually(SOON, "it is dead", is_dead).await?;
    running.stop().await?;
    let events = app.events.lock().unwrap().clone();
    assert_eq!(events, ["outer", "inner note", "note 0", "outer again"]);

    let id = enqueue(&client, Note { n: 1 }.job().max_attempts(Some(1))).await;
    let id = id.unwrap();
    let running = worker(&db.pool(2)?)
        .state(app)
        .queue("default", 2)
        .layer(async |_, next: Next| {
            std::future::pending::<()>().await;
            next.await
        })
        .job(note)
        .timeout(Duration::from_millis(200))
        .start()
        .await?;
    let expected = Some(("dead".into(), 1, Some("ran longer than 0.2 s".into())));
    let is_dead = async || Ok(state(&client, id.0).await == expected);
    eventually(SOON, "its time is over", is_dead).await?;
    running.stop().await?;
    assert_eq!(
        app.events.lock().unwrap().len(),
        4,
        "the handler never began"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_override_timeout_back_off_and_concurrency() -> TestResult {
    #[derive(Deserialize, Serialize)]
    struct Slow {}
    impl JobArgs for Slow {
        const NAME: &'static str = "slow";
    }
    async fn slow(context: Context<&'static App>, _: Slow) {
        let app = context.state();
        let running = app.running.fetch_add(1, Ordering::SeqCst) + 1;
        app.most.fetch_max(running, Ordering::SeqCst);
        let gate = app.gate.as_ref().unwrap();
        gate.acquire().await.unwrap().forget();
        app.running.fetch_sub(1, Ordering::SeqCst);
    }
    let (db, client) = connected(PgVersion::any()).await?;
    let app: &'static App = Box::leak(Box::new(App {
        gate: Some(Semaphore::new(0)),
        ..App::default()
    }));
    enqueue_many(&client, (0..5).map(|_| Slow {})).await?;
    let stuck = enqueue(&client, Note { n: 1 }).await?;
    let running = worker(&db.pool(2)?)
        .state(app)
        .queue("default", 16)
        .job(slow)
        .concurrency(2)
        .job(async |_, _: Note| std::future::pending::<()>().await)
        .timeout(Duration::from_millis(100))
        .backoff(Backoff {
            base: Duration::from_secs(500),
            cap: Duration::from_secs(500),
        })
        .start()
        .await?;
    let error = "ran longer than 0.1 s".to_owned();
    let expected = Some(("retrying".to_owned(), 1, Some(error)));
    eventually(SOON, "one passes those that wait", async || {
        Ok(state(&client, stuck.0).await == expected)
    })
    .await?;
    let wait = "SELECT scheduled_at - clock_timestamp() > '200 s' FROM posthaste.job WHERE id = $1";
    let row = client.one_with::<bool>(wait, &[&stuck.0]).await?;
    assert!(row, "its own back-off");
    let gate = app.gate.as_ref().unwrap();
    for _ in 0..5 {
        let two_or_rest = async || Ok(app.running.load(Ordering::SeqCst) > 0);
        eventually(SOON, "the next ones run", two_or_rest).await?;
        gate.add_permits(1);
    }
    let done = "SELECT count(*) FROM posthaste.job WHERE name = 'slow'";
    eventually(SOON, "all of them are done", async || {
        Ok(client.one::<i64>(done).await? == 0)
    })
    .await?;
    assert_eq!(app.most.load(Ordering::SeqCst), 2, "two at once");
    running.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_or_timeout_frees_the_handlers_concurrency_slot() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let ids = enqueue_many(&client, (0..4).map(|n| Note { n })).await?;
    let running = worker(&db.pool(2)?)
        .queue("default", 8)
        .job(async |_, note: Note| match note.n {
            0 => panic!("at the disco"),
            1 => std::future::pending().await,
            2 => std::thread::sleep(Duration::from_secs(2)),
            _ => {}
        })
        .concurrency(1)
        .timeout(Duration::from_millis(100))
        .backoff(Backoff {
            base: SOON * 100,
            cap: SOON * 100,
        })
        .start()
        .await?;
    let last = ids[3].0;
    let is_done = async || Ok(state(&client, last).await.is_none());
    eventually(SOON, "the last one is done", is_done).await?;
    for id in &ids[..3] {
        let (state, attempt, _) = state(&client, id.0).await.unwrap();
        assert_eq!((&*state, attempt), ("retrying", 1), "{id}");
    }
    running.stop().await?;
    Ok(())
}

#[tokio::test]
async fn handler_futures_are_send() {
    fn is_send<T: Send>(future: T) -> T {
        future
    }
    let db = database(PgVersion::any()).await;
    let mut client = db.client().await.unwrap();
    is_send(enqueue(&client, Note { n: 1 })).await.unwrap();
    is_send(enqueue(&client, &Note { n: 1 })).await.unwrap();
    let jobs = [Note { n: 1 }.job(), Note { n: 2 }.job()];
    is_send(enqueue_many(&client, &jobs)).await.unwrap();
    is_send(enqueue_many(&client, jobs)).await.unwrap();
    let one = posthaste::enqueue_nowait(&client, Note { n: 1 });
    is_send(one).await.unwrap();
    let (mut listed, filter) = (posthaste::Client::new(&client), posthaste::Filter::new());
    assert_eq!(is_send(listed.list(&filter)).await.unwrap().len(), 7);
    let noted = posthaste::testing::enqueued::<Note, _>(&client);
    assert_eq!(is_send(noted).await.unwrap().len(), 7);
    let tx = client.transaction().await.unwrap();
    is_send(posthaste::enqueue_copy(&tx, [Note { n: 1 }]))
        .await
        .unwrap();
}

#[tokio::test]
async fn rejects_invalid_handler_settings() {
    let db = database(PgVersion::any()).await;
    let pool = db.pool(1).unwrap();
    let builder = || worker(&pool).queue_config(QueueConfig::new("default", 1));
    let handled = |builder: WorkerBuilder| builder.job(async |_, _: Note| {});
    let cases = [
        (
            handled(builder().timeout(SOON)),
            "a timeout precedes every handler: call it after one",
        ),
        (
            handled(builder()).timeout(Duration::ZERO),
            "the handler for \"note\": timeout must be longer than 0",
        ),
        (
            handled(builder()).concurrency(0),
            "the handler for \"note\": concurrency must be at least 1",
        ),
        (
            handled(handled(builder())),
            "there are two handlers for \"note\": give one",
        ),
    ];
    for (builder, expected) in cases {
        let error = builder.start().await.err().expect("a refusal").to_string();
        assert_eq!(error, expected);
    }
}
