//! `[txwatch]` of posthaste.toml: how long transactions may stay open.

use std::time::Duration;

use posthaste::settings::Read;
use posthaste::{Holder, HolderKind};
use serde::Deserialize;
use serde_json::Value;

/// How long transactions may stay open, and how often that is checked.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Whether to cancel and terminate; otherwise steps are only reported.
    pub act: bool,
    /// The time between two reads.
    #[serde(deserialize_with = "required_duration")]
    pub every: Duration,
    /// URLs of followers, which are handled like the primary.
    pub followers: Vec<String>,
    /// The limit of terminations within one minute; further ones are postponed.
    pub terminations_per_minute: usize,
    /// The rules; the first one that matches a transaction decides.
    pub rule: Vec<Rule>,
}

/// Selects transactions, and defines the age at which they are reported, cancelled and terminated.
/// A rule without ages leaves its transactions alone.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    user: Option<Pattern>,
    database: Option<Pattern>,
    application: Option<Pattern>,
    /// The client's address.
    client: Option<Pattern>,
    /// The state, such as `active` or `idle in transaction`.
    state: Option<Pattern>,
    kind: Option<RuleKind>,
    /// Also act on transactions that hold back no rows and hold no lock of the queue.
    harmless: bool,
    /// The age at which a warning is logged.
    #[serde(deserialize_with = "optional_duration")]
    pub warn: Option<Duration>,
    /// The age at which its statement is cancelled.
    #[serde(deserialize_with = "optional_duration")]
    pub cancel: Option<Duration>,
    /// The age at which its session is terminated.
    #[serde(deserialize_with = "optional_duration")]
    pub terminate: Option<Duration>,
}

/// A pattern in which `*` matches any text.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Pattern(String);

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RuleKind {
    Session,
    Prepared,
    Slot,
    Replica,
}

impl Default for Policy {
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

impl Policy {
    /// Reads the table `[txwatch]`; an error names the setting. Without rules, a transaction of the
    /// age `warn_after` causes a warning.
    pub fn read(table: Value, warn_after: Duration) -> Result<Self, String> {
        let policy: Self = serde_json::from_value(table).map_err(|error| error.to_string())?;
        let seconds = policy.every.as_secs();
        if !(1..=3_600).contains(&seconds) {
            return Err("every: must be from 1s to 1h".to_owned());
        }
        for (at, rule) in policy.rule.iter().enumerate() {
            rule.check_age_order()
                .map_err(|error| format!("rule {}: {error}", at + 1))?;
        }
        Ok(policy.or_warn_after(warn_after))
    }

    /// Adds a rule that warns at this age if there are no rules.
    pub fn or_warn_after(mut self, age: Duration) -> Self {
        if self.rule.is_empty() {
            self.rule.push(Rule {
                warn: Some(age),
                ..Rule::default()
            });
        }
        self
    }

    /// Returns the rule that decides about this transaction, and its number, counted from 1.
    pub fn rule_for(&self, one: &Holder) -> Option<(usize, &Rule)> {
        let mut numbered = self.rule.iter().enumerate();
        let (at, rule) = numbered.find(|(_, rule)| rule.matches(one))?;
        Some((at + 1, rule))
    }
}

impl Rule {
    /// Checks the order of the ages: an age below the one of a milder step would skip that step.
    fn check_age_order(&self) -> Result<(), String> {
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
                return Err(format!(
                    "{name} comes before {milder}. Set a longer age for {name}."
                ));
            }
        }
        Ok(())
    }

    fn matches(&self, one: &Holder) -> bool {
        let fits = |pattern: &Option<Pattern>, text: &Option<String>| {
            pattern
                .as_ref()
                .is_none_or(|pattern| pattern.matches(text.as_deref().unwrap_or_default()))
        };
        fits(&self.user, &one.role)
            && fits(&self.database, &one.database)
            && fits(&self.application, &one.application)
            && fits(&self.client, &one.address)
            && fits(&self.state, &one.state)
            && self.kind.is_none_or(|kind| kind.matches(one.kind))
    }

    /// Returns whether the rule names exactly this role. Steps against a superuser require that.
    pub fn names_role(&self, role: Option<&str>) -> bool {
        let named = self.user.as_ref().map(|pattern| &*pattern.0);
        named.is_some() && named == role
    }

    /// Returns whether it also acts on transactions that hold back nothing.
    pub fn acts_on_harmless(&self) -> bool {
        self.harmless
    }
}

impl RuleKind {
    fn matches(self, kind: HolderKind) -> bool {
        match self {
            Self::Session => kind == HolderKind::Session,
            Self::Prepared => kind == HolderKind::Prepared,
            Self::Slot => kind == HolderKind::Slot,
            Self::Replica => kind == HolderKind::Replica,
        }
    }
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
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
    let value = Value::deserialize(from)?;
    Duration::read(value)
        .ok_or_else(|| serde::de::Error::custom(format!("must be {}", Duration::EXPECTED)))
}

fn optional_duration<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Duration>, D::Error> {
    required_duration(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Policy, String> {
        let table: toml::Table = toml::from_str(text).unwrap();
        Policy::read(
            serde_json::to_value(table).unwrap(),
            Duration::from_secs(900),
        )
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
                Pattern(pattern.into()).matches(text),
                fits,
                "{pattern} on {text}"
            );
        }
    }

    #[test]
    fn rules_are_parsed_and_errors_named() {
        let policy = read(
            "act = true\nevery = '1s'\n[[rule]]\napplication = 'pg_dump'\n[[rule]]\n\
             user = 'app*'\nwarn = '1m'\ncancel = '5m'\nterminate = '10m'",
        );
        let policy = policy.unwrap();
        assert!(policy.act && policy.rule.len() == 2);
        assert_eq!(policy.rule[1].terminate, Some(Duration::from_secs(600)));
        for (text, error) in [
            ("acts = true", "unknown field `acts`"),
            ("every = 'soon'", "must be a time such as"),
            ("every = '2h'", "every: must be from 1s to 1h"),
            ("[[rule]]\nkind = 'cursor'", "unknown variant `cursor`"),
            (
                "[[rule]]\nwarn = '5m'\nterminate = '1m'",
                "rule 1: terminate comes before warn",
            ),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.contains(error), "{text}: {found}");
        }
    }

    #[test]
    fn default_rules_only_warn_about_long_transactions() {
        let policy = read("").unwrap();
        assert!(!policy.act);
        let rule = &policy.rule[0];
        assert_eq!(rule.warn, Some(Duration::from_secs(900)));
        assert_eq!((rule.cancel, rule.terminate), (None, None));
    }
}
