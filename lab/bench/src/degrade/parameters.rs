//! Named parameters of an algorithm's statements, such as `:limit`, in the syntax of psql.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::Value;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

/// The values of all parameters.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    pub(crate) args: Value,
    pub(crate) limit: i64,
    pub(crate) id: i64,
    pub(crate) ids: Vec<i64>,
    pub(crate) priority: i32,
    pub(crate) run_at: SystemTime,
    pub(crate) last_id: i64,
    pub(crate) last_priority: i32,
    pub(crate) last_run_at: SystemTime,
    /// Seconds.
    pub(crate) lease: f64,
}

impl Values {
    /// Creates values without a job and without a last job.
    pub(crate) fn new(limit: i64, lease: f64) -> Self {
        Self {
            args: Value::Null,
            limit,
            id: 0,
            ids: Vec::new(),
            priority: 0,
            run_at: UNIX_EPOCH,
            last_id: 0,
            last_priority: i32::MIN,
            last_run_at: UNIX_EPOCH,
            lease,
        }
    }

    /// Skips the jobs up to this one from now on.
    pub(crate) fn remember(&mut self) {
        self.last_id = self.id;
        self.last_priority = self.priority;
        self.last_run_at = self.run_at;
    }

    /// Skips no jobs from now on.
    pub(crate) fn forget(&mut self) {
        let none = Self::new(self.limit, self.lease);
        self.last_id = none.last_id;
        self.last_priority = none.last_priority;
        self.last_run_at = none.last_run_at;
    }

    fn get(&self, name: Name) -> &(dyn ToSql + Sync) {
        match name {
            Name::Args => &self.args,
            Name::Limit => &self.limit,
            Name::Id => &self.id,
            Name::Ids => &self.ids,
            Name::Priority => &self.priority,
            Name::RunAt => &self.run_at,
            Name::LastId => &self.last_id,
            Name::LastPriority => &self.last_priority,
            Name::LastRunAt => &self.last_run_at,
            Name::Lease => &self.lease,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Args,
    Limit,
    Id,
    Ids,
    Priority,
    RunAt,
    LastId,
    LastPriority,
    LastRunAt,
    Lease,
}

impl Name {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "args" => Self::Args,
            "limit" => Self::Limit,
            "id" => Self::Id,
            "ids" => Self::Ids,
            "priority" => Self::Priority,
            "run_at" => Self::RunAt,
            "last_id" => Self::LastId,
            "last_priority" => Self::LastPriority,
            "last_run_at" => Self::LastRunAt,
            "lease" => Self::Lease,
            _ => return None,
        })
    }
}

/// A statement that was prepared in one session.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    statement: Statement,
    names: Vec<Name>,
}

impl Prepared {
    /// Prepares a statement with a mark that identifies it in `pg_stat_statements`.
    pub(crate) async fn new(client: &Client, mark: &str, text: &str) -> Result<Self> {
        let (text, names) = numbered(text);
        let statement = client
            .prepare(&marked(&text, mark))
            .await
            .with_context(|| format!("the statement {mark}"))?;
        Ok(Self { statement, names })
    }

    /// Runs the statement.
    pub(crate) async fn query(
        &self,
        client: &Client,
        values: &Values,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let given: Vec<_> = self.names.iter().map(|name| values.get(*name)).collect();
        client.query(&self.statement, &given).await
    }
}

/// Inserts a comment after the first word of a statement. In `pg_stat_statements` of PostgreSQL 18
/// a statement begins with that word, without anything before it.
fn marked(text: &str, mark: &str) -> String {
    let mut start = text.trim_start();
    while let Some(comment) = start.strip_prefix("--") {
        start = comment
            .split_once('\n')
            .map_or("", |(_, rest)| rest.trim_start());
    }
    let word = start.find(|one: char| !one.is_ascii_alphabetic());
    let (word, rest) = start.split_at(word.unwrap_or(start.len()));
    format!("{word} /* {mark} */{rest}")
}

/// Replaces the names by `$1` and so on, and returns the names in that order.
fn numbered(text: &str) -> (String, Vec<Name>) {
    let mut out = String::with_capacity(text.len());
    let mut names: Vec<Name> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(':') {
        let (before, after) = rest.split_at(at);
        let after = &after[1..];
        let end = after
            .find(|one: char| !one.is_ascii_lowercase() && one != '_')
            .unwrap_or(after.len());
        out.push_str(before);
        let is_cast = before.ends_with(':');
        match Name::parse(&after[..end]).filter(|_| !is_cast) {
            Some(name) => {
                let place = names.iter().position(|known| *known == name);
                let place = place.unwrap_or_else(|| {
                    names.push(name);
                    names.len() - 1
                });
                out.push_str(&format!("${}", place + 1));
                rest = &after[end..];
            }
            None => {
                out.push(':');
                // Of two colons, the second must not begin a name: it is a cast.
                rest = match after.strip_prefix(':') {
                    Some(cast) => {
                        out.push(':');
                        cast
                    }
                    None => after,
                };
            }
        }
    }
    out.push_str(rest);
    (out, names)
}

#[cfg(test)]
mod tests {
    use super::{Name, marked, numbered};

    #[test]
    fn marks_follow_the_first_word() {
        let text = "  -- one\n-- two\nWITH a AS (SELECT 1) SELECT FROM a";
        let with_mark = "WITH /* claim */ a AS (SELECT 1) SELECT FROM a";
        assert_eq!(marked(text, "claim"), with_mark);
        assert_eq!(marked("SELECT", "claim"), "SELECT /* claim */");
    }

    #[test]
    fn names_become_numbers_and_casts_stay() {
        let (text, names) = numbered("SELECT :id, :limit::bigint, x::args, ':', :id, :other");
        assert_eq!(text, "SELECT $1, $2::bigint, x::args, ':', $1, :other");
        assert_eq!(names, [Name::Id, Name::Limit]);
    }
}
