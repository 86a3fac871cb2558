//! Actions on all jobs of a filter are durable, show their progress, and act on each job once.

mod driven;

use posthaste_testkit::{Sql as _, TestDb, TestResult, eventually};
use reqwest::StatusCode;
use tokio_postgres::Client;

use crate::support::{self, Console, SOON, connected, console, database, enqueue, given_up};

/// Enqueues this many jobs, in the order of their ids.
async fn waiting(client: &Client, name: &str, jobs: i32) {
    let sql = "INSERT INTO posthaste.job (name, queue) \
               SELECT $1, 'mail' FROM generate_series(1, $2)";
    client.execute(sql, &[&name, &jobs]).await.unwrap();
}

/// Inserts this many dead jobs that were given up one after the other.
async fn dead(client: &Client, name: &str, jobs: i32) {
    let sql = "INSERT INTO posthaste.dead (id, died_at, enqueued_at, scheduled_at, expires_at, \
                 priority, attempt, max_attempts, kwargs_bytes, crashes, state, queue, name, tag, \
                 last_error, kwargs) \
               SELECT nextval('posthaste.job_id'), now() - interval '1 h' + g * interval '1 ms', \
                 now() - interval '2 h', now(), now() + interval '1 day', 0, 1, 1, 2, 0, 'dead', \
                 'mail', $1, '', 'refused', '{}' \
               FROM generate_series(1, $2) g";
    client.execute(sql, &[&name, &jobs]).await.unwrap();
}

async fn number(client: &Client, sql: &str) -> i64 {
    posthaste_testkit::number(client, sql).await.unwrap()
}

/// Returns the id of the n-th given-up job, the oldest first.
async fn nth_dead(client: &Client, n: i32) -> i64 {
    let sql = format!("SELECT id FROM posthaste.dead ORDER BY died_at OFFSET {n} LIMIT 1");
    number(client, &sql).await
}

/// A session that locks a row, so that a batch that needs the row waits.
struct Holder(Client);

impl Holder {
    async fn of(database: &TestDb, sql: &str) -> Self {
        let client = database.client().await.unwrap();
        client.run("BEGIN").await.unwrap();
        client.run(sql).await.unwrap();
        Self(client)
    }

    async fn lets_go(self) {
        self.0.run("ROLLBACK").await.unwrap();
    }
}

/// Returns how many jobs are done according to a page.
pub fn done(page: &str) -> String {
    let cell = page.split(".done\">").nth(1).expect("how many are done");
    let number = cell.split([' ', '<']).next().unwrap_or_default();
    number.trim_end_matches(',').to_owned()
}

/// Returns the page of an action once it shows this state.
pub async fn ended(console: &Console, path: &str, state: &str) -> String {
    let wanted = format!(".state\">{state}</span>");
    eventually(SOON, &format!("{path} is {state}"), async || {
        Ok(console.page(path).await.contains(&wanted))
    })
    .await
    .unwrap();
    console.page(path).await
}

/// Returns the page of an action once it has done some jobs and waits for a lock.
async fn held(console: &Console, path: &str) -> String {
    ended(console, path, "tries again").await
}

/// Returns the same page once this many jobs are done: a batch may be retried earlier for another
/// reason.
async fn held_behind(console: &Console, path: &str, jobs: &str) -> String {
    eventually(SOON, &format!("{jobs} are done"), async || {
        Ok(done(&held(console, path).await) == jobs)
    })
    .await
    .unwrap();
    held(console, path).await
}

