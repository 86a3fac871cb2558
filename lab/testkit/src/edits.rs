//! Replaces passages of a text, to break stores on purpose.

/// Replaces each passage at each of its occurrences, ignoring differences in white space. In a
/// passage and in its replacement, `@k@` is the number of a slot: each number from 0 to 7 with
/// which the passage occurs.
///
/// # Errors
///
/// Names the first passage that does not occur.
pub fn edited(text: &str, edits: &[(&str, &str)]) -> Result<String, String> {
    let mut edited = text.to_owned();
    for (from, to) in edits {
        let slots = if from.contains("@k@") { 0..8 } else { 0..1 };
        let mut is_there = false;
        for slot in slots {
            let of_slot = |one: &str| one.replace("@k@", &slot.to_string());
            if let Some(replaced) = replaced(&edited, &of_slot(from), &of_slot(to)) {
                edited = replaced;
                is_there = true;
            }
        }
        if !is_there {
            return Err(format!("stale: the text has no {from:?}"));
        }
    }
    Ok(edited)
}

/// Returns the text with the passage replaced; `None` if it does not occur.
fn replaced(text: &str, from: &str, to: &str) -> Option<String> {
    let from: String = from.split_whitespace().collect();
    let mut dense = String::with_capacity(text.len());
    // The position in the text of each byte of the dense text.
    let mut places = Vec::with_capacity(text.len());
    for (at, one) in text.char_indices() {
        if !one.is_whitespace() {
            dense.push(one);
            places.extend(at..at + one.len_utf8());
        }
    }
    let mut made = String::with_capacity(text.len());
    let mut kept = 0;
    for (at, _) in dense.match_indices(&from) {
        made.push_str(&text[kept..places[at]]);
        made.push_str(to);
        kept = places[at + from.len() - 1] + 1;
    }
    made.push_str(&text[kept..]);
    (kept > 0).then_some(made)
}
