//! What `kernels-build` prints.

use std::fmt::Write as _;

use study::code_objects::{Build, Built, WORDING};

/// Compiler, one line a kernel, hashes, and every problem.
pub fn table(report: &Build) -> String {
    let mut text = format!("{} ({})\n\n", report.compiler, report.compiler_path);
    let names = report.objects.iter().flat_map(|object| object.kernels.keys().map(String::len));
    let width = names.max().unwrap_or(0).max("kernel".len());
    let _ = writeln!(text, "{:width$}  vgprs  agprs  sgprs     LDS  spills  scratch  instructions", "kernel");
    for object in &report.objects {
        for (name, kernel) in &object.kernels {
            let Built { vgprs, agprs, sgprs, lds, spills, scratch, instructions, counted } = kernel;
            let counts: Vec<String> = counted.iter().map(|(name, count)| format!("{count} {name}")).collect();
            let counts = if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) };
            let _ = writeln!(
                text,
                "{name:width$}  {vgprs:>5}  {agprs:>5}  {sgprs:>5}  {lds:>6}  {spills:>6}  {scratch:>7}  {instructions}{counts}"
            );
        }
    }
    if !report.modelled.is_empty() {
        text.push_str("\nmodelled, not measured:\n");
    }
    for product in &report.modelled {
        let _ = writeln!(text, "{}; at most {} allowed", product.line, product.at_most);
    }
    text.push('\n');
    for object in &report.objects {
        let pinned = object.is_as_pinned().map_or("", |equal| if equal { "  as pinned" } else { "  not as pinned" });
        let _ = writeln!(text, "{}  {}{pinned}", object.object_sha256, object.object);
    }
    for problem in &report.problems {
        let _ = writeln!(text, "problem: {problem}");
    }
    if report.problems.is_empty() {
        let _ = writeln!(text, "\nbudgets hold; compiled twice, in two folders: the same bytes");
    }
    let _ = writeln!(text, "{WORDING}");
    text
}
