//! Every page has no errors, is accessible, and fits the window.

use posthaste_console::Settings;
use posthaste_elastic::two_phase::State;

use super::kit::Window;
use super::seeds::Store;
use crate::support::{Console, console, console_with, database, operator};
use crate::{hostile, two_phase};

/// The pages of every store.
const PAGES: [&str; 16] = [
    "/",
    "/queues",
    "/jobs",
    "/scheduled",
    "/periodic",
    "/dead",
    "/dead?filter=state%3Aexpired",
    "/destinations",
    "/sync",
    "/transactions",
    "/two-phase",
    "/workers",
    "/settings",
    "/queues/drain?queue=mail",
    "/jobs?filter=state%3Anone",
    "/bulk?do=redrive&filter=state%3Adead",
];
/// The rules whose result differs in dark mode.
const OF_COLOUR: [&str; 1] = ["color-contrast"];
const WIDTHS: [(u32, u32); 2] = [(375, 812), (1_280, 900)];

/// Returns the problems of a page, on a phone and on a desktop, in light and in dark.
async fn wrong(window: &Window, path: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (width, height) in WIDTHS {
        window.is_wide(width, height).await;
        window.go(path).await;
        window.is_dark(false).await;
        let at = |what: String| format!("{path} at {width}: {what}");
        wrong.extend(window.stands_out().await.into_iter().map(at));
        wrong.extend(window.barriers(&[]).await.into_iter().map(at));
    }
    window.is_dark(true).await;
    let dark = window.barriers(&OF_COLOUR).await;
    wrong.extend(dark.into_iter().map(|what| format!("{path}, dark: {what}")));
    wrong.extend(window.complaints().await);
    wrong
}

async fn check(window: &Window, pages: &[&str]) {
    let mut all = Vec::new();
    for path in pages {
        all.extend(wrong(window, path).await);
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[tokio::test]
async fn pages_of_a_full_store_fit_are_accessible_and_load_without_errors() {
    let store = Store::full().await;
    let (_fake, coordinator) = two_phase::prepared().await;
    let effects = two_phase::transfer("alice", "bob", 5_000);
    two_phase::left(&coordinator, "poor", State::Pending, effects.clone(), 7_200).await;
    two_phase::left(&coordinator, "fresh", State::Created, effects, 60).await;
    let settings = Settings {
        two_phase: Some(coordinator),
        ..operator()
    };
    let console = console_with(&store.database, settings).await;
    let test = "pages of a full store in a browser";
    let Some(window) = Window::open(&console, test).await else {
        return;
    };
    check(&window, &PAGES).await;
    let jobs = [store.running, store.retrying, store.dead].map(|id| format!("/jobs/{id}"));
    let more = [
        "/sync/reindex?table=page&by=all",
        "/bulk?do=cancel&filter=name%3Ainvoice.print",
        "/bulk?do=delete&filter=state%3Adead",
    ];
    let more: Vec<&str> = jobs.iter().map(String::as_str).chain(more).collect();
    check(&window, &more).await;
    window.close().await;
    store.end().await;
}

#[tokio::test]
async fn pages_of_an_empty_store_fit_are_accessible_and_load_without_errors() {
    let database = database().await;
    let console = console(&database).await;
    let test = "pages of an empty store in a browser";
    let Some(window) = Window::open(&console, test).await else {
        return;
    };
    check(&window, &PAGES).await;
    window.go("/").await;
    window.press("?").await;
    window
        .until("the keys are shown", "document.getElementById('keys').open")
        .await;
    assert_eq!(window.barriers(&[]).await, Vec::<String>::new());
    window.go("/nothing").await;
    assert_eq!(window.barriers(&[]).await, Vec::<String>::new());
    window.close().await;
}

#[tokio::test]
async fn hostile_names_run_no_script_and_break_no_page() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let (job, given_up_job) = hostile::seed(&client).await;
    let long = "a".repeat(255);
    for name in ["\u{202e}sdrawkcab\u{202c}", &long] {
        crate::support::enqueue(&client, name, &long[..120], "{}").await;
    }
    let console = console(&database).await;
    let Some(window) = Window::open(&console, "hostile names in a browser").await else {
        return;
    };
    let (job, given_up_job) = (format!("/jobs/{job}"), format!("/jobs/{given_up_job}"));
    check(&window, &PAGES).await;
    check(&window, &[&job, &given_up_job]).await;
    window.close().await;
}

/// A page with one fault of each kind.
const FAULTY: &str = "<!doctype html><html lang=en><title>x</title><main><h1>x</h1>\
    <p style='color:#999;background:#aaa'>faint</p><div class=wide>wide</div>\
    <style>.wide{width:3000px}</style><script>alert(1)</script></main>";

#[tokio::test]
async fn the_page_checker_finds_faults() {
    let page = || async {
        let policy = "default-src 'none'; style-src 'unsafe-inline'";
        (
            [("content-security-policy", policy)],
            axum::response::Html(FAULTY),
        )
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let app = axum::Router::new().route("/", axum::routing::get(page));
    tokio::spawn(async move { axum::serve(listener, app).await });
    // Only the first call has an effect: the client of this test may be the first of its process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let faulty = Console::at(base, reqwest::Client::new());
    let Some(window) = Window::open(&faulty, "a page with faults in a browser").await else {
        return;
    };
    let wrong = wrong(&window, "/").await.join("\n");
    for part in [
        "at 375: <div class=\"wide\">",
        "color-contrast",
        "Content Security Policy",
    ] {
        assert!(wrong.contains(part), "no {part} in {wrong}");
    }
    window.close().await;
}
