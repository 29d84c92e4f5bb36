//! Shared libraries that are looked for when a device is asked for, never linked.

use std::error::Error;
use std::path::PathBuf;

use libloading::{Library, Symbol};

use super::GpuError;

#[derive(Debug)]
pub(super) struct Shared {
    library: Library,
    pub(super) name: String,
    package: &'static str,
}

/// Folders beside those that the system's loader knows.
const FOLDERS: [&str; 3] = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/opt/rocm/lib"];

/// Where ROCm says that it is.
pub(super) fn rocm_path() -> Option<PathBuf> {
    std::env::var_os("ROCM_PATH").filter(|path| !path.is_empty()).map(PathBuf::from)
}

impl Shared {
    /// The first of `names` that opens, by the loader's own search and then in the usual folders.
    pub(super) fn open(names: &[&str], package: &'static str) -> Result<Self, GpuError> {
        let mut detail = String::new();
        let places = names.iter().map(|name| (*name).to_owned());
        let folders = rocm_path().map(|path| path.join("lib").to_string_lossy().into_owned()).into_iter();
        let folders = folders.chain(FOLDERS.map(str::to_owned));
        let places = places.chain(folders.flat_map(|folder| names.iter().map(move |name| format!("{folder}/{name}"))));
        for name in places {
            // SAFETY: these libraries' initialisers only set up themselves; that is what every program that links them relies on.
            match unsafe { Library::new(&name) } {
                Ok(library) => return Ok(Self { library, name, package }),
                // What the loader said is the cause of libloading's own words.
                Err(error) if detail.is_empty() => detail = error.source().map_or_else(|| error.to_string(), ToString::to_string),
                Err(_) => {}
            }
        }
        Err(GpuError::MissingLibrary { library: names.first().copied().unwrap_or_default().to_owned(), detail, package })
    }

    /// A function of the library, as a plain pointer that is valid as long as the library is open.
    ///
    /// # Safety
    /// `F` is the function's true type.
    pub(super) unsafe fn function<F: Copy>(&self, function: &'static str) -> Result<F, GpuError> {
        // SAFETY: the caller vouches for the type.
        let symbol: Result<Symbol<'_, F>, _> = unsafe { self.library.get(function.as_bytes()) };
        match symbol {
            Ok(symbol) => Ok(*symbol),
            Err(_) => Err(GpuError::MissingFunction { library: self.name.clone(), function, package: self.package }),
        }
    }
}

/// A table of functions of one library: `table!(Name { field: "symbol" = fn(types...) -> i32; ... })`; or of two libraries whose functions
/// differ in how their names begin: `table!(Name [cuda = "cublasLt", hip = "hipblasLt"] { field: "Create" = ...; })`.
macro_rules! table {
    ($(#[$doc:meta])* $table:ident [$($loader:ident = $prefix:literal),*] $body:tt) => {
        table!(@structure [$(#[$doc])*] $table $body);
        $(table!(@loader $table $loader $prefix $body);)*
    };
    ($(#[$doc:meta])* $table:ident $body:tt) => {
        table!(@structure [$(#[$doc])*] $table $body);
        table!(@loader $table load "" $body);
    };
    (@structure [$(#[$doc:meta])*] $table:ident { $($field:ident: $symbol:literal = fn($($argument:ty),* $(,)?) -> $result:ty;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub(super) struct $table { $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)* }
    };
    (@loader $table:ident $loader:ident $prefix:literal
        { $($field:ident: $symbol:literal = fn($($argument:ty),* $(,)?) -> $result:ty;)* }) => {
        impl $table {
            pub(super) fn $loader(library: &crate::gpu::library::Shared) -> Result<Self, crate::gpu::GpuError> {
                // SAFETY: the types are those of the vendor's headers.
                unsafe { Ok(Self { $($field: library.function(concat!($prefix, $symbol))?,)* }) }
            }
        }
    };
}
pub(super) use table;
