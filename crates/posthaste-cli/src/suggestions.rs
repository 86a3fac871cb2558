//! Suggests commands for words that are not a command.

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options of other programs that are separate commands here.
const COMMANDS_FOR_OPTIONS: [(&str, &str, &str); 2] = [
    ("relay", "--dry-run", "relay preview"),
    ("relay run", "--dry-run", "relay preview"),
];

/// Returns the commands that were probably intended; none if the error itself suggests something.
pub(crate) fn suggest(root: &Command, typed: &[String], error: &clap::Error) -> Vec<String> {
    let place = TypedCommands::new(root, typed);
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let below = place.commands_ending_with(place.next);
            match below.is_empty() && error.get(ContextKind::SuggestedSubcommand).is_none() {
                true => place.run().into_iter().collect(),
                false => below,
            }
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            place.run().into_iter().collect()
        }
        ErrorKind::UnknownArgument => match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(option)) => place.with(option),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Returns the command whose help explains these words.
pub(crate) fn help_command(root: &Command, typed: &[String]) -> String {
    let words = TypedCommands::new(root, typed).words();
    format!("posthaste {words}").trim_end().to_owned()
}

/// Returns the help of that command.
pub(crate) fn help_text(mut root: Command, typed: &[String]) -> String {
    root.build();
    let last = TypedCommands::new(&root, typed).last().cloned();
    last.unwrap_or(root).render_help().to_string()
}

/// The commands that the typed words name.
struct TypedCommands<'a> {
    /// The commands, beginning with the program.
    path: Vec<&'a Command>,
    /// The first word that is not a command.
    next: &'a str,
}

impl<'a> TypedCommands<'a> {
    fn new(root: &'a Command, typed: &'a [String]) -> Self {
        let mut path = vec![root];
        let mut words = typed.iter();
        let mut next = "";
        while let Some(word) = words.next() {
            if word.starts_with('-') {
                if takes_value(&path, word) {
                    words.next();
                }
                continue;
            }
            match path.last().and_then(|last| last.find_subcommand(word)) {
                Some(inner) => path.push(inner),
                None => {
                    next = word;
                    break;
                }
            }
        }
        Self { path, next }
    }

    fn words(&self) -> String {
        let names = self.path.iter().skip(1).map(|one| one.get_name());
        names.collect::<Vec<_>>().join(" ")
    }

    fn last(&self) -> Option<&'a Command> {
        self.path.last().copied()
    }

    /// Returns the `run` command of a noun, if it has one.
    fn run(&self) -> Option<String> {
        self.last()?.find_subcommand("run")?;
        Some(format!("{} run", self.words()))
    }

    /// Returns all commands below with this last word.
    fn commands_ending_with(&self, word: &str) -> Vec<String> {
        let inner = self.last().into_iter().flat_map(Command::get_subcommands);
        let inner = inner.filter(|noun| noun.find_subcommand(word).is_some());
        let before = self.words();
        inner
            .map(|noun| {
                format!("{before} {} {word}", noun.get_name())
                    .trim()
                    .to_owned()
            })
            .collect()
    }

    /// Returns the commands of the same or the next level that have this option.
    fn with(&self, option: &str) -> Vec<String> {
        let words = self.words();
        if let Some((.., instead)) = (COMMANDS_FOR_OPTIONS.iter())
            .find(|(of, what, _)| (*of, *what) == (words.as_str(), option))
        {
            return vec![(*instead).to_owned()];
        }
        let Some(name) = option.strip_prefix("--") else {
            return Vec::new();
        };
        let is_noun = self.last().is_some_and(Command::has_subcommands);
        // The program itself is not a noun.
        let nouns = self.path.get(1..).unwrap_or_default();
        let nouns = nouns
            .split_last()
            .filter(|_| !is_noun)
            .map_or(nouns, |(_, before)| before);
        let Some(noun) = nouns.last() else {
            return Vec::new();
        };
        let verbs = noun.get_subcommands().filter(|verb| {
            let mut options = verb.get_arguments().filter_map(|one| one.get_long());
            options.any(|long| long == name)
        });
        verbs
            .map(|verb| format!("{} {}", noun.get_name(), verb.get_name()))
            .collect()
    }
}

/// Whether the word after this option is its value.
fn takes_value(path: &[&Command], option: &str) -> bool {
    let mut known = path.iter().flat_map(|command| command.get_arguments());
    let name = option.trim_start_matches('-');
    known.any(|one| one.get_long() == Some(name) && one.get_action().takes_values())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Arguments;

    #[test]
    fn mistyped_commands_get_a_suggestion() {
        for (typed, commands) in [
            ("enqueue x", "jobs enqueue"),
            ("--database-url postgres://h/d enqueue x", "jobs enqueue"),
            ("reindex page --all", "sync reindex"),
            ("search words", "sync search"),
            ("cancel 7", "jobs cancel"),
            ("audit", "sync audit|two-phase audit"),
            ("relay", "relay run"),
            ("relay mail", "relay run"),
            ("relay --once", "relay run"),
            ("relay --dry-run --limit 5", "relay preview"),
            ("relay run --dry-run", "relay preview"),
            ("relay run --limit 5", "relay preview"),
            ("sync", "sync run"),
            ("sync page", "sync run"),
            ("sync --once", "sync run"),
            ("sync --json --once", "sync run"),
            ("sync run --repair", "sync audit"),
            // The message of clap suffices for these.
            ("sync instal", ""),
            ("relay run --onse", ""),
            ("nothing-of-the-kind", ""),
            ("work --no-such-thing", ""),
        ] {
            let words: Vec<String> = typed.split(' ').map(str::to_owned).collect();
            let all = ["posthaste".to_owned()].into_iter().chain(words.clone());
            let error = Arguments::command().try_get_matches_from(all).unwrap_err();
            let root = Arguments::command();
            assert_eq!(
                suggest(&root, &words, &error).join("|"),
                commands,
                "{typed}"
            );
        }
    }
}
