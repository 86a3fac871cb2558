//! A line of a file that is written by hand has at most 100 columns, the width of a reader's
//! window.

use std::path::Path;

use super::{collect, read, root, shown};

const COLUMNS: usize = 100;
/// Extensions of the files that are checked, and files without one.
const COUNTED: [&str; 5] = ["rs", "sql", "md", "sh", "toml"];
const WITHOUT_ENDING: [&str; 1] = [".ci/run"];

/// Returns why a line may be longer, if it may.
fn excuse(file: &Path, line: &str) -> Option<&'static str> {
    let ending = file.extension().unwrap_or_default();
    let line = line.trim();
    // The text of a Rust comment.
    let text = match ending.to_str() {
        Some("rs") => line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"))
            .unwrap_or(line)
            .trim_start(),
        _ => line,
    };
    if ending == "rs"
        && ["fn ", "async fn "]
            .iter()
            .any(|word| line.starts_with(word))
    {
        let (_, rest) = line.split_once('(')?;
        let takes_nothing = rest.starts_with(')');
        return takes_nothing.then_some("rustfmt breaks no declaration without parameters");
    }
    if (ending == "md" || text != line) && text.starts_with('|') && text.ends_with('|') {
        return Some("a row of a table cannot go on in the next line");
    }
    let word = text.strip_prefix("- ").unwrap_or(text);
    let is_one_word = ending == "md" && !word.contains(char::is_whitespace);
    is_one_word.then_some("a name or an address cannot go on in the next line")
}

#[test]
fn no_line_is_longer_than_100_columns() {
    let mut all = Vec::new();
    collect(&root(), &mut all);
    all.sort();
    let mut counted = 0;
    let mut long = Vec::new();
    for file in &all {
        let name = shown(file);
        let ending = file.extension().and_then(|ending| ending.to_str());
        if !ending.is_some_and(|ending| COUNTED.contains(&ending))
            && !WITHOUT_ENDING.contains(&name.as_str())
        {
            continue;
        }
        counted += 1;
        for (at, line) in read(file).lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS && excuse(file, line).is_none() {
                long.push(format!("{name}:{}: {columns} columns", at + 1));
            }
        }
    }
    assert!(counted > 900, "{counted} files are counted");
    assert!(long.is_empty(), "break these lines:\n{}", long.join("\n"));
}

#[test]
fn only_unbreakable_lines_may_be_longer() {
    let row = format!("| {} |", "x ".repeat(60));
    let name = format!("- `{}`", "x".repeat(120));
    let sentence = "words ".repeat(20);
    let test = format!("async fn {}() -> Result<(), Error>", "x".repeat(90));
    let takes = format!("fn {}(one: usize)", "x".repeat(90));
    let may = |file: &str, line: &str| excuse(Path::new(file), line).is_some();
    assert!(may("a.md", &row) && may("a.rs", &format!("    /// {row}")));
    assert!(may("a.md", &name) && may("a.rs", &test));
    assert!(!may("a.sql", &row) && !may("a.rs", &row) && !may("a.md", &sentence));
    assert!(!may("a.rs", &format!("// {row}")) && !may("a.rs", &name) && !may("a.rs", &takes));
    assert!(!may("a.md", &format!("<!-- held by: {}", "x".repeat(120))));
    assert!(!may("a.sh", &name) && !may("a.toml", &name) && !may(".ci/run", &row));
}
