//! Two outages of a web service that receives requests at a steady rate.
//!
//! `outage broker`: the outage that motivated posthaste. The service saves annotations and
//! publishes each to RabbitMQ, in two ways side by side, and RabbitMQ raises its disk alarm.
//! `outage search`: the service saves annotations and indexes them, and the search server is down,
//! in three ways one after the other.
//!
//! `make outage` runs both with their own servers; `ARGS=600` makes each outage last ten minutes,
//! `ARGS='search 600'` runs one of them. It prints the findings, and exits with success only if
//! posthaste lost nothing and kept its bounds.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    unreachable_pub,
    reason = "an example talks to people and has no callers"
)]

mod broker;
mod figures;
mod load;
mod process;
mod search;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

/// The default length of an outage.
const OUTAGE: Duration = Duration::from_secs(120);
/// The time for which the first requests open connections and fill caches.
const WARM: Duration = Duration::from_secs(3);
/// The load continues for at most this long before and after an outage.
const BESIDE: Duration = Duration::from_secs(20);

/// The result of a run: the findings, and the bounds that were not kept.
struct Verdict {
    findings: String,
    broken: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    // The HTTP client needs a TLS provider, even for plain HTTP.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (which, rest) = match words[..] {
        ["broker", "service"] => return broker::service::run().await.map(|()| ExitCode::SUCCESS),
        ["broker", "relay"] => return broker::relay::run().await.map(|()| ExitCode::SUCCESS),
        ["search", "service"] => return search::service::run().await.map(|()| ExitCode::SUCCESS),
        ["search", "sync"] => return search::sync::run().await.map(|()| ExitCode::SUCCESS),
        ["broker", ref rest @ ..] => (["broker"].as_slice(), rest),
        ["search", ref rest @ ..] => (["search"].as_slice(), rest),
        ref rest => (["broker", "search"].as_slice(), rest),
    };
    let outage = match rest {
        [] => OUTAGE,
        [seconds] => Duration::from_secs(seconds.parse()?),
        more => bail!("write [broker|search] [SECONDS], not {more:?}"),
    };
    let mut is_well = true;
    for play in which {
        let verdict = match *play {
            "broker" => broker::play(outage).await?,
            _ => search::play(outage).await?,
        };
        println!("{}", verdict.findings);
        let broken = verdict.broken.iter();
        broken.for_each(|bound| println!("MISSED: {bound}"));
        is_well &= verdict.broken.is_empty();
    }
    Ok(match is_well {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Returns how long the load is measured before and after an outage of this length.
fn beside(outage: Duration) -> Duration {
    (outage / 6).clamp(WARM, BESIDE)
}
