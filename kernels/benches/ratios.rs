//! One kernel against another: the members of a group take turns, round after round, in one process.
//!
//! Whatever else the machine does falls on all members of a round alike, so a ratio within a round holds where a single time does not.
//! Prints one JSON line a member (schema `mxfp4-kernels-samples/1`, described in docs/files.md): name, group, threads,
//! operations and seconds of each round. It draws no conclusion.
//!
//! Options: `--rounds N` (15), `--only TEXT` (groups with a member whose name contains it), `--wait` (after each round says `turn`, and waits
//! for a line, so that others take turns, too). Environment as for the `cpu` benchmark.
//! Without `--bench`, as `cargo test --benches` calls it, one round.

#[path = "support/linears.rs"]
mod linears;
mod support;

use std::io::Write as _;
use std::time::Instant;

use contract::recipe::{Format, Rounding, Signs};
use kernels::cpu::Cpu;
use support::{Depth, Task};

/// A turn lasts at least this long: short calls are repeated within it.
const TURN_SECONDS: f64 = 8e-3;

struct Options {
    rounds: usize,
    only: String,
    waits: bool,
}

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(2);
    }
}

fn run() -> Result<(), String> {
    let options = options(std::env::args().skip(1))?;
    let depth = Depth::from_environment()?;
    for cpu in support::processors()? {
        let line = serde_json::json!({"schema": SCHEMA, "kind": "machine", "instruction_set": cpu.instruction_set().to_string(), "threads": cpu.threads()});
        print(&line)?;
        for Group { name, names, make } in groups(depth) {
            if names.iter().any(|name| name.contains(&options.only)) {
                take_turns(&name, make(&cpu), &options, cpu.threads())?;
            }
        }
    }
    Ok(())
}

const SCHEMA: &str = "mxfp4-kernels-samples/1";

fn print(line: &serde_json::Value) -> Result<(), String> {
    writeln!(std::io::stdout().lock(), "{line}").map_err(|error| format!("cannot print: {error}"))
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { rounds: 15, only: String::new(), waits: false };
    let mut measures = false;
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--bench" => measures = true,
            "--rounds" => options.rounds = value()?.parse().map_err(|_| "--rounds: a whole number of at least 1".to_owned())?,
            "--only" => options.only = value()?,
            "--wait" => options.waits = true,
            // A name, as cargo bench passes it to every benchmark.
            other if !other.starts_with('-') => options.only = other.to_owned(),
            _ => {}
        }
    }
    if options.rounds == 0 {
        return Err("--rounds 0 measures nothing: use 1 or more".to_owned());
    }
    if !measures {
        options.rounds = 1;
    }
    Ok(options)
}

/// Makes the members of a group when its turn comes.
type Make = Box<dyn FnOnce(&Cpu) -> Vec<Task>>;

struct Group {
    name: String,
    /// Of its members, known before they are made.
    names: Vec<String>,
    make: Make,
}