#[tokio::test]
async fn ten_thousand_jobs_are_cancelled_without_a_worker_and_with_progress() {
    let database = database().await;
    let client = database.client().await.unwrap();
    waiting(&client, "wrong", 10_000).await;
    waiting(&client, "right", 10).await;
    let middle = "SELECT id FROM posthaste.job WHERE name = 'wrong' ORDER BY id OFFSET 5000";
    let middle = number(&client, &format!("{middle} LIMIT 1")).await;
    let of_it = "INSERT INTO posthaste.dead SELECT d.* FROM posthaste.store s, \
                 posthaste.to_dead(s, 'dead') d WHERE s.id = ";
    let holder = Holder::of(&database, &format!("{of_it}{middle}")).await;
    let console = console(&database).await;
    let page = console.page("/bulk?do=cancel&filter=name:wrong").await;
    assert!(page.contains("<strong>10,000 jobs</strong>"), "{page}");
    assert!(page.contains("name=\"at_most\" inputmode=\"numeric\" size=\"9\" value=\"10000\""));
    let fields = [
        ("do", "cancel"),
        ("filter", "name:wrong"),
        ("at_most", "50000"),
    ];
    let path = console.act("/bulk", &fields).await;
    assert_eq!(path, "/bulk/1");
    let page = held(&console, &path).await;
    assert!(
        page.contains(" of 10,000</span></strong> cancelled."),
        "{page}"
    );
    assert!(page.contains("max=\"10000\" value=\""), "{page}");
    assert!(
        page.contains("did not answer within its time limit"),
        "{page}"
    );
    let so_far = number(&client, "SELECT jobs FROM posthaste.bulk_action").await;
    assert!((1..10_000).contains(&so_far), "{so_far}");
    let cancelled = "SELECT count(*) FROM posthaste.dead WHERE state = 'cancelled'";
    assert_eq!(number(&client, cancelled).await, so_far);
    let overview = console.page("/").await;
    assert!(
        overview.contains("Cancel by filter is running: "),
        "{overview}"
    );
    assert!(overview.contains("href=\"/bulk/1\""), "{overview}");
    // Jobs that are enqueued later are not selected.
    waiting(&client, "wrong", 50).await;
    holder.lets_go().await;
    let page = ended(&console, &path, "finished").await;
    assert_eq!(done(&page), "10,000");
    assert_eq!(number(&client, cancelled).await, 10_000);
    let left = "SELECT count(*) FROM posthaste.job WHERE state = 'available'";
    assert_eq!(number(&client, left).await, 60);
    let list = console.page("/bulk-actions").await;
    assert!(
        list.contains("<code>name:wrong</code>") && list.contains("finished"),
        "{list}"
    );
}

#[tokio::test]
async fn stopped_bulk_actions_end_with_their_batch_and_can_resume() {
    let database = database().await;
    let client = database.client().await.unwrap();
    dead(&client, "old", 5_000).await;
    let row = nth_dead(&client, 2_500).await;
    let of_it = format!("SELECT FROM posthaste.dead WHERE id = {row} FOR UPDATE");
    let holder = Holder::of(&database, &of_it).await;
    let console = console(&database).await;
    let fields = [("do", "delete"), ("filter", "state:dead since:2h")];
    let path = console.act("/bulk", &fields).await;
    let page = held_behind(&console, &path, "2,000").await;
    assert!(page.contains(">Stop</button>"), "{page}");
    console.act(&format!("{path}/stop"), &[]).await;
    let page = ended(&console, &path, "stopped").await;
    assert!(
        page.contains("<dt>Stopped by</dt><dd>loopback</dd>"),
        "{page}"
    );
    holder.lets_go().await;
    assert_eq!(
        number(&client, "SELECT count(*) FROM posthaste.dead").await,
        3_000
    );
    console.act(&format!("{path}/continue"), &[]).await;
    let page = ended(&console, &path, "finished").await;
    assert_eq!(done(&page), "5,000");
    assert_eq!(
        number(&client, "SELECT count(*) FROM posthaste.dead").await,
        0
    );
    let again = console.act(&format!("{path}/continue"), &[]).await;
    assert!(console.page(&again).await.contains(">finished<"));
}

#[tokio::test]
async fn jobs_that_die_again_are_not_redriven_again() {
    let database = database().await;
    let client = database.client().await.unwrap();
    dead(&client, "old", 3_000).await;
    let row = nth_dead(&client, 2_500).await;
    let keyed = format!("UPDATE posthaste.dead SET unique_key = 'held' WHERE id = {row}");
    client.run(&keyed).await.unwrap();
    let of_it = "INSERT INTO posthaste.unique_key (key, id) VALUES ('held', 1)";
    let holder = Holder::of(&database, of_it).await;
    let console = console(&database).await;
    // Without a state: jobs that are cancelled during the action would be met after the dead ones.
    let fields = [
        ("do", "redrive"),
        ("filter", "name:old"),
        ("at_most", "100000"),
    ];
    let path = console.act("/bulk", &fields).await;
    held_behind(&console, &path, "2,000").await;
    let die = "SELECT count(*) FROM posthaste.cancel_many(ARRAY(\
               SELECT id FROM posthaste.job WHERE state = 'available' LIMIT 500))";
    assert_eq!(number(&client, die).await, 500);
    holder.lets_go().await;
    assert_eq!(done(&ended(&console, &path, "finished").await), "3,000");
    assert_eq!(
        number(&client, "SELECT count(*) FROM posthaste.dead").await,
        500
    );
}

