//! A result directory as an RO-Crate and a data package, and weights with a model card.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use study::exit::ExitCode as _;
use study::{deposit, model_card, verify};

use crate::sealed;

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} of {value}"))
}

/// The hashes are those that SHA256SUMS has, and the copy still verifies: nothing was added to it.
#[test]
fn a_crate_describes_every_file_and_changes_none() {
    let folder = tempfile::tempdir().unwrap();
    let (directory, out) = (folder.path().join("2026-05-09-somewhere-smoke"), folder.path().join("crate"));
    sealed::write(&directory);
    deposit::export(&directory, &out).unwrap();
    let copy = out.join("2026-05-09-somewhere-smoke");
    assert!(verify::verify(&copy, None, None).unwrap().holds());

    let graph = json(&out.join("ro-crate-metadata.json"))["@graph"].as_array().unwrap().clone();
    let entities: BTreeMap<&str, &Value> = graph.iter().map(|entity| (text(entity, "@id"), entity)).collect();
    assert_eq!(entities.len(), graph.len(), "no id twice");
    let parts: Vec<&str> = entities["./"]["hasPart"].as_array().unwrap().iter().map(|part| text(part, "@id")).collect();
    let sums = std::fs::read_to_string(directory.join("SHA256SUMS")).unwrap();
    for line in sums.lines() {
        let (sha256, name) = line.split_once("  ").unwrap();
        let id = format!("2026-05-09-somewhere-smoke/{name}");
        assert!(text(entities[id.as_str()], "sha256") == sha256 && parts.contains(&id.as_str()), "{name}");
    }
    assert_eq!(parts.len(), sums.lines().count() + 2, "and SHA256SUMS itself, and datapackage.json");
    for id in parts.iter().copied().chain(["#campaign", "#harness", "https://arxiv.org/abs/2605.09825"]) {
        assert!(entities.contains_key(id), "{id} is referred to and not described");
    }

    let package = json(&out.join("datapackage.json"));
    let resource = |name: &str| package["resources"].as_array().unwrap().iter().find(|resource| resource["name"] == name).unwrap().clone();
    let types = |name: &str| -> Vec<String> {
        let fields = resource(name)["schema"]["fields"].as_array().unwrap().clone();
        fields.iter().map(|field| format!("{} {}", text(field, "name"), text(field, "type"))).collect()
    };
    assert_eq!(types("validation"), ["arm string", "seed integer", "step integer", "tokens integer", "loss number"]);
    assert_eq!(types("claims")[..2], ["paper string", "claim string"], "an arXiv id is no number");
    let hash = text(&resource("validation"), "hash").to_owned();
    assert!(sums.contains(&format!("{}  data/validation.csv", hash.strip_prefix("sha256:").unwrap())));
}

#[test]
fn what_is_not_whole_is_not_described() {
    let folder = tempfile::tempdir().unwrap();
    let (directory, out) = (folder.path().join("campaign"), folder.path().join("crate"));
    sealed::write(&directory);
    std::fs::create_dir(&out).unwrap();
    let refused = |directory: &Path, out: &Path| {
        let error = deposit::export(directory, out).unwrap_err();
        (error.exit_code(), error.to_string())
    };
    let (code, said) = refused(&directory, &out);
    assert!(code == 2 && said.contains("name a new folder with --out"), "{said}");
    std::fs::remove_dir(&out).unwrap();
    let table = directory.join("data/validation.csv");
    std::fs::write(&table, std::fs::read_to_string(&table).unwrap() + "fp8,1,99,99,1.0\n").unwrap();
    let (code, said) = refused(&directory, &out);
    assert!(code == 3 && said.contains("data/validation.csv") && said.contains("cargo xtask verify"), "{said}");
    assert!(!out.exists());
    assert_eq!(refused(folder.path(), &out).0, 3);
}

/// Of a run as the trainer leaves it; the weights are any bytes here, transformers reads real ones in .ci/check-formats.
#[test]
fn a_model_comes_with_a_card_that_says_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (directory, run, out) = (folder.path().join("campaign"), folder.path().join("run"), folder.path().join("out"));
    sealed::write(&directory);
    let of_arm = directory.join("runs/mxfp4-fdw-h16/1");
    std::fs::create_dir_all(run.join("model")).unwrap();
    std::fs::copy(of_arm.join("run.yaml"), run.join("run.yaml")).unwrap();
    let refused = |run: &Path, out: &Path| model_card::export(run, out).unwrap_err().to_string();
    assert!(refused(&run, &out).contains("--keep-weights"));

    for (name, bytes) in [("model.safetensors", "weights"), ("config.json", "{}"), ("tokenizer.json", "{ }")] {
        std::fs::write(run.join("model").join(name), bytes).unwrap();
    }
    let another = "0".repeat(64);
    let mut done = json(&of_arm.join("done.json"));
    done["model_sha256"] = another.into();
    std::fs::write(run.join("done.json"), done.to_string()).unwrap();
    assert!(refused(&run, &out).contains("done.json says another"));
    done["model_sha256"] = study::files::sha256(b"weights").into();
    std::fs::write(run.join("done.json"), done.to_string()).unwrap();

    model_card::export(&run, &out).unwrap();
    let card = std::fs::read_to_string(out.join("README.md")).unwrap();
    let (head, body) = card.strip_prefix("---\n").unwrap().split_once("---\n").unwrap();
    assert!(head.contains("library_name: transformers") && head.contains("license: [mit, apache-2.0]"), "{head}");
    for said in ["mxfp4-fdw-h16, seed 1", &done["final_validation_loss"].to_string(), &study::files::sha256(b"weights")] {
        assert!(body.contains(said), "{said} is missing: {body}");
    }
    let names: Vec<String> = study::files::list(&out).unwrap();
    assert_eq!(names, ["README.md", "config.json", "model.safetensors", "run.yaml", "tokenizer.json", "tokenizer_config.json"]);
    assert!(refused(&run, &out).contains("name a new folder with --out"));
}
