//! Ways to authenticate, and the pages afterwards.

use posthaste_console::{Access, Role, Settings};
use posthaste_testkit::{Sql as _, TestResult};

use super::kit::Window;
use super::seeds::Store;
use crate::support::{connected, console_with, database, enqueue, operator};

#[tokio::test]
async fn a_token_session_lasts_until_sign_out() {
    let database = database().await;
    let settings = Settings {
        access: Access::Token("a long secret".to_owned()),
        role: Role::Operator,
        ..Settings::default()
    };
    let console = console_with(&database, settings).await;
    let Some(window) = Window::open(&console, "signing in with a browser").await else {
        return;
    };
    window.go("/queues").await;
    for (width, dark) in [(375, false), (1_280, true)] {
        window.is_wide(width, 812).await;
        window.is_dark(dark).await;
        assert_eq!(window.barriers(&[]).await, Vec::<String>::new());
        assert_eq!(window.stands_out().await, Vec::<String>::new());
    }
    // The browser reports the 401 of the login page, which is not a fault.
    let asked = window.complaints().await;
    assert!(asked.iter().all(|text| text.contains("401")), "{asked:?}");
    window.fill("input[name=token]", "a short one").await;
    window.click("button").await;
    window.until_it_says("Wrong token.").await;
    assert_eq!(window.barriers(&[]).await, Vec::<String>::new());
    window.fill("input[name=token]", "a long secret").await;
    window.press("\u{e007}").await;
    window.until_it_says("No queue yet.").await;
    let at = window.value("location.pathname").await;
    assert_eq!(at, "/queues");
    window.click("form[action=\"/logout\"] button").await;
    window
        .until("one is out", "location.pathname === '/login'")
        .await;
    window.go("/queues").await;
    assert_eq!(window.count("input[name=token]").await, 1);
    window.close().await;
}

#[tokio::test]
async fn observers_have_no_action_buttons() {
    let store = Store::full().await;
    let console = console_with(&store.database, Settings::default()).await;
    let Some(window) = Window::open(&console, "an observer in a browser").await else {
        return;
    };
    let jobs = [store.running, store.retrying, store.dead].map(|id| format!("/jobs/{id}"));
    let pages = [
        "/",
        "/queues",
        "/jobs",
        "/scheduled",
        "/periodic",
        "/dead",
        "/destinations",
        "/sync",
        "/queues/drain?queue=mail",
        "/bulk?do=redrive&filter=state%3Adead",
    ];
    for path in pages.into_iter().chain(jobs.iter().map(String::as_str)) {
        window.go(path).await;
        assert_eq!(
            window
                .count("main form[method=post] button, main [data-key]")
                .await,
            0,
            "{path}"
        );
        assert!(window.text("footer").await.contains("Observer"), "{path}");
    }
    window.close().await;
    store.end().await;
}

#[tokio::test]
async fn a_console_under_a_path_is_live_and_acts_by_keys() -> TestResult {
    let (database, client) = connected().await?;
    enqueue(&client, "mail.send", "mail", "{}").await;
    let settings = Settings {
        path_prefix: "/tools/posthaste".parse()?,
        ..operator()
    };
    let console = console_with(&database, settings).await;
    let base = format!("{}/tools/posthaste", console.base);
    let Some(window) = Window::before(&base, "a path in a browser").await else {
        return Ok(());
    };
    window.go("").await;
    let live = "document.getElementById('live').classList.contains('on')";
    window.until("it is live", live).await;
    client.run("SELECT posthaste.pause('mail')").await?;
    // The sentence arrives over the stream, with its link.
    window.until_it_says("Queue mail is paused since").await;
    let links = "Array.from(document.querySelectorAll('.verdict a'), (one) => one.pathname)";
    let links = window.value(links).await;
    let links: Vec<String> = serde_json::from_value(links)?;
    assert!(
        links.contains(&"/tools/posthaste/queues".to_owned()),
        "{links:?}"
    );
    let is_under = |link: &String| link.starts_with("/tools/posthaste/");
    assert!(links.iter().all(is_under), "{links:?}");
    window.press("gq").await;
    window.until_it_says("Rate limits,").await;
    window.press("jt").await;
    window.until_it_says("The queue is resumed.").await;
    let at = window.value("location.pathname").await;
    assert_eq!(at, "/tools/posthaste/queues");
    assert_eq!(window.complaints().await, Vec::<String>::new());
    window.close().await;
    Ok(())
}
