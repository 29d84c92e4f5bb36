use super::*;

fn values(rows: &[(&str, &[&[f64]])]) -> Values {
    let row = |seeds: &[&[f64]]| (1..).zip(seeds).map(|(seed, runs)| (seed, runs.to_vec())).collect();
    rows.iter().map(|(arm, seeds)| ((*arm).to_owned(), row(seeds))).collect()
}

/// Three arms and two seeds: residuals are plus and minus 0.01, 0.02 and 0.03 in pairs, so their squares sum to 28e-4 over 2 degrees of
/// freedom. t(0.975, 2) = 4.302653 and t(0.95, 2) = 2.919986 (any table); the error of a difference is sqrt(2 * 14e-4 / 2).
#[test]
fn a_table_decomposed_by_hand() {
    let table = values(&[
        ("base", &[&[0.06], &[-0.06]]),
        ("a", &[&[0.17], &[0.03]]),
        ("b", &[&[0.22], &[0.18]]),
        // One seed says nothing of the scatter; it is compared.
        ("short", &[&[0.5]]),
    ]);
    let layout = Layout::of(&table, "base").unwrap();
    let scatter = layout.scatter.unwrap();
    assert_eq!((layout.arms.len(), scatter.run.freedom, scatter.own), (3, 2, None));
    assert!((scatter.run.square - 14e-4).abs() < 1e-15);
    let a = layout.contrast(&[("a", 1.0), ("base", -1.0)]).unwrap();
    assert!((a.number - 0.1).abs() < 1e-15 && (a.error - 14e-4_f64.sqrt()).abs() < 1e-15 && a.n == 2, "{a:?}");
    let half = |confidence| (a.interval(confidence).unwrap().high - a.number) / a.error;
    assert!((half(0.95) - 4.302_652_73).abs() < 1e-7 && (half(0.90) - 2.919_985_58).abs() < 1e-7);
    let short = layout.contrast(&[("short", 1.0), ("base", -1.0)]).unwrap();
    assert!((short.number - 0.44).abs() < 1e-15 && (short.error - 28e-4_f64.sqrt()).abs() < 1e-15 && short.n == 1);
    assert_eq!(layout.contrast(&[("c", 1.0)]).unwrap_err(), "c has no number here");
}

/// With a third seed of the baseline alone the differences of the two arms are still 0.11 and 0.09: a variance of 2e-4, half of it each
/// arm's. A third arm with seeds 2 and 3 ties them: least squares by hand.
#[test]
fn empty_cells_leave_what_the_others_say() {
    let base: &[&[f64]] = &[&[0.06], &[-0.06], &[0.5]];
    let pair = Layout::of(&values(&[("base", base), ("a", &[&[0.17], &[0.03]])]), "base").unwrap().scatter.unwrap().run;
    assert!((pair.square - 1e-4).abs() < 1e-15 && pair.freedom == 1, "{pair:?}");
    // With seed effects of -t, 0 and t the squares left are 2 t^2 of the baseline and (12 - t)^2 / 2 of either other arm: least, 96, at t = 4.
    let table = values(&[("base", &[&[0.0], &[0.0], &[0.0]]), ("a", &[&[0.0], &[12.0], &[]]), ("b", &[&[], &[0.0], &[12.0]])]);
    let three = Layout::of(&table, "base").unwrap().scatter.unwrap().run;
    assert!((three.square - 48.0).abs() < 1e-10 && three.freedom == 2, "{three:?}");
}

/// The baseline run three times with each seed: its own scatter is 0.01 (deviations of 0.01, 0 and -0.01 have variance 1e-4), so its mean is
/// surer by two thirds of that. Of the table itself: residuals of plus and minus 0.02.
#[test]
fn repeated_runs_are_surer_by_what_runs_scatter_by_themselves() {
    let table = values(&[("base", &[&[0.02, 0.01, 0.03], &[-0.02, -0.01, -0.03]]), ("a", &[&[0.08], &[0.12]])]);
    let layout = Layout::of(&table, "base").unwrap();
    let Some(Scatter { run, own: Some(own) }) = layout.scatter else { panic!() };
    assert!((run.square - 4.0 * 4e-4).abs() < 1e-15 && run.freedom == 1, "{run:?}");
    assert!((own.square - 1e-4).abs() < 1e-15 && own.freedom == 4, "{own:?}");
    let a = layout.contrast(&[("a", 1.0), ("base", -1.0)]).unwrap();
    let (whole, part) = (2.0 * 16e-4 / 2.0, 1e-4 * (2.0 / 3.0) / 2.0);
    assert!((a.error.powi(2) - (whole - part)).abs() < 1e-15);
    assert!((a.freedom - 1.0).abs() < f64::EPSILON);
    // t(0.975, 1) = 12.706205.
    let common = layout.common_error("base").unwrap();
    assert!((common / (16e-4_f64 / 2.0 - part).sqrt() - 12.706_205).abs() < 1e-5, "{common}");
}

