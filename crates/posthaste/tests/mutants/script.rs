//! The schema with some texts replaced.

use super::gate;

/// Pairs of a text of the schema and its replacement; `@k@` is the number of a slot.
pub type Edits<'a> = &'a [(&'a str, &'a str)];

/// Returns the schema with gates and edits. Fails if a text to be replaced does not exist.
pub fn edited(gates: Edits<'_>, edits: Edits<'_>) -> Result<String, String> {
    let script = posthaste_testkit::edited(&posthaste::migrations_sql(), &[edits, gates].concat())?;
    Ok(format!("{}\n{script}", gate::SQL))
}
