//! `ro-crate-metadata.json`, RO-Crate 1.1: every file, the campaign that made them, the software, and the papers.

use serde_json::{Value, json};

use super::{Entry, LICENCES, Whole};
use crate::record::Campaign;

pub(super) const FILE: &str = "ro-crate-metadata.json";
const AUTHORS: &str = "#authors";
const CAMPAIGN: &str = "#campaign";
const HARNESS: &str = "#harness";

pub(super) fn describe(whole: &Whole) -> Value {
    let mut graph = vec![
        json!({
            "@id": FILE,
            "@type": "CreativeWork",
            "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
            "about": {"@id": "./"},
        }),
        root(whole),
        json!({"@id": AUTHORS, "@type": "Organization", "name": "The authors of this replication"}),
    ];
    graph.extend(made_by(whole));
    graph.extend(LICENCES.iter().map(|licence| {
        json!({"@id": licence.url, "@type": "CreativeWork", "name": licence.title, "description": format!("SPDX: {}", licence.id)})
    }));
    graph.extend(
        whole
            .campaign
            .papers
            .iter()
            .map(|paper| json!({"@id": arxiv(paper), "@type": "ScholarlyArticle", "name": format!("arXiv {paper}")})),
    );
    let package = "Frictionless data package: columns, types and hashes of the CSV tables";
    graph.push(json!({"@id": super::data_package::FILE, "@type": "File", "name": "datapackage.json", "description": package, "encodingFormat": "application/json"}));
    graph.extend(whole.entries.iter().map(file));
    json!({"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": graph})
}

fn id(id: impl AsRef<str>) -> Value {
    json!({"@id": id.as_ref()})
}

fn arxiv(paper: &str) -> String {
    format!("https://arxiv.org/abs/{paper}")
}

fn root(whole: &Whole) -> Value {
    let Campaign { runs, seeds, device, date, papers, .. } = &whole.campaign;
    let parts = whole.entries.iter().map(|entry| entry.path.as_str()).chain([super::data_package::FILE]);
    json!({
        "@id": "./",
        "@type": "Dataset",
        "name": whole.title(),
        "description": format!(
            "{} training runs with {} seeds on {device}: logs, tables, verdicts on each claim of the papers, and a report. \
             {}/SHA256SUMS has the hash of every file; docs/files.md of the software describes each.",
            runs.len(), seeds.len(), whole.name
        ),
        "datePublished": date,
        "license": LICENCES.iter().map(|licence| id(licence.url)).collect::<Vec<_>>(),
        "author": id(AUTHORS),
        "citation": papers.iter().map(|paper| id(arxiv(paper))).collect::<Vec<_>>(),
        "mentions": id(CAMPAIGN),
        "hasPart": parts.map(id).collect::<Vec<_>>(),
    })
}

/// The campaign as an action: from which manifests, with which software, to which verdicts.
fn made_by(whole: &Whole) -> [Value; 2] {
    let Campaign { profile, machine, date, commit, dirty, .. } = &whole.campaign;
    let named = |wanted: &dyn Fn(&str) -> bool| {
        whole.entries.iter().filter(|entry| wanted(&entry.name)).map(|entry| id(&entry.path)).collect::<Vec<_>>()
    };
    let version = if *dirty { format!("{commit} with changes (env.json has their hash)") } else { commit.clone() };
    [
        json!({
            "@id": HARNESS,
            "@type": "SoftwareApplication",
            "name": "An open, independent replication harness for MXFP4 pretraining",
            "softwareVersion": version,
        }),
        json!({
            "@id": CAMPAIGN,
            "@type": "CreateAction",
            "name": format!("cargo xtask replicate --profile {profile}, on {machine}"),
            "endTime": date,
            "agent": id(AUTHORS),
            "instrument": id(HARNESS),
            "object": named(&|name| name.starts_with("manifests/")),
            "result": named(&|name| !name.starts_with("manifests/")),
        }),
    ]
}

fn file(entry: &Entry) -> Value {
    let mut file = json!({
        "@id": entry.path,
        "@type": "File",
        "name": entry.name,
        "contentSize": entry.bytes.to_string(),
        "sha256": entry.sha256,
        "encodingFormat": format(&entry.name),
    });
    if let Some(description) = description(&entry.name) {
        file["description"] = json!(description);
    }
    file
}

fn format(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "json" => "application/json",
        "jsonl" => "application/jsonl",
        "csv" => "text/csv",
        "html" => "text/html",
        "pdf" => "application/pdf",
        "svg" => "image/svg+xml",
        "tex" => "application/x-tex",
        "bib" => "application/x-bibtex",
        "yaml" => "application/yaml",
        "xz" => "application/x-xz",
        _ => "text/plain",
    }
}

fn description(name: &str) -> Option<&'static str> {
    let parts: Vec<&str> = name.split('/').collect();
    Some(match parts[..] {
        ["report.html"] => "The report",
        ["verdicts.json"] => "The verdict on each claim, with its number and interval",
        ["campaign.json"] => "What was run, when and where",
        ["env.json"] => "Machine, toolchain and sources",
        ["provenance.json"] => "in-toto statement with a SLSA provenance predicate",
        ["SHA256SUMS"] => "Hash of every file",
        ["DETERMINISTIC.sha256"] => "Hashes that come out equal wherever the runs are made again",
        ["runs", .., "run.yaml"] => "A run, fully resolved",
        ["runs", .., "metrics.jsonl" | "metrics.jsonl.xz"] => "Losses, gradient norms and quantisation errors of a run",
        ["runs", .., "timing.jsonl" | "timing.jsonl.xz"] => "Seconds of each step and evaluation of a run",
        ["runs", .., "exchange.jsonl" | "exchange.jsonl.xz"] => "Seconds that each step of several ranks spent on exchanges",
        ["runs", .., "run.mllog" | "run.mllog.xz"] => "The run in MLPerf's log format",
        ["runs", .., "done.json"] => "How a run ended",
        _ => return None,
    })
}
