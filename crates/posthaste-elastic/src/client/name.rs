//! Checks of names before they become part of an address.

use percent_encoding::percent_decode_str;
use reqwest::Url;

use crate::Error;

/// Characters that the servers forbid in the name of an index, or read as a pattern or a list.
const FORBIDDEN_CHARS: &str = "\\/*?\"<>| ,#:%";

/// Whether an index or an alias may have this name: it is no pattern, no list, and has nothing that
/// the servers refuse.
///
/// ```
/// assert!(posthaste_elastic::is_index_name("pages-2026"));
/// assert!(!posthaste_elastic::is_index_name("pages,notes"));
/// ```
pub fn is_index_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && !name.starts_with(['_', '-', '+'])
        && !matches!(name, "." | "..")
        && !name
            .chars()
            .any(|c| FORBIDDEN_CHARS.contains(c) || c.is_control() || c.is_uppercase())
}

/// Checks the name of one index or alias, to prevent calls such as `DELETE /*` or `DELETE /a,b`.
pub(super) fn check_index_name<'a>(call: &'static str, name: &'a str) -> Result<&'a str, Error> {
    if is_index_name(name) {
        Ok(name)
    } else {
        let reason = format!("{name:?} is not a name of an index");
        Err(Error::invalid(call, reason))
    }
}

/// Checks the name of a script or a pipeline.
pub(super) fn check_stored_name<'a>(call: &'static str, name: &'a str) -> Result<&'a str, Error> {
    if name.is_empty() || matches!(name, "." | "..") || name.contains(['*', ',', '/']) {
        let reason = format!("{name:?} is not a name of a script or a pipeline");
        return Err(Error::invalid(call, reason));
    }
    Ok(name)
}

/// Checks the id of a document.
pub(super) fn check_id<'a>(call: &'static str, id: &'a str) -> Result<&'a str, Error> {
    if id.is_empty() || id.len() > 512 {
        return Err(Error::invalid(call, "an id has 1 to 512 bytes"));
    }
    Ok(id)
}

/// Returns the user name and the password in an address.
pub(super) fn credentials(url: &Url) -> Option<(String, String)> {
    let has_any = !url.username().is_empty() || url.password().is_some();
    let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
    has_any.then(|| {
        let password = url.password().unwrap_or_default();
        (decoded(url.username()), decoded(password))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_patterns_and_lists_as_index_names() {
        for wrong in [
            "",
            "*",
            "a*",
            "a,b",
            "_all",
            "-a",
            "+a",
            ".",
            "..",
            "a/b",
            "A",
            "a b",
            "a?",
            "a%2cb",
            "<a-{now}>",
            "a\n",
            "a:b",
        ] {
            assert!(check_index_name("bulk", wrong).is_err(), "{wrong}");
        }
        for right in ["notes", "notes-2026.11", "größe", ".hidden"] {
            assert!(check_index_name("bulk", right).is_ok(), "{right}");
        }
    }
}
