//! A forecast of profiles beyond any reason: a refusal or numbers, never a panic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)] // a test's way to fail

use std::path::Path;

use crate::grid;
use campaign::forecast::{Known, forecast};
use study::manifest::Manifests;
use study::plan;

/// On one processor and on eight GPUs. A model that the manifests' reader refuses comes this far in no command.
#[test]
fn sizes_and_counts_on_a_grid() {
    let start = Manifests::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
    let (mut asked, mut made) = (0, 0);
    for name in ["smoke", "llama31-8b"] {
        let mut manifests = start.clone();
        let mut profile = start.profiles[name].clone();
        profile.arms.truncate(1);
        profile.logging.quantisation_steps.clear();
        let model = start.models[&profile.model].clone();
        for point in grid::points(2_000) {
            let (mut changed, mut sizes) = (profile.clone(), model.clone());
            point.iter().for_each(|&(dimension, value)| (grid::DIMENSIONS[dimension].set)(&mut sizes, &mut changed, value));
            if sizes.check().is_err() {
                continue;
            }
            manifests.models.insert(profile.model.clone(), sizes);
            let text =
                std::panic::catch_unwind(|| forecast(&manifests, &changed, None, &Known::default()).map(|forecast| forecast.to_string()));
            let text = text.unwrap_or_else(|_| panic!("{name} at {}", grid::text(&point)));
            let arms = plan::all_arms(&changed);
            let runs = arms.iter().all(|arm| plan::any_run(&manifests, &changed, arm).is_ok());
            assert_eq!(text.is_ok(), runs, "{name} at {}: {text:?}", grid::text(&point));
            (asked, made) = (asked + 1, made + usize::from(text.is_ok()));
        }
    }
    assert!(asked > 5_000 && made > 400 && made < asked, "{made} of {asked}");
    println!("{asked} forecasts asked for, {made} made");
}
