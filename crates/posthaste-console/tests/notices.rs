//! The notice about the last action.

use crate::support::{console, database, enqueue};

#[tokio::test]
async fn notices_are_shown_once_and_not_in_urls() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let id = enqueue(&client, "mail.send", "mail", "{}")
        .await
        .to_string();
    let console = console(&database).await;
    let fields = [("id", id.as_str()), ("back", "/jobs?filter=queue%3Amail")];
    let answer = console.post("/jobs/cancel", &fields).await;
    assert_eq!(answer.headers()["location"], "/jobs?filter=queue%3Amail");
    let cookie = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    let pair = cookie.split(';').next().unwrap();
    let address = format!("{}/jobs?filter=queue%3Amail", console.base);
    let next = console.http.get(&address).header("cookie", pair);
    let next = next.send().await.unwrap();
    let taken_back = next.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(taken_back.starts_with("posthaste_notice=; ") && taken_back.ends_with("Max-Age=0"));
    assert!(next.text().await.unwrap().contains("1 job cancelled"));
    let again = console.get("/jobs?filter=queue%3Amail").await;
    assert!(again.headers().get("set-cookie").is_none());
    assert!(!again.text().await.unwrap().contains("cancelled;"));
}

#[tokio::test]
async fn already_cancelled_jobs_are_not_counted_again() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let [one, other] = [
        enqueue(&client, "a", "mail", "{}").await.to_string(),
        enqueue(&client, "b", "mail", "{}").await.to_string(),
    ];
    let console = console(&database).await;
    let first = [("id", one.as_str()), ("back", "/jobs")];
    assert_eq!(console.act("/jobs/cancel", &first).await, "/jobs#cancel.1");
    assert_eq!(console.act("/jobs/cancel", &first).await, "/jobs#cancel.0");
    let page = console.page("/jobs").await;
    assert!(page.contains("No job was cancelled"), "{page}");
    let both = [first[0], ("id", other.as_str()), first[1]];
    assert_eq!(console.act("/jobs/cancel", &both).await, "/jobs#cancel.1");
}

#[tokio::test]
async fn foreign_cookies_show_no_notice() {
    let database = database().await;
    let console = console(&database).await;
    for value in ["<b>.1", "cancel", "cancel.x", ".", "delete.-1"] {
        let request = console.http.get(&console.base);
        let request = request.header("cookie", format!("posthaste_notice={value}"));
        let page = request.send().await.unwrap().text().await.unwrap();
        assert!(
            !page.contains("<b>") && !page.contains("1 job"),
            "{value}: {page}"
        );
    }
}
