//! The schema with some texts replaced.

use super::gate;

/// Pairs of what stands in the schema and what is put in its place; `@k@` is a slot's number.
pub type Edits<'a> = &'a [(&'a str, &'a str)];

/// The schema with gates and edits in it. Fails when a text to be replaced is not there.
pub fn edited(gates: Edits<'_>, edits: Edits<'_>) -> Result<String, String> {
    let script = posthaste_testkit::edited(&posthaste::migrations_sql(), &[edits, gates].concat())?;
    Ok(format!("{}\n{script}", gate::SQL))
}
