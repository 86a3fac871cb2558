//! The migrations with some texts replaced.

use super::gate;

/// Pairs of what stands in the migrations and what is put in its place.
pub type Edits<'a> = &'a [(&'a str, &'a str)];

/// The migrations with gates and edits in them. Fails when a text to be replaced is not there.
pub fn edited(gates: Edits<'_>, edits: Edits<'_>) -> Result<String, String> {
    let mut script = posthaste::migrations_sql();
    for (from, to) in edits.iter().chain(gates) {
        if !script.contains(from) {
            return Err(format!(
                "stale mutant: the migrations do not contain {from:?}"
            ));
        }
        script = script.replace(from, to);
    }
    Ok(format!("{}\n{script}", gate::SQL))
}
