//! An example for each command, printed at the end of its help and of its manual page.

use clap::Command;

/// Commands, each with an example.
const EXAMPLES: [(&str, &str); 58] = [
    ("adopt", "posthaste adopt --discard"),
    (
        "alerts",
        "posthaste alerts --queue mail --completed-below 10 --length-above 1000",
    ),
    ("capture begin", "posthaste capture begin orders"),
    (
        "capture copy",
        "posthaste capture copy rows public.item --where 'price > 0'",
    ),
    ("capture gaps", "posthaste capture gaps --accept 1"),
    ("capture install", "posthaste capture install orders"),
    ("capture pause", "posthaste capture pause orders"),
    ("capture preview", "posthaste capture preview orders"),
    ("capture remove", "posthaste capture remove orders"),
    ("capture resume", "posthaste capture resume orders"),
    ("capture run", "posthaste capture run --once"),
    (
        "capture skip",
        "posthaste capture skip orders --at 00000000000000010000000000000002000a",
    ),
    ("capture status", "posthaste capture status"),
    ("completions", "posthaste completions bash"),
    ("console", "posthaste console --operate"),
    ("demo", "posthaste demo --once"),
    ("doctor", "posthaste doctor --older-than 5m"),
    (
        "exporter",
        "posthaste exporter --listen 127.0.0.1:9187 --tags-of mail",
    ),
    ("health", "posthaste health http://127.0.0.1:9187/ready"),
    ("init", "posthaste init"),
    ("jobs cancel", "posthaste jobs cancel 4711 4712"),
    (
        "jobs enqueue",
        "posthaste jobs enqueue mail.send '{\"to\": 7}' --queue mail --priority 10",
    ),
    (
        "jobs list",
        "posthaste jobs list --queue mail --state retrying",
    ),
    (
        "jobs redrive",
        "posthaste jobs redrive --name mail.send --state dead",
    ),
    ("jobs retry", "posthaste jobs retry 4711"),
    ("jobs show", "posthaste jobs show 4711"),
    ("manual", "posthaste manual jobs list"),
    ("migrate", "posthaste migrate --roles"),
    ("queues keep", "posthaste queues keep mail 24h"),
    ("queues limit", "posthaste queues limit mail 90/m --burst 3"),
    ("queues list", "posthaste queues list"),
    ("queues pause", "posthaste queues pause mail"),
    ("queues resume", "posthaste queues resume mail"),
    ("rebase", "posthaste rebase"),
    ("relay preview", "posthaste relay preview mail --limit 10"),
    ("relay run", "posthaste relay run --once"),
    ("status", "posthaste status --watch 2s"),
    ("sync audit", "posthaste sync audit page --repair"),
    ("sync install", "posthaste sync install"),
    ("sync rebuild", "posthaste sync rebuild page --rate 1000/s"),
    ("sync reindex", "posthaste sync reindex page --all --wait"),
    ("sync run", "posthaste sync run --once"),
    (
        "sync search",
        "posthaste sync search '\"a phrase\"' -- -without",
    ),
    ("top", "posthaste top --every 5s"),
    ("txwatch", "posthaste txwatch --once"),
    ("two-phase adopt", "posthaste two-phase adopt"),
    ("two-phase audit", "posthaste two-phase audit"),
    ("two-phase balance", "posthaste two-phase balance alice bob"),
    (
        "two-phase create",
        "posthaste two-phase create t1 --transfer alice bob 60 --run",
    ),
    ("two-phase list", "posthaste two-phase list"),
    (
        "two-phase open",
        "posthaste two-phase open alice=1000 bob=0",
    ),
    (
        "two-phase prepare",
        "posthaste two-phase prepare --replicas 0",
    ),
    (
        "two-phase prune",
        "posthaste two-phase prune --older-than 30d",
    ),
    ("two-phase recover", "posthaste two-phase recover --once"),
    ("two-phase roll-back", "posthaste two-phase roll-back t1"),
    ("two-phase show", "posthaste two-phase show t1"),
    (
        "up",
        "posthaste up --exec 'mail.*=./send-mail' --listen 127.0.0.1:9187",
    ),
    (
        "work",
        "posthaste work --queue mail=8 --exec 'mail.*=./send-mail'",
    ),
];

/// Adds the examples to the help of the commands.
pub(crate) fn with_examples(command: Command) -> Command {
    EXAMPLES.iter().fold(command, |command, (words, example)| {
        let words: Vec<&str> = words.split(' ').collect();
        with_example(command, &words, example)
    })
}

