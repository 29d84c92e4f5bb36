//! What the checks need of Markdown as these documents write it: fences, tables, code, links, headings. No nesting, no HTML.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub(crate) struct Document {
    /// Path from the repository's root.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

pub(crate) fn documents(root: &Path) -> Vec<Document> {
    let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = pages.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}")).collect();
    names.sort();
    names.extend(["README.md", "ARCHITECTURE.md"].map(str::to_owned));
    let document = |name: String| {
        let path = root.join(&name);
        Document { text: std::fs::read_to_string(&path).unwrap(), name, path }
    };
    names.into_iter().map(document).collect()
}

pub(crate) struct Table {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// The rows as they are written.
    lines: Vec<String>,
}

/// A column that holds numbers of a result directory.
#[derive(Default)]
pub(crate) struct Column {
    pub(crate) index: usize,
    /// Below results/.
    pub(crate) directory: String,
    /// Target loss, where it is not the profile's.
    pub(crate) loss: Option<f64>,
    /// An earlier target: the column has the rise from there.
    pub(crate) from: Option<f64>,
    /// Of PyTorch, not of ours.
    pub(crate) peer: bool,
    /// Over the last quarter of the budget.
    pub(crate) late: bool,
    /// The model of which all campaigns of one setting count: `32M`.
    pub(crate) all_seeds_of: Option<String>,
    /// Of one seed, where it is not the first.
    pub(crate) seed: Option<u64>,
}

impl Document {
    /// Bodies of fences, and everything else.
    fn split(&self) -> (Vec<&str>, String) {
        let (mut fences, mut rest) = (Vec::new(), String::new());
        for (index, part) in self.text.split("```").enumerate() {
            if index % 2 == 1 {
                fences.push(part.split_once('\n').unwrap().1);
            } else {
                rest.push_str(part);
            }
        }
        (fences, rest)
    }

    /// Paragraphs, list items and lines of tables outside fences, each on one line.
    fn blocks(&self) -> Vec<String> {
        let mut blocks: Vec<String> = Vec::new();
        let mut open = false;
        for line in self.split().1.lines() {
            let own = line.starts_with(['|', '#']) || line.trim_start().starts_with("- ");
            if open && !own && !line.trim().is_empty() {
                let last = blocks.last_mut().unwrap();
                last.push(' ');
                last.push_str(line.trim());
            } else {
                blocks.push(line.trim().to_owned());
            }
            open = !line.trim().is_empty() && !line.starts_with(['|', '#']);
        }
        blocks
    }

    /// Sentences: neither fences nor tables.
    pub(crate) fn prose(&self) -> String {
        let blocks = self.blocks().into_iter().filter(|block| !block.starts_with('|'));
        blocks.flat_map(|block| block.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn inline_code(&self) -> Vec<String> {
        self.blocks().iter().flat_map(|block| block.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    /// Lines of fences without their comments, cut at `&&`, and code in sentences.
    pub(crate) fn commands(&self) -> Vec<String> {
        let fences = self.split().0.into_iter().flat_map(|fence| {
            let joined = fence.replace("\\\n", " ");
            joined.lines().map(|line| line.split(" #").next().unwrap().to_owned()).collect::<Vec<_>>()
        });
        let all = fences.chain(self.inline_code());
        all.flat_map(|line| line.split(" && ").map(|command| command.trim().to_owned()).collect::<Vec<_>>()).collect()
    }

    /// Targets of links and images outside code.
    pub(crate) fn links(&self) -> Vec<String> {
        let plain = |block: &String| block.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let targets = |block: String| block.split("](").skip(1).map(|part| part.split(')').next().unwrap().to_owned()).collect::<Vec<_>>();
        self.blocks().iter().map(plain).flat_map(targets).collect()
    }

    /// Headings, as forges and mdBook turn them into anchors.
    pub(crate) fn anchors(&self) -> BTreeSet<String> {
        let slug = |heading: &str| {
            let kept = heading.to_lowercase().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>();
            kept.replace(' ', "-")
        };
        self.blocks().iter().filter(|block| block.starts_with('#')).map(|block| slug(block.trim_start_matches('#').trim())).collect()
    }

    /// Recipes in fences: id and text.
    pub(crate) fn recipes(&self) -> Vec<(String, String)> {
        let recipe = |fence: &str| {
            let id = fence.lines().next()?.strip_prefix("id: ")?;
            fence.contains("\noperands:").then(|| (id.to_owned(), fence.to_owned()))
        };
        self.split().0.into_iter().filter_map(recipe).collect()
    }

    /// Manifests in fences, whose first line says where they belong (`# manifests/papers/mine.yaml`): path and text.
    pub(crate) fn manifests(&self) -> Vec<(String, String)> {
        let manifest = |fence: &str| {
            let path = fence.lines().next()?.strip_prefix("# ").filter(|path| path.starts_with("manifests/") && path.ends_with(".yaml"))?;
            Some((path.to_owned(), fence.to_owned()))
        };
        self.split().0.into_iter().filter_map(manifest).collect()
    }

    pub(crate) fn tables(&self) -> Vec<Table> {
        let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        let mut tables: Vec<Table> = Vec::new();
        let mut inside = false;
        for line in self.split().1.lines() {
            if !line.starts_with('|') {
                inside = false;
            } else if !inside {
                inside = true;
                tables.push(Table { head: cells(line), rows: Vec::new(), lines: Vec::new() });
            } else if !line.starts_with("|---") {
                let table = tables.last_mut().unwrap();
                let mut row = cells(line);
                row.resize(table.head.len(), String::new());
                table.rows.push(row);
                table.lines.push(line.to_owned());
            }
        }
        tables
    }
}

impl Table {
    /// Writes other words into a cell of this table, in the document's text.
    pub(crate) fn set_cell(&mut self, text: &mut String, (row, column): (usize, usize), words: &str) {
        let line = &mut self.lines[row];
        let mut cells: Vec<String> = line.split('|').map(str::to_owned).collect();
        // Before the first bar there is nothing.
        cells[column + 1] = format!(" {words} ");
        let written = cells.join("|");
        // The same row may stand in a table before this one.
        let from = text.find(&format!("| {} |", self.head.join(" | "))).unwrap();
        let at = from + text[from..].find(line.as_str()).unwrap();
        text.replace_range(at..at + line.len(), &written);
        *line = written;
    }

    /// Columns whose head links a directory below results/.
    pub(crate) fn columns_of_results(&self) -> Vec<Column> {
        let column = |(index, head): (usize, &String)| {
            let directory = head.split("results/").nth(1)?.split([')', '/']).next()?.to_owned();
            let after = |word: &str| head.split_once(word).and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
            Some(Column {
                index,
                directory,
                loss: after(" at ").or_else(|| after(" to ")),
                from: after(" from "),
                peer: head.starts_with("PyTorch"),
                late: head.contains("last quarter"),
                all_seeds_of: head.split_once(", all seeds").map(|(size, _)| size.trim_start_matches('[').to_owned()),
                seed: head.split_once(", seed ").and_then(|(_, rest)| rest.split(']').next()?.parse().ok()),
            })
        };
        self.head.iter().enumerate().filter_map(column).collect()
    }
}
