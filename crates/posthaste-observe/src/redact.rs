//! Secrets that have no place in what tools print: values of secret keys, passwords in addresses,
//! values in statements. No IO.

mod address;
mod keys;
mod statement;
mod text;

use std::sync::LazyLock;

pub use address::address_passwords;
pub use keys::Secrets;
pub use statement::statement;

static USUAL: LazyLock<Secrets> = LazyLock::new(Secrets::default);

/// An error or another text from outside, with `***` in the place of secrets.
pub fn error_text(text: &str) -> String {
    USUAL.hide(text).into_owned()
}
