//! `posthaste completions`: completion scripts for shells.

use crate::terminal::Terminal;

/// Print shell completions
///
/// bash: posthaste completions bash > ~/.local/share/bash-completion/completions/posthaste.
/// zsh: posthaste completions zsh > a folder of $fpath, as _posthaste.
/// fish: posthaste completions fish > ~/.config/fish/completions/posthaste.fish.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Shell for which to print completions
    shell: Shell,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn print(
    arguments: &Arguments,
    mut command: clap::Command,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    terminal.refuse_json("posthaste completions prints a script for a shell")?;
    use clap_complete::{generate, shells};
    let name = "posthaste";
    let mut script = Vec::new();
    match arguments.shell {
        Shell::Bash => generate(shells::Bash, &mut command, name, &mut script),
        Shell::Zsh => generate(shells::Zsh, &mut command, name, &mut script),
        Shell::Fish => generate(shells::Fish, &mut command, name, &mut script),
    }
    terminal.print(&String::from_utf8(script)?)
}
