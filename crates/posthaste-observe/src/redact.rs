//! Hides secrets in the output of tools: values of secret keys, passwords in addresses, and values
//! in statements. No IO.

mod address;
mod keys;
mod statement;
mod text;

use std::sync::LazyLock;

use posthaste_capture::Overview;

pub use address::address_passwords;
pub use keys::SecretKeys;
pub use statement::statement;

static DEFAULT_SECRET_KEYS: LazyLock<SecretKeys> = LazyLock::new(SecretKeys::default);

/// Replaces secrets by `***` in an error or another text from outside.
pub fn error_text(text: &str) -> String {
    DEFAULT_SECRET_KEYS.hide(text).into_owned()
}

/// Hides secrets in the errors of a capture: a destination may quote what was sent to it.
pub fn capture_errors(capture: &mut Overview) {
    let Overview {
        stopped,
        copy_problem,
        path_problem,
        ..
    } = capture;
    for error in [stopped, copy_problem, path_problem] {
        *error = error.take().map(|error| error_text(&error));
    }
}
