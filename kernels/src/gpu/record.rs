//! A driver that computes nothing and writes down what it is told: which kernels of which text, with which arguments, in which order.
//!
//! What a GPU computes follows from that and from the libraries on the machine. So the record says whether two versions of the program give
//! a GPU the same work, whatever was renamed, moved or explained in between, and it needs no GPU. Places in memory are numbered by their
//! first use, so that the order of allocations is not part of it. Everything that is read back is zero.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use contract::digest::hexadecimal;
use sha2::{Digest, Sha256};

use super::driver::{Address, Description, Driver, Event, Function, Grid, Matrix, Product};
use super::{Argument, GpuError, cache, sources};

/// Where fake memory begins: no number that a kernel takes looks like an address there.
const FIRST: Address = 0x5EED_0000_0000_0000;

/// As drivers align what they allocate.
const ALIGNMENT: u64 = 256;

/// What stands in for a kernel's launch constants (rows, threads, shared bytes of each kernel): the real ones are in the kernel's text.
const CONSTANTS: [i32; 3] = [64, 128, 0];

#[derive(Debug)]
struct Allocation {
    bytes: u64,
    /// By first use.
    number: Option<usize>,
}

#[derive(Debug)]
struct State {
    next: Address,
    allocations: BTreeMap<Address, Allocation>,
    used: usize,
    /// File, definitions and name of every function that was asked for.
    functions: Vec<String>,
    hash: Sha256,
    calls: usize,
}

/// A GPU that was never there, and what it was asked to do.
#[derive(Debug)]
pub struct Recorder {
    description: Description,
    state: Mutex<State>,
}

impl Recorder {
    /// A GPU of this kind and architecture, with every unit that the kernels know and 128 GiB.
    pub fn new(kind: &'static str, architecture: &str, has_mxfp4: bool) -> Self {
        let description = Description {
            kind,
            ordinal: 0,
            name: "recorder".to_owned(),
            architecture: architecture.to_owned(),
            memory: 128 << 30,
            units: 132,
            libraries: Vec::new(),
            has_fp8: true,
            has_mxfp4,
            interpreted: true,
        };
        let state = State { next: FIRST, allocations: BTreeMap::new(), used: 0, functions: Vec::new(), hash: Sha256::new(), calls: 0 };
        Self { description, state: Mutex::new(state) }
    }

    /// Hash of all calls so far, hexadecimal, and how many there were.
    pub fn digest(&self) -> (String, usize) {
        let state = self.state();
        (hexadecimal(&state.hash.clone().finalize()), state.calls)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn call(&mut self, line: &str) {
        self.hash.update((line.len() as u64).to_le_bytes());
        self.hash.update(line);
        self.calls += 1;
    }

    /// An address as the number of its memory and what follows; anything else as the number that it is.
    fn place(&mut self, value: u64) -> String {
        let found = self.allocations.range_mut(..=value).next_back().filter(|(start, allocation)| value < *start + allocation.bytes);
        let Some((start, allocation)) = found else { return format!("{value:x}") };
        let number = *allocation.number.get_or_insert_with(|| {
            self.used += 1;
            self.used
        });
        format!("memory {number} + {}", value - start)
    }

    fn matrix(&mut self, Matrix { address, element, rows, k, transposed, scale }: &Matrix) -> String {
        let scale = scale.map(|scale| self.place(scale));
        format!("{} {element:?} {rows} {k} {transposed} {scale:?}", self.place(*address))
    }
}

impl Driver for Recorder {
    fn description(&self) -> &Description {
        &self.description
    }

    fn memory(&self) -> Result<(u64, u64), GpuError> {
        Ok((self.description.memory, self.description.memory))
    }

    fn allocate(&self, bytes: usize) -> Result<Address, GpuError> {
        let mut state = self.state();
        let (start, bytes) = (state.next, (bytes as u64).max(1));
        state.next += bytes.next_multiple_of(ALIGNMENT);
        state.allocations.insert(start, Allocation { bytes, number: None });
        Ok(start)
    }

    fn free(&self, address: Address) {
        self.state().allocations.remove(&address);
    }

    fn fill(&self, address: Address, byte: u8, bytes: usize) -> Result<(), GpuError> {
        let mut state = self.state();
        let place = state.place(address);
        state.call(&format!("fill {place} {byte} {bytes}"));
        Ok(())
    }

    fn upload(&self, from: &[u8], to: Address) -> Result<(), GpuError> {
        let mut state = self.state();
        let place = state.place(to);
        state.call(&format!("upload {place} {} {}", from.len(), hexadecimal(&Sha256::digest(from))));
        Ok(())
    }

    fn download(&self, from: Address, to: &mut [u8]) -> Result<(), GpuError> {
        let mut state = self.state();
        to.fill(0);
        match from.checked_sub(FIRST) {
            Some(_) => {
                let place = state.place(from);
                state.call(&format!("download {place} {}", to.len()));
            }
            // A constant: see `constant`.
            None => {
                for (value, constant) in to.chunks_exact_mut(4).zip(CONSTANTS.iter().cycle()) {
                    value.copy_from_slice(&constant.to_le_bytes());
                }
            }
        }
        Ok(())
    }

    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), GpuError> {
        let mut state = self.state();
        let (from, to) = (state.place(from), state.place(to));
        state.call(&format!("copy {from} {to} {bytes}"));
        Ok(())
    }

    fn synchronize(&self) -> Result<(), GpuError> {
        Ok(())
    }

