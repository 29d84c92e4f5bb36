//! What docs/results.md says of kernels and steps on a CPU.

use study::number::listed;

use super::{Interval, Results, fixed, span};

const CPU_KERNELS: &str = "kernels-2026-11-26-epyc-zen5-2c";
/// One host, four times.
const INTEL: [&str; 4] = [
    "kernels-2026-11-27-gpu-host-cpu-1",
    "kernels-2026-11-27-gpu-host-cpu-2",
    "kernels-2026-11-27-gpu-host-cpu-3",
    "kernels-2026-11-27-gpu-host-cpu-4",
];
/// Two others, the first of them twice.
const INTEL_AGAIN: [&str; 3] =
    ["kernels-2026-11-28-gpu-host-cpu-5", "kernels-2026-11-28-gpu-host-cpu-6", "kernels-2026-11-28-gpu-host-cpu-7"];
/// Two more, with earlier loops.
const INTEL_BEFORE: [&str; 2] = ["kernels-2026-11-27-gpu-host-cpu", "kernels-2026-11-27-gpu-host-cpu-two-gpus"];
/// Steps of the smaller size on the hosts of [`INTEL_AGAIN`], in turns with PyTorch's, and of the larger; the last of each on the second host.
const STEPS_INTEL_A: [&str; 4] = [
    "kernels-2026-11-28-gpu-host-cpu-step-a-1",
    "kernels-2026-11-28-gpu-host-cpu-step-a-2",
    "kernels-2026-11-28-gpu-host-cpu-step-a-3",
    "kernels-2026-11-28-gpu-host-cpu-step-a-4",
];
const STEPS_INTEL_B: [&str; 4] = [
    "kernels-2026-11-28-gpu-host-cpu-step-b-1",
    "kernels-2026-11-28-gpu-host-cpu-step-b-2",
    "kernels-2026-11-28-gpu-host-cpu-step-b-3",
    "kernels-2026-11-28-gpu-host-cpu-step-b-4",
];
/// Another host, with faster preparing: two of each at a time.
const INTEL_LATER: [&str; 2] = ["kernels-2026-11-28-gpu-host-cpu-8", "kernels-2026-11-28-gpu-host-cpu-9"];
const STEPS_INTEL_LATER_A: [&str; 4] = [
    "kernels-2026-11-28-gpu-host-cpu-step-a-5",
    "kernels-2026-11-28-gpu-host-cpu-step-a-6",
    "kernels-2026-11-28-gpu-host-cpu-step-a-7",
    "kernels-2026-11-28-gpu-host-cpu-step-a-8",
];
const STEPS_INTEL_LATER_B: [&str; 4] = [
    "kernels-2026-11-28-gpu-host-cpu-step-b-5",
    "kernels-2026-11-28-gpu-host-cpu-step-b-6",
    "kernels-2026-11-28-gpu-host-cpu-step-b-7",
    "kernels-2026-11-28-gpu-host-cpu-step-b-8",
];
/// One more, the busiest.
const INTEL_BUSY: [&str; 2] = ["kernels-2026-11-28-gpu-host-cpu-10", "kernels-2026-11-28-gpu-host-cpu-11"];
const STEPS_INTEL_BUSY_A: [&str; 4] = [
    "kernels-2026-11-28-gpu-host-cpu-step-a-9",
    "kernels-2026-11-28-gpu-host-cpu-step-a-10",
    "kernels-2026-11-28-gpu-host-cpu-step-a-11",
    "kernels-2026-11-28-gpu-host-cpu-step-a-12",
];
const STEPS_INTEL_BUSY_B: [&str; 4] = [
    "kernels-2026-11-28-gpu-host-cpu-step-b-9",
    "kernels-2026-11-28-gpu-host-cpu-step-b-10",
    "kernels-2026-11-28-gpu-host-cpu-step-b-11",
    "kernels-2026-11-28-gpu-host-cpu-step-b-12",
];
/// Zen 4: products, the same with pairs of BF16, and steps of both sizes with those.
const ZEN4: &str = "kernels-2026-11-28-epyc-zen4-2c";
const ZEN4_PAIRS: &str = "kernels-2026-11-29-epyc-zen4-2c";
const STEPS_ZEN4: [&str; 2] = ["kernels-2026-11-29-epyc-zen4-2c-step-a", "kernels-2026-11-29-epyc-zen4-2c-step-b"];
/// Steps of both sizes on an Intel Xeon with AMX, a machine of two cores.
const STEPS_XEON: [&str; 2] = ["kernels-2026-11-28-xeon-amx-2c-step-a", "kernels-2026-11-28-xeon-amx-2c-step-b"];
/// Steps of both sizes on one core of a GPU's host, an Intel Xeon with AMX, while nothing else ran there.
const STEPS_TILES: [&str; 2] = ["kernels-2026-11-28-gpu-host-cpu-amx-step-a", "kernels-2026-11-28-gpu-host-cpu-amx-step-b"];
const PRODUCTS_TILES: &str = "kernels-2026-11-28-gpu-host-cpu-amx";
/// A processor without AVX-512.
const CPU_KERNELS_AVX2: &str = "kernels-2026-11-27-epyc-zen3-2c";
/// Its steps, in turns with PyTorch's.
const STEPS_AVX2: &str = "kernels-2026-11-28-epyc-zen3-2c-steps";

