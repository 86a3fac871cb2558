//! Recorded output of the real client libraries, for unit tests: the captures in
//! `tests/relay/golden`.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::message::Message;
use crate::message::mapping::Mapping;
use crate::message::template::Template;
use crate::message::tests::job;

/// One case of a capture.
pub(crate) struct Case(Value);

/// Returns all cases of a capture.
pub(crate) fn cases(capture: &str) -> Vec<Case> {
    let mut capture: Value = serde_json::from_str(capture).expect("JSON");
    let cases = capture["cases"].take();
    let Value::Array(cases) = cases else {
        panic!("no cases")
    };
    cases.into_iter().map(Case).collect()
}

impl Case {
    pub(crate) fn name(&self) -> &str {
        self.0["case"].as_str().expect("a name")
    }

    /// The input of the client library.
    pub(crate) fn input(&self) -> &Value {
        &self.0["input"]
    }

    pub(crate) fn seconds(&self, option: &str) -> Option<std::time::Duration> {
        self.input()[option]
            .as_u64()
            .map(std::time::Duration::from_secs)
    }

    /// The message that arrived, if the capture has one.
    #[cfg(feature = "celery-rabbitmq")]
    pub(crate) fn arrived(&self) -> &Value {
        &self.0["arrived"]
    }

    /// Returns the words of the first command of this name, including the name.
    pub(crate) fn command(&self, name: &str) -> Vec<Vec<u8>> {
        let commands = self.0["commands"].as_array().expect("commands");
        let words = commands
            .iter()
            .map(|one| &one["command"])
            .find(|words| words[0] == name);
        let words = words.and_then(Value::as_array).expect("the command");
        words.iter().map(bytes).collect()
    }

    /// Returns the same as text; a word that is not text becomes empty.
    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        let words = self.command(name).into_iter();
        words
            .map(|word| String::from_utf8(word).unwrap_or_default())
            .collect()
    }

    /// Returns the message from which the relay makes the client library's output.
    pub(crate) fn message(
        &self,
        id: &str,
        payload: &str,
        change: impl FnOnce(&mut posthaste::Job),
    ) -> Message {
        let mut job = job("a job", "{}");
        let inner = Arc::get_mut(&mut job).expect("not shared");
        inner.enqueued_at = Timestamp::from_millisecond(1_700_000_000_125).expect("a time");
        change(inner);
        let input = self.input();
        let kind = ["class", "type", "name"]
            .iter()
            .find_map(|name| input[name].as_str());
        let mut mapping = Mapping::default()
            .kind(Template::text(kind.expect("a kind")))
            .payload(Template::text(payload));
        if let Some(queue) = input["queue"].as_str() {
            mapping = mapping.queue(Template::text(queue));
        }
        for (name, value) in input["headers"].as_object().into_iter().flatten() {
            mapping = mapping.header(name, Template::text(value.as_str().expect("a text")));
        }
        let at = ["at", "process_at", "eta"]
            .iter()
            .find_map(|name| match &input[name] {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                number => Some(number.to_string()),
            });
        if let Some(at) = at {
            mapping = mapping.at(Template::text(at));
        }
        let id = Uuid::parse_str(id).expect("an id");
        mapping.message(job, id).expect("a message")
    }
}

fn bytes(word: &Value) -> Vec<u8> {
    match word.as_str() {
        Some(text) => text.into(),
        None => STANDARD
            .decode(word["base64"].as_str().expect("bytes"))
            .expect("base64"),
    }
}
