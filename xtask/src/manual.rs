//! What shells and `man` read, made from the definitions that `--help` is made from.

use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use study::files::{self, Context as _, FileError};

use crate::arguments::Arguments;

/// Name of the program where it is installed; `cargo xtask` is cargo's alias for it.
const PROGRAM: &str = "xtask";

fn definitions() -> Command {
    Arguments::command().name(PROGRAM).bin_name(PROGRAM)
}

/// The script of a shell.
pub(crate) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut definitions(), PROGRAM, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes `xtask.1`, `xtask-replicate.1` and so on into `folder`; says so.
pub(crate) fn write(folder: &Path) -> Result<String, FileError> {
    let mut definitions = definitions();
    definitions.build();
    let (mut written, mut open) = (0, vec![definitions]);
    while let Some(command) = open.pop() {
        open.extend(command.get_subcommands().filter(|below| below.get_name() != "help").cloned());
        // Built, a command knows those above it: `xtask-data-fetch`.
        let name = command.get_display_name().unwrap_or(PROGRAM).to_owned();
        let path = folder.join(format!("{name}.1"));
        let mut text = Vec::new();
        clap_mangen::Man::new(command).title(name).render(&mut text).at(&path, "render")?;
        files::write(&path, &text)?;
        written += 1;
    }
    Ok(format!("{written} pages written to {}; `man {}` shows the first\n", folder.display(), folder.join("xtask.1").display()))
}