// Comparisons that are quoted.
const OVER_MKL: &str = "F32 multiply-adds of prepared operands (FP8, BF16 arms), over MKL's F32";
const EAGER: &str = "full MXFP4 with H16 over PyTorch F32, eager";
const COMPILED: &str = "full MXFP4 with H16 over PyTorch F32, compiled";
const OWN_FP8: &str = "full MXFP4 with H16 over our FP8";
const FP8_EAGER: &str = "our FP8 over PyTorch F32, eager";
const FP8_EMULATED: &str = "our FP8 over PyTorch's emulated FP8, compiled";
const BEST: &str = "MXFP4 with preparing both operands, over the best F32";
const FLOAT_PEAK: &str = "F32 multiply-adds of prepared operands, of their peak";
const INTEGER_PEAK: &str = "MXFP4 product of prepared operands, of the integer dot-product peak";

impl Results {
    /// Fastest and slowest rounds of the large F32 product, PyTorch's and ours, ms.
    fn rounds(&self, directory: &str) -> [String; 2] {
        let kernels = self.json(&format!("{directory}/kernels.json"));
        let of = |list: &str, name: &str| {
            let one = kernels[list].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap();
            let milliseconds: Vec<f64> = one["samples"].as_array().unwrap().iter().map(|second| 1e3 * second.as_f64().unwrap()).collect();
            span(&milliseconds, 0)
        };
        [of("peers", "gemm/f32/2048x1024x1024"), of("samples", "gemm/fp8/2048x1024x1024")]
    }

    fn ratio_with_interval(&mut self, directory: &str, what: &str) -> String {
        let row = self.compared(directory, what);
        let [mean, low, high] = ["ratio", "low", "high"].map(|name| row[name].parse().unwrap());
        Interval { mean, low, high }.text(2)
    }

    /// The ratios of several measurements, with intervals.
    fn intervals(&mut self, directories: &[&str], what: &str) -> String {
        listed(&directories.iter().map(|directory| self.ratio_with_interval(directory, what)).collect::<Vec<_>>())
    }

    /// The ratios of several measurements, in percent.
    fn shares(&mut self, directories: &[&str], what: &str) -> String {
        listed(&directories.iter().map(|directory| fixed(100.0 * self.ratio(directory, what), 0)).collect::<Vec<_>>())
    }

    pub(super) fn sentences_of_cpu_kernels(&mut self) -> Vec<String> {
        let mut of = |what: &str| self.ratio(CPU_KERNELS, what);
        let percent = |ratio: f64| fixed(100.0 * ratio, 0);
        let mut steps = |what: &str| ["A", "B"].map(|size| fixed(of(&format!("{what}, size {size}")), 2));
        let [eager_a, eager_b] = steps(EAGER);
        let [compiled_a, compiled_b] = steps(COMPILED);
        let fp8 = steps(FP8_EAGER).join(" and ");
        let emulated = steps(FP8_EMULATED).join(" and ");
        let [f32, mxfp4] = [FLOAT_PEAK, INTEGER_PEAK].map(|what| percent(of(what)));
        let peak = of(FLOAT_PEAK);
        let mkl = of(OVER_MKL);
        assert!(peak / mkl < 0.5, "PyTorch's product reaches {} of the peak, and the page says less than half", peak / mkl);
        let mkl = fixed(mkl, 2);
        let best = fixed(of(BEST), 2);
        let ggml = fixed(of("MXFP4 with preparing both operands, over ggml's MXFP4 x Q8_0"), 2);
        let avx2 = self.ratio_with_interval(CPU_KERNELS_AVX2, OVER_MKL);
        let packing = self.ratio_with_interval(CPU_KERNELS_AVX2, "F32 with packing, over PyTorch's F32");
        let avx2_integer = percent(self.ratio(CPU_KERNELS_AVX2, INTEGER_PEAK));
        let avx2_best = self.ratio_with_interval(CPU_KERNELS_AVX2, BEST);
        let avx2_share = percent(self.ratio(CPU_KERNELS_AVX2, FLOAT_PEAK));
        vec![
            format!("run at {f32} % of the multiply-add peak and {mkl} times as fast as PyTorch's"),
            format!("our F32 product of prepared operands is {avx2} times as fast as MKL's in turns, at {avx2_share} % of the peak"),
            format!("With packing both sides it is {packing} times as fast"),
            format!("run at {avx2_integer} % of their peak; with preparing they are {avx2_best} times as fast as the best F32"),
            format!("run at {mxfp4} % of the peak of integer dot products"),
            format!("{best} times as fast as the best F32 product and {ggml} times as fast as ggml's"),
            format!("takes {eager_a} times less than PyTorch's in F32 and {compiled_a} times less than its compiled one"),
            format!("7.2M parameters {eager_b} and {compiled_b} times"),
            format!("Our FP8 is {fp8} times as fast as PyTorch's F32, and {emulated} times as fast as its compiled emulation"),
        ]
    }

