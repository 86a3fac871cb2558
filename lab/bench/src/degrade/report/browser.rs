//! The page of a report in a real browser: on a phone and on a desktop, in light and dark mode.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "the console's tests use all of it, this one a part"
)]
#[path = "../../../../../crates/posthaste-console/tests/browser/driver.rs"]
mod driver;

use anyhow::{Result, ensure};
use axum::response::Html;
use axum::routing::get;
use posthaste_testkit::receivers::{self, Browser, Receiver};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use self::driver::Driver;
use super::{Played, Report};
use crate::degrade::figures::Figures;
use crate::degrade::figures::tests::run;
use crate::degrade::gate;
use crate::degrade::scenario::Limits;
use crate::machine::Machine;

/// The axe-core check of the console's pages.
const AUDIT: &str = include_str!("../../../../../crates/posthaste-console/tests/browser/audit.js");

/// The number of charts with pixels in their middle.
const DRAWN: &str = "return [...document.querySelectorAll('canvas')].filter((canvas) => {
  const { width, height } = canvas;
  const pixels = canvas.getContext('2d').getImageData(0, 0, width, height).data;
  return pixels.some((value, at) => at % 4 === 3 && value > 0);
}).length";

/// The number of pixels by which the page is wider than the window.
const TOO_WIDE: &str =
    "return document.documentElement.scrollWidth - document.documentElement.clientWidth";

fn report() -> Report {
    let played = ["que", "</script><b>mine", "posthaste"].map(|name| {
        let mut outcome = run(|at, sample| {
            sample.waiting = at as u64;
            sample.dead = at as i64 * 100;
            sample.holder_s = at;
        });
        outcome.algorithm = name.to_owned();
        let limits = Limits {
            claim_blocks: Some(1.5),
            ..Limits::default()
        };
        let figures = Figures::read(&outcome, 100);
        Played {
            judgements: gate::judge(&outcome, figures.as_ref(), limits),
            outcome,
            figures,
            source: "-- name: claim\nSELECT '<b>';",
        }
    });
    Report {
        title: "A <b>small</b> run".to_owned(),
        started_at: "2026-11-27 12:00 UTC".to_owned(),
        machine: Machine {
            cores: 2,
            processor: "a processor".to_owned(),
            kernel: "6".to_owned(),
            memory_bytes: 1 << 30,
            nice: 0,
        },
        server: "15.1".to_owned(),
        rate: 50.0,
        workers: 8,
        played: played.into(),
    }
}

async fn serve(page: String) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let icon = || async { axum::http::StatusCode::NO_CONTENT };
    let router = axum::Router::new()
        .route("/", get(move || async { Html(page) }))
        .route("/favicon.ico", get(icon));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(format!("http://{address}/"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_renders_and_is_accessible() -> Result<()> {
    if !receivers::are_here("the report in a browser", &[Receiver::Browser]) {
        return Ok(());
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let browser = Browser::shared()?;
    let wanted = json!({
        "browserName": "chrome",
        "goog:loggingPrefs": { "browser": "ALL" },
        "goog:chromeOptions": browser.options()?,
    });
    let driver = Driver::open(&browser.url(), wanted).await?;
    let address = serve(report().page()?).await?;
    let mut inks = Vec::new();
    for (width, scheme) in [(375, "light"), (1_280, "light"), (1_280, "dark")] {
        let size = json!({
            "width": width, "height": 812, "deviceScaleFactor": 1, "mobile": false,
        });
        driver
            .tell("Emulation.setDeviceMetricsOverride", size)
            .await?;
        driver.go(&address).await?;
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let features = json!({ "features": features });
        driver.tell("Emulation.setEmulatedMedia", features).await?;
        let at = format!("at {width} in {scheme}");
        ensure!(
            driver.run(DRAWN).await? == 5,
            "not all charts are drawn {at}"
        );
        ensure!(
            driver.run(TOO_WIDE).await? == 0,
            "the page is too wide {at}"
        );
        driver.run(&Browser::axe_source()?).await?;
        let found = driver.run_until_done(AUDIT, vec![json!([])]).await?;
        ensure!(found == json!([]), "{at}: {found:#}");
        inks.push(driver.run("return colour('--ink')").await?);
    }
    ensure!(inks[0] == inks[1] && inks[1] != inks[2], "{inks:?}");
    let legend = driver.find(".u-legend").await?.text().await?;
    ensure!(
        legend.contains("posthaste") && legend.contains("<b>mine"),
        "{legend}"
    );
    let asked = "return performance.getEntriesByType('resource').map((one) => one.name)\
                 .filter((name) => !name.endsWith('/favicon.ico'))";
    let asked: Value = driver.run(asked).await?;
    ensure!(asked == json!([]), "the page asks for {asked}");
    let log = driver.log().await?;
    ensure!(log.is_empty(), "{log:?}");
    driver.end().await
}
