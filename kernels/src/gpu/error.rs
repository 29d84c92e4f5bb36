//! What can go wrong on a GPU, in words for the reader.

/// Why something could not be done on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// A library is not there, or is not what it should be.
    #[error("{library} was not found ({detail}); it comes with {package}. If it is installed, name its folder in LD_LIBRARY_PATH")]
    MissingLibrary {
        library: String,
        detail: String,
        /// Where it comes from.
        package: &'static str,
    },
    /// A library lacks a function: too old.
    #[error("{library} has no function {function}: it is too old; install {package}")]
    MissingFunction {
        library: String,
        function: &'static str,
        /// Where a newer one comes from.
        package: &'static str,
    },
    /// No compiler for this kind of GPU.
    #[error("no compiler for AMD GPUs was found (tried, in this order: {tried}); it comes with {package}")]
    MissingCompiler {
        /// In order.
        tried: String,
        /// Where one comes from.
        package: &'static str,
    },
    /// There is no such device.
    #[error("there is no {wanted}: this machine has {found}")]
    NoDevice { wanted: String, found: String },
    #[error("{call} failed: {reason}")]
    Call {
        /// The function, and what it was about.
        call: String,
        reason: String,
    },
    /// Not enough memory on the device.
    #[error(
        "the GPU has {free_mib} MiB free of {total_mib}, {wanted_mib} more are needed; use fewer sequences a step, a smaller model, or a GPU that nobody else uses"
    )]
    Memory { wanted_mib: u64, free_mib: u64, total_mib: u64 },
    /// A kernel's source does not compile for this device.
    #[error("{file} does not compile for {architecture}: {log}")]
    Compile {
        /// Of kernels/device.
        file: String,
        /// As the compiler names it.
        architecture: String,
        log: String,
    },
    /// This device cannot do it.
    #[error("{0}")]
    Unsupported(String),
    /// Sizes that do not fit together.
    #[error("{kernel}: {problem}")]
    Shape { kernel: &'static str, problem: String },
}
