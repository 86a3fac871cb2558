//! asynq's form of a task: the protobuf of its `TaskMessage`, read and written without asynq.
//! Fields that are unknown here remain unchanged.

use std::time::Duration;

use uuid::Uuid;

// The numbers of its fields.
const TYPE: u64 = 1;
const PAYLOAD: u64 = 2;
const ID: u64 = 3;
const QUEUE: u64 = 4;
const MAX_RETRY: u64 = 5;
const RETRIED: u64 = 6;
const ERROR: u64 = 7;
const TIMEOUT: u64 = 8;
const LAST_FAILED_AT: u64 = 11;
const RETENTION: u64 = 12;
const COMPLETED_AT: u64 = 13;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Task(Vec<u8>);

impl Task {
    /// Creates the task of a mail, with the attempts of asynq's own client, and stored for this
    /// long once it is done.
    pub fn new(id: Uuid, queue: &str, retention: Duration) -> Self {
        Self::default()
            .with_text(TYPE, "mail:send")
            .with_text(PAYLOAD, "{}")
            .with_text(ID, &id.to_string())
            .with_text(QUEUE, queue)
            .with_number(MAX_RETRY, 25)
            .with_number(TIMEOUT, 1800)
            .with_number(RETENTION, retention.as_secs())
    }

    pub fn read(message: Vec<u8>) -> Self {
        Self(message)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns how often it was retried.
    pub fn retried(&self) -> u32 {
        self.number(RETRIED).try_into().unwrap_or(u32::MAX)
    }

    /// Returns whether it may be tried again.
    pub fn may_be_retried(&self) -> bool {
        self.number(RETRIED) < self.number(MAX_RETRY)
    }

    pub fn completed(self, now: u64) -> Self {
        self.with_number(COMPLETED_AT, now)
    }

    pub fn failed(self, reason: &str, now: u64) -> Self {
        self.with_text(ERROR, reason)
            .with_number(LAST_FAILED_AT, now)
    }

    pub fn once_more(self) -> Self {
        let retried = self.number(RETRIED) + 1;
        self.with_number(RETRIED, retried)
    }

    fn number(&self, number: u64) -> u64 {
        let last = fields(&self.0)
            .filter(|field| field.number == number)
            .last();
        last.map_or(0, |field| field.value)
    }

    fn with_number(mut self, number: u64, value: u64) -> Self {
        self.remove(number);
        put(&mut self.0, number << 3);
        put(&mut self.0, value);
        self
    }

    fn with_text(mut self, number: u64, text: &str) -> Self {
        self.remove(number);
        put(&mut self.0, number << 3 | 2);
        put(&mut self.0, text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    fn remove(&mut self, number: u64) {
        let others = fields(&self.0).filter(|field| field.number != number);
        let others: Vec<&[u8]> = others.map(|field| field.bytes).collect();
        self.0 = others.concat();
    }
}

struct Field<'a> {
    number: u64,
    /// The value, if it is a number.
    value: u64,
    /// All bytes of the field.
    bytes: &'a [u8],
}

/// Returns the fields up to the first that cannot be parsed.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = Field<'_>> {
    std::iter::from_fn(move || {
        let all = rest;
        let tag = take(&mut rest)?;
        let mut value = 0;
        let length = match tag & 7 {
            0 => {
                value = take(&mut rest)?;
                0
            }
            1 => 8,
            2 => take(&mut rest)?.try_into().ok()?,
            5 => 4,
            _ => return None,
        };
        rest = rest.get(length..)?;
        Some(Field {
            number: tag >> 3,
            value,
            bytes: &all[..all.len() - rest.len()],
        })
    })
}

/// Reads a number, seven bits at a time, the lowest first.
fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, others) = rest.split_first()?;
        *rest = others;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn put(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}
