//! The schema with some mutations (sql/README.md).

use posthaste_testkit::mutations;

use super::gate;

/// Returns the schema with gates and the mutations that have these names.
pub fn mutated(names: &[&str]) -> Result<String, String> {
    let text = posthaste::__private::migrations_sql_with_mutations();
    let script = mutations::apply(&text, names)?;
    Ok(format!("{}\n{script}", gate::SQL))
}
