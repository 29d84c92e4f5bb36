//! report.pdf, compiled in a fresh folder that holds only what was just rendered.
//!
//! The directory may be a stranger's: TeX would take a style, a class or a latexmkrc that lies in it for its own, and run it. So there are
//! no settings but ours, no shell, nothing of the home folder, no reading or writing outside, and an end.

use std::path::Path;
use std::time::Duration;

use study::files::{self, Context as _, FileError};

use crate::system;
use crate::toolchain;

/// A report takes 15 seconds.
const LONGEST: Duration = Duration::from_secs(180);

/// Of each program, in the units of `ulimit`: 1 GiB of memory, 90 seconds of a processor, files of 100 MB.
const LIMITED: &str = "ulimit -v 1048576; ulimit -t 90; ulimit -f 200000; exec \"$@\"";

/// What a program that compiles needs of this one's variables; TeX's own would lead elsewhere.
const KEPT: [&str; 2] = ["PATH", "TMPDIR"];

/// Makes report.pdf from `rendered`, files of `directory`. A line for the reader if there is no PDF.
///
/// # Errors
/// When a file cannot be copied, such as on a full disk.
pub(crate) fn pdf(directory: &Path, rendered: &[String]) -> Result<Option<String>, FileError> {
    if duct::cmd!("latexmk", "-norc", "--version").dir(std::env::temp_dir()).stdout_null().stderr_null().run().is_err() {
        return Ok(Some("report.pdf was not made: latexmk is not installed (report.tex is complete)".into()));
    }
    let temporary = std::env::temp_dir();
    let fresh = tempfile::tempdir().at(&temporary, "make a folder for LaTeX in")?;
    for name in rendered {
        files::copy(&directory.join(name), &fresh.path().join(name))?;
    }
    match compile(fresh.path()) {
        Ok(()) => files::copy(&fresh.path().join("report.pdf"), &directory.join("report.pdf")).map(|()| None),
        Err(why) => Ok(Some(format!("report.pdf was not made{why}"))),
    }
}

fn compile(folder: &Path) -> Result<(), String> {
    let home = folder.display().to_string();
    let set = [
        ("HOME", home.as_str()),
        ("LC_ALL", "C.UTF-8"),
        // A fixed date, so that rendering again gives the same PDF.
        ("SOURCE_DATE_EPOCH", "0"),
        ("FORCE_SOURCE_DATE", "1"),
        ("openin_any", "p"),
        ("openout_any", "p"),
        ("shell_escape", "f"),
    ];
    let kept = KEPT.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    let variables = kept.chain(set.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let latexmk = ["latexmk", "-norc", "-pdf", "-interaction=nonstopmode", "-halt-on-error", "-latexoption=-no-shell-escape", "report.tex"];
    let started = duct::cmd("sh", ["-c", LIMITED, "sh"].into_iter().chain(latexmk))
        .dir(folder)
        .full_env(variables)
        .before_spawn(|command| {
            system::in_a_group_of_its_own(command);
            Ok(())
        })
        .stdin_null()
        .stderr_to_stdout()
        .stdout_path(folder.join("latexmk.out"))
        .unchecked()
        .start()
        .map_err(|error| format!(": {error}"))?;
    match started.wait_timeout(LONGEST) {
        Ok(Some(output)) if output.status.success() => Ok(()),
        Ok(Some(_)) => {
            let said = std::fs::read(folder.join("latexmk.out")).unwrap_or_default();
            Err(format!(", latexmk says:\n{}", toolchain::last_lines(&String::from_utf8_lossy(&said), 15)))
        }
        Ok(None) => {
            system::kill_groups(&started.pids());
            let _ = started.wait();
            Err(format!(": latexmk was not done after {} s", LONGEST.as_secs()))
        }
        Err(error) => Err(format!(": {error}")),
    }
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// What the PDF of a document has to say, beside files that a stranger might leave; none where there is no LaTeX.
    fn compiled(document: &str, beside: &[(&str, &str)]) -> (tempfile::TempDir, Option<String>) {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in beside.iter().chain([&("report.tex", document)]) {
            files::write(&directory.path().join(name), text.as_bytes()).unwrap();
        }
        let said = pdf(directory.path(), &["report.tex".to_owned()]).unwrap();
        (directory, said)
    }

    #[test]
    fn nothing_that_lies_beside_a_report_is_run_and_nothing_outside_is_read_or_written() {
        let mark = tempfile::tempdir().unwrap();
        let mark = mark.path().join("executed");
        let shown = mark.display();
        let document =
            |body: &str| format!("\\documentclass{{article}}\\usepackage{{booktabs}}\\begin{{document}}a{body}\\end{{document}}");
        let beside = [
            (".latexmkrc", format!("system('touch {shown}');")),
            ("latexmkrc", format!("system('touch {shown}');")),
            ("booktabs.sty", format!("\\immediate\\write18{{touch {shown}}}")),
        ];
        let beside: Vec<(&str, &str)> = beside.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let (directory, said) = compiled(&document(""), &beside);
        if said.as_ref().is_some_and(|said| said.contains("not installed")) {
            eprintln!("latexmk is not installed: skipped");
            return;
        }
        assert_eq!(said, None);
        assert!(directory.path().join("report.pdf").is_file() && !mark.exists());
        // Whatever a document says itself, were it not escaped.
        for body in [
            format!("\\immediate\\write18{{touch {shown}}}"),
            format!("\\immediate\\openout9={shown} \\immediate\\write9{{x}}\\immediate\\closeout9 "),
            "\\immediate\\openout9=../executed \\immediate\\write9{x}\\immediate\\closeout9 ".to_owned(),
        ] {
            compiled(&document(&body), &[]);
            assert!(!mark.exists() && !std::env::temp_dir().join("executed").exists(), "{body}");
        }
        for file in ["/etc/passwd", "../../../../../../etc/passwd"] {
            let (_, said) =
                compiled(&document(&format!("\\newread\\r\\openin\\r={file} \\ifeof\\r\\else\\errmessage{{it was read}}\\fi")), &[]);
            assert_eq!(said, None, "{file}");
        }
    }
}
