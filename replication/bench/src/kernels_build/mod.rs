//! `kernels-build`: device code objects from their sources, the same bytes every time, each kernel inside its budget.
//!
//! Compiles, reads the code objects with the decoder of `gfx950-interpreter`, and sets what the compiler made beside what
//! `kernels/<arch>/kernels.yaml` allows: registers, LDS, instructions, and the clocks that `gfx950-clock` models for products and matrices of a size. Results
//! are the interpreter's own tests' business. What comes out compiles for gfx950; it is functionally verified on a CPU model of the ISA; it was
//! not run on an MI355X, and makes no performance claim.

mod compiler;
mod gates;
mod lint;
mod manifest;
mod modelled;
mod pinned;
mod table;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;

use std::path::{Path, PathBuf};

use contract::json::Document as _;
use gfx950_clock::ClockError;
use gfx950_interpreter::object::{CodeObject, Kernel, ObjectError};
use study::code_objects::{Build, Built, Modelled, Object};
use study::exit::ExitCode;
use study::files::{self, Context as _, FileError};
use study::manifest::ManifestError;

pub use compiler::Compiler;
pub use gates::check;
pub use lint::{Finding, chained_conversions};
pub use manifest::{Budget, Manifest, Source};
pub use pinned::Pinned;
pub use table::table;

/// Architectures that can be built for.
pub const ARCHITECTURES: [&str; 1] = ["gfx950"];

#[derive(Debug, Clone)]
pub struct Request {
    /// One of [`ARCHITECTURES`].
    pub arch: String,
    /// Folder for the code objects and kernels.json.
    pub out: PathBuf,
    /// Write their hashes to pinned.yaml instead of comparing.
    pub pin: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The manifest of the kernels.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{}", study::suggest::unknown("architecture", .0, &ARCHITECTURES))]
    Architecture(String),
    /// No compiler, or another version.
    #[error("{0}")]
    Compiler(String),
    /// The compiler refused a source.
    #[error("{file} does not compile:\n{output}")]
    Source { file: String, output: String },
    /// The compiler's output cannot be read.
    #[error("{file}: {source}")]
    Object {
        /// Source of the code object.
        file: String,
        /// What is wrong with it.
        source: ObjectError,
    },
    /// The clock model cannot play a kernel.
    #[error("{file}: {source}")]
    Clock {
        /// Source of the code object.
        file: String,
        /// What is wrong with it.
        source: ClockError,
    },
    /// The report could not be written as JSON.
    #[error("cannot write kernels.json: {0}")]
    Json(#[from] serde_json::Error),
}

impl ExitCode for BuildError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Manifest(_) | Self::Architecture(_) => 2,
            Self::File(_) => 3,
            Self::Compiler(_) => 4,
            Self::Source { .. } | Self::Object { .. } | Self::Clock { .. } | Self::Json(_) => 1,
        }
    }
}

/// Lints, compiles everything twice, reads it, checks it and writes it to `request.out`. `say` gets a line for each source.
pub fn run(root: &Path, request: &Request, say: &dyn Fn(&str)) -> Result<Build, BuildError> {
    if !ARCHITECTURES.contains(&request.arch.as_str()) {
        return Err(BuildError::Architecture(request.arch.clone()));
    }
    let folder = Path::new("kernels").join(&request.arch);
    let manifest = Manifest::load(root, &folder)?;
    let mut pinned = Pinned::load(root, &folder)?;
    let compiler = Compiler::find()?;
    let here = root.join(&folder);
    let sources = Sources::list(&root.join("kernels"), &request.arch)?;
    let mut problems = sources.lint()?;
    let (mut objects, mut modelled) = (Vec::new(), Vec::new());
    let copy = CopiedSources::of(&sources)?;
    for source in &manifest.sources {
        say(&format!("compiling {} twice", source.label()));
        let flags = [manifest.flags.clone(), source.arguments()].concat();
        let compile = |folder: &Path| compiler.compile(folder, &source.file, &flags);
        let (bytes, again) = rayon::join(|| compile(&here), || compile(&copy.0.join(&request.arch)));
        let bytes = bytes?;
        if bytes != again? {
            problems.push(format!("{}: two compilations in different folders gave different bytes", source.label()));
        }
        let parsed = CodeObject::parse(&bytes).map_err(|error| BuildError::Object { file: source.label(), source: error })?;
        let object = describe(source, &parsed, &here.join(&source.file), &bytes)?;
        let clocks = modelled::modelled(source, &parsed).map_err(|error| BuildError::Clock { file: source.label(), source: error })?;
        problems.extend(modelled::problems(&clocks));
        modelled.extend(clocks);
        problems.extend(check(source, &object.kernels));
        files::write(&request.out.join(&object.object), &bytes)?;
        objects.push(object);
    }
    if request.pin {
        pinned.pin(&compiler.version, &objects);
        pinned.write(root, &folder)?;
    }
    problems.extend(pinned.compare(&compiler.version, &mut objects));
    let build = Build {
        arch: request.arch.clone(),
        compiler: compiler.version.clone(),
        compiler_path: compiler.path.display().to_string(),
        flags: manifest.flags,
        objects,
        modelled,
        problems,
    };
    files::write(&request.out.join("kernels.json"), (build.to_json_pretty()? + "\n").as_bytes())?;
    Ok(build)
}

