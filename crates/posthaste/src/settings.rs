//! Settings by name, as in a file, for crates whose relays, syncs or consumers are configured by
//! one. Each reader takes out the settings it knows; what is left at the end is unknown.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;

/// The settings that have not been read.
pub struct Fields {
    left: BTreeMap<String, Value>,
    /// The names of all known settings.
    known: Vec<&'static str>,
}

/// A type of a setting. The error for a wrong value contains the expected type and not the value,
/// which may be secret.
pub trait Read: Sized {
    /// The expected value, for errors.
    const EXPECTED: &'static str;
    /// Reads a value; returns `None` if it has another type.
    fn read(value: Value) -> Option<Self>;
}

/// Returns the error for a feature that this program was built without, and how to enable it.
#[doc(hidden)]
pub fn lacks_feature(part: &str, feature: &str) -> String {
    format!(
        "this program was built without {part}. In a checkout of posthaste run: cargo install \
         --locked --path crates/posthaste-cli --features {feature} (in your own program, enable \
         the feature {feature:?})"
    )
}

impl Fields {
    /// Wraps all settings.
    pub fn new(settings: BTreeMap<String, Value>) -> Self {
        Self {
            left: settings,
            known: Vec::new(),
        }
    }

    /// Takes out a setting, `None` if it is not set.
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

    /// Takes out a setting that is one of a few words.
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

    /// Takes out a number that must not be 0.
    pub fn positive(&mut self, name: &'static str) -> Result<Option<usize>, String> {
        let number = self.take(name)?;
        match number {
            Some(0) => Err(format!("{name}: must be at least 1")),
            other => Ok(other),
        }
    }

    /// Fails if a setting is left that no reader knows.
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
