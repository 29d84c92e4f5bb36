//! What shells and `man` read, made from the definitions that `--help` is made from.

use std::path::Path;

use clap::{Command, CommandFactory as _, ValueEnum as _};
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

/// What a release has beside the programs: `man/` and `completions/`.
pub(crate) fn all() -> Result<Vec<(String, Vec<u8>)>, FileError> {
    let pages = pages()?.into_iter().map(|(name, text)| (format!("man/{name}"), text));
    let script = |shell: Shell| (format!("completions/{shell}"), completions(shell).into_bytes());
    Ok(pages.chain(Shell::value_variants().iter().copied().map(script)).collect())
}

/// Writes `xtask.1`, `xtask-replicate.1` and so on into `folder`; says so.
pub(crate) fn write(folder: &Path) -> Result<String, FileError> {
    let pages = pages()?;
    pages.iter().try_for_each(|(name, text)| files::write(&folder.join(name), text))?;
    Ok(format!("{} pages written to {}; `man {}` shows the first\n", pages.len(), folder.display(), folder.join("xtask.1").display()))
}

fn pages() -> Result<Vec<(String, Vec<u8>)>, FileError> {
    let mut definitions = definitions();
    definitions.build();
    let (mut pages, mut open) = (Vec::new(), vec![definitions]);
    while let Some(command) = open.pop() {
        open.extend(command.get_subcommands().filter(|below| below.get_name() != "help").cloned());
        // Built, a command knows those above it: `xtask-data-fetch`.
        let name = command.get_display_name().unwrap_or(PROGRAM).to_owned();
        let (file, mut text) = (format!("{name}.1"), Vec::new());
        clap_mangen::Man::new(command).title(name).render(&mut text).at(Path::new(&file), "render")?;
        pages.push((file, text));
    }
    Ok(pages)
}
