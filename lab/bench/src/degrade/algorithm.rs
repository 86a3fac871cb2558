//! The algorithms: one file of statements each, and how a worker uses them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::span::Span;
use crate::contestants;
use crate::statements::Statements;

/// The algorithms of the bench, in the order of `all`.
const SHIPPED: [(&str, &str); 12] = [
    ("que", include_str!("../../algorithms/que.sql")),
    (
        "que_last_id",
        include_str!("../../algorithms/que_last_id.sql"),
    ),
    (
        "que_keyset",
        include_str!("../../algorithms/que_keyset.sql"),
    ),
    (
        "queue_classic",
        include_str!("../../algorithms/queue_classic.sql"),
    ),
    (
        "skip_locked",
        include_str!("../../algorithms/skip_locked.sql"),
    ),
    ("lock_many", include_str!("../../algorithms/lock_many.sql")),
    (
        "update_shape",
        include_str!("../../algorithms/update_shape.sql"),
    ),
    (
        "visibility_timeout",
        include_str!("../../algorithms/visibility_timeout.sql"),
    ),
    (
        "snapshot_batch",
        include_str!("../../algorithms/snapshot_batch.sql"),
    ),
    ("segments", include_str!("../../algorithms/segments.sql")),
    (
        "staged_drain",
        include_str!("../../algorithms/staged_drain.sql"),
    ),
    ("posthaste", include_str!("../../algorithms/posthaste.sql")),
];

/// The line in a file's head that determines how a worker uses it.
const MANNER: &str = "-- manner: ";

/// The line of a section that runs periodically, with its interval.
const EVERY: &str = "-- every: ";

/// A queue that can be run.
#[derive(Debug, Clone)]
pub(crate) struct Algorithm {
    pub(crate) name: String,
    pub(crate) manner: Manner,
    pub(crate) statements: Statements,
    /// The whole file, for the report.
    pub(crate) source: &'static str,
}

/// How a worker uses the statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// One job per claim.
    One { transaction: bool },
    /// Many jobs per claim.
    Batch { transaction: bool },
    /// One session moves many jobs to Redis, from which the workers take them.
    Drain,
    /// Its own library runs it.
    Library,
}

impl Manner {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "one" => Self::One { transaction: false },
            "one in a transaction" => Self::One { transaction: true },
            "batch" => Self::Batch { transaction: false },
            "batch in a transaction" => Self::Batch { transaction: true },
            "drain" => Self::Drain,
            "library" => Self::Library,
            _ => return None,
        })
    }

    /// Whether one transaction contains claim, work and finish.
    pub(crate) fn holds_transaction(self) -> bool {
        matches!(
            self,
            Self::One { transaction: true } | Self::Batch { transaction: true }
        )
    }

    /// The number of jobs per claim.
    pub(crate) fn limit(self, batch: i64) -> i64 {
        match self {
            Self::Batch { .. } => batch,
            Self::One { .. } | Self::Drain | Self::Library => 1,
        }
    }
}

impl Algorithm {
    /// Returns an algorithm of the bench.
    pub(crate) fn shipped(name: &str) -> Result<Self> {
        let (name, source) = SHIPPED
            .iter()
            .find(|(shipped, _)| *shipped == name)
            .with_context(|| format!("no algorithm is named {name}"))?;
        Self::parse(name, source)
    }

    /// Reads a queue from a file, which gives it its name.
    pub(crate) fn from_file(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        // Statements live as long as the program.
        let found = Self::parse(&name, text.leak()).with_context(|| path.display().to_string())?;
        ensure!(
            found.manner != Manner::Library,
            "{}: a file has no library",
            path.display()
        );
        Ok(found)
    }

    fn parse(name: &str, source: &'static str) -> Result<Self> {
        let manner = source
            .lines()
            .take_while(|line| !line.starts_with("-- name: "))
            .find_map(|line| line.strip_prefix(MANNER));
        let manner = match manner {
            None => Manner::One { transaction: false },
            Some(text) => Manner::parse(text.trim()).with_context(|| {
                format!("{MANNER}{text}: one, batch, either with \"in a transaction\"")
            })?,
        };
        let statements = Statements::parse(source);
        if manner != Manner::Library {
            for section in ["schema", "enqueue", "claim", "finish"] {
                statements.get(section)?;
            }
        }
        let found = Self {
            name: name.to_owned(),
            manner,
            statements,
            source,
        };
        found.periodic()?;
        Ok(found)
    }

    /// The schema of its tables.
    pub(crate) fn schema(&self) -> &'static str {
        match self.manner {
            Manner::Library => contestants::posthaste::SCHEMA,
            _ => "public",
        }
    }

    /// The statements that run periodically, with their intervals.
    pub(crate) fn periodic(&self) -> Result<Vec<(Span, &'static str)>> {
        let mut found = Vec::new();
        for name in self.statements.names() {
            let body = self.statements.get(name)?;
            if let Some(rest) = body.strip_prefix(EVERY) {
                let (every, body) = rest.split_once('\n').unwrap_or((rest, ""));
                match Span::parse(every.trim()) {
                    Some(every) if every.0 >= Duration::from_millis(10) => {
                        found.push((every, body));
                    }
                    _ => bail!("{name}: {EVERY}{every}: write 100ms, 5s or 1m"),
                }
            }
        }
        Ok(found)
    }
}

/// The names of the algorithms of the bench.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(name, _)| *name)
}

/// Whether the bench has an algorithm of this name.
pub(crate) fn is_shipped(name: &str) -> bool {
    names().any(|shipped| shipped == name)
}

#[cfg(test)]
mod tests {
    use super::{Algorithm, Manner, names};

    #[test]
    fn shipped_algorithms_can_be_driven() -> anyhow::Result<()> {
        for name in names() {
            let algorithm = Algorithm::shipped(name)?;
            algorithm.statements.get("remaining")?;
            let head = algorithm.source.lines().next().unwrap_or_default();
            assert!(head.starts_with("-- "), "{name} says nothing about itself");
        }
        assert!(
            Algorithm::shipped("que_last_id")?
                .source
                .contains(":last_id")
        );
        assert_eq!(Algorithm::shipped("queue_classic")?.periodic()?.len(), 1);
        Ok(())
    }

    #[test]
    fn files_without_a_claim_and_unknown_modes_are_refused() {
        let parse = |text: &str| Algorithm::parse("mine", text.to_owned().leak());
        let whole = "\n-- name: schema\nA\n-- name: enqueue\nB\n-- name: claim\nC\n\
                     -- name: finish\nD\n";
        assert!(parse(whole).is_ok_and(|it| it.manner == Manner::One { transaction: false }));
        let error = parse(&whole.replace("claim", "fetch"));
        assert!(error.is_err_and(|error| error.to_string().contains("claim")));
        assert!(parse(&format!("-- manner: many\n{whole}")).is_err());
        assert!(parse(&whole.replace("C\n", "-- every: soon\nC\n")).is_err());
    }
}
