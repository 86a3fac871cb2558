//! Removes mutations from the SQL: comments that break the store, which only tests apply
//! (sql/README.md). Pure.

/// The beginnings of the lines of a mutation.
pub(crate) const PREFIXES: [&str; 4] = ["-- mutant: ", "-- bug: ", "-- gate: ", "--   | "];

/// Returns the text without the lines of mutations.
pub(crate) fn without_mutations(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !belongs_to_mutation(line)).collect()
}

fn belongs_to_mutation(line: &str) -> bool {
    let line = line.trim_start();
    PREFIXES.iter().any(|prefix| line.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_mutations_are_removed() {
        let text = "a\n  -- mutant: one: b\n  -- bug: two (2 lines):\n  --   | c\n  \
                    -- gate: three (insert):\n  --   | d\n  -- No mutant: a comment.\ne\n";
        assert_eq!(
            without_mutations(text),
            "a\n  -- No mutant: a comment.\ne\n"
        );
    }
}