/// What the clock model says of every product and matrix that has a budget of clocks, and the compiler whose code it played: of the sources as
/// they are, held to no budget.
pub(crate) fn modelled_clocks(root: &Path, arch: &str) -> Result<(String, Vec<Modelled>), BuildError> {
    let folder = Path::new("kernels").join(arch);
    let manifest = Manifest::load(root, &folder)?;
    let compiler = Compiler::find()?;
    let mut all = Vec::new();
    for source in manifest.sources.iter().filter(|source| source.kernels.values().any(|budget| !budget.clocks.is_empty())) {
        let flags = [manifest.flags.clone(), source.arguments()].concat();
        let bytes = compiler.compile(&root.join(&folder), &source.file, &flags)?;
        let parsed = CodeObject::parse(&bytes).map_err(|error| BuildError::Object { file: source.label(), source: error })?;
        all.extend(modelled::modelled(source, &parsed).map_err(|error| BuildError::Clock { file: source.label(), source: error })?);
    }
    Ok((compiler.version, all))
}

/// Every source and header: of kernels/device, which CUDA shares, and of the architecture's own folder.
struct Sources {
    kernels: PathBuf,
    /// Relative to `kernels`.
    names: Vec<String>,
}

impl Sources {
    fn list(kernels: &Path, arch: &str) -> Result<Self, FileError> {
        let mut names = Vec::new();
        for folder in ["device", arch] {
            let inside = files::list(&kernels.join(folder))?.into_iter();
            // Folders below are the tests and what runs them.
            names.extend(inside.filter(|name| is_source(name) && !name.contains('/')).map(|name| format!("{folder}/{name}")));
        }
        Ok(Self { kernels: kernels.to_owned(), names })
    }

    fn lint(&self) -> Result<Vec<String>, FileError> {
        let mut problems = Vec::new();
        for name in &self.names {
            let text = files::read_text(&self.kernels.join(name))?;
            problems.extend(chained_conversions(&text).into_iter().map(|finding| format!("{name}:{finding}")));
        }
        Ok(problems)
    }
}

/// All sources once more, in a folder of another name: a path that gets into a code object shows. Removed when dropped.
struct CopiedSources(PathBuf);

impl CopiedSources {
    fn of(sources: &Sources) -> Result<Self, FileError> {
        let copy = Self(compiler::temporary("copy"));
        for name in &sources.names {
            files::copy(&sources.kernels.join(name), &copy.0.join(name))?;
        }
        Ok(copy)
    }
}

fn is_source(name: &str) -> bool {
    [".hip", ".h", ".cu"].iter().any(|ending| name.ends_with(ending))
}

impl Drop for CopiedSources {
    fn drop(&mut self) {
        let _ = files::remove_folder(&self.0);
    }
}

fn describe(source: &Source, parsed: &CodeObject, path: &Path, bytes: &[u8]) -> Result<Object, BuildError> {
    let counted = |name: &str| source.kernels.get(name).map(|budget| budget.instructions.keys().cloned().collect()).unwrap_or_default();
    let kernels = parsed.kernels.iter().map(|kernel| (kernel.name.clone(), built(kernel, counted(&kernel.name)))).collect();
    let text = std::fs::read(path).at(path, "read")?;
    Ok(Object {
        source: source.file.clone(),
        defines: source.defines.clone(),
        source_sha256: files::sha256(&text),
        object: source.object_name(),
        object_sha256: files::sha256(bytes),
        pinned_sha256: None,
        kernels,
    })
}

fn built(kernel: &Kernel, counted: Vec<String>) -> Built {
    let resources = &kernel.resources;
    let name = |i: &gfx950_interpreter::decode::Instruction| if i.access.lds { i.mnemonic() + "_lds" } else { i.mnemonic() };
    let count = |wanted: &str| kernel.instructions.iter().filter(|i| name(i) == wanted).count() as u64;
    Built {
        vgprs: resources.vgprs,
        agprs: resources.agprs,
        sgprs: resources.sgprs,
        lds: resources.group_segment_fixed_size,
        spills: resources.vgpr_spills + resources.sgpr_spills,
        scratch: resources.private_segment_fixed_size,
        instructions: kernel.instructions.len() as u64,
        counted: counted.into_iter().map(|name| (name.clone(), count(&name))).collect(),
    }
}
