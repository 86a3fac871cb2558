//! Figures that change while the page is open.

use posthaste_testkit::{Sql as _, TestResult};

use super::kit::Window;
use crate::support::{connected, console, database, enqueue};

const LIVE: &str = "document.getElementById('live').classList.contains('on')";
const AVAILABLE: &str = "document.querySelector('[data-cell=\"queue.mail.available\"]')\
                         .textContent.trim()";

#[tokio::test]
async fn figures_update_without_reloading_the_page() -> TestResult {
    let (database, client) = connected().await?;
    enqueue(&client, "mail.send", "mail", "{}").await;
    let console = console(&database).await;
    let Some(window) = Window::open(&console, "figures in a browser").await else {
        return Ok(());
    };
    window.go("/").await;
    window.until("it is live", LIVE).await;
    window.value("window.stays = true").await;
    assert_eq!(window.value(AVAILABLE).await, "1");
    enqueue(&client, "mail.send", "mail", "{}").await;
    window
        .until("the figure has changed", &format!("{AVAILABLE} === '2'"))
        .await;
    client.run("SELECT posthaste.pause('mail')").await?;
    window.until_it_says("Queue mail is paused since").await;
    assert_eq!(
        window.value("window.stays").await,
        true,
        "it is the same page"
    );
    window.is_dark(false).await;
    assert_eq!(
        window.barriers(&[]).await,
        Vec::<String>::new(),
        "as a script left it"
    );
    assert_eq!(window.complaints().await, Vec::<String>::new());
    window.close().await;
    Ok(())
}

/// Counts connections for figures from this point, and adds a function that hides or shows the
/// page.
const COUNTS: &str = "(() => { window.opens = window.closes = 0; \
    const Real = EventSource; \
    window.EventSource = class extends Real { \
      constructor(url) { super(url); window.opens += 1; } \
      close() { super.close(); window.closes += 1; } }; \
    window.see = (hidden) => { \
      Object.defineProperty(document, 'hidden', { value: hidden, configurable: true }); \
      document.dispatchEvent(new Event('visibilitychange')); }; return true; })()";

#[tokio::test]
async fn hidden_pages_disconnect_and_reconnect_when_shown() {
    let database = database().await;
    let client = database.client().await.unwrap();
    enqueue(&client, "mail.send", "mail", "{}").await;
    let console = console(&database).await;
    let Some(window) = Window::open(&console, "a hidden page in a browser").await else {
        return;
    };
    window.go("/").await;
    window.until("it is live", LIVE).await;
    window.value(COUNTS).await;
    window.value("see(true)").await;
    window.value("see(false)").await;
    window.value("see(true)").await;
    assert_eq!(window.value("[opens, closes].join()").await, "1,1");
    enqueue(&client, "mail.send", "mail", "{}").await;
    window.value("see(false)").await;
    window
        .until("the figure has changed", &format!("{AVAILABLE} === '2'"))
        .await;
    assert_eq!(window.value("[opens, closes].join()").await, "2,1");
    window.close().await;
}

#[tokio::test]
async fn ten_visits_to_a_live_page_take_under_40_seconds() {
    let database = database().await;
    let console = console(&database).await;
    let test = "many pages in a browser";
    let Some(window) = Window::open(&console, test).await else {
        return;
    };
    let many = async {
        for _ in 0..10 {
            window.go("/").await;
            window.until("it is live", LIVE).await;
            window.go("/jobs").await;
        }
    };
    // A page that holds a connection would release it only after a minute.
    let within = std::time::Duration::from_secs(40);
    assert!(tokio::time::timeout(within, many).await.is_ok());
    window.close().await;
}

#[tokio::test]
async fn rows_stay_while_one_is_selected_and_update_afterwards() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let id = enqueue(&client, "mail.send", "mail", "{}").await;
    let console = console(&database).await;
    let test = "a selection in a browser";
    let Some(window) = Window::open(&console, test).await else {
        return;
    };
    window.go("/jobs").await;
    window.until("it is live", LIVE).await;
    let margin = "document.querySelector('nav [data-cell=\"margin.jobs\"]').textContent.trim()";
    let before = window.value(margin).await;
    window.click(&format!("input[value=\"{id}\"]")).await;
    assert!(window.text("#live").await.contains("held still"));
    enqueue(&client, "mail.send", "mail", "{}").await;
    window
        .until("news are kept back", "waiting.has('cells')")
        .await;
    assert_eq!(window.value(margin).await, before);
    assert_eq!(window.count("tbody tr").await, 1);
    window.click(&format!("input[value=\"{id}\"]")).await;
    window
        .until("they are shown", &format!("{margin} !== {before}"))
        .await;
    window.close().await;
}