#[tokio::test]
async fn jobs_tried_since_are_not_retried_again() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let later = "INSERT INTO posthaste.job (name, scheduled_at) \
                 SELECT 'later', now() + g * interval '1 min' FROM generate_series(1, 1500) g";
    client.run(later).await.unwrap();
    let promoter = "SELECT pg_advisory_xact_lock(1885893476, 2)";
    let holder = Holder::of(&database, promoter).await;
    let console = console(&database).await;
    let fields = [
        ("do", "retry"),
        ("filter", "name:later since:1h"),
        ("at_most", "100000"),
    ];
    let path = console.act("/bulk", &fields).await;
    assert_eq!(done(&held(&console, &path).await), "0");
    let tried = "INSERT INTO posthaste.attempt (slot, job, attempt, outcome, queue, name) \
                 SELECT (SELECT posthaste.volume('attempt')), id, 1, 'retried', queue, name \
                 FROM posthaste.job WHERE state = 'scheduled' LIMIT 3";
    client.run(tried).await.unwrap();
    holder.lets_go().await;
    assert_eq!(done(&ended(&console, &path, "finished").await), "1,497");
    let left = "SELECT count(*) FROM posthaste.job WHERE state = 'scheduled'";
    assert_eq!(number(&client, left).await, 3);
}

#[tokio::test]
async fn revoked_rights_are_named_and_actions_resume_once_granted() -> TestResult {
    let (database, client) = connected().await?;
    dead(&client, "old", 3_000).await;
    let role = format!("console_{}", database.name());
    let grants = format!("CREATE ROLE \"{role}\" LOGIN IN ROLE posthaste_worker");
    posthaste::grant_roles(&mut database.client().await?).await?;
    client.run(&grants).await?;
    let row = nth_dead(&client, 1_500).await;
    let of_it = format!("SELECT FROM posthaste.dead WHERE id = {row} FOR UPDATE");
    let holder = Holder::of(&database, &of_it).await;
    let pool = database.pool_as(&role, 4)?;
    let console = support::console_of(pool, support::operator()).await;
    let fields = [("do", "delete"), ("filter", "state:dead")];
    let path = console.act("/bulk", &fields).await;
    held(&console, &path).await;
    let take = "REVOKE DELETE ON posthaste.dead FROM posthaste_worker";
    client.run(take).await?;
    holder.lets_go().await;
    let page = ended(&console, &path, "failed").await;
    assert_eq!(done(&page), "1,000");
    assert!(page.contains("permission denied for table dead"), "{page}");
    assert!(
        console
            .page("/")
            .await
            .contains("Delete by filter stopped after 1,000 jobs.")
    );
    let give = "GRANT DELETE ON posthaste.dead TO posthaste_worker";
    client.run(give).await?;
    console.act(&format!("{path}/continue"), &[]).await;
    assert_eq!(done(&ended(&console, &path, "finished").await), "3,000");
    let clear = format!("DROP OWNED BY \"{role}\"; DROP ROLE \"{role}\"");
    client.run(&clear).await?;
    Ok(())
}

#[tokio::test]
async fn filters_are_escaped_on_action_pages() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let hostile = "<script>alert(1)</script>\" onload='x' \u{1b}\u{202e}<img src=x> \\";
    given_up(&client, "dead", hostile, hostile).await;
    given_up(&client, "dead", "harmless", "refused").await;
    let console = console(&database).await;
    let value = format!("\"{}\"", hostile.replace('\\', "\\\\").replace('"', "\\\""));
    let filter = format!("state:dead name:{value} error:{value}");
    let fields = [("do", "delete"), ("filter", filter.as_str())];
    let path = console.act("/bulk", &fields).await;
    let page = ended(&console, &path, "finished").await;
    assert_eq!(done(&page), "1");
    for page in [page, console.page("/bulk-actions").await] {
        for mark in [
            "<script>alert",
            "<img src=x",
            "\" onload=",
            "\u{202e}",
            "\u{1b}",
        ] {
            assert!(!page.contains(mark), "{mark:?}: {page}");
        }
    }
}

#[tokio::test]
async fn observers_see_actions_but_cannot_start_or_stop_them() {
    let database = database().await;
    let client = database.client().await.unwrap();
    enqueue(&client, "mail.send", "mail", "{}").await;
    let operator = console(&database).await;
    let fields = [("do", "cancel"), ("filter", "queue:mail")];
    let path = operator.act("/bulk", &fields).await;
    ended(&operator, &path, "finished").await;
    let observer = support::console_with(&database, posthaste_console::Settings::default()).await;
    let page = observer.page(&path).await;
    assert!(
        page.contains(">finished<") && !page.contains("<button class=\""),
        "{page}"
    );
    assert!(observer.page("/bulk-actions").await.contains("queue:mail"));
    for path in ["/bulk", "/bulk/1/stop", "/bulk/1/continue"] {
        let answer = observer.post(path, &fields).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path}");
    }
    for path in ["/bulk/2", "/bulk/x", "/bulk/99999999999"] {
        assert_eq!(
            operator.get(path).await.status(),
            StatusCode::NOT_FOUND,
            "{path}"
        );
    }
}
