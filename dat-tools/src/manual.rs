//! `dat completions` and `dat man`: made from the command line that clap parses.

use std::fs;
use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::Outcome;
use crate::cli::Cli;

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "dat", &mut text);
    crate::out::text(&String::from_utf8(text)?);
    Ok(())
}

/// Writes dat.1 and a page for each subcommand.
pub(crate) fn man(folder: &Path) -> Outcome {
    fs::create_dir_all(folder)
        .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let command = Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, folder)
        .map_err(|error| format!("cannot write to {}: {error}", folder.display()))?;
    Ok(())
}
