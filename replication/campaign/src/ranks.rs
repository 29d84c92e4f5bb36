//! Several ranks for one run: how many a run has, which GPUs they take, and whether a launcher has started this process as one of several.
//!
//! The number of ranks changes no result and is in no key. `requires.gpus` of a profile says over how many GPUs a run is spread. Where fewer
//! can be used, a run takes as many of them as divide its micro-batches.

use contract::device::{DeviceKind, GpuFacts};
use study::manifest::Profile;

use crate::forecast;

/// Ranks of each run of `profile`: `asked` ones, else as many as it asks for and `usable` GPUs have room for. One on a CPU.
///
/// # Errors
/// One line: a number that does not divide a step's micro-batches, or more ranks than GPUs.
pub fn of_run(profile: &Profile, device: DeviceKind, usable: usize, asked: Option<usize>) -> Result<usize, String> {
    let micro_batches = profile.batch.accumulation;
    let divides = |ranks: &usize| micro_batches.is_multiple_of(*ranks);
    let Some(asked) = asked else {
        let most = if device == DeviceKind::Cpu { 1 } else { usable.min(forecast::gpus(profile) as usize) };
        return Ok((1..=most).rev().find(divides).unwrap_or(1));
    };
    if asked == 0 || !divides(&asked) {
        return Err(format!("--ranks-per-run: {asked} ranks do not divide the {micro_batches} micro-batches of a step of this profile"));
    }
    if device != DeviceKind::Cpu && asked > usable {
        return Err(format!("--ranks-per-run: {asked} ranks need a GPU each, and {usable} can be used"));
    }
    Ok(asked)
}

/// Places of so many GPUs each, such as `cuda:0,1`. Those that are left over stay idle.
pub(crate) fn places(gpus: &[GpuFacts], ranks: usize) -> Vec<String> {
    let join = |group: &[GpuFacts]| {
        let rest = group[1..].iter().filter_map(|gpu| gpu.device.split_once(':')).map(|(_, number)| format!(",{number}"));
        group[0].device.clone() + &rest.collect::<String>()
    };
    gpus.chunks_exact(ranks.max(1)).map(join).collect()
}

/// What `trainer launch` is told of a place of several ranks: its options, and the variable that shows its processes these GPUs alone.
pub(crate) fn at_place(place: &str, ranks: usize, variable: Variable<'_>) -> (Vec<String>, Option<(&'static str, String)>) {
    let words = |words: [&str; 4]| words.map(str::to_owned).to_vec();
    let number = ranks.to_string();
    let Some((kind, numbers)) = place.split_once(':') else {
        return (words(["--ranks", &number, "--device", place]), None);
    };
    let (name, shown) = match kind {
        "hip" => ("HIP_VISIBLE_DEVICES", variable("HIP_VISIBLE_DEVICES").or_else(|| variable("CUDA_VISIBLE_DEVICES"))),
        _ => ("CUDA_VISIBLE_DEVICES", variable("CUDA_VISIBLE_DEVICES")),
    };
    // A number counts among those that are shown already: a scheduler may have given us some GPUs of the machine.
    let shown: Vec<&str> = shown.iter().flat_map(|shown| shown.split(',')).map(str::trim).collect();
    let of_machine =
        |number: &str| number.parse().ok().and_then(|number: usize| shown.get(number)).map_or(number.to_owned(), |&name| name.to_owned());
    let names: Vec<String> = numbers.split(',').map(of_machine).collect();
    (words(["--gpus", &number, "--device", kind]), Some((name, names.join(","))))
}

