//! Two outages, each played before a web service that takes requests at a steady rate.
//!
//! `outage broker`: the outage that started it all. The service saves annotations and tells
//! RabbitMQ of each, in two ways side by side, and RabbitMQ raises its disk alarm. `outage search`:
//! the service saves annotations and indexes them, and the search server is down, in three ways one
//! after the other.
//!
//! `make outage` plays both, with servers of its own; `ARGS=600` makes each outage last ten
//! minutes, `ARGS='search 600'` plays one of them. It prints what was found, and ends well only if
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

/// How long an outage lasts by default.
const OUTAGE: Duration = Duration::from_secs(120);
/// The first requests pay for connections and caches.
const WARM: Duration = Duration::from_secs(3);
/// The load goes on for this long before and after, at most.
const BESIDE: Duration = Duration::from_secs(20);

/// What a play came to: what was found, and which bounds were not kept.
struct Verdict {
    findings: String,
    broken: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    // The client of HTTP asks for one, whatever it calls.
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

/// How long the load is checked before and after an outage of this length.
fn beside(outage: Duration) -> Duration {
    (outage / 6).clamp(WARM, BESIDE)
}
