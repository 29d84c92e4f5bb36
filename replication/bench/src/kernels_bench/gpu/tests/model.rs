//! The clock model's figures beside measurements, and alone.

use contract::recipe::Pass;
use study::code_objects::Modelled;
use study::kernels::ClockModel;

use super::*;

/// A model that says 4 TFLOP/s of the first product of [`packed_lines`] and 2 of the second, of a device that has 8 of them and 4 TB/s.
fn clock_model() -> ClockModel {
    let peaks = Peaks { bf16: 2e12, fp8: None, mxfp4: Some(8e12), bytes_per_second: 4e12, memory_bytes: 1 };
    let modelled = [
        ("mxfp4_gemm_64x64", "16x64x32", 16_384),
        ("mxfp4_gemm_64x64", "32x64x32", 65_536),
        ("mxfp4_quantise", "1024x512", 803_072),
        // 3 products of 2 x 128 operations for each of 64 x 65 / 2 pairs, in 4 heads of one sequence: 6,389,760 operations at 1 TFLOP/s.
        ("attention_backward_q", "64x4x2x1", 6_389_760),
    ];
    let modelled = modelled.map(|(kernel, shape, modelled_clocks)| Modelled {
        kernel: kernel.to_owned(),
        shape: shape.to_owned(),
        modelled_clocks,
        at_most: modelled_clocks,
        line: String::new(),
    });
    ClockModel { compiler: "clang of a test".to_owned(), hertz: 1e12, peaks, modelled: modelled.into() }
}

/// What the model says stands beside our product and the sum of a block, never beside the library's or another device's; a sum that it does not
/// know all of has none. Expected: 65,536 operations in 16,384 clocks of a picosecond are 4 TFLOP/s, half of the stated 8.
#[test]
fn the_model_stands_beside_what_was_measured() {
    let parsed = parse(&packed_lines(&[(16, 3.0, Some(2.0), None), (32, 1.0, None, None)]), "cpu").unwrap();
    let gpu = |device: &str, architecture: &str| {
        let mut bench = GpuBench {
            device: device.to_owned(),
            architecture: architecture.to_owned(),
            mxfp4: "native".to_owned(),
            samples: parsed.samples.clone(),
            ..GpuBench::default()
        };
        bench.comparisons = compare(&bench, true);
        bench
    };
    let (hip, cuda, model) = (gpu("hip:0", "gfx950"), gpu("cuda:0", "sm_100a"), clock_model());
    let beside = |gpu: &GpuBench, name: &str| {
        let row = gpu.rows().into_iter().find(|row| row.samples.name == name).unwrap();
        model.beside(gpu, row.samples).map(|modelled| [modelled.per_second / 1e12, modelled.of_stated, modelled.measured(&row)])
    };
    let close = |found: Option<[f64; 3]>, expected: [f64; 3]| found.unwrap().iter().zip(expected).all(|(a, b)| (a / b - 1.0).abs() < 1e-9);
    assert!(close(beside(&hip, "gemm/mxfp4-h0/cpu/qkv/fprop/16x64x32"), [4.0, 0.5, 0.75]));
    assert!(close(beside(&hip, "gemm/mxfp4-h0/cpu/qkv/fprop/32x64x32"), [2.0, 0.25, 0.5]));
    // 196,608 operations: modelled in 81,920 clocks, measured in 65,536 / 3e12 + 131,072 / 1e12 seconds.
    let block = [2.4, 0.3, 81_920e-12 / (65_536.0 / 3e12 + 131_072.0 / 1e12)];
    assert!(close(beside(&hip, "block/mxfp4-h0/cpu"), block), "{:?}", beside(&hip, "block/mxfp4-h0/cpu"));
    assert_eq!(beside(&hip, "gemm/mxfp4-hipblaslt/cpu/qkv/fprop/16x64x32"), None);
    assert_eq!(beside(&cuda, "gemm/mxfp4-h0/cpu/qkv/fprop/16x64x32"), None);
    let mut partly = clock_model();
    partly.modelled.remove(1);
    let row = hip.rows().into_iter().find(|row| row.samples.name == "block/mxfp4-h0/cpu").unwrap();
    assert_eq!(partly.beside(&hip, row.samples), None);

    let columns = |document: &Document| {
        let out = tempfile::tempdir().unwrap();
        let directory = write(&repository(), out.path(), document, &environment()).unwrap();
        assert!(verify(&directory, None, None).unwrap().holds());
        assert_eq!(Document::read(&directory.join("kernels.json")).unwrap(), *document);
        let page = std::fs::read_to_string(directory.join("kernels.html")).unwrap();
        let csv = std::fs::read_to_string(directory.join("devices.csv")).unwrap();
        (csv.lines().next().unwrap().to_owned(), csv, page)
    };
    let with = |gpus: Vec<GpuBench>, clock_model| Document { gpus, clock_model, ..synthetic() };
    let (plain, _, page) = columns(&with(vec![cuda.clone()], None));
    assert!(plain.ends_with(",of_measured_peak,needs") && !page.contains("odelled"), "nothing changes without a model");
    let document = with(vec![hip.clone(), cuda], Some(model.clone()));
    let (header, csv, page) = columns(&document);
    assert_eq!(header, plain + ",modelled_seconds,modelled_per_second,modelled_of_stated_peak,measured_over_modelled");
    let row = csv.lines().find(|line| line.contains("gemm/mxfp4-h0/cpu/qkv/fprop/16x64x32") && line.starts_with("hip:0")).unwrap();
    assert!(row.contains(",4000000000000,0.5,0.7"), "{row}");
    assert!(csv.lines().filter(|line| line.starts_with("cuda:0")).all(|line| line.ends_with(",,,")), "{csv}");
    assert!(page.contains("Measured : modelled") && page.contains("4.0 TFLOP/s") && !page.contains("id=\"modelled\""));
    let shown = table(&document);
    let hip = shown.lines().skip_while(|line| !line.starts_with("hip:0")).take_while(|line| !line.starts_with("cuda:0"));
    insta::assert_snapshot!(hip.collect::<Vec<_>>().join("\n"));

    // Without a card the figures stand alone, and no time beside them.
    let alone = with(Vec::new(), Some(model));
    let alone = Document { not_run: vec![not_run("hip", None)], ..alone };
    let (_, csv, page) = columns(&alone);
    assert!(page.contains("id=\"modelled\"") && page.contains("nothing was measured"));
    assert_eq!(csv.lines().filter(|line| line.starts_with("hip,,modelled,")).count(), 4);
    let shown = table(&alone);
    let modelled = shown.lines().skip_while(|line| !line.starts_with("gfx950 kernels")).take(6);
    insta::assert_snapshot!("the_models_figures_alone", modelled.collect::<Vec<_>>().join("\n"));
}