    /// What it says of Intel's processors.
    pub(super) fn sentences_of_intel(&mut self) -> Vec<String> {
        let hosts = [&INTEL[..], &INTEL_AGAIN, &INTEL_LATER, &INTEL_BUSY];
        let [over_mkl, mkl_again, mkl_later, mkl_busy] = hosts.map(|directories| self.intervals(directories, OVER_MKL));
        let [float, float_again, float_later, float_busy] = hosts.map(|directories| self.shares(directories, FLOAT_PEAK));
        let [integer, integer_again, integer_later, integer_busy] = hosts.map(|directories| self.shares(directories, INTEGER_PEAK));
        let [best_again, best_later, best_busy] =
            [&INTEL_AGAIN[..], &INTEL_LATER, &INTEL_BUSY].map(|directories| self.intervals(directories, BEST));
        let before = INTEL_BEFORE.map(|directory| self.ratio_with_interval(directory, OVER_MKL));
        let rounds = INTEL.map(|directory| self.rounds(directory));
        let [theirs, ours] = [0, 1].map(|side| listed(&rounds.each_ref().map(|rounds| rounds[side].clone())));
        let mut ratios = |what: &str| listed(&INTEL.map(|directory| fixed(self.ratio(directory, what), 2)));
        let best = ratios(BEST);
        let bf16 = ratios("BF16 with preparing, over PyTorch's BF16");
        let int8 = ratios("MXFP4 product of prepared operands, over PyTorch's INT8 (no scales)");
        vec![
            format!("is {over_mkl} times as fast as MKL's, at {float} % of the peak"),
            format!("ours take {ours} ms, MKL's {theirs} ms"),
            format!("gave {mkl_again} times MKL's speed at {float_again} % of the peak"),
            format!("at {integer_again} % of the integer peak and, with preparing, {best_again} times as fast as the best F32"),
            format!("are {mkl_later} times as fast as MKL's, at {float_later} % of the peak"),
            format!("run at {integer_later} % of the integer peak and, with preparing, {best_later} times as fast as the best F32"),
            format!("are {mkl_busy} times as fast as MKL's, at {float_busy} % of the peak"),
            format!("run at {integer_busy} % of the integer peak and, with preparing, {best_busy} times as fast as the best F32"),
            format!("two more hosts of the kind gave {} (", before[0]),
            format!("and {} times MKL's speed", before[1]),
            format!("run at {integer} % of the integer peak, and with preparing are {best} times as fast as the best F32"),
            format!("our BF16 product is {bf16} times as fast, our MXFP4 product {int8} times as fast as INT8 without scales"),
        ]
    }

    /// What it says of steps on Intel's processors: the least and the largest of the measurements' ratios.
    pub(super) fn sentences_of_steps_on_intel(&mut self) -> Vec<String> {
        let hosts =
            [[&STEPS_INTEL_A, &STEPS_INTEL_B], [&STEPS_INTEL_LATER_A, &STEPS_INTEL_LATER_B], [&STEPS_INTEL_BUSY_A, &STEPS_INTEL_BUSY_B]];
        hosts.into_iter().flat_map(|both| self.steps_of(both)).collect()
    }

