//! Previews the messages of the waiting jobs without claiming them.

use std::sync::Arc;

use posthaste::{Error, Job};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::destination::lines;
use crate::engine::references;
use crate::message::Message;
use crate::message::outbox;
use crate::route::Route;
use crate::store;

/// Returns the messages that the route would make of the jobs that wait for its relay, at most this
/// many: a line of JSON for each, as [`Lines`](crate::Lines) writes it, with the payload as it
/// would be sent. If the route has statements, the row to which a job refers is read. A message
/// that would be rejected permanently has a line with its `id`, `name` and an `error`. Nothing is
/// claimed or changed.
///
/// ```no_run
/// # async fn example(client: &tokio_postgres::Client) -> Result<(), posthaste::Error> {
/// let settings = serde_json::json!({"to": "stdout:"});
/// let route = posthaste_relay::Route::read("mail", settings.as_object().into_iter().flatten())?;
/// for line in posthaste_relay::preview(client, &route, 10).await? {
///     println!("{line}");
/// }
/// # Ok(()) }
/// ```
pub async fn preview(client: &Client, route: &Route, most: u32) -> Result<Vec<String>, Error> {
    let jobs = store::list_waiting_jobs(client, route.queue(), most.into()).await?;
    let mut shown = Vec::with_capacity(jobs.len());
    for (job, id) in jobs {
        let name = job.name.clone();
        let line = preview_line(client, route, job, id).await;
        shown.push(line.unwrap_or_else(|error| {
            let of = id.to_string();
            serde_json::json!({ "id": of, "name": &*name, "error": error }).to_string()
        }));
    }
    Ok(shown)
}

async fn preview_line(
    client: &Client,
    route: &Route,
    job: Arc<Job>,
    id: Uuid,
) -> Result<String, String> {
    let mut job = outbox::unwrap_envelope(job, id)?;
    let statements = route.statements();
    if let Some(reference) = job.reference.as_ref().filter(|_| !statements.is_empty()) {
        let row = references::read_row(statements, client, reference).await;
        job = job.with_payload(row.map_err(|failure| failure.reason())?);
    }
    encode_or_reject(route, &route.mapping().to_message(job)?)
}

fn encode_or_reject(route: &Route, message: &Message) -> Result<String, String> {
    if let Some(problem) = route.destination().rejection_reason(message) {
        return Err(problem);
    }
    let line = lines::encode_line(message).map_err(|error| error.to_string())?;
    let line = String::from_utf8(line).map_err(|error| error.to_string())?;
    Ok(line.trim_end().to_owned())
}

#[cfg(all(test, feature = "sidekiq"))]
mod tests {
    use super::encode_or_reject;
    use crate::message::tests::{ID, job};
    use crate::route::Route;

    #[test]
    fn previews_show_why_a_message_would_be_rejected() {
        let settings = serde_json::json!({"to": "sidekiq://h", "class": "{tag}"});
        let route = Route::read("mail", settings.as_object().expect("settings"));
        let route = route.expect("a route");
        let sent = route.mapping().message(job("n", "{}"), ID);
        let mut message = sent.expect("a message");
        assert!(encode_or_reject(&route, &message).is_ok());
        message.kind.clear();
        let error = encode_or_reject(&route, &message).expect_err("no class");
        assert_eq!(error, "a Sidekiq job needs a class and a queue");
    }
}
