#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use contract::json::Document as _;
use study::manifest::Dataset;

fn save(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn manifests() -> Manifests {
    Manifests::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

#[test]
fn devices_are_found_by_file_library_and_number() {
    let manifests = manifests();
    let nvidia = &manifests.hardware["nvidia-h200"];
    let amd = &manifests.hardware["amd-mi355x"];
    let system = tempfile::tempdir().unwrap();
    let lacks_device = |hardware, count| lacks_device(hardware, count, system.path(), None);
    let none = lacks_device(nvidia, 1.0);
    assert!(none.len() == 2 && none[0].contains("/dev/nvidiactl") && none[1].contains("1 needed, 0 found"), "{none:?}");
    for path in ["dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia0", "dev/nvidia1", "dev/kfd"] {
        save(system.path(), path, "");
    }
    assert!(lacks_device(nvidia, 2.0)[0].contains("libcuda.so.1 is in none"));
    save(system.path(), "usr/lib64/libcuda.so.12", "");
    assert!(find_library(system.path(), "libcuda.so.1").is_none());
    save(system.path(), "usr/lib64/libcuda.so.1", "");
    assert!(lacks_device(nvidia, 2.0).is_empty());
    assert!(lacks_device(nvidia, 3.0)[0].contains("3 needed, 2 found"));

    save(system.path(), "opt/rocm/lib/libamdhip64.so.7", "");
    save(system.path(), "sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 64\nsimd_count 0\n");
    save(system.path(), "sys/class/kfd/kfd/topology/nodes/1/properties", "cpu_cores_count 0\nsimd_count 1024\n");
    assert!(lacks_device(amd, 1.0).is_empty());
    assert!(lacks_device(amd, 8.0)[0].contains("8 needed, 1 found"));
    assert!(lacks_device(&manifests.hardware["cpu"], 1.0).is_empty());
}

#[test]
fn what_the_trainer_finds_counts_more_than_files() {
    let manifests = manifests();
    let nvidia = &manifests.hardware["nvidia-h200"];
    let nowhere = Path::new("/nowhere");
    let found = r#"{"schema":"mxfp4-devices/1","problem":null,"gpus":[
        {"device":"cuda:0","name":"NVIDIA H200","architecture":"sm_90a","memory_bytes":150000000000,"fp8":true,"libraries":["NVRTC 12.8"],"problem":null},
        {"device":"cuda:1","name":null,"architecture":null,"memory_bytes":null,"fp8":null,"libraries":[],"problem":"libnvrtc.so.13 was not found"}]}"#;
    let found = Devices::from_json("devices", found).unwrap();
    assert!(lacks_device(nvidia, 1.0, nowhere, Some(&found)).is_empty());
    let two = lacks_device(nvidia, 2.0, nowhere, Some(&found)).join("\n");
    assert!(two.contains("2 needed, 1 can be used") && two.contains("cuda:1 a GPU cannot be used: libnvrtc.so.13 was not found"), "{two}");
}

#[test]
fn a_control_group_limit_counts_as_the_memory() {
    let memory = HostMemory { total: Some(64 << 30), limit: Some(1 << 30) };
    assert_eq!(lacks_memory(1.0, memory), None);
    assert!(lacks_memory(2.0, memory).unwrap().contains("2 GiB needed, 1.0 GiB may be used"));
    assert_eq!(lacks_memory(2.0, HostMemory { total: None, limit: None }), None);
    let manifests = manifests();
    let run = forecast::alone(&manifests, &manifests.profiles["cpu"], None).unwrap();
    assert_eq!(lacks_run_memory(&run, memory), None);
    let tight = HostMemory { limit: Some(run.least - 1), ..memory };
    assert!(lacks_run_memory(&run, tight).unwrap().contains("control-group limit counted"));
    assert_eq!(lacks_cores(2.0, 2), None);
    assert!(lacks_cores(3.0, 2).is_some());
}

