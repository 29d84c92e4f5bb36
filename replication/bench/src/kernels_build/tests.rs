//! The lint, the gates and the compiler's version, each with what must be refused.

use std::collections::BTreeMap;
use std::path::Path;

use study::code_objects::{Build, Built, Modelled};
use study::exit::ExitCode;
use study::files;

use super::compiler::is_supported;
use super::{Budget, BuildError, Compiler, Request, Source, chained_conversions, check, run, table};

#[test]
fn a_chained_stochastic_conversion_is_found_and_an_unchained_one_is_not() {
    let good = "x = __builtin_amdgcn_cvt_scalef32_sr_pk_fp4_f32(0, v, seed, s, 1) & 0xff00;\n// __builtin_amdgcn_cvt_scalef32_sr_pk_fp4_f32(x, v)\n";
    assert_eq!(chained_conversions(good), []);
    let bad = "/* two\nlines */ w = 0;\nw = __builtin_amdgcn_cvt_scalef32_sr_pk_fp4_bf16( f(a, b), v, seed, s, 0);\n";
    let findings = chained_conversions(bad);
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].line, findings[0].old.as_str()), (3, "f(a, b)"));
    assert!(findings[0].to_string().contains("clang 22 miscompiles"));
    let nearest = "w = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(w, a, b, s, 1);";
    assert_eq!(chained_conversions(nearest), []);
}

fn budget() -> (Source, BTreeMap<String, Built>) {
    let instructions = BTreeMap::from([("v_mfma".to_owned(), 8)]);
    let budget = Budget { vgprs: 128, sgprs: 102, lds: 200_000, instructions, clocks: BTreeMap::new() };
    let counted = BTreeMap::from([("v_mfma".to_owned(), 8)]);
    let kernel = Built { vgprs: 128, agprs: 0, sgprs: 80, lds: 163_840, spills: 0, scratch: 0, instructions: 100, counted };
    let source =
        Source { file: "k.hip".to_owned(), defines: Vec::new(), object: None, kernels: BTreeMap::from([("k".to_owned(), budget)]) };
    (source, BTreeMap::from([("k".to_owned(), kernel)]))
}

#[test]
fn a_kernel_inside_its_budget_has_no_problems() {
    let (source, built) = budget();
    assert_eq!(check(&source, &built), Vec::<String>::new());
}

#[test]
fn every_gate_can_close() {
    type Change = fn(&mut Built);
    let changes: [(&str, Change); 6] = [
        ("129 vector registers, at most 128", |k| k.vgprs = 129),
        ("103 scalar registers, at most 102", |k| k.sgprs = 103),
        ("163841 bytes of LDS, at most 163840", |k| k.lds = 163_841),
        ("1 spilled registers", |k| k.spills = 1),
        ("4 bytes of scratch", |k| k.scratch = 4),
        ("7 times v_mfma, 8 expected", |k| *k.counted.get_mut("v_mfma").unwrap() = 7),
    ];
    for (expected, change) in changes {
        let (source, mut built) = budget();
        change(built.get_mut("k").unwrap());
        let problems = check(&source, &built);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(expected), "{problems:?}");
    }
    let (source, mut built) = budget();
    let kernel = built.remove("k").unwrap();
    built.insert("other".to_owned(), kernel);
    let problems = check(&source, &built);
    assert!(problems[0].contains("not in the code object") && problems[1].contains("has no budget"), "{problems:?}");
}

#[test]
fn a_product_over_its_clocks_is_a_problem_and_one_that_just_fits_is_none() {
    let product = |modelled_clocks| Modelled {
        kernel: "mxfp4_gemm_64x64".to_owned(),
        shape: "64x64x256".to_owned(),
        modelled_clocks,
        at_most: 1000,
        line: String::new(),
    };
    assert_eq!(super::modelled::problems(&[product(1000)]), Vec::<String>::new());
    assert_eq!(super::modelled::problems(&[product(1001)]), ["mxfp4_gemm_64x64 64x64x256: 1001 clocks modelled, at most 1000 are allowed"]);
}

#[test]
fn only_clang_22_is_taken() {
    assert!(is_supported("Debian clang version 22.1.8 (++20260101)") && is_supported("clang version 22.0.0"));
    assert!(!is_supported("clang version 19.1.7") && !is_supported("g++ 22.1") && !is_supported(""));
}

/// The repository's kernels in a folder of their own, where a test may change them; None where there is no compiler.
fn copied() -> Option<tempfile::TempDir> {
    if let Err(error) = Compiler::find() {
        assert!(std::env::var_os("REQUIRE_CLANG_22").is_none(), "{error}");
        eprintln!("skipped: {error}");
        return None;
    }
    let root = tempfile::tempdir().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    for folder in ["device", "gfx950"] {
        for name in files::list(&here.join(folder)).unwrap().into_iter().filter(|name| !name.contains('/')) {
            let name = format!("{folder}/{name}");
            files::copy(&here.join(&name), &root.path().join("kernels").join(&name)).unwrap();
        }
    }
    Some(root)
}

fn build(root: &Path) -> Result<Build, BuildError> {
    build_and(root, false)
}

