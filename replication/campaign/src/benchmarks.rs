//! The CPU's benchmarks as programs: carried in a packed folder, or built here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::toolchain::{self, ToolError};

/// Programs of the kernels crate. Each measures when it is called with `--bench`, as `cargo bench` does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Benchmarks {
    /// Criterion's: single kernels, and the machine's peaks.
    pub cpu: PathBuf,
    /// Kernels against each other, in turns.
    pub ratios: PathBuf,
}

const CPU: &str = "cpu";
const RATIOS: &str = "ratios";
/// Where a packed folder has them.
const FOLDER: &str = "benchmarks";

impl Benchmarks {
    /// Those that are carried beside the manifests, as `cargo xtask pack` puts them.
    pub fn packed(root: &Path) -> Option<Self> {
        let benchmarks = Self::below(&root.join(FOLDER));
        (benchmarks.cpu.is_file() && benchmarks.ratios.is_file()).then_some(benchmarks)
    }

    fn below(folder: &Path) -> Self {
        let program = |name: &str| folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        Self { cpu: program(CPU), ratios: program(RATIOS) }
    }

    /// From the sources of this tree.
    ///
    /// # Errors
    /// Cargo's.
    pub fn build(root: &Path) -> Result<Self, ToolError> {
        const WHAT: &str = "building the benchmarks";
        let mut arguments: Vec<OsString> =
            ["bench", "--locked", "--package", "kernels", "--bench", CPU, "--bench", RATIOS, "--no-run"].map(Into::into).to_vec();
        arguments.extend(["--message-format", "json-render-diagnostics", "--target-dir"].map(OsString::from));
        arguments.push(toolchain::kept_folder(root).into_os_string());
        let messages = toolchain::run_cargo(root, WHAT, &arguments)?;
        let program = |name| toolchain::made_program(&messages, WHAT, name);
        Ok(Self { cpu: program(CPU)?, ratios: program(RATIOS)? })
    }

    /// Copies of them, for a packed folder.
    pub(crate) fn pack(&self, to: &Path) -> Result<(), ToolError> {
        let packed = Self::below(&to.join(FOLDER));
        toolchain::copy_program(&self.cpu, &packed.cpu)?;
        toolchain::copy_program(&self.ratios, &packed.ratios)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_them_is_none() {
        let root = tempfile::tempdir().unwrap();
        let all = Benchmarks::below(&root.path().join(FOLDER));
        std::fs::create_dir(root.path().join(FOLDER)).unwrap();
        std::fs::write(&all.cpu, "").unwrap();
        assert_eq!(Benchmarks::packed(root.path()), None);
        std::fs::write(&all.ratios, "").unwrap();
        assert_eq!(Benchmarks::packed(root.path()), Some(all));
    }
}
