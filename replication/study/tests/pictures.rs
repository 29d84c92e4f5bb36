//! What a report says first, and what its curves show: arms of the paper, of its own, and of other campaigns.

use study::judge;

use crate::report::{arms, compile, edit, read, render_here};
use crate::synthetic::{self, Arm, run_directory, save};

/// Other campaigns stand in the first picture in lighter marks; a stranger's words in them stay words.
#[test]
fn other_campaigns_are_lighter_marks_in_the_first_picture() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write(directory.path());
    let (article, figure) = (directory.path().join("report.tex"), directory.path().join("figures/answer.svg"));
    render_here(directory.path());
    assert!(!read(&article).contains("lighter marks") && !read(&figure).contains("class=\"faint\""));
    let others = r#"{"schema":"mxfp4-others/1","campaigns":[{"paper":"2605.09825","directory":"d","profile":"<b>large","parameters":31990272,
"costs":{"mxfp4-f":{"number":0.123,"interval":[0.102,0.144]},"no-such-arm":{"number":9.0,"interval":null}}},
{"paper":"another","directory":"e","profile":"elsewhere","parameters":1,"costs":{}}]}"#;
    save(&directory.path().join("others.json"), others);
    render_here(directory.path());
    let drawn = read(&figure);
    assert_eq!(drawn.matches("class=\"faint\"").count(), 1, "one arm has a number elsewhere");
    assert!(drawn.contains("&lt;b&gt;large, 32M parameters, at the paper’s depth") && !drawn.contains("elsewhere"), "{drawn}");
    assert!(read(&article).contains("lighter marks: other campaigns of this repository"));
    assert!(read(&directory.path().join("figures/answer.csv")).contains("12.3"));
    save(&directory.path().join("others.json"), &others.replace("\"number\"", "\"numbers\""));
    assert!(judge::recompute(directory.path()).unwrap_err().to_string().contains("others.json"));
}

/// A campaign of arms that the paper does not have is about these: its first picture and sentence are theirs.
#[test]
fn a_campaign_without_the_papers_arms_shows_its_own_first() {
    for (of_paper, shows) in [(None, true), (Some("mxfp4-f"), false)] {
        let directory = tempfile::tempdir().unwrap();
        let ids: Vec<&str> = ["fp8", "bf16-mxfp4-dw"].into_iter().chain(of_paper).collect();
        synthetic::write_arms(directory.path(), &arms(&ids), &[2]);
        let (page, figure) =
            (read(&render_here(directory.path()).html).replace('\u{a0}', " "), read(&directory.path().join("figures/answer.svg")));
        assert_eq!(figure.contains(">This campaign<") && figure.contains(">BF16 F, MXFP4 D+W<"), shows, "{figure}");
        // The second of three seeds has the ratio that the arm was made with, 1.015.
        let sentence = "None of the arms of the paper’s table is in this campaign.";
        assert_eq!(page.contains(sentence) && page.contains("to the same loss: BF16 F, MXFP4 D+W +1.5 %."), shows);
        // One seed gives no line and no scatter, and no table without rows.
        assert!(!page.contains("What the intervals of 2605.09825 rest on"));
    }
}

#[test]
fn one_runaway_loss_does_not_flatten_the_other_curves() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write_arms(directory.path(), &arms(&["fp8", "mxfp4-fdw", "mxfp4-fdw-sr"]), &[1, 2]);
    for seed in [1, 2] {
        edit(&run_directory(directory.path(), "mxfp4-fdw-sr", seed).join("metrics.jsonl"), |text| {
            let (head, tail) = text.split_once("\"step\":320,\"tokens\":327680,\"loss\":").unwrap();
            format!("{head}\"step\":320,\"tokens\":327680,\"loss\":900{}", &tail[tail.find('}').unwrap()..])
        });
    }
    render_here(directory.path());
    let figure = read(&directory.path().join("figures/figure-1b.tex"));
    assert!(figure.contains("ymax=7,"), "{figure}");
}

