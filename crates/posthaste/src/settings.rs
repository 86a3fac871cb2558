//! Settings by their names, as a file has them: for crates whose relays, syncs or consumers are
//! described in one. The one that reads one takes it out; what is left at the end nobody knows.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;

/// The settings that were not read yet.
pub struct Fields {
    left: BTreeMap<String, Value>,
    /// Names that were asked for.
    known: Vec<&'static str>,
}

/// What a setting may be read as. The error of one that is something else says what it must be and
/// not what it is: it may be a secret.
pub trait Read: Sized {
    /// What it must be, for an error.
    const EXPECTED: &'static str;
    /// Reads it; none when it is something else.
    fn read(value: Value) -> Option<Self>;
}

/// Says that a part is not in this program, and how to build one that has it.
#[doc(hidden)]
pub fn lacks_feature(part: &str, feature: &str) -> String {
    format!(
        "this program was built without {part}. In a checkout of posthaste run: cargo install \
         --locked --path crates/posthaste-cli --features {feature} (in a program of your own, \
         enable the feature {feature:?})"
    )
}

impl Fields {
    /// All of them.
    pub fn new(settings: BTreeMap<String, Value>) -> Self {
        Self {
            left: settings,
            known: Vec::new(),
        }
    }

    /// Takes a setting out.
    pub fn take<T: Read>(&mut self, name: &'static str) -> Result<Option<T>, String> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        let Some(value) = self.left.remove(name) else {
            return Ok(None);
        };
        T::read(value)
            .map(Some)
            .ok_or_else(|| format!("{name}: must be {}", T::EXPECTED))
    }

    /// Takes a setting out that is one of a few words.
    pub fn word<T: Copy>(
        &mut self,
        name: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, String> {
        let Some(word) = self.take::<String>(name)? else {
            return Ok(None);
        };
        let found = words.iter().find(|(one, _)| *one == word);
        found.map(|(_, value)| Some(*value)).ok_or_else(|| {
            let words: Vec<String> = words.iter().map(|(one, _)| format!("{one:?}")).collect();
            format!("{name}: must be {}", words.join(" or "))
        })
    }

    /// Takes a number out that must not be 0.
    pub fn positive(&mut self, name: &'static str) -> Result<Option<usize>, String> {
        let number = self.take(name)?;
        match number {
            Some(0) => Err(format!("{name}: must be at least 1")),
            other => Ok(other),
        }
    }

    /// Refuses what nobody has asked for.
    pub fn all_known(&self, of: &str) -> Result<(), String> {
        let Some(name) = self.left.keys().next() else {
            return Ok(());
        };
        let mut known = self.known.clone();
        known.sort_unstable();
        Err(format!(
            "{name}: is not a setting of {of}; known are {}",
            known.join(", ")
        ))
    }
}

impl Read for String {
    const EXPECTED: &'static str = "a string";
    fn read(value: Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

impl Read for bool {
    const EXPECTED: &'static str = "true or false";
    fn read(value: Value) -> Option<Self> {
        value.as_bool()
    }
}

impl Read for u32 {
    const EXPECTED: &'static str = "a whole number";
    fn read(value: Value) -> Option<Self> {
        value.as_u64()?.try_into().ok()
    }
}

impl Read for usize {
    const EXPECTED: &'static str = "a whole number";
    fn read(value: Value) -> Option<Self> {
        value.as_u64()?.try_into().ok()
    }
}

impl Read for Duration {
    const EXPECTED: &'static str = "a time such as \"30s\", \"5m\", \"24h\" or \"7d\"";
    fn read(value: Value) -> Option<Self> {
        match value {
            Value::Number(seconds) => seconds
                .as_f64()
                .and_then(|seconds| Self::try_from_secs_f64(seconds).ok()),
            Value::String(text) => match text.trim().strip_suffix('d').map(str::parse::<u32>) {
                Some(Ok(days)) => Some(Self::from_secs(u64::from(days) * 86_400)),
                _ => Self::try_from(text.trim().parse::<SignedDuration>().ok()?).ok(),
            },
            _ => None,
        }
    }
}

impl Read for Vec<String> {
    const EXPECTED: &'static str = "a list of strings";
    fn read(value: Value) -> Option<Self> {
        let Value::Array(list) = value else {
            return None;
        };
        list.into_iter().map(String::read).collect()
    }
}

impl Read for BTreeMap<String, f32> {
    const EXPECTED: &'static str = "a table of numbers";
    fn read(value: Value) -> Option<Self> {
        let Value::Object(table) = value else {
            return None;
        };
        let numbers = table.into_iter();
        numbers
            .map(|(name, value)| Some((name, value.as_f64()? as f32)))
            .collect()
    }
}

impl Read for BTreeMap<String, Value> {
    const EXPECTED: &'static str = "a table";
    fn read(value: Value) -> Option<Self> {
        match value {
            Value::Object(table) => Some(table.into_iter().collect()),
            _ => None,
        }
    }
}

impl Read for BTreeMap<String, String> {
    const EXPECTED: &'static str = "a table of strings";
    fn read(value: Value) -> Option<Self> {
        let Value::Object(table) = value else {
            return None;
        };
        let texts = table.into_iter();
        texts
            .map(|(name, value)| Some((name, String::read(value)?)))
            .collect()
    }
}
