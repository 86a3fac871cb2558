//! Hides passwords in addresses.

/// Replaces the password of each address, such as a connection string, by `***`.
pub fn address_passwords(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(scheme) = rest.find("://") {
        let (before, after) = rest.split_at(scheme + 3);
        clean.push_str(before);
        let authority = &after[..after
            .find(|one: char| one.is_whitespace() || "/?#'\"<>".contains(one))
            .unwrap_or(after.len())];
        match (authority.find(':'), authority.rfind('@')) {
            // The example in posthaste's own messages contains no secret.
            (Some(colon), Some(at)) if colon < at && &authority[colon + 1..at] != "password" => {
                clean.push_str(&authority[..=colon]);
                clean.push_str("***");
                clean.push_str(&authority[at..]);
            }
            _ => clean.push_str(authority),
        }
        rest = &after[authority.len()..];
    }
    clean.push_str(rest);
    clean
}