/// One GPU of eight is enough to start a run that fits it; one that is too small is told so in a line.
#[test]
fn one_gpu_starts_what_fits_it() {
    let (manifests, root) = (manifests(), tempfile::tempdir().unwrap());
    let gpu = |device: &str, gib: u64| GpuFacts {
        device: device.to_owned(),
        name: Some("A GPU".to_owned()),
        architecture: None,
        memory_bytes: Some(gib << 30),
        fp8: None,
        mxfp4: None,
        interpreted: false,
        libraries: Vec::new(),
        problem: None,
    };
    let found = |gpus: Vec<GpuFacts>| Devices { gpus, ..Devices::default() };
    let lacks = |profile: &str, devices: &Devices| -> Vec<String> {
        let all = lacks_with(&manifests.profiles[profile], &manifests, root.path(), (Some(devices), None));
        all.into_iter().filter(|line| line.contains("GPU")).collect()
    };
    assert_eq!(lacks("llama31-8b", &found(vec![gpu("hip:0", 268)])), [""; 0]);
    assert_eq!(lacks("h200-s", &found(vec![gpu("cuda:0", 16), gpu("cuda:1", 80)])), [""; 0]);
    // Between the two ways the trainer keeps less, so nothing is lacking; below both it cannot start.
    let alone = forecast::alone(&manifests, &manifests.profiles["h200-s"], None).unwrap();
    let (whole, least) = (alone.ways[0].bytes, alone.least);
    assert!(alone.ways[1].bytes < whole - whole / 10 && least < whole, "{alone:?}");
    let sized = |bytes: u64| found(vec![GpuFacts { memory_bytes: Some(bytes), ..gpu("cuda:0", 1) }]);
    assert_eq!(lacks("h200-s", &sized(least.midpoint(whole))), [""; 0]);
    assert!(lacks("h200-s", &sized(least - (1 << 20))).join("").contains("memory of a GPU"));
    insta::assert_snapshot!(lacks("llama31-8b", &found(vec![gpu("hip:0", 80)])).join("\n"));
    // Two of them hold what one does not, and one that is too small among two counts as none.
    let two = forecast::spread(&manifests, &manifests.profiles["llama31-8b"], 2, None).unwrap().least;
    let sized = |device: &str, bytes: u64| GpuFacts { memory_bytes: Some(bytes), ..gpu(device, 1) };
    assert_eq!(lacks("llama31-8b", &found(vec![sized("hip:0", two), sized("hip:1", two)])), [""; 0]);
    let line = lacks("llama31-8b", &found(vec![sized("hip:0", two), sized("hip:1", two - 1)])).join("");
    assert!(line.contains("GiB on each of 2 (modelled"), "{line}");
    let other = lacks("llama31-8b", &found(vec![gpu("cuda:0", 268)])).join("\n");
    assert!(other.contains("no GPU of kind hip; there is cuda:0"), "{other}");
}

#[test]
fn what_the_user_must_bring_is_named() {
    let (manifests, root) = (manifests(), tempfile::tempdir().unwrap());
    let large = &manifests.profiles["llama31-8b"];
    let text = lacks(large, &manifests, root.path(), (None, None), &Answers::default()).join("\n");
    for part in ["/dev/kfd", "dataset c4-mlperf: ", "tokenizer llama31-128k: ", "disk: 400 GiB"] {
        assert!(part.starts_with("disk") || text.contains(part), "{part} not in:\n{text}");
    }
    let Dataset::Megatron(tokens) = &manifests.datasets["c4-mlperf"] else { panic!("c4-mlperf is not a Megatron dataset") };
    for file in &tokens.files {
        save(root.path(), &format!("cache/datasets/c4-mlperf/{}", file.name), "");
    }
    assert_eq!(data::lacks(&manifests, large, root.path()), None);
    assert_eq!(data::lacks(&manifests, &manifests.profiles["cpu"], root.path()), None);
}

#[test]
fn pinned_shards_stand_in_for_their_documents() {
    let (mut manifests, root) = (manifests(), tempfile::tempdir().unwrap());
    let profile = manifests.profiles["h200-s"].clone();
    assert!(data::lacks(&manifests, &profile, root.path()).unwrap().contains("dataset webdocs: 2 of 2 files"));
    let tokenizer = &manifests.tokenizers[&profile.tokenizer];
    let folder = data::token_folder(root.path(), &manifests.datasets[&profile.dataset], tokenizer);
    for name in ["train.bin", "train.idx", "validation.bin", "validation.idx"] {
        std::fs::create_dir_all(&folder).unwrap();
        assert!(data::lacks(&manifests, &profile, root.path()).is_some());
        std::fs::write(folder.join(name), "").unwrap();
    }
    assert_eq!(data::lacks(&manifests, &profile, root.path()), None);
    // Shards that nothing pins are not known to be the right ones.
    manifests.tokenizers.get_mut(&profile.tokenizer).unwrap().shards = None;
    assert!(data::lacks(&manifests, &profile, root.path()).is_some());
}

#[test]
fn every_profile_gets_a_line() {
    let manifests = manifests();
    let text = doctor(&manifests.root.clone(), &manifests, None).to_string();
    for (id, profile) in &manifests.profiles {
        assert_eq!(text.contains(&format!("  {id} (")), !profile.hidden, "{text}");
    }
    assert!(text.contains("processor: ") && text.contains("cache/: "), "{text}");
}
