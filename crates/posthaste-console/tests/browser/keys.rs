//! Every operation by keyboard, without a mouse.

use super::kit::Window;
use crate::schedules;
use crate::support::{console, database, enqueue, given_up, state};

const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
const TAB: &str = "\u{e004}";

#[tokio::test]
async fn jobs_are_found_opened_selected_retried_and_cancelled_by_keys() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let console = console(&database).await;
    let Some(window) = Window::open(&console, "keys in a browser").await else {
        return;
    };
    let later = schedules::later(&client, "later", 60).await;
    // A list is as old as the last read of the database, so its job is enqueued before the first
    // page.
    let dead = given_up(&client, "dead", "mail.send", "refused").await;
    let wrong = enqueue(&client, "wrong", "mail", "{}").await;
    enqueue(&client, "right", "mail", "{}").await;
    window.go("/").await;
    window.press("gj").await;
    window
        .until("these are the jobs", "location.pathname === '/jobs'")
        .await;
    window.press("/").await;
    window.press("name:wrong").await;
    window.press(ENTER).await;
    window
        .until(
            "one is left",
            "document.querySelectorAll('tr[data-row]').length === 1",
        )
        .await;
    window.press("jx").await;
    window.until_it_says("1 selected.").await;
    let asks = "document.getElementById('confirm-dialog').open";
    window.press("c").await;
    window.until("it asks first", asks).await;
    window.press(ESCAPE).await;
    window.until("it asks no more", &format!("!{asks}")).await;
    assert_eq!(state(&client, wrong).await, "available");
    window.until_it_says("1 selected.").await;
    window.press("c").await;
    window.until_it_says("Cancel 1 selected job?").await;
    window.press(ENTER).await;
    window.until_state(&client, wrong, "cancelled").await;
    window.press("gs").await;
    window
        .until("these are later", "location.pathname === '/scheduled'")
        .await;
    window.press("jr").await;
    window.until_state(&client, later, "available").await;
    window.go("/jobs").await;
    window.press("jjk").await;
    let first = window
        .value("document.querySelector('tr.here a').getAttribute('href')")
        .await;
    let top = window
        .value("document.querySelector('tr[data-row] a').getAttribute('href')")
        .await;
    assert_eq!(first, top, "k goes back");
    window.press(ENTER).await;
    let path = first.as_str().unwrap().to_owned();
    window
        .until("it is opened", &format!("location.pathname === {first}"))
        .await;
    let id: i64 = path.rsplit('/').next().unwrap().parse().unwrap();
    window.press("c").await;
    window.until_it_says("Cancel this job?").await;
    window.press(ENTER).await;
    window.until_state(&client, id, "cancelled").await;
    window.press("gd").await;
    window
        .until("it died", "location.pathname === '/dead'")
        .await;
    window.press("jr").await;
    window.until_state(&client, dead, "available").await;
    window.close().await;
}

#[tokio::test]
async fn keys_switch_queues_and_schedules_and_list_the_keys() {
    let database = database().await;
    let client = database.client().await.unwrap();
    enqueue(&client, "mail.send", "mail", "{}").await;
    schedules::put(&client, "nightly", "2 hours").await;
    let console = console(&database).await;
    let Some(window) = Window::open(&console, "switches by keys in a browser").await else {
        return;
    };
    window.go("/queues/drain?queue=mail").await;
    window.press("t").await;
    window
        .until_true(
            &client,
            "SELECT count(*) = 1 FROM posthaste.queue WHERE paused_at IS NOT NULL",
        )
        .await;
    window.go("/queues").await;
    window.press("jt").await;
    window
        .until_true(
            &client,
            "SELECT count(*) = 0 FROM posthaste.queue WHERE paused_at IS NOT NULL",
        )
        .await;
    window.press("gp").await;
    window
        .until("these are schedules", "location.pathname === '/periodic'")
        .await;
    window.press("jt").await;
    window
        .until_true(
            &client,
            "SELECT next_at > now() + '100 years' FROM posthaste.periodic",
        )
        .await;
    window.press("jr").await;
    window
        .until_true(
            &client,
            "SELECT count(*) = 1 FROM posthaste.job WHERE name = 'report'",
        )
        .await;
    window.press("?").await;
    window
        .until("the keys are shown", "document.getElementById('keys').open")
        .await;
    let shown = window.text("#keys").await;
    assert!(
        shown.contains("pause or resume") && !shown.contains("cancel"),
        "{shown}"
    );
    window.press(ESCAPE).await;
    window
        .until("they are gone", "!document.getElementById('keys').open")
        .await;
    window.go("/jobs").await;
    window.press(TAB).await;
    assert_eq!(
        window.value("document.activeElement.className").await,
        "skip"
    );
    window.press(ENTER).await;
    window.press(TAB).await;
    let focus = window
        .value("document.activeElement.closest('main') !== null")
        .await;
    assert_eq!(focus, true, "the margin was skipped");
    window.close().await;
}
