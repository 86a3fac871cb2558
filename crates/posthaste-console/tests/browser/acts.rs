//! Every action by mouse, and its effect on the database.

use super::kit::Window;
use crate::support::{console, database, enqueue, given_up};
use crate::{destinations, schedules, sync};

#[tokio::test]
async fn clicks_retry_cancel_redrive_and_delete_selected_jobs() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let console = console(&database).await;
    let test = "jobs are acted on in a browser";
    let Some(window) = Window::open(&console, test).await else {
        return;
    };
    let cancelled = enqueue(&client, "mail.send", "mail", "{}").await;
    let later = schedules::later(&client, "later", 60).await;
    let due = schedules::later(&client, "due", 90).await;
    let stays = schedules::later(&client, "stays", 120).await;
    let redriven = given_up(&client, "dead", "mail.send", "refused").await;
    let deleted = given_up(&client, "dead", "mail.send", "refused").await;
    let act = async |page: &str, id: i64, button: &str| {
        window.go(page).await;
        window.click(&format!("input[value=\"{id}\"]")).await;
        window.click(button).await;
    };
    act("/jobs", cancelled, "button[formaction=\"/jobs/cancel\"]").await;
    window.until_state(&client, cancelled, "cancelled").await;
    window.until_it_says("1 job cancelled").await;
    act("/jobs", later, "#list button.main").await;
    window.until_state(&client, later, "available").await;
    act("/scheduled", due, "#list button.main").await;
    window.until_state(&client, due, "available").await;
    act("/dead", redriven, "#list button.main").await;
    window.until_state(&client, redriven, "available").await;
    act("/dead", deleted, "button[formaction=\"/jobs/delete\"]").await;
    window.until_it_says("1 job").await;
    window.until_state(&client, deleted, "dead").await;
    window
        .click("main form[action=\"/jobs/delete\"] button")
        .await;
    let gone = format!("SELECT NOT EXISTS (SELECT FROM posthaste.dead WHERE id = {deleted})");
    window.until_true(&client, &gone).await;
    window.go(&format!("/jobs/{later}")).await;
    window.click("form[action=\"/jobs/cancel\"] button").await;
    window.until_state(&client, later, "cancelled").await;
    window.until_state(&client, stays, "scheduled").await;
    window.close().await;
}

#[tokio::test]
async fn clicks_act_on_all_matching_jobs_after_a_preview() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let console = console(&database).await;
    let test = "a filter is acted on in a browser";
    let Some(window) = Window::open(&console, test).await else {
        return;
    };
    for n in 0..5 {
        enqueue(&client, if n < 3 { "wrong" } else { "right" }, "mail", "{}").await;
        given_up(
            &client,
            "dead",
            "mail.send",
            if n < 2 { "refused" } else { "other" },
        )
        .await;
    }
    let bulk = async |page: &str, filter: &str, what: &str, count: &str| {
        window.go(page).await;
        window.fill("#filter", filter).await;
        window.click("form[role=search] button").await;
        let filtered = "location.search !== '' && document.readyState === 'complete'";
        window.until("it is filtered", filtered).await;
        window.click(&format!(".bulk a[href*=\"do={what}\"]")).await;
        window.until_it_says(count).await;
        window.click("main form[action=\"/bulk\"] button").await;
    };
    bulk("/jobs", "name:wrong", "cancel", "3 jobs").await;
    let left = "SELECT count(*) FILTER (WHERE name = 'wrong' AND state <> 'cancelled') = 0 \
                       AND count(*) FILTER (WHERE name = 'right' AND state = 'available') = 2 \
                FROM posthaste.job";
    window.until_true(&client, left).await;
    bulk("/dead", "state:dead error:refused", "redrive", "2 jobs").await;
    let others = "SELECT count(*) = 3 AND bool_and(last_error = 'other') FROM posthaste.dead \
                  WHERE state = 'dead'";
    window.until_true(&client, others).await;
    bulk("/dead", "state:dead error:other", "delete", "3 jobs").await;
    window
        .until_true(
            &client,
            "SELECT count(*) = 0 FROM posthaste.dead WHERE state = 'dead'",
        )
        .await;
    window.close().await;
}

