//! `posthaste migrate`: brings the schema up to date.

use serde::Serialize;
use serde_json::json;

use crate::database::Database;
use crate::terminal::Terminal;

/// Bring the schema up to date; safe to repeat and to run concurrently
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print the SQL instead of running it; needs no database
    #[arg(long)]
    pub(crate) print: bool,

    /// With --print: print only the steps after this one, and the functions
    #[arg(long, value_name = "STEP", requires = "print", default_value_t = 0)]
    pub(crate) from: u32,

    /// Also create the roles posthaste_producer, posthaste_worker and posthaste_observer; prints
    /// the SQL if the database user may not create them
    #[arg(long)]
    pub(crate) roles: bool,
}

#[derive(Serialize)]
struct Migrated {
    applied: Vec<String>,
    /// Whether the roles were granted; `None` if that was not requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    roles: Option<bool>,
    /// The SQL for a user with the rights, if this user could not grant the roles.
    #[serde(skip_serializing_if = "Option::is_none")]
    sql: Option<String>,
}

pub(crate) fn print(arguments: &Arguments, terminal: &Terminal) -> anyhow::Result<()> {
    let mut sql = posthaste::migrations_sql_after(arguments.from)
        .trim_end()
        .to_owned();
    if arguments.roles {
        sql.push('\n');
        sql.push_str(&posthaste::roles_sql());
    }
    match terminal.is_json() {
        true => terminal.print_json(&json!({ "sql": sql })),
        // Not escaped: the SQL must be executable.
        false => terminal.print(&sql),
    }
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    if let Some(folder) = database.private_folder() {
        terminal.print_remark(&format!(
            "DATABASE_URL is not set: using a private Postgres with its data in {}",
            folder.display()
        ));
    }
    let mut client = database.address().connect().await?;
    let report = posthaste::migrate(&mut client).await?;
    let applied = report.applied;
    let mut text = if applied.is_empty() {
        "the schema is up to date".to_owned()
    } else {
        format!("applied {}", applied.join(", "))
    };
    let (mut roles, mut sql) = (None, None);
    if arguments.roles {
        let granted = posthaste::grant_roles(&mut client).await;
        roles = Some(granted.is_ok());
        match granted {
            Ok(()) => text.push_str("; the roles are granted"),
            Err(error)
                if error
                    .sqlstate()
                    .is_some_and(|state| state.code() == "42501") =>
            {
                terminal.print_remark(
                    "this role may not create or grant roles. Run the following as one that may:",
                );
                text = posthaste::roles_sql();
                sql = Some(text.clone());
            }
            Err(error) => return Err(error.into()),
        }
    }
    terminal.print_result(
        text,
        &Migrated {
            applied,
            roles,
            sql,
        },
    )
}
