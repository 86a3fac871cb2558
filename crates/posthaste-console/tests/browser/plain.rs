//! A browser that runs no script.

use super::kit::Window;
use crate::support::{console, database, enqueue, given_up};

#[tokio::test]
async fn pages_and_actions_work_without_scripts() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let id = enqueue(&client, "mail.send", "mail", "{}").await;
    let dead = given_up(&client, "dead", "old", "refused").await;
    let console = console(&database).await;
    let test = "a browser without a script";
    let Some(window) = Window::open(&console, test).await else {
        return;
    };
    window.has_no_script().await;
    window.go("/").await;
    assert_eq!(window.text("#live").await, "as of page load");
    assert!(
        window
            .text("#verdicts")
            .await
            .contains("No worker is running")
    );
    window.click("nav a[href=\"/queues\"]").await;
    assert!(window.text("h1").await.contains("Queues"));
    window.click("form[action=\"/queues/pause\"] button").await;
    window
        .until_true(
            &client,
            "SELECT count(*) = 1 FROM posthaste.queue WHERE paused_at IS NOT NULL",
        )
        .await;
    window.click("nav a[href=\"/jobs\"]").await;
    window.fill("#filter", "name:mail.send").await;
    window.click("form[role=search] button").await;
    // Waits for the requested page: the previous one has the job too.
    window.text("#filter[value=\"name:mail.send\"]").await;
    window.click(&format!("input[value=\"{id}\"]")).await;
    window.click("button[formaction=\"/jobs/cancel\"]").await;
    window.until_state(&client, id, "cancelled").await;
    assert!(window.text("main").await.contains("1 job cancelled"));
    window.go("/bulk?do=redrive&filter=state%3Adead").await;
    window.click("main form[action=\"/bulk\"] button").await;
    window.until_state(&client, dead, "available").await;
    window.close().await;
}
