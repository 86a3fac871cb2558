//! Timeouts of the server that end long transactions, and the cases that each does not cover.

use std::fmt;
use std::time::Duration;

use deadpool_postgres::Client;
use serde::Serialize;
use tokio_postgres::types::Type;

/// Timeouts for one role.
#[derive(Debug, Serialize)]
pub(crate) struct Timeouts {
    role: String,
    settings: Vec<Timeout>,
}

#[derive(Debug, Serialize)]
struct Timeout {
    name: &'static str,
    value: String,
    reason: &'static str,
}

impl Timeouts {
    /// Returns the timeouts for a role on a server of this version, such as 170002.
    pub(crate) fn new(role: &str, longest: Duration, version: i32) -> Self {
        let value = format!("{}s", longest.as_secs());
        let mut settings = vec![
            Timeout {
                name: "idle_in_transaction_session_timeout",
                value: value.clone(),
                reason: "ends sessions that are idle in a transaction; not sessions that run a \
                         statement, and not prepared transactions",
            },
            Timeout {
                name: "statement_timeout",
                value: value.clone(),
                reason: "cancels statements that run longer; not transactions of many short \
                         statements. A session may set another value",
            },
        ];
        if version >= 170_000 {
            settings.push(Timeout {
                name: "transaction_timeout",
                value,
                reason: "ends sessions whose transaction is older, active or idle; not prepared \
                         transactions",
            });
        }
        Self {
            role: role.to_owned(),
            settings,
        }
    }
}

impl fmt::Display for Timeouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = self.role.replace('"', "\"\"");
        for one in &self.settings {
            writeln!(f, "-- {}", one.reason)?;
            writeln!(
                f,
                "ALTER ROLE \"{role}\" SET {} = '{}';",
                one.name, one.value
            )?;
        }
        write!(
            f,
            "-- No timeout ends a prepared transaction or an unread replication slot: txwatch \
             names them."
        )
    }
}

/// Sets the timeouts for new sessions of the role.
pub(crate) async fn set_role_timeouts(client: &Client, timeouts: &Timeouts) -> anyhow::Result<()> {
    for one in &timeouts.settings {
        let sql = include_str!("set_timeout.sql");
        let statement = client
            .query_typed_one(
                sql,
                &[
                    (&timeouts.role, Type::TEXT),
                    (&one.name, Type::TEXT),
                    (&one.value, Type::TEXT),
                ],
            )
            .await?;
        client
            .batch_execute(statement.try_get::<_, &str>(0)?)
            .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_timeout_needs_version_17() {
        let text = |version| Timeouts::new("a\"b", Duration::from_secs(60), version).to_string();
        assert!(text(170_000).contains("ALTER ROLE \"a\"\"b\" SET transaction_timeout = '60s';"));
        assert!(!text(160_009).contains("transaction_timeout"));
    }
}
