use super::*;
use crate::draws::Draws;
use crate::layout::Measured;
use crate::measure::load::Evaluation;

const STEP: u64 = 1_000;
const EVALUATIONS: u64 = 200;
const BUDGET: f64 = (STEP * EVALUATIONS) as f64;

fn run(arm: &str, seed: u64, loss: impl FnMut(f64) -> f64) -> Run {
    let tokens: Vec<u64> = (1..=EVALUATIONS).map(|at| at * STEP).collect();
    let evaluations = tokens.iter().map(|tokens| *tokens as f64).map(loss);
    Run {
        arm: arm.to_owned(),
        seed,
        status: RunStatus::Completed,
        parameters: 1,
        tokens_per_step: STEP,
        evaluations: tokens
            .iter()
            .zip(evaluations)
            .map(|(tokens, loss)| Evaluation { step: tokens / STEP, tokens: *tokens, loss })
            .collect(),
        readings: Vec::new(),
        quantisation: Vec::new(),
        step_seconds: Vec::new(),
        metrics_sha256: String::new(),
        sessions: Vec::new(),
    }
}

/// 3 + 0.5 sqrt(budget / t): minus its slope in ln t is 0.25 sqrt(budget / t).
fn curve(tokens: f64) -> f64 {
    3.0 + 0.5 * (BUDGET / tokens).sqrt()
}

#[test]
fn a_known_curve_is_read_as_it_was_made() {
    let base = run("base", 1, curve);
    let ruler = Ruler::of(&[&base], EVALUATIONS).unwrap();
    assert_eq!((ruler.tokens_at(curve(50_000.0)), ruler.tokens_at(99.0)), (Some(50_000.0), None));
    // The chord of a convex curve lies above it: late by less than h^2 L'' / (8 |L'|) = 3 h^2 / (16 t).
    let between = ruler.tokens_at(curve(50_500.0)).unwrap();
    assert!((0.0..3e6 / (16.0 * 50_000.0)).contains(&(between - 50_500.0)), "{between}");
    // Beyond its end it goes on with the slope of the last quarter, about 0.27.
    let beyond = ruler.tokens_at(curve(BUDGET) - 0.027).unwrap();
    assert!((ruler.late_slope - 0.267).abs() < 0.003 && (beyond / BUDGET).ln() - 0.027 / ruler.late_slope < 1e-12, "{}", ruler.late_slope);
    // From 0.40 at (0.25 / 0.40)^2 = 39.06 % of the budget to 0.30 at 69.44 %; a straight line through a reach of 0.2 on both sides is a
    // little steeper than the tangent, so that the stretch begins and ends a little later.
    let matched = ruler.stretch(Stretch::Matched);
    let ends = [matched[0], *matched.last().unwrap()].map(|at| ruler.tokens[at] as f64 / BUDGET);
    assert!((ends[0] - 0.3906).abs() < 0.015 && (ends[1] - 0.6944).abs() < 0.015, "{ends:?}");
    assert_eq!(ruler.stretch(Stretch::LastQuarter).len(), 50);
    assert!((ruler.room(curve(100_000.0)).unwrap() - 2.0).abs() < 1e-12);
    // An arm that costs a quarter more is read as such: its curve is the baseline's, stretched.
    let (ratio, _) = ruler.read(&run("arm", 1, |tokens| curve(tokens / 1.25)), &matched).unwrap();
    assert!((ratio.exp() - 1.25).abs() < 1e-4, "{}", ratio.exp());
    let short = run("arm", 1, |tokens| if tokens > 0.5 * BUDGET { 99.0 } else { curve(tokens) });
    assert_eq!(ruler.read(&short, &matched), None, "above all of the baseline's curve");
}