#[test]
fn a_table_that_says_nothing_says_why() {
    let why = |rows: &[(&str, &[&[f64]])]| Layout::of(&values(rows), "base").unwrap_err();
    assert_eq!(why(&[("a", &[&[1.0], &[2.0]])]), "no seed of the baseline has a number here");
    assert_eq!(why(&[("base", &[&[1.0], &[2.0]]), ("a", &[&[2.0]])]), "no other arm has two seeds of the baseline");
    assert_eq!(why(&[("base", &[&[1.0]]), ("a", &[])]), "no other arm has the baseline's seed");
    let equal: &[&[f64]] = &[&[0.1], &[0.3]];
    assert_eq!(why(&[("base", equal), ("a", equal)]), "the runs do not scatter at all, so no interval can be given");
}

#[test]
fn one_seed_gives_levels_and_no_interval() {
    let layout = Layout::of(&values(&[("base", &[&[1.0, 1.5]]), ("a", &[&[2.0]])]), "base").unwrap();
    let a = layout.contrast(&[("a", 1.0), ("base", -1.0)]).unwrap();
    assert_eq!((a.number, a.n), (0.75, 1));
    assert_eq!((a.interval(0.95), a.p_inside(&Interval::new(0.0, 1.0)), a.p_outside(&Interval::new(0.0, 1.0))), (None, None, None));
    assert_eq!((layout.scatter, layout.common_error("base")), (None, None));
}

/// A table of true levels, seeds of a much larger scatter, and runs whose own scatter is `own` of `square`; the first arm thrice a seed.
fn simulated(arms: usize, seeds: u64, (square, own): (f64, f64), draws: &mut Draws) -> Values {
    let by_seed: Vec<f64> = (0..seeds).map(|_| 10.0 * draws.normal()).collect();
    let mut table = Values::new();
    for arm in 0..arms {
        for (seed, of_seed) in (0..seeds).zip(&by_seed) {
            let shared = arm as f64 + of_seed + (square - own).sqrt() * draws.normal();
            let runs = if arm == 0 && own > 0.0 { 3 } else { 1 };
            let runs = (0..runs).map(|_| shared + own.sqrt() * draws.normal()).collect();
            table.entry(format!("a{arm}")).or_default().insert(seed, runs);
        }
    }
    table
}

/// How often intervals of `a1` against `a0`, and of an order of three, hold the truth: at 95 % and at 90 %.
fn coverage(campaigns: usize, (arms, seeds): (usize, u64), squares: (f64, f64), lacks: &dyn Fn(&mut Values)) -> [f64; 4] {
    let (mut draws, mut held) = (Draws::default(), [0.0; 4]);
    for _ in 0..campaigns {
        let mut table = simulated(arms, seeds, squares, &mut draws);
        lacks(&mut table);
        let layout = Layout::of(&table, "a0").unwrap();
        let pair = layout.contrast(&[("a1", 1.0), ("a0", -1.0)]).unwrap();
        let order = layout.contrast(&[("a2", 1.0), ("a1", -2.0), ("a0", 1.0)]).unwrap();
        for (at, (measured, truth)) in [(pair, 1.0), (order, 0.0)].into_iter().enumerate() {
            let p = measured.p_outside(&Interval::new(truth, truth)).unwrap();
            held[2 * at] += f64::from(u8::from(p > 0.05));
            held[2 * at + 1] += f64::from(u8::from(p > 0.10));
        }
    }
    held.map(|count| count / campaigns as f64)
}

const DESIGNS: [((usize, u64), (f64, f64)); 9] = [
    ((28, 5), (1.0, 0.0)),
    ((8, 3), (1.0, 0.0)),
    ((4, 2), (1.0, 0.0)),
    ((12, 6), (1.0, 1.0)),
    ((12, 6), (1.0, 0.5)),
    ((12, 6), (1.0, 0.1)),
    ((4, 3), (1.0, 1.0)),
    ((4, 3), (1.0, 0.5)),
    ((4, 2), (1.0, 1.0)),
];