fn with_example(command: Command, words: &[&str], example: &str) -> Command {
    let Some((first, rest)) = words.split_first() else {
        let help = command.get_after_help().map(|help| format!("{help}\n\n"));
        return command.after_help(format!("{}Example: {example}", help.unwrap_or_default()));
    };
    command.mut_subcommand(first, |one| with_example(one, rest, example))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use clap::{Command, CommandFactory as _};

    use super::{EXAMPLES, with_examples};
    use crate::Arguments;

    /// Returns all executable commands below this one, by their words.
    fn all(command: &Command, before: &str) -> Vec<String> {
        let inner = command.get_subcommands().filter(|one| !one.is_hide_set());
        let mut found = Vec::new();
        for one in inner.filter(|one| one.get_name() != "help") {
            let words = format!("{before} {}", one.get_name());
            let words = words.trim().to_owned();
            if !one.is_subcommand_required_set() {
                found.push(words.clone());
            }
            found.extend(all(one, &words));
        }
        found
    }

    /// Splits a line as a shell does, with single quotes only.
    fn split(example: &str) -> Vec<String> {
        let parts = example.split('\'').enumerate();
        parts
            .flat_map(|(at, part)| match at % 2 {
                0 => part.split_whitespace().map(str::to_owned).collect(),
                _ => vec![part.to_owned()],
            })
            .collect()
    }

    /// Returns the help texts of all commands and options.
    fn helps(command: &Command, before: &str) -> Vec<(String, String)> {
        let mut all = Vec::new();
        let options = command.get_arguments().filter(|one| !one.is_hide_set());
        for one in options.filter(|one| !["help", "version"].contains(&one.get_id().as_str())) {
            let help = one.get_long_help().or(one.get_help());
            let help = help.map(ToString::to_string).unwrap_or_default();
            all.push((format!("{before} {}", one.get_id()), help));
        }
        for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            let words = format!("{before} {}", one.get_name());
            let about = one.get_long_about().or(one.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            all.push((words.clone(), about));
            all.extend(helps(one, &words));
        }
        all
    }

    #[test]
    fn every_command_and_option_has_plain_help() {
        for (words, help) in helps(&Arguments::command(), "posthaste") {
            assert!(!help.is_empty(), "{words} says nothing");
            let help = help.to_lowercase();
            for odd in [
                "sign of life",
                "told",
                "tells",
                "whoever",
                "whatever",
                "somebody",
                "true to",
                "done jobs",
                "is done",
                "not done",
                "again for",
                "lull",
                "given many times",
                "unless given",
                "unless you",
                "this often",
                "so many",
                "goes on",
                "go on",
                "whom",
                "anew",
                "stands",
            ] {
                assert!(!help.contains(odd), "{words}: {odd}: {help}");
            }
        }
    }

    /// Collects the options of all commands with the names of their values.
    fn values(command: &Command, all: &mut BTreeMap<String, BTreeSet<String>>) {
        for one in command.get_arguments().filter(|one| !one.is_hide_set()) {
            let Some(long) = one.get_long() else { continue };
            let names = one.get_value_names().unwrap_or_default();
            let takes = one.get_action().takes_values();
            let names: Vec<&str> = names.iter().filter(|_| takes).map(|name| &**name).collect();
            let of_all = all.entry(long.to_owned()).or_default();
            of_all.insert(names.join(" "));
        }
        for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            values(one, all);
        }
    }

    #[test]
    fn options_of_one_name_accept_the_same_values() {
        let mut all = BTreeMap::new();
        values(&Arguments::command(), &mut all);
        for (option, values) in &all {
            match option.as_str() {
                // The option of a worker has the number of concurrent jobs too.
                "queue" => assert_eq!(values.len(), 2, "{values:?}"),
                _ => assert_eq!(values.len(), 1, "--{option}: {values:?}"),
            }
            // All durations have the same format.
            assert!(
                !values.contains("SECONDS") && !values.contains("AGE"),
                "--{option}"
            );
        }
        for (option, value) in [
            ("grace", "DURATION"),
            ("older-than", "DURATION"),
            ("rate", "RATE"),
            ("limit", "N"),
            ("config", "FILE"),
            ("once", ""),
            ("dry-run", ""),
        ] {
            assert!(all[option].contains(value), "--{option}: {:?}", all[option]);
        }
    }

    #[test]
    fn every_command_has_an_example_that_parses() {
        let commands = all(&Arguments::command(), "");
        let named: Vec<&str> = EXAMPLES.iter().map(|(words, _)| *words).collect();
        let missing: Vec<_> = commands
            .iter()
            .filter(|one| !named.contains(&one.as_str()))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(commands.len(), named.len());
        for (words, example) in EXAMPLES {
            assert!(
                example.starts_with(&format!("posthaste {words}")),
                "{example}"
            );
            let parsed = Arguments::command().try_get_matches_from(split(example));
            assert!(parsed.is_ok(), "{example}: {parsed:?}");
        }
        let help = with_examples(Arguments::command());
        let jobs = help
            .find_subcommand("jobs")
            .and_then(|jobs| jobs.find_subcommand("list"));
        let shown = jobs
            .and_then(|list| list.get_after_help())
            .map(ToString::to_string);
        assert!(shown.is_some_and(|help| help.contains("Example: posthaste jobs list")));
    }
}
