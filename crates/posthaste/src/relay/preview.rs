//! What would be sent: a look at the jobs that wait, without claiming them.

use std::sync::Arc;

use tokio_postgres::Client;
use uuid::Uuid;

use super::Mapping;
use super::lines;
use crate::error::Error;
use crate::job::Job;
use crate::store::relay as store;

/// The messages that would be made of the jobs of a queue that wait for a relay now, at most so many: a line of JSON each, as [`Lines`](super::Lines) writes it.
/// A job that cannot be made a message has a line with its `id`, `name` and an `error`. Nothing is claimed or changed.
///
/// ```no_run
/// # async fn example(client: &tokio_postgres::Client) -> Result<(), posthaste::Error> {
/// for line in posthaste::relay::preview(client, "mail", &Default::default(), 10).await? {
///     println!("{line}");
/// }
/// # Ok(()) }
/// ```
pub async fn preview(
    client: &Client,
    queue: &str,
    mapping: &Mapping,
    most: u32,
) -> Result<Vec<String>, Error> {
    let jobs = store::waiting(client, queue, most.into()).await?;
    Ok(jobs
        .into_iter()
        .map(|(job, id)| line(mapping, job, id))
        .collect())
}

fn line(mapping: &Mapping, job: Arc<Job>, id: Uuid) -> String {
    let name = job.name.clone();
    let line = mapping.message(job, id).and_then(|message| {
        let line = lines::encode(&message).map_err(|error| error.to_string())?;
        String::from_utf8(line).map_err(|error| error.to_string())
    });
    match line {
        Ok(line) => line.trim_end().to_owned(),
        Err(error) => {
            serde_json::json!({ "id": id.to_string(), "name": &*name, "error": error }).to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::line;
    use crate::relay::message::tests::{ID, job};
    use crate::relay::{Mapping, Template};

    #[test]
    fn a_job_that_cannot_be_sent_says_why() {
        let kind = Template::parse("{kwargs.kind}").expect("a template");
        let line = line(&Mapping::default().kind(kind), job("n", "{}"), ID);
        assert_eq!(
            line,
            format!(r#"{{"error":"the job has no argument \"kind\"","id":"{ID}","name":"n"}}"#)
        );
    }
}