fn build_and(root: &Path, pin: bool) -> Result<Build, BuildError> {
    run(root, &Request { arch: "gfx950".to_owned(), out: root.join("out"), pin }, &|_| {})
}

fn change(root: &Path, file: &str, from: &str, to: &str) {
    let path = root.join("kernels/gfx950").join(file);
    let text = files::read_text(&path).unwrap();
    assert!(text.contains(from), "{from}");
    files::write(&path, text.replacen(from, to, 1).as_bytes()).unwrap();
}

/// One source is enough: what is said and refused is decided source by source. All of them are built by CI's `kernels-build`.
fn with_one_source() -> Option<tempfile::TempDir> {
    let root = copied()?;
    let manifest = root.path().join("kernels/gfx950/kernels.yaml");
    let text = files::read_text(&manifest).unwrap();
    files::write(&manifest, &text.as_bytes()[..text.find("  - file: gemm.hip").unwrap()]).unwrap();
    Some(root)
}

#[test]
fn a_source_builds_to_the_same_bytes_twice_and_inside_its_budgets() {
    let Some(root) = with_one_source() else { return };
    let first = build(root.path()).unwrap();
    assert_eq!(first.problems, Vec::<String>::new());
    let json = files::read_text(&root.path().join("out/kernels.json")).unwrap();
    assert!(json.contains("\"schema\": \"kernels-build/2\"") && json.contains("mxfp4_quantise"));
    for object in &first.objects {
        assert_eq!(files::sha256_file(&root.path().join("out").join(&object.object)).unwrap(), object.object_sha256);
    }
    let text = table(&first);
    assert!(text.contains("not run on an MI355X") && text.contains("the same bytes"), "{text}");
    // The eight matrices that a layer of Llama 3.1-8B quantises, each with its clocks.
    assert_eq!(first.modelled.len(), 8);
    assert!(first.modelled.iter().all(|product| text.contains(&product.line) && product.line.contains("clocks modelled")), "{text}");
    // Each source was compiled twice, in two folders: what differed would be among the problems.
    assert!(text.contains("compiled twice"), "{text}");
}

#[test]
fn a_kernel_over_its_budget_a_chained_builtin_and_a_misspelt_key_are_refused() {
    let Some(root) = with_one_source() else { return };
    change(root.path(), "kernels.yaml", "mxfp4_quantise: {vgprs: 128", "mxfp4_quantise: {vgprs: 32");
    change(
        root.path(),
        "prelude.h",
        "// Waits for this wave",
        "#define CHAIN(w) __builtin_amdgcn_cvt_scalef32_sr_pk_fp4_f32(w, 0, 0, 1.0f, 0)\n// Waits for this wave",
    );
    let problems = build(root.path()).unwrap().problems;
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with("gfx950/prelude.h:") && problems[0].contains("chained"), "{problems:?}");
    assert!(problems[1].contains("mxfp4_quantise: ") && problems[1].contains("at most 32"), "{problems:?}");

    // A product that takes more clocks than it may.
    change(root.path(), "kernels.yaml", "{16384x4096: ", "{256x256x256: 1, 16384x4096: ");
    let error = build(root.path()).unwrap_err();
    assert!(error.exit_code() == 1 && error.to_string().contains("`256x256x256` is no matrix"), "{error}");
    change(root.path(), "kernels.yaml", "{256x256x256: 1, ", "{256x256: 1, ");
    let problems = build(root.path()).unwrap().problems;
    assert!(problems.iter().any(|problem| problem.starts_with("mxfp4_quantise 256x256: ")), "{problems:?}");
    change(root.path(), "kernels.yaml", "{256x256: 1, ", "{");

    // Bytes that are not the pinned ones, for the compiler that is here and for no other.
    change(root.path(), "kernels.yaml", "mxfp4_quantise: {vgprs: 32", "mxfp4_quantise: {vgprs: 128");
    let built = build_and(root.path(), true).unwrap();
    assert!(built.objects.iter().all(|object| object.is_as_pinned() == Some(true)), "{:?}", built.problems);
    let (compiler, first) = (&built.compiler, &built.objects[0].object_sha256);
    change(root.path(), "pinned.yaml", first, &"0".repeat(64));
    let problems = build(root.path()).unwrap().problems;
    assert!(problems.iter().any(|problem| problem.starts_with("quantise.co: not the bytes that pinned.yaml pins")), "{problems:?}");
    change(root.path(), "pinned.yaml", compiler, "clang of another day");
    let built = build(root.path()).unwrap();
    assert!(built.objects.iter().all(|object| object.is_as_pinned().is_none()) && !built.problems.iter().any(|p| p.contains("pin")));

    change(root.path(), "quantise.hip", "u32 top = blockIdx.y", "u32 top = block_q");
    let error = build(root.path()).unwrap_err();
    assert!(error.exit_code() == 1 && error.to_string().contains("block_q"), "{error}");

    change(root.path(), "kernels.yaml", "sgprs: 102", "sgpr: 102");
    let error = build(root.path()).unwrap_err();
    assert!(error.exit_code() == 2 && error.to_string().contains("kernels.yaml") && error.to_string().contains("sgpr"), "{error}");
}