/// An environment variable that is not empty.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Of this process.
pub fn of_process(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Launchers of several processes: what they call each, the variable with their number, and one that must be there, too.
const LAUNCHERS: [(&str, &str, Option<&str>); 6] = [
    ("torchrun", "WORLD_SIZE", None),
    // The shell of a job and its batch script have SLURM_NTASKS as well: there is one of them.
    ("srun", "SLURM_NTASKS", Some("SLURM_STEP_ID")),
    ("mpirun", "OMPI_COMM_WORLD_SIZE", None),
    ("mpiexec", "PMI_SIZE", None),
    ("Kubeflow", "PET_NNODES", None),
    ("SkyPilot", "SKYPILOT_NUM_NODES", None),
];

/// Why this process must not carry out a campaign: a launcher started it as one of several, and each of them would do all the runs.
pub fn one_of_several(variable: Variable<'_>) -> Option<String> {
    let several = |(_, number, needs): &&(&str, &str, Option<&str>)| {
        needs.is_none_or(|needed| variable(needed).is_some()) && variable(number).is_some_and(|number| number.trim() != "1")
    };
    let (launcher, number, _) = LAUNCHERS.iter().find(several)?;
    let count = variable(number).unwrap_or_default();
    Some(format!(
        "{launcher} started this as one of several processes ({number}={count}), and each of them would do all the runs; start it once: it starts the ranks of a run itself (as many as the profile or --ranks-per-run says), and `--on slurm` takes the GPUs of several machines. `{launcher} ... trainer run` trains a single run"
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::path::Path;

    use study::manifest::Manifests;

    use super::*;

    #[test]
    fn a_run_takes_the_gpus_that_divide_its_micro_batches() {
        let manifests = Manifests::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
        let large = &manifests.profiles["llama31-8b"];
        assert_eq!((forecast::gpus(large), large.batch.accumulation), (8, 16));
        let ranks = |usable, asked| of_run(large, DeviceKind::Hip, usable, asked);
        for (usable, expected) in [(0, 1), (1, 1), (3, 2), (4, 4), (7, 4), (8, 8), (16, 8)] {
            assert_eq!(ranks(usable, None), Ok(expected), "{usable} GPUs");
        }
        assert_eq!((ranks(16, Some(16)), ranks(8, Some(1))), (Ok(16), Ok(1)));
        assert!(ranks(8, Some(3)).unwrap_err().contains("3 ranks do not divide the 16 micro-batches"));
        assert!(ranks(8, Some(0)).is_err() && ranks(4, Some(8)).unwrap_err().contains("8 ranks need a GPU each, and 4 can be used"));
        assert_eq!(of_run(large, DeviceKind::Cpu, 0, None), Ok(1));
        assert_eq!(of_run(large, DeviceKind::Cpu, 0, Some(4)), Ok(4));
    }

    #[test]
    fn gpus_are_grouped_and_shown_to_one_run_alone() {
        let gpu = |device: &str| GpuFacts {
            device: device.to_owned(),
            name: None,
            architecture: None,
            memory_bytes: None,
            fp8: None,
            mxfp4: None,
            interpreted: false,
            libraries: Vec::new(),
            problem: None,
        };
        let five = ["cuda:0", "cuda:1", "cuda:2", "cuda:4", "cuda:5"].map(gpu);
        assert_eq!(places(&five, 2), ["cuda:0,1", "cuda:2,4"]);
        assert_eq!(places(&five[..2], 1), ["cuda:0", "cuda:1"]);
        let told = |place: &str, variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            let (words, shown) = at_place(place, 2, &find);
            (words.join(" "), shown)
        };
        let shown = |name, value: &str| Some((name, value.to_owned()));
        assert_eq!(told("cpu", &[]), ("--ranks 2 --device cpu".into(), None));
        assert_eq!(told("cuda:2,4", &[]), ("--gpus 2 --device cuda".into(), shown("CUDA_VISIBLE_DEVICES", "2,4")));
        let scheduler = [("CUDA_VISIBLE_DEVICES", "GPU-a, GPU-b,5")];
        assert_eq!(told("cuda:1,2", &scheduler).1, shown("CUDA_VISIBLE_DEVICES", "GPU-b,5"));
        assert_eq!(told("hip:0,2", &scheduler).1, shown("HIP_VISIBLE_DEVICES", "GPU-a,5"));
        assert_eq!(told("hip:0,1", &[("HIP_VISIBLE_DEVICES", "6,7")]).1, shown("HIP_VISIBLE_DEVICES", "6,7"));
    }

    #[test]
    fn one_of_several_processes_is_told_to_stay_alone() {
        let said = |words: &str| {
            one_of_several(&|name| words.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned))
        };
        for words in ["", "WORLD_SIZE=1 RANK=0", "SLURM_NTASKS=8 SLURM_JOB_ID=1", "SLURM_STEP_ID=0 SLURM_NTASKS=1", "PET_NNODES=1"] {
            assert_eq!(said(words), None, "{words}");
        }
        for (words, launcher) in [
            ("WORLD_SIZE=2 RANK=1", "torchrun started this as one of several processes (WORLD_SIZE=2)"),
            ("SLURM_STEP_ID=0 SLURM_NTASKS=4", "srun started"),
            ("OMPI_COMM_WORLD_SIZE=2", "mpirun started"),
            ("PMI_SIZE=2", "mpiexec started"),
            ("PET_NNODES=1:2", "Kubeflow started"),
            ("SKYPILOT_NUM_NODES=2", "SkyPilot started"),
        ] {
            assert!(said(words).unwrap().starts_with(launcher), "{words}");
        }
    }
}
