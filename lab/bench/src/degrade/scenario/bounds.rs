//! `[bound]`: the permitted growth within one run.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::degrade::algorithm;
use crate::degrade::span::Span;

/// Bounds of all algorithms, and of single ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Bounds {
    all: Limits,
    single: BTreeMap<String, Limits>,
}

/// The permitted growth of each figure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// The ratio of blocks per claim in the last tenth of the hold to those before it.
    pub(crate) claim_blocks: Option<f64>,
    /// The ratio of the median claims in the same periods.
    pub(crate) claim_p50: Option<f64>,
    /// The growth of waiting jobs from before the hold to its last tenth.
    pub(crate) queue: Option<f64>,
    /// The growth of dead rows of the algorithm's tables from before the hold to its last tenth.
    pub(crate) dead_tuples: Option<f64>,
    /// The time from the end of the hold until no more jobs wait than before it.
    pub(crate) recovers_within: Option<Span>,
}

impl Bounds {
    /// The bounds of one algorithm: its own, or else those of all.
    pub(crate) fn limits(&self, name: &str) -> Limits {
        let own = self.single.get(name).copied().unwrap_or_default();
        Limits {
            claim_blocks: own.claim_blocks.or(self.all.claim_blocks),
            claim_p50: own.claim_p50.or(self.all.claim_p50),
            queue: own.queue.or(self.all.queue),
            dead_tuples: own.dead_tuples.or(self.all.dead_tuples),
            recovers_within: own.recovers_within.or(self.all.recovers_within),
        }
    }
}

impl<'de> Deserialize<'de> for Bounds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Table)
    }
}

/// Common bounds and tables of single algorithms are keys of one table, which no derive reads
/// strictly.
struct Table;

impl<'de> Visitor<'de> for Table {
    type Value = Bounds;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a table of bounds")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Bounds, A::Error> {
        let mut bounds = Bounds::default();
        while let Some(key) = map.next_key::<String>()? {
            let all = &mut bounds.all;
            match key.as_str() {
                "claim_blocks" => all.claim_blocks = map.next_value()?,
                "claim_p50" => all.claim_p50 = map.next_value()?,
                "queue" => all.queue = map.next_value()?,
                "dead_tuples" => all.dead_tuples = map.next_value()?,
                "recovers_within" => all.recovers_within = map.next_value()?,
                name if algorithm::is_shipped(name) => {
                    bounds.single.insert(key, map.next_value()?);
                }
                _ => {
                    let said = format!("bound.{key}: neither a bound nor an algorithm");
                    return Err(A::Error::custom(said));
                }
            }
        }
        Ok(bounds)
    }
}