/// 10,000 campaigns of each design: within 1.2 points of what is said (standard errors are 0.22 and 0.30 points), and within one wherever
/// nothing was run twice. Where it was, the error is a difference of two estimates: with four arms and three seeds, up to 1.4 points short.
#[test]
#[ignore = "a quarter of a minute without optimisation"]
fn intervals_cover_as_often_as_they_say() {
    let mut wrong = Vec::new();
    for (design, squares) in DESIGNS {
        let held = coverage(10_000, design, squares, &|_| ());
        println!("{design:?} {squares:?}: {held:?}");
        let bar = if squares.1 == 0.0 {
            0.01
        } else if design.0 > 4 {
            0.012
        } else {
            0.014
        };
        let off = |(at, share): (usize, &f64)| (share - [0.95, 0.90][at % 2]).abs() > bar;
        wrong.extend(held.iter().enumerate().any(off).then_some((design, squares, held)));
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// The same with 1,000 campaigns of two designs: within four standard errors. And of one half of whose arms lack the last of four seeds.
#[test]
fn intervals_cover_about_as_often_as_they_say() {
    let lacking = |table: &mut Values| table.values_mut().skip(4).for_each(|seeds| drop(seeds.remove(&3)));
    for (design, squares, lacks) in [
        (DESIGNS[1].0, DESIGNS[1].1, &(|_: &mut Values| ()) as &dyn Fn(&mut Values)),
        (DESIGNS[4].0, DESIGNS[4].1, &|_| ()),
        ((8, 4), (1.0, 0.0), &lacking),
    ] {
        let held = coverage(1_000, design, squares, lacks);
        for (at, share) in held.into_iter().enumerate() {
            let said: f64 = [0.95, 0.90][at % 2];
            assert!((share - said).abs() <= 4.0 * (said * (1.0 - said) / 1_000.0).sqrt(), "{design:?} {squares:?}: {held:?}");
        }
    }
}

/// Levene's p-value is a share of simulated tables: near 0.5 on average where arms scatter alike, and small where one scatters tenfold.
#[test]
fn unequal_scatter_shows() {
    let mut draws = Draws::default();
    let alike: Vec<f64> =
        (0..40).map(|_| Layout::of(&simulated(8, 4, (1.0, 0.0), &mut draws), "a0").unwrap().levene(100).unwrap().p).collect();
    let average = alike.iter().sum::<f64>() / 40.0;
    // A mean of 40 uniform numbers has standard error 0.046.
    assert!((average - 0.5).abs() < 0.15, "{average}");
    let mut table = simulated(8, 4, (1.0, 0.0), &mut draws);
    table.get_mut("a3").unwrap().values_mut().for_each(|runs| runs[0] += 10.0 * draws.normal());
    assert!(Layout::of(&table, "a0").unwrap().levene(200).unwrap().p < 0.02);
    assert_eq!(
        Layout::of(&simulated(8, 2, (1.0, 0.0), &mut draws), "a0").unwrap().levene(100),
        None,
        "two seeds have residuals of one size"
    );
}

/// Seeds that act the more the higher an arm's level is: a product that no sum explains.
#[test]
fn a_product_of_arm_and_seed_shows() {
    let mut draws = Draws::default();
    let table = |product: f64, draws: &mut Draws| {
        let cell = |arm: f64, seed: f64, draws: &mut Draws| arm + seed + product * arm * seed + 0.1 * draws.normal();
        let mut table = Values::new();
        for arm in 0..6 {
            for seed in 0..5 {
                let value = cell(f64::from(arm), f64::from(seed), draws);
                table.entry(format!("a{arm}")).or_default().insert(seed as u64, vec![value]);
            }
        }
        Layout::of(&table, "a0").unwrap().additivity().unwrap()
    };
    assert!(table(0.2, &mut draws).p < 1e-6);
    let plain: Vec<f64> = (0..40).map(|_| table(0.0, &mut draws).p).collect();
    assert!((plain.iter().sum::<f64>() / 40.0 - 0.5).abs() < 0.15, "{plain:?}");
}

/// An arm that lacks a seed is compared over the others.
#[test]
fn simulated_campaigns_lack_the_seeds_that_the_measured_one_lacks() {
    let scatter = Scatter { run: Component { square: 1.0, freedom: 400 }, own: None };
    let arm = |seeds: &[u64]| Runs { seeds: seeds.iter().copied().collect(), reciprocal: 1.0 };
    let arms = [("all", arm(&[1, 2, 3])), ("two", arm(&[1, 2])), ("other", arm(&[4]))].map(|(name, arm)| (name.to_owned(), arm)).into();
    let (mut draws, mut found) = (Draws::default(), [Vec::new(), Vec::new()]);
    for _ in 0..4_000 {
        let drawn = Drawn::new(&arms, &|_| 0.0, &scatter, &mut draws);
        let pairs: [&[(&str, f64)]; 2] = [&[("all", 1.0)], &[("two", 1.0), ("all", -1.0)]];
        for (all, weights) in found.iter_mut().zip(pairs) {
            all.push(drawn.contrast(weights).unwrap());
        }
        assert!(drawn.contrast(&[("two", 1.0), ("other", -1.0)]).unwrap_err().contains("no seed has all arms"));
    }
    // A variance of 4,000 draws has a standard error of 2.2 %.
    for (all, (n, variance)) in found.iter().zip([(3, 1.0 / 3.0), (2, 1.0)]) {
        assert!(all.iter().all(|measured| measured.n == n));
        let drawn = all.iter().map(|measured| measured.number.powi(2)).sum::<f64>() / all.len() as f64;
        let said = all.iter().map(|measured| measured.error.powi(2)).sum::<f64>() / all.len() as f64;
        assert!((drawn / variance - 1.0).abs() < 0.09 && (said / variance - 1.0).abs() < 0.01, "{drawn} {said} {variance}");
    }
}