/// A campaign of controls: its own arms are in the first sentences and in a figure, and a figure of the baseline alone is not drawn.
#[test]
fn controls_answer_where_the_main_arms_did_not_run() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write_arms(directory.path(), &arms(&["fp8", "bf16", "mxfp4-fdw-rh16"]), &[1, 2, 3]);
    let html = read(&render_here(directory.path()).html);
    assert!(!html.contains("The arms that would answer have no number here.") && !html.contains("None of the arms of the paper"));
    let figures = |id: &str| ["svg", "tex"].map(|ending| directory.path().join(format!("figures/{id}.{ending}")).exists());
    assert_eq!(["figure-1a", "figure-1b", "figure-1c", "figure-2c"].map(figures), [[false; 2], [true; 2], [true; 2], [true; 2]]);
    let other = read(&directory.path().join("figures/figure-1c.svg"));
    assert!(other.contains("BF16") && !other.contains("RH16"), "{other}");
    assert!(html.contains("<b>Other arms.</b>"));
    compile(directory.path());
}

/// A figure tells eight curves apart. Where there are more arms, it says how many it leaves out; arms without runs take no room.
#[test]
fn a_figure_says_how_many_arms_it_leaves_out() {
    const OTHERS: [&str; 9] = [
        "mxfp4-f-even",
        "mxfp4-fd-even",
        "mxfp4-fdw-even",
        "mxfp4-f-h16",
        "mxfp4-fd-h16",
        "mxfp4-w",
        "mxfp4-fdw-ceil",
        "mxfp4-fdw-srx",
        "mxfp4-fdw-srw",
    ];
    let directory = tempfile::tempdir().unwrap();
    let [baseline, other] = ["fp8", "mxfp4-fdw-rh16"].map(|id| arms(&[id])[0]);
    for (made, said) in [(&OTHERS[..7], false), (&OTHERS[..], true)] {
        let made: Vec<Arm> = std::iter::once(baseline).chain(made.iter().map(|id| Arm { id, ..other })).collect();
        synthetic::write_arms(directory.path(), &made, &[1]);
        let group = format!("arms:\n  - {{group: \"Controls\", recipes: [mxfp4-fdw-even-h16, {}]}}", OTHERS.join(", "));
        edit(&directory.path().join("manifests/profile.yaml"), |text| text.replace("arms:", &group));
        let html = read(&render_here(directory.path()).html);
        assert_eq!(html.contains("(8 of 10 curves, as many as a figure tells apart)"), said);
        let figure = read(&directory.path().join("figures/figure-1c.svg"));
        assert!(figure.contains("F+D+W ceil") && !figure.contains("SR activations"), "{figure}");
    }
}

/// A paper that reports losses and no tokens is answered in nats first.
#[test]
fn gaps_come_first_where_the_paper_reports_losses() {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write_arms(directory.path(), &arms(&["bf16", "bf16-mxfp4-dw"]), &[1, 2, 3]);
    edit(&directory.path().join("campaign.json"), |text| {
        text.replace("\"2605.09825\",", "").replace("\"arm\":\"fp8\"", "\"arm\":\"bf16\"")
    });
    edit(&directory.path().join("manifests/profile.yaml"), |text| text.replace("\"2605.09825\", ", ""));
    std::fs::remove_file(directory.path().join("manifests/papers/2605.09825.yaml")).unwrap();
    let html = read(&render_here(directory.path()).html);
    let gaps = html.find("loss above BF16 at equal tokens: BF16 F, MXFP4 D+W +0.").unwrap();
    assert!(html[gaps..].split(". ").next().unwrap().contains("(the paper: +0.11\u{a0}nat)"));
    assert!(gaps < html.find("extra tokens over BF16 to the same loss").unwrap());
    assert!(html.contains("(arXiv 2502.20586, 2025)"));
    assert!(read(&directory.path().join("references.bib")).contains("title = {{Training LLMs with MXFP4}}"));
    // Notes that are at no archive are named by their manifest.
    edit(&directory.path().join("manifests/papers/2502.20586.yaml"), |text| text.replace("https://arxiv.org/abs/", "https://example.org/"));
    let html = read(&render_here(directory.path()).html);
    assert!(html.contains("(2502.20586, 2025)") && !html.contains("arXiv"));
}
