//! Writes a synthetic result directory and renders it: for work on the templates without running a campaign.
//!
//! `cargo run -p study --example synthetic_report -- DIRECTORY`

#[path = "../tests/synthetic/mod.rs"]
#[allow(dead_code, clippy::unwrap_used, unreachable_pub, reason = "shared with the tests")]
mod synthetic;

use std::path::PathBuf;

use study::render::{RenderOptions, render};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("usage: synthetic_report DIRECTORY")?);
    synthetic::write(&directory);
    let summary = render(&directory, &synthetic::repository().join("paper"), &RenderOptions::default())?;
    println!("{}", summary.html.display());
    for claim in summary.verdicts.claims() {
        println!("{:<14} {:<14} {:<22} {:<26} {}", claim.id, claim.paper, claim.ours, claim.interval_text, claim.verdict);
    }
    Ok(())
}