#[tokio::test]
async fn clicks_pause_resume_limit_retain_and_drain_queues() {
    let database = database().await;
    let client = database.client().await.unwrap();
    enqueue(&client, "mail.send", "mail", "{}").await;
    destinations::relay(&client, "mail", "up", None).await;
    let console = console(&database).await;
    let test = "queues are acted on in a browser";
    let Some(window) = Window::open(&console, test).await else {
        return;
    };
    let paused = "SELECT count(*) = 1 FROM posthaste.queue WHERE paused_at IS NOT NULL";
    let worked = "SELECT count(*) = 0 FROM posthaste.queue WHERE paused_at IS NOT NULL";
    for page in ["/queues", "/destinations"] {
        window.go(page).await;
        window.click("form[action=\"/queues/pause\"] button").await;
        window.until_true(&client, paused).await;
        window.click("form[action=\"/queues/resume\"] button").await;
        window.until_true(&client, worked).await;
    }
    window.go("/queues").await;
    window.click("tr[data-row] a").await;
    window.until_it_says("Queue mail").await;
    window.fill("input[name=rate]", "90").await;
    window.fill("input[name=burst]", "3").await;
    window.click("form[action=\"/queues/limit\"] button").await;
    let limited = "SELECT count(*) = 1 FROM posthaste.queue WHERE rate = 90 AND burst = 3";
    window.until_true(&client, limited).await;
    window.fill("input[name=keep]", "2").await;
    window
        .click("form[action=\"/queues/keep\"] option[value=\"86400\"]")
        .await;
    window.click("form[action=\"/queues/keep\"] button").await;
    window
        .until_true(
            &client,
            "SELECT count(*) = 1 FROM posthaste.queue WHERE keep = '2 days'",
        )
        .await;
    window.click("main a[href^=\"/queues/drain\"]").await;
    window.click("form[action=\"/queues/drain\"] button").await;
    window.until_true(&client, paused).await;
    window.until_it_says("Deploy now, then resume it.").await;
    window.click("form[action=\"/queues/resume\"] button").await;
    window.until_true(&client, worked).await;
    window.close().await;
}

#[tokio::test]
async fn clicks_run_and_switch_schedules_and_reindex() {
    let database = database().await;
    let client = sync::pages(&database).await;
    schedules::put(&client, "nightly", "2 hours").await;
    let console = console(&database).await;
    let test = "schedules and indexes are acted on in a browser";
    let Some(window) = Window::open(&console, test).await else {
        return;
    };
    window.go("/periodic").await;
    window.click("form[action=\"/periodic/run\"] button").await;
    window
        .until_true(
            &client,
            "SELECT count(*) = 1 FROM posthaste.job WHERE name = 'report'",
        )
        .await;
    window.click("form[action=\"/periodic/off\"] button").await;
    window
        .until_true(
            &client,
            "SELECT next_at > now() + '100 years' FROM posthaste.periodic",
        )
        .await;
    window.click("form[action=\"/periodic/on\"] button").await;
    window
        .until_true(&client, "SELECT next_at IS NULL FROM posthaste.periodic")
        .await;
    window.go("/sync").await;
    window.fill("input[name=ids]", "3, 7").await;
    window.click("form:has(input[name=ids]) button").await;
    window.until_it_says("Statement").await;
    assert_eq!(sync::waiting(&client).await, Vec::<i64>::new());
    window.click("form[action=\"/sync/reindex\"] button").await;
    window
        .until_it_says("2 documents are to be checked again")
        .await;
    assert_eq!(sync::waiting(&client).await, [3, 7]);
    window.close().await;
}

#[tokio::test]
async fn all_jobs_of_a_page_are_selected_by_one_click() {
    let database = database().await;
    let client = database.client().await.unwrap();
    for _ in 0..3 {
        enqueue(&client, "mail.send", "mail", "{}").await;
    }
    let console = console(&database).await;
    let Some(window) = Window::open(&console, "a page is selected in a browser").await else {
        return;
    };
    window.go("/jobs").await;
    window.click("#all").await;
    window.until_it_says("3 selected.").await;
    window.click("tbody tr:nth-child(2) input").await;
    window.until_it_says("2 selected.").await;
    let all = "document.getElementById('all')";
    let partly = window
        .value(&format!("{all}.indeterminate && !{all}.checked"))
        .await;
    assert_eq!(partly, true);
    window.click("#all").await;
    window.until_it_says("3 selected.").await;
    window.click("#all").await;
    window.until_it_says("Select jobs to act on them.").await;
    window.click("#all").await;
    window.click("button[formaction=\"/jobs/cancel\"]").await;
    let cancelled = "SELECT count(*) = 3 FROM posthaste.dead WHERE state = 'cancelled'";
    window.until_true(&client, cancelled).await;
    window.close().await;
}
