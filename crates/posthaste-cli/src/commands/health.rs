//! `posthaste health`: requests the status of a listening process, for containers without an HTTP
//! client.

use anyhow::bail;
use serde_json::json;

use crate::terminal::Terminal;

/// Check whether a process started with --listen is ready; exit code 0 if it is, otherwise 1
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// URL to request
    #[arg(default_value = "http://127.0.0.1:9187/ready")]
    url: reqwest::Url,
}

/// The timeout of the request; container probes are short.
const REQUEST_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

pub(crate) async fn run(arguments: &Arguments, terminal: &Terminal) -> anyhow::Result<()> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(REQUEST_TIMEOUT)
        .build()?;
    let answer = match client.get(arguments.url.clone()).send().await {
        Ok(answer) => answer,
        Err(error) => bail!(
            "{}: {}",
            arguments.url,
            posthaste::__private::http::describe(&error)
        ),
    };
    let status = answer.status();
    let body = answer.text().await.unwrap_or_default();
    let body = crate::terminal::escape_control(body.trim());
    if !status.is_success() {
        if terminal.is_json() {
            terminal.print_json(&json!({ "ready": false, "answer": body }))?;
        }
        bail!("{}: {body} ({})", arguments.url, status.as_u16());
    }
    terminal.print_result(&body, &json!({ "ready": true, "answer": body }))
}
