//! The documents say what is there: commands and options exist, links and paths lead somewhere, and every table of results is computed
//! again from the files in results/.
//!
//! A check that finds nothing to check fails, too: each counts what it saw.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

mod markdown;
mod numbers;
mod ranks;
mod shown;
mod slices;

use markdown::{Document, documents};
use numbers::Results;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 150, "README.md has {lines} lines; what is more than 150 belongs to docs/");
}

/// Help of a command, by its words; none where there is no such command.
struct Helps(BTreeMap<Vec<String>, Option<String>>);

impl Helps {
    fn of(&mut self, words: &[String]) -> Option<String> {
        let help = || {
            let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(words).arg("--help").output().unwrap();
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
        };
        self.0.entry(words.to_vec()).or_insert_with(help).clone()
    }
}

/// What is wrong with one command line of a document, its program left out. `shown` are manifests that documents show in full.
fn problem_of_xtask(arguments: &[String], helps: &mut Helps, shown: &BTreeMap<String, String>) -> Option<String> {
    let mut words = Vec::new();
    let mut rest = arguments;
    let mut help = helps.of(&[])?;
    while help.contains("\nCommands:\n") {
        let Some((word, others)) = rest.split_first() else { break };
        rest = others;
        words.push(word.split('|').next().unwrap().to_owned());
        match helps.of(&words) {
            Some(text) => help = text,
            None => return Some(format!("no command `{}`", words.join(" "))),
        }
    }
    let options = options_in(&help);
    // What follows a lone `--` is for another program.
    let ours: Vec<&String> = rest.iter().take_while(|word| *word != "--").collect();
    let valued = options_with_value(&help);
    let alone = ours.iter().enumerate().find(|(index, word)| {
        let is_value = index.checked_sub(1).is_some_and(|before| valued.contains(ours[before]));
        !word.starts_with('-') && !is_value
    });
    if let Some((_, word)) = alone.filter(|_| !help.contains("\nArguments:\n")) {
        return Some(format!("`{}` takes no argument such as {word}", words.join(" ")));
    }
    for (index, word) in ours.iter().enumerate().filter(|(_, word)| word.starts_with("--")) {
        let (option, value) = word.split_once('=').map_or((word.as_str(), rest.get(index + 1)), |(option, _)| (option, None));
        if !options.contains(option) {
            return Some(format!("`{}` has no option {option}", words.join(" ")));
        }
        let file = match option {
            "--profile" => value.map(|name| format!("manifests/profiles/{name}.yaml")),
            "--paper" => value.map(|name| format!("manifests/papers/{name}.yaml")),
            "--why" => value.map(|name| format!("manifests/recipes/{}.yaml", name.split('/').next().unwrap())),
            _ => None,
        };
        if let Some(file) = file.filter(|file| !root().join(file).is_file() && !shown.contains_key(file)) {
            return Some(format!("{option}: there is no {file}"));
        }
    }
    None
}

/// Options that a help text describes.
fn options_in(help: &str) -> BTreeSet<String> {
    options_of(help.lines())
}

/// Those that a value follows.
fn options_with_value(help: &str) -> BTreeSet<String> {
    options_of(help.lines().filter(|line| line.trim_start().split("  ").next().is_some_and(|names| names.contains('<'))))
}

fn options_of<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    lines
        .map(str::trim_start)
        .filter(|line| line.starts_with('-'))
        .flat_map(|line| line.split_whitespace().take(2).map(|word| word.trim_end_matches(',').to_owned()).collect::<Vec<_>>())
        .filter(|word| word.starts_with("--"))
        .collect()
}

