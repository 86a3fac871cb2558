//! `posthaste manual`: manual pages, generated from the help.

use anyhow::anyhow;
use clap::Command;

use crate::terminal::Terminal;

/// Print the manual page of a command
///
/// To read it: posthaste manual jobs list | man -l -
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Command whose page to print, such as jobs list (default: posthaste itself)
    command: Vec<String>,
}

pub(crate) fn print(
    arguments: &Arguments,
    command: Command,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    terminal.refuse_json("posthaste manual prints a page for man")?;
    let mut page = command.disable_help_subcommand(true);
    page.build();
    for word in &arguments.command {
        let inner = page.find_subcommand(word).cloned();
        let name = page
            .get_display_name()
            .unwrap_or_default()
            .replace('-', " ");
        page = inner.ok_or_else(|| anyhow!("no command is named '{name} {word}'."))?;
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    terminal.print(&String::from_utf8(text)?)
}
