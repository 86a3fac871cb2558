//! Mutations in a text, which break stores on purpose.
//!
//! A mutation is a comment before the line that it replaces. It has a kind and a name; mutations
//! with the same name are applied together. A long replacement continues in further lines. After
//! the name, `(3 lines)` replaces three lines and `(insert)` replaces none. An empty replacement
//! removes the line.
//!
//! ```sql
//! -- mutant: a name: SELECT 2;
//! -- bug: another name (insert):
//! --   | SELECT 0,
//! --   |   0;
//! SELECT 1;
//! ```

use std::collections::BTreeSet;

const MUTATION_KINDS: [&str; 3] = ["mutant", "bug", "gate"];
const CONTINUATION_PREFIX: &str = "--   | ";

/// Returns the names of all mutations of this kind.
pub fn names<'a>(text: &'a str, kind: &str) -> BTreeSet<&'a str> {
    let heads = text.lines().filter_map(MutationHead::parse);
    let ours = heads.filter(|head| head.kind == kind);
    ours.map(|head| head.name).collect()
}

/// Applies the mutations with these names, and removes all others.
///
/// # Errors
///
/// Names the mutation that does not occur, or that replaces a line which another has replaced.
pub fn apply(text: &str, names: &[&str]) -> Result<String, String> {
    let mut made = String::with_capacity(text.len());
    let mut found = BTreeSet::new();
    let mut replaced = 0;
    let mut mutations: Vec<Mutation<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(head) = MutationHead::parse(line) {
            mutations.push(Mutation::new(head));
        } else if let (Some(more), Some(last)) = (continuation(line), mutations.last_mut()) {
            last.lines.push(more);
        } else {
            for mutation in mutations.drain(..) {
                let MutationHead { name, replaces, .. } = mutation.head;
                if names.contains(&name) {
                    if replaces > 0 && replaced > 0 {
                        return Err(format!("{name:?} replaces a line that is replaced already"));
                    }
                    found.insert(name);
                    replaced += replaces;
                    mutation.write(line, &mut made);
                }
            }
            if replaced > 0 {
                replaced -= 1;
            } else {
                push_line(&mut made, "", line);
            }
        }
    }
    match names.iter().find(|name| !found.contains(*name)) {
        Some(name) => Err(format!("no mutation has the name {name:?}")),
        None => Ok(made),
    }
}

/// The first line of a mutation.
struct MutationHead<'a> {
    kind: &'a str,
    name: &'a str,
    /// The number of lines that it replaces.
    replaces: usize,
    /// The replacement, if it is in this line.
    line: &'a str,
}

impl<'a> MutationHead<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (kind, rest) = line.trim_start().strip_prefix("-- ")?.split_once(": ")?;
        if !MUTATION_KINDS.contains(&kind) {
            return None;
        }
        let (name, line) = rest.split_once(':')?;
        let (name, replaces) = match name.strip_suffix(" (insert)") {
            Some(name) => (name, 0),
            None => parse_name_and_lines(name).unwrap_or((name, 1)),
        };
        Some(Self {
            kind,
            name,
            replaces,
            line: line.trim(),
        })
    }
}

/// Parses `a name (3 lines)`.
fn parse_name_and_lines(text: &str) -> Option<(&str, usize)> {
    let (name, number) = text.strip_suffix(" lines)")?.rsplit_once(" (")?;
    Some((name, number.parse().ok()?))
}

/// Returns the part of a replacement in a line after the first.
fn continuation(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix(CONTINUATION_PREFIX)
}

struct Mutation<'a> {
    head: MutationHead<'a>,
    lines: Vec<&'a str>,
}

impl<'a> Mutation<'a> {
    fn new(head: MutationHead<'a>) -> Self {
        let lines = match head.line {
            "" => Vec::new(),
            line => vec![line],
        };
        Self { head, lines }
    }

    /// Writes the replacement with the indentation of the line that it precedes.
    fn write(&self, before: &str, text: &mut String) {
        let indentation = before.len() - before.trim_start().len();
        for line in &self.lines {
            push_line(text, &before[..indentation], line);
        }
    }
}

fn push_line(text: &mut String, indentation: &str, line: &str) {
    text.push_str(indentation);
    text.push_str(line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a
  -- mutant: one: B;
  -- bug: two (2 lines):
  --   | X;
  --   |   Y;
  -- gate: three (insert): before;
  b;
  -- mutant: one:
  c;
d
";

    #[test]
    fn unapplied_mutations_are_removed() {
        assert_eq!(apply(TEXT, &[]).unwrap(), "a\n  b;\n  c;\nd\n");
    }

    #[test]
    fn every_mutation_of_a_name_is_applied() {
        assert_eq!(apply(TEXT, &["one"]).unwrap(), "a\n  B;\nd\n");
    }

    #[test]
    fn mutations_replace_several_lines_or_none() {
        assert_eq!(apply(TEXT, &["two"]).unwrap(), "a\n  X;\n    Y;\nd\n");
        let inserted = "a\n  before;\n  b;\n  c;\nd\n";
        assert_eq!(apply(TEXT, &["three"]).unwrap(), inserted);
        let both = "a\n  B;\n  before;\nd\n";
        assert_eq!(apply(TEXT, &["three", "one"]).unwrap(), both);
    }

    #[test]
    fn rejects_unknown_and_overlapping_mutations() {
        let unknown = apply(TEXT, &["one", "four"]).unwrap_err();
        assert_eq!(unknown, "no mutation has the name \"four\"");
        let overlapping = apply(TEXT, &["one", "two"]).unwrap_err();
        assert!(overlapping.contains("replaced already"), "{overlapping}");
    }

    #[test]
    fn mutations_are_listed_by_kind() {
        for (kind, name) in [("mutant", "one"), ("bug", "two"), ("gate", "three")] {
            assert_eq!(names(TEXT, kind).into_iter().collect::<Vec<_>>(), [name]);
        }
    }
}