/// The trainer is another package, so its commands are looked for where clap reads them: variants and fields of its sources.
fn problem_of_trainer(arguments: &[String], sources: &str) -> Option<String> {
    let (command, rest) = arguments.split_first()?;
    let variant: String = command.split('-').map(|part| part[..1].to_uppercase() + &part[1..]).collect();
    if !sources.contains(&format!("{variant} {{")) && !sources.contains(&format!("{variant},")) && !sources.contains(&format!("{variant}("))
    {
        return Some(format!("no command `{command}`"));
    }
    let field = |option: &str| format!("{}:", option.trim_start_matches('-').replace('-', "_"));
    rest.iter()
        .filter(|word| word.starts_with("--"))
        .find(|option| !sources.contains(&field(option)))
        .map(|option| format!("no option {option}"))
}

fn sources_below(folder: &Path) -> String {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let text = |path: PathBuf| {
        if path.is_dir() {
            sources_below(&path)
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            std::fs::read_to_string(path).unwrap()
        } else {
            String::new()
        }
    };
    entries.into_iter().map(text).collect()
}

#[test]
fn every_command_and_option_exists() {
    let (mut helps, trainer) = (Helps(BTreeMap::new()), sources_below(&root().join("trainer/src")));
    let (mut problems, mut seen) = (Vec::new(), 0);
    let shown = documents(&root()).iter().flat_map(Document::manifests).collect();
    for document in documents(&root()) {
        for line in document.commands() {
            let words: Vec<String> = line.split_whitespace().map(|word| word.replace(['[', ']'], "")).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let arguments = |skipped: usize| words[skipped..].iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
            let problem = match words.as_slice() {
                ["cargo", "xtask", ..] => problem_of_xtask(&arguments(2), &mut helps, &shown),
                ["./xtask", ..] => problem_of_xtask(&arguments(1), &mut helps, &shown),
                ["trainer", ..] => problem_of_trainer(&arguments(1), &trainer),
                _ => continue,
            };
            seen += 1;
            problems.extend(problem.map(|problem| format!("{}: `{line}`: {problem}", document.name)));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(seen > 90, "only {seen} commands were found");
}

/// An option that is named alone belongs to some command.
#[test]
fn every_option_that_is_named_alone_exists() {
    let mut helps = Helps(BTreeMap::new());
    let mut known: BTreeSet<String> = BTreeSet::new();
    let mut open = vec![Vec::new()];
    while let Some(words) = open.pop() {
        let help = helps.of(&words).unwrap();
        known.extend(options_in(&help));
        let commands = help.split("\nCommands:\n").nth(1).unwrap_or_default().lines().take_while(|line| !line.is_empty());
        let names = commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
        open.extend(names.map(|name| words.iter().cloned().chain([name.to_owned()]).collect::<Vec<_>>()));
    }
    let trainer = sources_below(&root().join("trainer/src"));
    for document in documents(&root()) {
        for code in document.inline_code().into_iter().filter(|code| code.starts_with("--") && !code.starts_with("-- ")) {
            let option = code.split([' ', '=']).next().unwrap();
            let field = format!("{}:", option.trim_start_matches('-').replace('-', "_"));
            assert!(known.contains(option) || trainer.contains(&field), "{}: nobody has an option {option}", document.name);
        }
    }
}

#[test]
fn the_page_of_commands_has_all_of_them() {
    let page = read("docs/commands.md");
    let help = Helps(BTreeMap::new()).of(&[]).unwrap();
    for line in help.split("\nCommands:\n").nth(1).unwrap().lines().take_while(|line| !line.is_empty()) {
        let command = line.split_whitespace().next().unwrap();
        assert!(command == "help" || page.contains(&format!("cargo xtask {command}")), "docs/commands.md does not show {command}");
    }
}

#[test]
fn every_link_leads_somewhere() {
    let all = documents(&root());
    let anchors: BTreeMap<PathBuf, BTreeSet<String>> =
        all.iter().map(|document| (document.path.canonicalize().unwrap(), document.anchors())).collect();
    let mut seen = 0;
    for document in &all {
        for link in document.links().into_iter().filter(|link| !link.starts_with("http")) {
            let (path, anchor) = link.split_once('#').map_or((link.as_str(), None), |(path, anchor)| (path, Some(anchor)));
            let target = if path.is_empty() { document.path.clone() } else { document.path.parent().unwrap().join(path) };
            assert!(target.exists(), "{}: {link} leads nowhere", document.name);
            if let Some(anchor) = anchor.filter(|_| path.ends_with(".html")) {
                let page = std::fs::read_to_string(&target).unwrap();
                assert!(page.contains(&format!("id=\"{anchor}\"")), "{}: {link}: nothing has that name there", document.name);
            } else if let Some(anchor) = anchor {
                let known = anchors.get(&target.canonicalize().unwrap()).unwrap_or_else(|| panic!("{}: {link}", document.name));
                assert!(known.contains(anchor), "{}: {link}: there is no such heading", document.name);
            }
            seen += 1;
        }
    }
    assert!(seen > 100, "only {seen} links were found");
}

/// Folders at the repository's root; a name in a document that begins with one is a path.
const FOLDERS: [&str; 10] = [".ci", "docs", "fuzz", "kernels", "manifests", "paper", "replication", "results", "trainer", "xtask"];

/// Crates that another change brings: a path below one is looked for once the crate is there.
const COMING: [&str; 6] = [
    "trainer/contract",
    "replication/study",
    "replication/campaign",
    "replication/bench",
    "kernels/gfx950/interpreter",
    "kernels/gfx950/stand-in",
];

/// Whether a file, a folder or a module of that name is there. `kernels/src/quantise` may be a folder or quantise.rs.
fn is_there(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let coming = COMING.iter().any(|crate_| (path.starts_with(crate_) || crate_.starts_with(path)) && !root().join(crate_).exists());
    coming || root().join(path).exists() || root().join(format!("{path}.rs")).exists()
}

#[test]
fn every_path_that_is_named_exists() {
    let own = documents(&root())
        .iter()
        .flat_map(Document::recipes)
        .map(|(id, _)| format!("manifests/recipes/{id}.yaml"))
        .collect::<BTreeSet<_>>();
    let mut seen = 0;
    for document in documents(&root()) {
        for code in document.inline_code() {
            let path = code.split_whitespace().next().unwrap_or_default();
            let Some((folder, below)) = path.split_once('/') else { continue };
            let placeholder =
                below.contains(['<', '*', '{', '|', '…']) || below.contains("...") || below.chars().next().is_some_and(char::is_uppercase);
            if code.contains(' ') || placeholder || !FOLDERS.contains(&folder) || own.contains(path) {
                continue;
            }
            assert!(is_there(path), "{}: there is no {path}", document.name);
            seen += 1;
        }
    }
    assert!(seen > 30, "only {seen} paths were found");
}

/// The tree of ARCHITECTURE.md: names without indentation, and below them those indented by two.
#[test]
fn the_map_shows_what_is_there() {
    let text = read("ARCHITECTURE.md");
    let tree = text.split("```").find(|part| part.starts_with("\nCargo.toml")).unwrap();
    let (mut above, mut seen) = (String::new(), 0);
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let indent = line.len() - line.trim_start().len();
        let names = line.trim_start().split("  ").next().unwrap();
        match indent {
            0 => {
                above = names.to_owned();
                assert!(is_there(names), "{names}");
            }
            2 => {
                let folder =
                    names.rsplit_once('/').filter(|(_, last)| !last.is_empty()).map_or("", |(folder, _)| folder).split('/').next().unwrap();
                for (index, name) in names.split(", ").enumerate() {
                    let path = if index == 0 || folder.is_empty() { format!("{above}{name}") } else { format!("{above}{folder}/{name}") };
                    assert!(is_there(&path), "{path}");
                }
            }
            _ => continue,
        }
        seen += 1;
    }
    assert!(seen > 25, "only {seen} lines were found");
}

#[test]
fn the_book_has_every_page() {
    let summary = read("docs/SUMMARY.md");
    let chapters: BTreeSet<&str> = summary.split("](").skip(1).map(|part| part.split(')').next().unwrap()).collect();
    let pages: BTreeSet<String> = std::fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".md") && name != "SUMMARY.md")
        .collect();
    assert_eq!(chapters, pages.iter().map(String::as_str).collect());
    let front = read("docs/README.md");
    for page in pages.iter().filter(|page| *page != "README.md") {
        assert!(front.contains(&format!("]({page})")), "docs/README.md does not name {page}");
    }
    assert!(read("docs/book.toml").contains("src = \".\""));
}

