//! Step 3: a text for each mode that has every kind of thing its rule names.

use super::made::{make, prose, text};

#[test]
fn markdown() {
    let (one, two, three) = (prose("one", 500), prose("two", 90), prose("three", 90));
    let file = format!(
        "---\ntitle: gone\n--- \n\n\n# A heading of fifty bytes and more that nothing may be joined to\n{one}\nis followed by what was wrapped,\n\
         and by a line after a short one\n\n- {two}\n- an item is no continuation\n\n<!-- gone\n{three}\n-->\n\
         > quoted <b class=\"x\">bold</B> &amp; &eacute;&#8212;&#x41;&#7;&#xD800;|&nbsp;&unknown; [link](http://x/(y)) ![image](z.png)[text][ref]\n\
         | a | table |\n  ::: note\n [ref]: http://gone\n{{% liquid %}}{{{{ Macro('kept', 2) }}}} {{{{ gone }}}}\\*star\\* [!NOTE] <unknown> 1 < 2   \n\
         ***\n\n```rust\n{three}\n~~~\n````\n~~~~ `tilde`\n~~~\ngone\n``` \n~~~~ no end\n~~~~~  \n``` `code` on one line\n\n1. ```\n   gone\n   ```\n\n\nThe last.\n\n"
    );
    let expected = format!(
        "# A heading of fifty bytes and more that nothing may be joined to\n{one} is followed by what was wrapped,\n\
         and by a line after a short one\n\n- {two}\n- an item is no continuation\n\n\
         quoted bold & \u{e9}\u{2014}A  | &unknown; link text\nkept *star*  <unknown> 1 < 2\n\n``` `code` on one line\n\nThe last."
    );
    assert_eq!(text("md", file.as_bytes()), expected);
    // What looks like metadata and has no end is text; so are dashes further down.
    let file = format!("---\n{one}\n\n---x\nThe end.");
    assert_eq!(text("md", file.as_bytes()), format!("{one}\n\n---x\nThe end."));
}

#[test]
fn restructured_text() {
    let (one, two) = (prose("one", 500), prose("two", 90));
    let file = format!(
        "PEP: 1\nTitle: gone\n \nAbstract\n========\n\n{one}\n(goes on here\n and not here\n\n.. note:: gone\n  .. [1] gone\n..\n\n\
         See `the docs <http://x>`_ and `more<y>`__, :pep:`8` and :py:func:`~a.b`.\n{two}\n# no joining\n"
    );
    let expected = format!("Abstract\n\n{one} (goes on here\n and not here\n\nSee the docs and more, 8 and a.b. {two}\n# no joining");
    assert_eq!(text("rst", file.as_bytes()), expected);
    assert_eq!(text("rst", one.as_bytes()), "not_prose", "without an empty line there is no body");
}

#[test]
fn project_gutenberg() {
    let (one, two) = (prose("one", 500), prose("two", 60));
    let head = "The Project Gutenberg EBook\n\nLanguage: English\n";
    let body = format!(
        "*** START OF THIS PROJECT GUTENBERG EBOOK ***\nProduced for Project GUTENBERG\n\nCHAPTER I\n\n{one}\n{two}\n1 is joined, too\n    and this is not.\n* * *\n[Illustration: a boat]\n"
    );
    let tail = format!("\nEnd of Project Gutenberg's words\n{}\n", prose("licence", 300));
    let expected = format!("CHAPTER I\n\n{one} {two} 1 is joined, too\n    and this is not.");
    assert_eq!(text("pg", format!("{head}{body}{tail}").as_bytes()), expected);
    assert_eq!(text("pg", format!("{head}{body}").as_bytes()), expected, "the end may be missing");
    assert_eq!(text("pg", format!("{head}{one}").as_bytes()), "no_start");
    assert_eq!(text("pg", format!("{head}**COPYRIGHTED**\n{body}").as_bytes()), "copyrighted");
    assert_eq!(text("pg", format!("Language: English\n{body}").as_bytes()), "not_english", "it is not a line of its own");
    assert_eq!(text("pg", format!("Language: French\n{body}\nLanguage: English\n").as_bytes()), "not_english");
}

#[test]
fn cnxml() {
    let one = prose("one", 500);
    let document =
        |body: &str| format!("<document><title id=\"t\">A <b>title</b></title><title>other</title><metadata>gone</metadata>{body}");
    let body = format!(
        "<content>\n<para id=\"p\">{one}\n  on <term>the next</term> line<!-- gone --> x<m:math><m:mi>y</m:mi></m:math>z</para>\
         <list><item>first</item><item>second</item></list><table><row><entry>a</entry><entry>b</entry></row></table>\
         <para>---</para><para>&lt;kept&gt; &#160;</para></content> gone <glossary><definition>word</definition></glossary></document>"
    );
    let expected = format!("A title\n\n{one} on the next line x z\n\nfirst\n\nsecond\n\na b\n\n<kept>\n\nword");
    assert_eq!(text("cnxml", document(&body).as_bytes()), expected);
    let formulas = |count: usize| document(&body.replace("---", &"<m:math>x</m:math>".repeat(count)));
    assert_eq!(text("cnxml", formulas(19).as_bytes()), expected);
    assert_eq!(text("cnxml", formulas(20).as_bytes()), "math");
    assert_eq!(text("cnxml", document(&body.replace("<content>", "")).as_bytes()), "no_content");
    assert_eq!(text("cnxml", document(&body.replace("</content>", "")).as_bytes()), "no_content");
}