fn groups(depth: Depth) -> Vec<Group> {
    let mut all = Vec::new();
    let shapes: &[support::Shape] = match depth {
        Depth::Quick => &[(2048, 1024, 1024)],
        Depth::Default => &[(2048, 1024, 1024), (512, 512, 512)],
        Depth::Deep => &[(2048, 1024, 1024), (512, 512, 512), (1024, 768, 128), (4096, 768, 128), (4096, 1536, 256), (1024, 3584, 512)],
    };
    for &(m, n, k) in shapes {
        let mut names: Vec<String> = support::products().iter().map(|product| format!("gemm/{}/{m}x{n}x{k}", product.name)).collect();
        names.extend(["f32"].map(|name| format!("gemm/{name}/{m}x{n}x{k}")));
        names.extend(["peak/f32-fma", "peak/integer-dot"].map(str::to_owned));
        let make = move |cpu: &Cpu| {
            let mut tasks = support::peaks::tasks(cpu);
            tasks.extend(support::products().into_iter().map(|product| support::gemm(cpu, product, (m, n, k))));
            tasks.push(support::gemm_f32(cpu, (m, n, k)));
            tasks
        };
        all.push(Group { name: format!("gemm/{m}x{n}x{k}"), names, make: Box::new(make) });
    }
    for width in [128, 256] {
        let names = linears::all().iter().map(|linear| format!("linear/{}/{}x{width}", linear.name, linears::TOKENS)).collect();
        let make = move |cpu: &Cpu| {
            let memory = linears::Memory::new(width);
            linears::all().into_iter().map(|linear| linears::task(cpu, linear, &memory)).collect()
        };
        all.push(Group { name: format!("linear/{}x{width}", linears::TOKENS), names, make: Box::new(make) });
    }
    let names = quantisations().iter().map(|(name, _)| format!("quantise/{name}/4096x1024")).collect();
    let make =
        |cpu: &Cpu| quantisations().into_iter().map(|(name, spec)| support::quantise(cpu, name, spec, (4096, 1024), false)).collect();
    all.push(Group { name: "quantise/4096x1024".to_owned(), names, make: Box::new(make) });
    all
}

fn quantisations() -> Vec<(&'static str, contract::recipe::OperandSpec)> {
    let (nearest, stochastic) = (Rounding::NearestEven, Rounding::Stochastic);
    vec![
        ("mxfp4-nearest-even-none", support::mxfp4(nearest, 0, Signs::None)),
        ("mxfp4-nearest-even-h16", support::mxfp4(nearest, 16, Signs::None)),
        ("mxfp4-nearest-even-h32", support::mxfp4(nearest, 32, Signs::None)),
        ("mxfp4-stochastic-none", support::mxfp4(stochastic, 0, Signs::None)),
        ("mxfp4-stochastic-h16", support::mxfp4(stochastic, 16, Signs::None)),
        ("e4m3-nearest-even-none", support::plain(Format::E4m3, nearest)),
        ("bf16-nearest-even-none", support::plain(Format::Bf16, nearest)),
    ]
}

/// One unmeasured round, which also says how often a call fits into a turn; then the measured ones.
fn take_turns(group: &str, mut tasks: Vec<Task>, options: &Options, threads: usize) -> Result<(), String> {
    let seconds = |task: &mut Task, calls: u32| {
        let started = Instant::now();
        (0..calls).for_each(|_| (task.run)());
        started.elapsed().as_secs_f64() / f64::from(calls)
    };
    let calls: Vec<u32> = tasks
        .iter_mut()
        .map(|task| {
            seconds(task, 1);
            (TURN_SECONDS / seconds(task, 1).max(1e-7)).ceil().clamp(1.0, 20_000.0) as u32
        })
        .collect();
    let mut samples = vec![Vec::with_capacity(options.rounds); tasks.len()];
    for _ in 0..options.rounds {
        for ((task, calls), samples) in tasks.iter_mut().zip(&calls).zip(&mut samples) {
            samples.push(seconds(task, *calls));
        }
        if options.waits {
            print(&serde_json::json!({"schema": SCHEMA, "kind": "turn", "group": group}))?;
            if std::io::stdin().read_line(&mut String::new()).map_err(|error| format!("--wait: {error}"))? == 0 {
                return Err("--wait: nobody is there to answer".to_owned());
            }
            // The first member follows on the last, as in any other round: others' turns leave caches that are not ours.
            if let (Some(last), Some(calls)) = (tasks.last_mut(), calls.last()) {
                seconds(last, *calls);
            }
        }
    }
    for (task, samples) in tasks.iter().zip(&samples) {
        let unit = if task.name.starts_with("quantise/") { "elements" } else { "operations" };
        print(&serde_json::json!({
            "schema": SCHEMA, "kind": "samples", "group": group, "name": task.name, "threads": threads,
            "operations": task.operations, "unit": unit, "bytes": task.bytes, "samples": samples,
        }))?;
    }
    Ok(())
}