/// The columns that docs/files.md describes of a campaign's tables are those of every committed one.
#[test]
fn the_columns_of_a_campaigns_tables_are_described() {
    let page = read("docs/files.md");
    let mut seen = 0;
    for name in ["validation", "loss_gap", "tokens_to_target"] {
        let after = page.split(&format!("`data/{name}.csv` has a row")).nth(1).unwrap_or_else(|| panic!("{name}.csv is not described"));
        let rows = after.split("|---|---|\n").nth(1).unwrap().lines().take_while(|line| line.starts_with('|'));
        let described: Vec<&str> = rows.flat_map(|row| row.split('|').nth(1).unwrap().split(',').map(str::trim)).collect();
        for entry in std::fs::read_dir(root().join("results")).unwrap() {
            let path = entry.unwrap().path().join(format!("data/{name}.csv"));
            let Ok(table) = std::fs::read_to_string(&path) else { continue };
            assert_eq!(table.lines().next().unwrap().split(',').collect::<Vec<_>>(), described, "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} tables were found");
}

#[test]
fn every_dependency_has_its_reason() {
    let (manifest, page) = (read("Cargo.toml"), read("docs/dependencies.md"));
    let section = manifest.split("[workspace.dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let crates: Vec<&str> = section
        .lines()
        .filter(|line| !line.starts_with('#') && line.contains(" = ") && !line.contains("path = "))
        .map(|line| line.split(" = ").next().unwrap())
        .collect();
    assert!(crates.len() > 20, "{crates:?}");
    for name in crates {
        assert!(page.lines().any(|line| line.starts_with('|') && line.contains(&format!("`{name}`"))), "docs/dependencies.md: why {name}?");
    }
}

/// The README's table of profiles has every profile that a campaign can be made of, and no other.
#[test]
fn the_readme_has_every_profile() {
    let readme = documents(&root()).into_iter().find(|document| document.name == "README.md").unwrap();
    let table = readme.tables().into_iter().find(|table| table.head[0] == "profile").unwrap();
    let named: BTreeSet<String> =
        table.rows.iter().flat_map(|row| row[0].split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect();
    let list = String::from_utf8(Command::new(env!("CARGO_BIN_EXE_xtask")).arg("list").output().unwrap().stdout).unwrap();
    let known =
        list.lines().skip(1).take_while(|line| line.starts_with(' ')).map(|line| line.split_whitespace().next().unwrap().to_owned());
    assert_eq!(named, known.collect());
}

/// What the README shows of a campaign's end is what its verdicts say.
#[test]
fn the_readme_shows_verdicts_as_they_are_printed() {
    let readme = read("README.md");
    let shown = readme.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    let report = shown.lines().find_map(|line| line.strip_prefix("report: ")).unwrap();
    let directory = Path::new(report).parent().unwrap();
    let verdicts: serde_json::Value = serde_json::from_str(&read(directory.join("verdicts.json").to_str().unwrap())).unwrap();
    let claims: Vec<&serde_json::Value> =
        verdicts["papers"].as_array().unwrap().iter().flat_map(|paper| paper["claims"].as_array().unwrap()).collect();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut seen = 0;
    for line in shown.lines().skip(1).take_while(|line| *line != "...") {
        let id = line.split_whitespace().next().unwrap();
        let claim = claims.iter().find(|claim| claim["id"] == id).unwrap_or_else(|| panic!("{id}: no such claim"));
        let text = |key: &str| claim[key].as_str().unwrap_or_default();
        let reason = claim["reason"].as_str().map_or(String::new(), |reason| format!("({reason})"));
        let evidence = claim["evidence"].as_str().map_or(String::new(), |word| format!(" ({word})"));
        let expected = format!("{id} {} {} {} {}{reason}{evidence}", text("paper"), text("ours"), text("interval_text"), text("verdict"));
        assert_eq!(words(line), words(&expected));
        seen += 1;
    }
    assert!(seen >= 5);
}

/// Every table whose head links result directories: each cell is computed again, and written where UPDATE_DOCUMENTS is set.
#[test]
fn tables_of_results_are_those_of_the_directories() {
    let updates = std::env::var_os("UPDATE_DOCUMENTS").is_some();
    let mut results = Results::new(&root());
    let (mut problems, mut seen) = (Vec::new(), BTreeMap::<String, usize>::new());
    for document in documents(&root()) {
        let mut text = document.text.clone();
        for mut table in document.tables() {
            for column in table.columns_of_results() {
                for at in 0..table.rows.len() {
                    let row = &table.rows[at].clone();
                    let said = row[column.index].replace("**", "");
                    match results.cell(&table.head[0], row, &column) {
                        Ok(expected) if expected == said || updates => {
                            *seen.entry(document.name.clone()).or_default() += 1;
                            if expected != said {
                                table.set_cell(&mut text, (at, column.index), &expected);
                            }
                        }
                        Ok(expected) => {
                            problems.push(format!("{}: {} says {said:?}, results/ {expected:?}", document.name, row[..2].join(" ")))
                        }
                        Err(problem) => problems.push(format!("{}: {}: {problem}", document.name, row[..2].join(" "))),
                    }
                }
            }
        }
        if text != document.text {
            std::fs::write(&document.path, text).unwrap();
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(seen["README.md"] >= 14 && seen["docs/results.md"] >= 180, "{seen:?}");
}

/// An interval in the README's sentences is one of the tables of docs/results.md, with either sign.
#[test]
fn intervals_in_the_readmes_sentences_are_in_the_tables() {
    let page = read("docs/results.md");
    let readme = documents(&root()).into_iter().find(|document| document.name == "README.md").unwrap();
    let found = numbers::intervals(&readme.prose());
    assert!(found.len() >= 2, "{found:?}");
    for interval in found {
        let forms = [interval.to_string(), interval.negated().to_string()];
        assert!(forms.iter().any(|form| page.contains(&format!("| {form} |"))), "README.md: {interval} is in no table of docs/results.md");
    }
}

/// Sentences with numbers: each is built from the files, and the page has to contain it.
#[test]
fn sentences_with_numbers_follow_from_the_files() {
    let [page, readme] = ["docs/results.md", "README.md"].map(|name| read(name).split_whitespace().collect::<Vec<_>>().join(" "));
    let mut missing = Vec::new();
    let mut results = Results::new(&root());
    let of_the_readme = results.sentences_of_the_readme().into_iter().filter(|sentence| !readme.contains(sentence));
    missing.extend(of_the_readme.map(|sentence| format!("README.md does not say: {sentence}")));
    for sentence in results.sentences() {
        if !page.contains(&sentence) {
            missing.push(format!("docs/results.md does not say: {sentence}"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let data = read("docs/data.md");
    for tokenizer in ["webdocs-8192", "webdocs-32768"] {
        let manifest = read(&format!("manifests/tokenizers/{tokenizer}.yaml"));
        let row = data.lines().find(|line| line.starts_with(&format!("| `{tokenizer}`"))).unwrap();
        for count in manifest.split("{tokens: ").skip(1).map(|part| part.split(',').next().unwrap().parse::<u64>().unwrap()) {
            assert!(row.contains(&numbers::grouped(count)), "docs/data.md: {tokenizer} has {count} tokens");
        }
    }
}
