//! How a route makes a message from a job. Pure.

use std::sync::Arc;

use crate::message::outbox::OutboxJob;
use crate::message::schedule;
use crate::message::template::Template;
use crate::message::trace;
use crate::message::{Message, set_header};

/// Describes how a route makes a message from a job.
///
/// ```
/// use posthaste_relay::{Mapping, Template};
/// # fn main() -> Result<(), posthaste::Error> {
/// let mapping = Mapping::default()
///     .kind(Template::parse("mail:{kwargs.kind}")?)
///     .header("tenant", Template::parse("{tag}")?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Mapping {
    kind: Template,
    queue: Option<Template>,
    headers: Vec<(String, Template)>,
    payload: Option<Template>,
    at: Option<Template>,
    /// Arguments that templates other than the payload's take by name.
    taken: Arc<[String]>,
}

impl Default for Mapping {
    /// Sends the job's name and its unchanged arguments.
    fn default() -> Self {
        Self {
            kind: Template::job_name(),
            queue: None,
            headers: Vec::new(),
            payload: None,
            at: None,
            taken: Arc::default(),
        }
    }
}

impl Mapping {
    /// Sets the kind of work in the receiver's terms; the job's name by default.
    pub fn kind(self, kind: Template) -> Self {
        Self { kind, ..self }.with_moved_arguments()
    }

    /// Sets the receiver's queue or exchange; the destination's default otherwise.
    pub fn queue(self, queue: Template) -> Self {
        let queue = Some(queue);
        Self { queue, ..self }.with_moved_arguments()
    }

    /// Adds a header, or replaces its value.
    pub fn header(mut self, name: impl Into<String>, value: Template) -> Self {
        set_header(&mut self.headers, name.into(), value);
        self.with_moved_arguments()
    }

    /// Sets the message's body; the job's unchanged arguments by default.
    pub fn payload(self, payload: Template) -> Self {
        let payload = Some(payload).filter(|payload| !payload.is_whole_payload());
        Self { payload, ..self }
    }

    /// Sets when the receiver runs the message: RFC 3339, or seconds since 1970. A message whose
    /// time is past, or whose job lacks the argument, runs at once. Sidekiq, asynq, BullMQ and
    /// Celery receive the message ahead of time and schedule it themselves. For a receiver without
    /// a schedule the job waits in Postgres until then, and no attempt is counted.
    pub fn at(self, at: Template) -> Self {
        let at = Some(at);
        Self { at, ..self }.with_moved_arguments()
    }

    /// Returns the names of its headers.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().map(|(name, _)| name.as_str())
    }

    /// Returns a placeholder that two jobs with the same arguments may fill differently.
    pub(crate) fn per_job_placeholder(&self) -> Option<&'static str> {
        let headers = self.headers.iter().map(|(_, value)| value);
        let all = headers.chain(&self.queue).chain(&self.at);
        let mut all = all.chain(&self.payload).chain([&self.kind]);
        all.find_map(Template::per_job_placeholder)
    }

    fn with_moved_arguments(mut self) -> Self {
        let templates = self.headers.iter().map(|(_, value)| value);
        let templates = templates.chain(&self.queue).chain(&self.at);
        let taken = templates
            .chain([&self.kind])
            .flat_map(Template::argument_names);
        self.taken = taken.map(str::to_owned).collect();
        self
    }

    /// Makes the message of a job; the error names what the job lacks. A row of `posthaste.outbox`
    /// is sent with its own id and its own payload.
    pub(crate) fn to_message(&self, outgoing: OutboxJob) -> Result<Message, String> {
        let fill = |template: &Template| template.fill(&outgoing);
        let (kind, queue) = (
            fill(&self.kind)?,
            self.queue.as_ref().map(fill).transpose()?,
        );
        let mut headers = Vec::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            headers.push((name.clone(), fill(value)?));
        }
        for (name, value) in &outgoing.headers {
            if !headers.iter().any(|(given, _)| given == name) {
                headers.push((name.clone(), value.clone()));
            }
        }
        trace::add_headers(&outgoing.job, &mut headers);
        let payload = self.payload.as_ref().map(fill).transpose()?;
        let at = self.at.as_ref();
        let at = at.map_or(Ok(None), |at| schedule::scheduled_at(at, &outgoing))?;
        let is_own = payload.is_none();
        Ok(Message {
            id: outgoing.id,
            kind,
            queue,
            at,
            bytes: outgoing.bytes.filter(|_| is_own),
            is_call: outgoing.is_call && is_own,
            taken: match is_own {
                true => Arc::clone(&self.taken),
                false => Arc::default(),
            },
            payload,
            headers,
            job: outgoing.job,
        })
    }
}

#[cfg(test)]
impl Mapping {
    pub(crate) fn message(
        &self,
        job: Arc<posthaste::Job>,
        id: uuid::Uuid,
    ) -> Result<Message, String> {
        self.to_message(crate::message::outbox::unwrap_envelope(job, id)?)
    }
}

#[cfg(test)]
mod tests {
    use crate::message::mapping::Mapping;
    use crate::message::template::Template;
    use crate::message::tests::{ID, job};

    #[test]
    fn later_headers_replace_earlier_ones_of_the_same_name() {
        let mapping = Mapping::default().header("a", Template::text("1"));
        let mapping = mapping.header("a", Template::text("2"));
        let message = mapping.message(job("a", "{}"), ID).expect("a message");
        assert_eq!(message.headers, [("a".to_owned(), "2".to_owned())]);
        assert_eq!(message.header("a", "3").headers.len(), 1);
    }
}