    fn function(&self, file: &'static str, defines: &[String], name: &'static str) -> Result<Function, GpuError> {
        let mut state = self.state();
        state.functions.push(format!("{file} {defines:?} {name}"));
        Ok(Function(state.functions.len() as u64 - 1))
    }

    fn constant(&self, _: &'static str, _: &[String], _: &'static str) -> Result<Address, GpuError> {
        Ok(0)
    }

    unsafe fn launch(&self, function: Function, grid: Grid, arguments: &mut [*mut c_void]) -> Result<(), GpuError> {
        let mut state = self.state();
        let mut line = format!("launch {} {grid:?}", state.functions[function.0 as usize]);
        for argument in arguments {
            // SAFETY: `Kernel::launch`, the only caller, passes pointers to `Argument`s, zero beyond the value.
            let Argument(bytes) = unsafe { argument.cast::<Argument>().read() };
            for word in bytes.chunks_exact(8) {
                let word = word.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
                line.push(' ');
                line.push_str(&state.place(word));
            }
        }
        state.call(&line);
        Ok(())
    }

    unsafe fn multiply(&self, product: &Product) -> Result<(), GpuError> {
        let mut state = self.state();
        let (left, right) = (state.matrix(&product.left), state.matrix(&product.right));
        let (out, added) = (state.place(product.out), product.added.map(|added| state.place(added)));
        let Product { out_element, alpha, .. } = product;
        state.call(&format!("multiply {left}, {right}, {out} {out_element:?} {added:?} {:08x}", alpha.to_bits()));
        Ok(())
    }

    fn record(&self) -> Result<Event, GpuError> {
        Ok(Event(0))
    }

    fn elapsed(&self, _: Event, _: Event) -> Result<f64, GpuError> {
        Ok(0.0)
    }
}

/// Name of every file of device text, and the hash of what its compiler sees of it: comments and the amount of white space are not part of
/// that.
pub fn device_texts() -> impl Iterator<Item = (&'static str, String)> {
    sources::all().map(|(name, text)| (name, cache::key([without_comments(text).as_str()])))
}

/// Name of every file of Rust that calls a kind's compiler, driver and library, and the hash of its text without lines of comment.
pub fn driver_texts(kind: &str) -> impl Iterator<Item = (&'static str, String)> {
    sources::of_driver(kind).map(|(name, text)| (name, cache::key([without_comment_lines(text).as_str()])))
}

/// Rust without lines that are comments only, and without indentation. (Its literals and lifetimes do not let more be told apart simply.)
fn without_comment_lines(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .fold(String::new(), |out, line| out + line + "\n")
}

/// C without comments, every run of white space as one: a line's end stays one, since it ends a directive. Literals stay as they are.
pub fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    // The white space since the last token: none, a blank, a line's end.
    let mut gap: Option<char> = None;
    while let Some(char) = rest.next() {
        match (char, rest.peek()) {
            ('/', Some('/')) => while rest.next_if(|&next| next != '\n').is_some() {},
            ('/', Some('*')) => {
                rest.next();
                let mut before = ' ';
                for next in rest.by_ref() {
                    if before == '*' && next == '/' {
                        break;
                    }
                    before = next;
                }
                gap = gap.or(Some(' '));
            }
            ('\n', _) => gap = Some('\n'),
            (blank, _) if blank.is_whitespace() => gap = gap.or(Some(' ')),
            (token, _) => {
                if let Some(gap) = gap.take().filter(|_| !out.is_empty()) {
                    out.push(gap);
                }
                out.push(token);
                if matches!(token, '"' | '\'') {
                    while let Some(next) = rest.next() {
                        out.push(next);
                        if next == token {
                            break;
                        }
                        if next == '\\' {
                            out.extend(rest.next());
                        }
                    }
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_white_space_are_not_what_a_compiler_sees() {
        let plain = "#define A 1\nint f() { return \"// no\"[A] / 2; }";
        for same in [
            "// one\n\n#define  A\t1 // two\nint f()   { /* three */ return \"// no\"[A] / 2; }\n\n",
            "/* a\n b **/ #define A 1\n\n int f() { return \"// no\"[A] / 2; } // end",
        ] {
            assert_eq!(without_comments(same), plain);
        }
        for other in [
            "#define A 2\nint f() { return \"// no\"[A] / 2; }",
            "#define A 1 int f() { return \"// no\"[A] / 2; }",
            "#define A 1\nint f() { return \"//  no\"[A] / 2; }",
        ] {
            assert_ne!(without_comments(other), plain);
        }
        assert_eq!(without_comments(r#"char a = '"'; // "#), r#"char a = '"';"#);
        assert_eq!(without_comments(r#"f("\"//") // x"#), r#"f("\"//")"#);
    }

    /// Two buffers asked for in another order are the same work; a number that differs in one argument is not.
    #[test]
    fn the_order_of_allocations_is_not_part_of_the_record() {
        let record = |turned: bool, byte: u8| {
            let recorder = Recorder::new("cuda", "sm_90a", false);
            let sizes = if turned { [200, 100] } else { [100, 200] };
            let mut places = sizes.map(|bytes| recorder.allocate(bytes).unwrap());
            if turned {
                places.reverse();
            }
            recorder.fill(places[0] + 4, byte, 8).unwrap();
            recorder.copy(places[0], places[1], 16).unwrap();
            recorder.digest()
        };
        assert_eq!(record(false, 1), record(true, 1));
        assert_ne!(record(false, 1), record(false, 2));
        assert_eq!(record(false, 1).1, 2);
    }
}