    fn steps_of(&mut self, [a, b]: [&[&str; 4]; 2]) -> [String; 2] {
        let mut range = |what: &str, size: &str, directories: &[&str]| {
            let what = format!("{what}, size {size}");
            let mut ratios: Vec<f64> = Vec::new();
            for directory in directories {
                let row = self.compared(directory, &what);
                assert_eq!((&*row["in_turns"], &*row["n"]), ("1", "15"), "{directory}: {what}");
                ratios.push(row["ratio"].parse().unwrap());
            }
            span(&ratios, 2)
        };
        let mut both = |what: &str| [range(what, "A", a), range(what, "B", b)];
        let [eager_a, eager_b] = both(EAGER);
        let [compiled_a, compiled_b] = both(COMPILED);
        let [fp8_a, fp8_b] = both(FP8_EAGER);
        let [own_a, own_b] = both(OWN_FP8);
        [
            format!(
                "takes {eager_a} times less than in F32 and {compiled_a} times less than compiled, one of 7.2M {eager_b} and {compiled_b} times less"
            ),
            format!("Our FP8 is {fp8_a} and {fp8_b} times as fast as F32, and MXFP4 with H16 {own_a} and {own_b} times as fast as our FP8"),
        ]
    }

    /// What it says of steps in turns on machines of two cores, and of products on a Zen 4.
    pub(super) fn sentences_of_steps_in_turns(&mut self) -> Vec<String> {
        let mut all: Vec<String> =
            [[STEPS_AVX2; 2], STEPS_ZEN4, STEPS_XEON, STEPS_TILES].into_iter().flat_map(|both| self.steps_in_turns(both)).collect();
        let [mkl, best] = [OVER_MKL, BEST].map(|what| self.ratio_with_interval(ZEN4, what));
        let [float, integer] = [FLOAT_PEAK, INTEGER_PEAK].map(|what| self.shares(&[ZEN4], what));
        all.push(format!("is {mkl} times as fast as MKL's, at {float} % of the peak"));
        let pairs = self.ratio_with_interval(ZEN4_PAIRS, OVER_MKL);
        let share = self.shares(&[ZEN4_PAIRS], FLOAT_PEAK);
        all.push(format!("are {pairs} times as fast as MKL's F32, at {share} % of the multiply-add peak"));
        let own = [("A", STEPS_ZEN4[0]), ("B", STEPS_ZEN4[1])]
            .map(|(size, directory)| self.ratio_with_interval(directory, &format!("{OWN_FP8}, size {size}")));
        all.push(format!("no more than {} times as fast as our FP8", own.join(" and ")));
        let [tiles_mkl, tiles_best] = [OVER_MKL, BEST].map(|what| self.ratio_with_interval(PRODUCTS_TILES, what));
        let [tiles_float, tiles_integer] = [FLOAT_PEAK, INTEGER_PEAK].map(|what| self.shares(&[PRODUCTS_TILES], what));
        all.push(format!(
            "F32 ones are {tiles_mkl} times as fast as MKL's, at {tiles_float} % of the peak; MXFP4 ones run at {tiles_integer} % of the peak"
        ));
        all.push(format!("with preparing {tiles_best} times as fast as the best F32"));
        all.push(format!(
            "run at {integer} % of the peak of integer dot products and, with preparing, {best} times as fast as the best F32"
        ));
        all
    }

    /// Of the smaller size and of the larger.
    fn steps_in_turns(&mut self, directories: [&str; 2]) -> [String; 3] {
        let sizes = [("A", directories[0]), ("B", directories[1])];
        let mut steps = |what: &str| {
            sizes.map(|(size, directory)| {
                let what = format!("{what}, size {size}");
                assert_eq!(self.compared(directory, &what)["in_turns"], "1", "{what}");
                self.ratio_with_interval(directory, &what)
            })
        };
        let [eager_a, eager_b] = steps(EAGER);
        let [compiled_a, compiled_b] = steps(COMPILED);
        let fp8 = steps(FP8_EAGER).join(" and ");
        let emulated = steps(FP8_EMULATED).join(" and ");
        let counts = sizes.map(|(size, directory)| self.compared(directory, &format!("{EAGER}, size {size}"))["n"].clone());
        [
            format!("by {} rounds of the smaller size and {} of the larger", counts[0], counts[1]),
            format!(
                "takes {eager_a} times less than in F32 and {compiled_a} times less than compiled, one of 7.2M {eager_b} and {compiled_b} times less"
            ),
            format!("our FP8 is {fp8} times as fast as F32, and {emulated} times as fast as compiled emulated FP8"),
        ]
    }
}
