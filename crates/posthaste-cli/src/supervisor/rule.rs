//! `[txwatch]` of posthaste.toml: which transactions may stay open, and for how long.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use posthaste::{Holder, HolderKind};
use serde::Deserialize;
use serde_json::Value;

use crate::file::{self, TXWATCH};
use crate::options::duration;

/// How the supervisor works. The defaults only warn: about transactions older than a minute.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// Cancel and terminate; without it the supervisor says what it would do.
    pub(crate) act: bool,
    #[serde(deserialize_with = "required_duration")]
    pub(crate) every: Duration,
    /// URLs of followers, which are read and acted on as the primary is.
    pub(crate) followers: Vec<String>,
    /// Terminations within one minute; what exceeds them waits.
    pub(crate) terminations_per_minute: usize,
    /// The first rule that fits a transaction decides.
    pub(crate) rule: Vec<Rule>,
}

/// Selects transactions, and says at which age they are warned about, cancelled and terminated. A
/// rule without ages leaves its transactions alone.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Rule {
    user: Option<Pattern>,
    database: Option<Pattern>,
    application: Option<Pattern>,
    /// The client's address.
    client: Option<Pattern>,
    /// `active`, `idle in transaction` …
    state: Option<Pattern>,
    kind: Option<Kind>,
    /// Act also on transactions that keep no rows and hold no lock of the queue.
    harmless: bool,
    #[serde(deserialize_with = "optional_duration")]
    pub(crate) warn: Option<Duration>,
    #[serde(deserialize_with = "optional_duration")]
    pub(crate) cancel: Option<Duration>,
    #[serde(deserialize_with = "optional_duration")]
    pub(crate) terminate: Option<Duration>,
}

/// A text in which `*` stands for any letters.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Pattern(String);

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Session,
    Prepared,
    Slot,
    Replica,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            act: false,
            every: Duration::from_secs(5),
            followers: Vec::new(),
            terminations_per_minute: 3,
            rule: Vec::new(),
        }
    }
}

impl Settings {
    /// The table of this file; the defaults where there is no file or no table.
    pub(crate) fn of_file(path: &Path) -> anyhow::Result<Self> {
        Ok(Self::in_file(path)?.unwrap_or_else(|| Self::default().with_default_rule()))
    }

    /// The table of this file, if there is one.
    pub(crate) fn in_file(path: &Path) -> anyhow::Result<Option<Self>> {
        let Some(table) = file::table(path, TXWATCH)? else {
            return Ok(None);
        };
        let table = Value::Object(table.into_iter().collect());
        let read = Self::read(table).with_context(|| path.display().to_string())?;
        Ok(Some(read))
    }

    fn read(table: Value) -> anyhow::Result<Self> {
        let settings: Self = serde_json::from_value(table).context(TXWATCH)?;
        let seconds = settings.every.as_secs();
        ensure!(
            (1..=3_600).contains(&seconds),
            "{TXWATCH}: every: must be from 1s to 1h"
        );
        for (at, rule) in settings.rule.iter().enumerate() {
            rule.check()
                .with_context(|| format!("{TXWATCH}: rule {}", at + 1))?;
        }
        Ok(settings.with_default_rule())
    }

    fn with_default_rule(mut self) -> Self {
        if self.rule.is_empty() {
            self.rule.push(Rule {
                warn: Some(Duration::from_secs(60)),
                ..Rule::default()
            });
        }
        self
    }

    /// The number, from 1, and the rule that decides about this transaction.
    pub(crate) fn rule_for(&self, one: &Holder) -> Option<(usize, &Rule)> {
        let mut numbered = self.rule.iter().enumerate();
        let (at, rule) = numbered.find(|(_, rule)| rule.fits(one))?;
        Some((at + 1, rule))
    }
}

