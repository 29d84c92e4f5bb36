//! `cargo xtask`: the door. Parses arguments, calls the crates below replication/, prints. No logic of its own.

mod arguments;
mod commands;
mod manual;
mod outcome;
mod print;

use std::path::{Path, PathBuf};
use std::process;

use campaign::environment;
use clap::{CommandFactory as _, FromArgMatches as _};
use study::exit::USAGE;

use arguments::Arguments;
use outcome::Failure;

fn main() -> process::ExitCode {
    let matches = Arguments::command().get_matches();
    let name = matches.subcommand_name().unwrap_or_default().to_owned();
    let command = match Arguments::from_arg_matches(&matches) {
        Ok(Arguments { version: true, .. }) => {
            print::out(&format!("xtask {}\n", environment::Version::of(&repository()).line()));
            return process::ExitCode::SUCCESS;
        }
        Ok(Arguments { command: Some(command), .. }) => command,
        Ok(Arguments { command: None, .. }) => {
            print::out(arguments::FIRST_STEPS);
            return process::ExitCode::SUCCESS;
        }
        Err(error) => error.exit(),
    };
    let manner = command.manner();
    let root = repository();
    let here = if command.needs_repository() { present(&root) } else { Ok(()) };
    let result = here.and_then(|()| commands::execute(&root, command, &|line| manner.progress(line)));
    if let Err(failure) = &result {
        print::error(&failure.text);
    }
    outcome::tell(&name, manner, &result);
    process::ExitCode::from(result.map_or_else(|failure| failure.code, |outcome| outcome.code))
}

/// The repository's root: cargo runs us with the folder of this crate's manifest; a copied program uses the one it lies in. Only one that lies
/// in none takes where it is called, because that may be a stranger's directory, and programs of the repository are run.
fn repository() -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    let of_cargo = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).and_then(|path| path.parent().map(Path::to_owned));
    let above = |path: &Path| {
        path.ancestors().find(|path| path.join("manifests").is_dir() && path.join("Cargo.lock").is_file()).map(Path::to_owned)
    };
    let of_program = || std::env::current_exe().ok().and_then(|program| above(&program));
    of_cargo.or_else(of_program).or_else(|| above(&here)).unwrap_or(here)
}

/// An installed program may be called anywhere; nothing is written where it does not belong.
fn present(root: &Path) -> Result<(), Failure> {
    match root.join("manifests").is_dir() {
        true => Ok(()),
        false => Err(Failure {
            text: format!(
                "{}: no repository of this project, it has no manifests/; go into a clone, or into a folder that `cargo xtask pack` made",
                root.display()
            ),
            code: USAGE,
        }),
    }
}