#[test]
fn medquad() {
    let one = prose("one", 500);
    let pair = |answer: &str| format!("<QAPair><Question qid=\"1\">What is\n it?</Question>\n\t<Answer>{answer}</Answer></QAPair>");
    let file = format!(
        "<QAPairs>{}{}{}</QAPairs>",
        pair(" \n\t"),
        pair(&format!("{one}\n   -  first\n - second\n \nA new\nparagraph &amp; more.")),
        pair("Short.")
    );
    // `- first` begins where a line ends, and so does the paragraph after an empty line.
    let expected = format!("What is it?\n\n{one}\nfirst\nsecond\n\nA new paragraph & more.\n\nWhat is it?\n\nShort.");
    assert_eq!(text("medquad", file.as_bytes()), expected);
    assert_eq!(text("medquad", pair(" \n").as_bytes()), "no_answer");
}

#[test]
fn law() {
    let one = prose("one", 500);
    let file = format!(
        "<section><num>1-101.</num>\n <heading>Name.</heading><!-- gone --><text>{one}</text><para><num>(a)</num><text>First.</text></para>\
         <annotations><text>gone\n</text></annotations><para><num>(b)</num>\t<text>Second.</text></para><annotations>gone</annotations></section>"
    );
    let expected = format!("1-101.\nName.\n{one}\n\n(a) First.\n\n(b) Second.");
    assert_eq!(text("law", file.as_bytes()), expected);
}

#[test]
fn tei() {
    let one = prose("one", 500);
    let file = format!(
        "<TEI><teiHeader>gone</teiHeader><text><body><head>A head</head><p>{one}<note n=\"1\">gone\n<p>gone</p></note> goes <hi>on</hi><!-- gone --></p>\
         <l>a verse</l><l>another</l><row><cell>a</cell><cell>b</cell></row><p>page<pb/>break <notes>kept</notes></p></body></text></TEI>"
    );
    let expected = format!("A head\n\n{one} goes on\n\na verse\n\nanother\n\na b\n\npage break kept");
    assert_eq!(text("tei", file.as_bytes()), expected);
    assert_eq!(text("tei", format!("<TEI>{one}</TEI>").as_bytes()), "no_content");
}

/// Step 2.
#[test]
fn what_a_file_must_be_and_how_its_lines_end() {
    let (one, two) = (prose("one", 500), prose("two", 100));
    let file = format!("\u{feff}{one}\r\n\r\r\n \u{a0}\r\n# One\u{a0}word\r# Two\u{feff}\n\n\n{two} \t");
    assert_eq!(text("md", file.as_bytes()), format!("{one}\n\n# One word\n# Two\u{feff}\n\n{two}"));
    let with = |bytes: &[u8]| [one.as_bytes(), bytes].concat();
    let long = |bytes: usize| with(&vec![b' '; bytes - one.len()]);
    let files = [with(b"\xff"), with(b"\0"), long(4_000_001)];
    for (file, reason) in files.iter().zip(["not_utf8", "nul", "too_long"]) {
        let made = make("md", &[("a", file)], u64::MAX);
        assert_eq!((made.counts.files, made.counts.file_bytes, made.counts.documents), (1, file.len() as u64, 0));
        assert_eq!(made.counts.dropped.into_iter().collect::<Vec<_>>(), [(reason.to_owned(), 1)]);
    }
    assert_eq!(text("md", &long(4_000_000)), one);
}

/// Step 4, at its bounds: a line counts from 80 bytes, with its end; 400 of them are needed, and half of all.
#[test]
fn how_much_prose_there_must_be() {
    let lines = |long: &[usize], short: &[usize]| {
        let long = long.iter().enumerate().map(|(index, bytes)| prose(&format!("long {index}"), *bytes));
        let short = short.iter().enumerate().map(|(index, bytes)| prose(&format!("short {index}"), *bytes));
        let all: Vec<String> = long.chain(short).collect();
        // In this mode no line is joined to another, and paragraphs would have an empty line between.
        format!("<text>{}</text>", all.join("<lb/>"))
    };
    let is_kept = |long: &[usize], short: &[usize]| text("tei", lines(long, short).as_bytes()) != "not_prose";
    assert!(is_kept(&[399], &[]) && !is_kept(&[398], &[]));
    assert!(is_kept(&[319, 80], &[]) && !is_kept(&[319], &[79]), "80 bytes are a line of prose, 79 are none");
    assert!(is_kept(&[399], &[79, 79, 79, 79, 79]), "half of 800 bytes");
    assert!(!is_kept(&[399], &[79, 79, 79, 79, 79, 40]));
}