#[test]
fn a_rise_is_pooled() {
    assert_eq!(falling(&[5.0, 4.0, 4.5, 3.0]), [5.0, 4.25, 4.25, 3.0]);
    assert_eq!(falling(&[5.0, 3.0, 4.0, 5.0, 1.0]), [5.0, 4.0, 4.0, 4.0, 1.0]);
    assert_eq!(falling(&[3.0, 3.0]), [3.0, 3.0]);
}

/// Scatter of a run over its evaluations as the committed campaigns have it: slow, with what changes from one evaluation to the next beside.
fn wander(draws: &mut Draws, sd: f64) -> Vec<f64> {
    let keep: f64 = 0.97;
    let mut level = draws.normal();
    (0..EVALUATIONS)
        .map(|_| {
            level = keep * level + (1.0 - keep * keep).sqrt() * draws.normal();
            sd * (level + 0.3 * draws.normal())
        })
        .collect()
}

/// Overheads of whole simulated campaigns, curves and all: how often 95 % and 90 % intervals hold what an arm costs. `of_seed` and `of_run`
/// are the scatter of seeds and of runs, nats.
fn coverage(campaigns: usize, (arms, seeds): (usize, u64), [of_seed, of_run]: [f64; 2]) -> Vec<[f64; 2]> {
    let cost = |arm: usize| [1.0, 1.0, 1.1, 1.27][arm % 4];
    let (mut draws, mut held) = (Draws::default(), vec![[0.0; 2]; arms]);
    for _ in 0..campaigns {
        let shared: Vec<Vec<f64>> = (0..seeds).map(|_| wander(&mut draws, of_seed)).collect();
        let mut runs = Vec::new();
        for arm in 0..arms {
            for seed in 0..seeds {
                let (own, of_seed) = (wander(&mut draws, of_run), &shared[seed as usize]);
                runs.push(run(&format!("a{arm}"), seed, |tokens| {
                    let at = (tokens / STEP as f64) as usize - 1;
                    curve(tokens / cost(arm)) + own[at] + of_seed[at]
                }));
            }
        }
        let base: Vec<&Run> = runs.iter().filter(|run| run.arm == "a0").collect();
        let ruler = Ruler::of(&base, EVALUATIONS).unwrap();
        let mut table = Values::new();
        for run in &runs {
            let (ratio, _) = ruler.read(run, &ruler.stretch(Stretch::Matched)).unwrap();
            table.entry(run.arm.clone()).or_default().insert(run.seed, vec![ratio]);
        }
        let layout = Layout::of(&table, "a0").unwrap();
        for (arm, held) in held.iter_mut().enumerate().skip(1) {
            let measured: Measured = layout.contrast(&[(&format!("a{arm}"), 1.0), ("a0", -1.0)]).unwrap();
            let p = measured.p_outside(&crate::statistics::Interval::new(cost(arm).ln(), cost(arm).ln())).unwrap();
            held[0] += f64::from(u8::from(p > 0.05)) / campaigns as f64;
            held[1] += f64::from(u8::from(p > 0.10)) / campaigns as f64;
        }
    }
    held[1..].to_vec()
}

/// What a layout cannot see is the error of the ruler itself, between the depth of an arm and that of the baseline. With seeds as unlike each
/// other as runs are, 95 % intervals hold the truth in 93 to 96 of 100 campaigns, those of 90 % in 86 to 92; more, where seeds are alike.
#[test]
#[ignore = "minutes without optimisation"]
fn intervals_hold_what_whole_campaigns_were_made_with() {
    for (design, scatter) in [((8, 6), [0.0, 0.007]), ((8, 6), [0.004, 0.007]), ((8, 6), [0.008, 0.007]), ((8, 3), [0.004, 0.007])] {
        let held = coverage(1_000, design, scatter);
        println!("{design:?} {scatter:?}: {held:?}");
        // Four standard errors of a share of 1,000 beside what is known to be lost.
        assert!(held.iter().all(|[at_95, at_90]| *at_95 > 0.90 && *at_90 > 0.84), "{held:?}");
    }
}