impl Rule {
    /// An age that comes before the one of a milder step would skip that step.
    fn check(&self) -> anyhow::Result<()> {
        let ages = [
            ("warn", self.warn),
            ("cancel", self.cancel),
            ("terminate", self.terminate),
        ];
        let set: Vec<_> = ages
            .iter()
            .filter_map(|(name, age)| Some((name, (*age)?)))
            .collect();
        for pair in set.windows(2) {
            if let [(milder, first), (name, then)] = pair
                && then < first
            {
                bail!("{name} comes before {milder}. Give {name} the longer age.");
            }
        }
        Ok(())
    }

    fn fits(&self, one: &Holder) -> bool {
        let fits = |pattern: &Option<Pattern>, text: &Option<String>| {
            pattern
                .as_ref()
                .is_none_or(|pattern| pattern.fits(text.as_deref().unwrap_or_default()))
        };
        fits(&self.user, &one.role)
            && fits(&self.database, &one.database)
            && fits(&self.application, &one.application)
            && fits(&self.client, &one.address)
            && fits(&self.state, &one.state)
            && self.kind.is_none_or(|kind| kind.is(one.kind))
    }

    /// The rule names this role letter by letter, which a superuser must be to be acted on.
    pub(crate) fn names_role(&self, role: Option<&str>) -> bool {
        let named = self.user.as_ref().map(|pattern| &*pattern.0);
        named.is_some() && named == role
    }

    pub(crate) fn acts_on_harmless(&self) -> bool {
        self.harmless
    }
}

impl Kind {
    fn is(self, kind: HolderKind) -> bool {
        match self {
            Self::Session => kind == HolderKind::Session,
            Self::Prepared => kind == HolderKind::Prepared,
            Self::Slot => kind == HolderKind::Slot,
            Self::Replica => kind == HolderKind::Replica,
        }
    }
}

impl Pattern {
    fn fits(&self, text: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = text.strip_prefix(first) else {
            return false;
        };
        let parts: Vec<&str> = parts.collect();
        let Some((last, middle)) = parts.split_last() else {
            return rest.is_empty();
        };
        for part in middle {
            let Some(at) = rest.find(part) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }
}

fn required_duration<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    duration(&text).map_err(serde::de::Error::custom)
}

fn optional_duration<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Duration>, D::Error> {
    required_duration(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> anyhow::Result<Settings> {
        let table: toml::Table = toml::from_str(text)?;
        Settings::read(serde_json::to_value(table)?)
    }

    #[test]
    fn patterns_match_whole_texts() {
        for (pattern, text, fits) in [
            ("reporting*", "reporting_1", true),
            ("reporting*", "old_reporting", false),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("ab*ba", "aba", false),
            ("app", "app", true),
            ("app", "apple", false),
        ] {
            assert_eq!(
                Pattern(pattern.into()).fits(text),
                fits,
                "{pattern} on {text}"
            );
        }
    }

    #[test]
    fn settings_are_read_and_mistakes_are_named() {
        let settings = read(
            "act = true\nevery = '1s'\n[[rule]]\napplication = 'pg_dump'\n[[rule]]\n\
             user = 'app*'\nwarn = '1m'\ncancel = '5m'\nterminate = '10m'",
        );
        let settings = settings.unwrap();
        assert!(settings.act && settings.rule.len() == 2);
        assert_eq!(settings.rule[1].terminate, Some(Duration::from_secs(600)));
        for (text, error) in [
            ("acts = true", "unknown field `acts`"),
            ("every = 'soon'", "write 30s"),
            ("every = '2h'", "every: must be from 1s to 1h"),
            ("[[rule]]\nkind = 'cursor'", "unknown variant `cursor`"),
            (
                "[[rule]]\nwarn = '5m'\nterminate = '1m'",
                "rule 1: terminate comes before warn",
            ),
        ] {
            let found = format!("{:#}", read(text).unwrap_err());
            assert!(found.contains(error), "{text}: {found}");
        }
    }

    #[test]
    fn without_rules_it_warns_after_a_minute_and_never_acts() {
        let settings = read("").unwrap();
        assert!(!settings.act);
        let rule = &settings.rule[0];
        assert_eq!(rule.warn, Some(Duration::from_secs(60)));
        assert_eq!((rule.cancel, rule.terminate), (None, None));
    }
}