/// kernels.yaml lists every product of the paper's model, and every gradient that `kernel-time` prepares: no row there is left without a figure.
#[test]
fn every_product_of_the_papers_model_is_modelled() {
    let manifest = crate::kernels_build::Manifest::load(&repository(), Path::new("kernels/gfx950")).unwrap();
    let budgets = manifest.sources.iter().flat_map(|source| &source.kernels);
    let modelled = budgets.flat_map(|(kernel, budget)| budget.clocks.iter().map(move |(shape, clocks)| (kernel, shape, *clocks)));
    let modelled = modelled.map(|(kernel, shape, at_most)| Modelled {
        kernel: kernel.clone(),
        shape: shape.clone(),
        modelled_clocks: at_most,
        at_most,
        line: String::new(),
    });
    let model = ClockModel { modelled: modelled.collect(), ..clock_model() };
    let gpu = GpuBench { architecture: "gfx950".to_owned(), ..GpuBench::default() };
    let manifests = Manifests::load(&repository()).unwrap();
    let sections = manifests.models[&manifests.profile("llama31-8b").unwrap().model].section();
    let tokens = 16_384;
    for (linear, out, inputs) in sections.linears() {
        let products = [Pass::Fprop, Pass::Dgrad, Pass::Wgrad].map(|pass| {
            let (m, n, k) = pass.shape(tokens, out, inputs);
            format!("gemm/mxfp4-h16/llama31-8b/{linear}/{}/{m}x{n}x{k}", pass.name())
        });
        for name in products.into_iter().chain([format!("quantise/mxfp4-h16/both/llama31-8b/{linear}/{tokens}x{out}")]) {
            let samples = Samples { name, operations: 1, ..parse(&lines(), "x").unwrap().samples[0].clone() };
            assert!(model.beside(&gpu, &samples).is_some(), "{}", samples.name);
        }
    }
}
