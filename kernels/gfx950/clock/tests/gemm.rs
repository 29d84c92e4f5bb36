//! The products of gemm.hip on the model.

use std::collections::BTreeSet;

use gfx950_clock::order::Order;
use gfx950_clock::product::{Gemm, Shape, line};
use gfx950_interpreter::Launch;
use gfx950_interpreter::Order::Serial;
use gfx950_interpreter::memory::Memory;
use gfx950_interpreter::traced;

use crate::tools::gemm;

/// A workgroup's clocks are those of its steps and seams: the estimate from short runs is what a whole run of three tiles and the longer k takes.
#[test]
fn steps_and_seams_are_alike() {
    let Some(object) = gemm() else { return };
    for ((m, n), k) in [((128, 128), 16 * 256), ((128, 128), 11 * 256), ((192, 256), 16 * 256), ((256, 256), 16 * 256)] {
        let mut model = Gemm::new(object.kernel(&format!("mxfp4_gemm_{m}x{n}")).unwrap()).unwrap();
        let one = model.product(Shape { m, n, k }).unwrap();
        let extrapolated = one.clocks + 2 * (one.seam + one.step * (k / 256) as f64) as u64;
        let executed = model.whole(3, k).unwrap().clocks;
        println!("{m}x{n}, {k}: {executed} executed, {extrapolated} extrapolated, {one:?}");
        assert!(extrapolated.abs_diff(executed) * 50 <= executed, "{one:?}: {extrapolated} extrapolated, {executed} executed");
    }
}

/// The twelve products of Llama 3.1-8B at 16,384 tokens reach 55 % of the peak, by the model.
#[test]
fn the_papers_products_reach_more_than_half_of_the_peak() {
    let Some(object) = gemm() else { return };
    const TOKENS: u64 = 16_384;
    let models = ["192x256", "256x256"].map(|tile| object.kernel(&format!("mxfp4_gemm_{tile}")).unwrap());
    let [mut oblong, mut square] = models.map(|kernel| Gemm::new(kernel).unwrap());
    let mut least = 1.0f64;
    for (n, k) in [(6144, 4096), (4096, 4096), (28_672, 4096), (4096, 14_336)] {
        for (m, n, k) in [(TOKENS, n, k), (TOKENS, k, n), (n, k, TOKENS)] {
            let shape = Shape { m, n, k };
            // The host's choice (kernels::gpu::Plan).
            let (model, name) = if m == 6144 { (&mut oblong, "192x256") } else { (&mut square, "256x256") };
            let product = model.product(shape).unwrap();
            println!("{}", line(name, shape, &product));
            least = least.min(product.share_of_peak);
        }
    }
    assert!(least >= 0.55, "{least}");
}

#[test]
fn what_is_printed_says_that_it_is_modelled() {
    let Some(object) = gemm() else { return };
    let kernel = object.kernel("mxfp4_gemm_64x64").unwrap();
    let mut model = Gemm::new(kernel).unwrap();
    let shape: Shape = "256x512x2048".parse().unwrap();
    let product = model.product(shape).unwrap();
    let text = line(&kernel.name, shape, &product);
    assert!(text.contains("clocks modelled") && text.contains("256x512x2048"), "{text}");
    assert!(product.share_of_peak > 0.0 && product.share_of_peak < 1.0, "{text}");
}

#[test]
fn what_is_no_product_is_refused() {
    assert!("256x512".parse::<Shape>().is_err() && "0x1x1".parse::<Shape>().is_err() && "1x2x3x4".parse::<Shape>().is_err());
    let Some(object) = gemm() else { return };
    let said = Gemm::new(object.kernel("mxfp4_gemm_sum").unwrap()).unwrap_err().to_string();
    assert!(said.contains("mxfp4_gemm_sum is no product of tiles"), "{said}");
}

/// The kernel makes the tiles that [`Order`] says, by where its stores go; and as many workgroups fit on a unit as the host starts.
#[test]
fn workgroups_make_the_tiles_of_the_order() {
    let Some(object) = gemm() else { return };
    for (tile, together) in [("64x64", 4), ("128x128", 2), ("192x256", 1), ("256x256", 1)] {
        let kernel = object.kernel(&format!("mxfp4_gemm_{tile}")).unwrap();
        assert_eq!(Gemm::new(kernel).unwrap().resident(), together);
    }
    let kernel = object.kernel("mxfp4_gemm_64x64").unwrap();
    const K: u64 = 256;
    for (down, across, workgroups) in [(11, 3, 9), (3, 5, 15), (2, 7, 4)] {
        let (order, m, n) = (Order { down, across, workgroups }, 64 * down, 64 * across);
        for workgroup in 0..workgroups {
            let mut memory = Memory::new();
            let mut arguments = Vec::new();
            for bytes in [m * K / 2, m * K / 32, n * K / 2, n * K / 32] {
                arguments.extend(memory.input("operand", &vec![0; bytes as usize]).0.to_le_bytes());
            }
            let d = memory.output("D", (2 * m * n) as usize).0;
            arguments.extend([d, 0].into_iter().flat_map(u64::to_le_bytes));
            arguments.extend([m, n, K, 0, 1].into_iter().flat_map(|word| (word as u32).to_le_bytes()));
            arguments.extend(1f32.to_le_bytes());
            let grid = [workgroups as u32, 1, 1];
            let launch = Launch { kernel, grid, threads: 256, dynamic_lds: 0, arguments: &arguments, order: Serial };
            let trace = traced(&mut memory, &launch, [workgroup as u32, 0, 0]).unwrap();
            let addresses = trace.accesses.values().flatten().flat_map(|access| access.lanes).flatten();
            let elements = addresses.filter(|address| (d..d + 2 * m * n).contains(address)).map(|address| (address - d) / 2);
            let made: BTreeSet<(u64, u64)> = elements.map(|element| (element / n / 64, element % n / 64)).collect();
            let turns = (0..order.turns()).filter(|&turn| workgroup < order.at_work(turn));
            assert_eq!(made, turns.map(|turn| order.tile(turn, workgroup)).collect(), "{order:?}, {workgroup}");
        }
    }
}

/// What the order of tiles saves: rows and columns of tiles that the dies read, against the order of the numbers.
#[test]
fn an_order_for_dies_reads_less() {
    let (mut ordered, mut by_number) = (Vec::new(), Vec::new());
    for (n, k) in [(6144, 4096), (4096, 4096), (28_672, 4096), (4096, 14_336)] {
        for (m, n, k) in [(16_384, n, k), (16_384, k, n), (n, k, 16_384)] {
            let tile = if m == 6144 { [192, 256] } else { [256, 256] };
            let (down, across): (u64, u64) = (m / tile[0], n / tile[1]);
            let order = Order { down, across, workgroups: (down * across).min(256) };
            let gigabytes = |[rows, columns]: [u64; 2]| ((rows * tile[0] + columns * tile[1]) * (k / 2 + k / 32)) as f64 / 1e9;
            let both = [order.panels(Order::tile), order.panels(Order::tile_by_number)].map(gigabytes);
            println!("{m}x{n}x{k}: {:.2} GB in this order, {:.2} by number", both[0], both[1]);
            ordered.push(both[0]);
            by_number.push(both[1]);
        }
    }
    let less = ordered.iter().sum::<f64>() / by_number.iter().sum::<f64>();
    println!("all twelve: {less:.3} of the bytes");
    assert!(ordered.iter().zip(&by_number).all(|(a, b)| a <= b) && less < 0.8, "{less}");
}
