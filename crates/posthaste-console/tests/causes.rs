//! Causes of given-up jobs: the summary above a list, and the lists and actions that it selects.

use posthaste_testkit::number;
use tokio_postgres::Client;

use crate::bulk;
use crate::lists::all;
use crate::support::{console, database};

/// Inserts given-up jobs, with their numbers in their errors.
async fn given_up(client: &Client, state: &str, queue: &str, name: &str, jobs: i32, error: &str) {
    let sql = format!(
        "INSERT INTO posthaste.dead (id, enqueued_at, scheduled_at, expires_at, priority, attempt,
             max_attempts, kwargs_bytes, crashes, state, queue, name, tag, last_error, kwargs)
         SELECT nextval('posthaste.job_id'), now(), now(), now() + interval '1 day', 0, 1, 1, 2, 0,
                $1, $2, $3, '', {error}, '{{}}' FROM generate_series(1, $4) n"
    );
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] = [&state, &queue, &name, &jobs];
    client.execute(&sql, &values).await.unwrap();
}

/// Returns the address, the number of jobs and the text of each cause on a page.
fn causes(page: &str) -> Vec<(String, String, String)> {
    let Some((_, section)) = page.split_once("id=\"causes\"") else {
        return Vec::new();
    };
    let section = section.split("</section>").next().unwrap();
    let rows = section.split("<tr><td class=\"n\">").skip(1);
    let between = |text: &str, start: &str, end: &str| {
        let (_, rest) = text.split_once(start).unwrap();
        rest.split_once(end).unwrap().0.to_owned()
    };
    rows.map(|row| {
        let jobs = row.split_once("</td>").unwrap().0.to_owned();
        let href = between(row, "href=\"", "\"").replace("&#38;", "&");
        let link = between(row, "<a ", "</a>");
        (href, jobs, link.split_once("\">").unwrap().1.to_owned())
    })
    .collect()
}

#[tokio::test]
async fn causes_of_dead_jobs_are_counted_and_each_links_to_its_jobs() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let timeout = "format('timeout after %s ms: 50%% \"x\\y\" of %s', n, gen_random_uuid())";
    given_up(&client, "dead", "mail", "send", 40, timeout).await;
    given_up(&client, "dead", "mail", "send", 20, "'timeout'").await;
    given_up(&client, "dead", "mail", "poll", 30, "'row ' || n").await;
    given_up(&client, "dead", "sms", "poll", 10, "E'one\\nrow ' || n").await;
    given_up(&client, "discarded", "sms", "poll", 5, "'refused'").await;
    given_up(&client, "dead", "sms", "poll", 3, "NULL").await;
    let console = console(&database).await;
    let found = causes(&console.page("/dead").await);
    let shown = found.iter().map(|(_, jobs, error)| (&**jobs, &**error));
    let expected = [
        // The number before a percent sign is replaced too.
        ("40", "timeout after # ms: #% &#34;x\\y&#34; of #"),
        ("30", "row #"),
        ("20", "timeout"),
        ("10", "one#row #"),
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
    for (href, jobs, _) in &found {
        let listed = all(&console, href).await;
        assert_eq!(listed.len().to_string(), *jobs, "{href}");
        assert!(causes(&console.page(href).await).is_empty(), "{href}");
    }
    let some = causes(&console.page("/dead?filter=queue:sms").await);
    assert_eq!(some.len(), 1, "{some:?}");
    let discarded = causes(&console.page("/dead?filter=state:discarded").await);
    assert_eq!((&*discarded[0].1, &*discarded[0].2), ("5", "refused"));
    assert_eq!(all(&console, &discarded[0].0).await.len(), 5);
    assert!(causes(&console.page("/jobs").await).is_empty());

    let filter = r##"state:dead cause:"row #""##;
    let action = [("do", "delete"), ("filter", filter)];
    let path = console.act("/bulk", &action).await;
    bulk::ended(&console, &path, "finished").await;
    let left = "SELECT count(*) FROM posthaste.dead WHERE last_error LIKE 'row %'";
    assert_eq!(number(&client, left).await.unwrap(), 0);
    let left = "SELECT count(*) FROM posthaste.dead";
    assert_eq!(number(&client, left).await.unwrap(), 40 + 20 + 10 + 5 + 3);
}

#[tokio::test]
async fn causes_hide_secrets_and_report_omissions() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let error = "'password=hunter2' || n || ' <b>is wrong'";
    given_up(&client, "dead", "mail", "send", 2_000, error).await;
    let letters = "'cause ' || chr(96 + n::integer)";
    given_up(&client, "dead", "mail", "send", 14, letters).await;
    let console = console(&database).await;
    let page = console.page("/dead").await;
    assert_eq!(causes(&page).len(), 10);
    assert!(page.contains("5 rarer causes are not shown"), "{page}");
    assert!(!page.contains("Of the newest"), "{page}");
    let (href, jobs, shown) = causes(&page).remove(0);
    assert_eq!(
        (&*jobs, &*shown),
        ("2,000", "password=# &#60;b&#62;is wrong")
    );
    assert!(!href.contains("hunter"), "{href}");
    assert_eq!(
        all(&console, &format!("{href}&limit=200")).await.len(),
        2_000
    );

    given_up(&client, "dead", "mail", "send", 5_000, "'new'").await;
    let page = console.page("/dead").await;
    let found = causes(&page);
    assert_eq!((found.len(), &*found[0].1), (1, "5,000"));
    assert!(page.contains("Of the newest 5,000 dead jobs"), "{page}");
}
