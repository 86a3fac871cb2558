//! Hides secrets in the output of tools: values of secret keys, passwords in addresses, and values
//! in statements. No IO.

mod address;
mod keys;
mod statement;
mod text;

use std::sync::LazyLock;

pub use address::address_passwords;
pub use keys::Secrets;
pub use statement::statement;

static USUAL: LazyLock<Secrets> = LazyLock::new(Secrets::default);

/// Replaces secrets by `***` in an error or another text from outside.
pub fn error_text(text: &str) -> String {
    USUAL.hide(text).into_owned()
}
