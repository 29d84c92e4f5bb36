//! Steps 5 to 10.

use sha2::{Digest, Sha256};

use super::made::{make, prose};

fn paragraphs(range: std::ops::Range<usize>) -> String {
    range.map(|index| prose(&format!("paragraph {index}"), 1000)).collect::<Vec<_>>().join("\n\n")
}

/// Names and hashes: 0 and 1 to 3 are trained on, 71 and 85 are held out (first bytes 9b, 32, f6, d8, 00, 00); parts by their hashes are 2/0
/// (50b2), 3/0 (89e1), 0/2 (9ae8), 1/0 (c1e9), 0/0 (d672), 0/1 (dac2); 71/0 (7968), 85/0 (da53).
#[test]
fn split_cut_order_and_shards() {
    let long = paragraphs(0..60);
    let others = [1, 2, 3, 71, 85].map(|number| prose(&format!("document {number}"), 600));
    let names = ["doc1.md", "doc2.md", "doc3.md", "doc71.md", "doc85.md"];
    let mut files: Vec<(&str, &[u8])> = names.into_iter().zip(others.iter().map(String::as_bytes)).collect();
    files.push(("doc0.md", long.as_bytes()));
    let made = make("md", &files, 1200);
    // A cut is at the first empty line from byte 24,576 on, after 25 paragraphs of 1,000 bytes and what is between them.
    let parts = [paragraphs(0..25), paragraphs(25..50), paragraphs(50..60)];
    let [one, two, three, held, out] = others.clone();
    let expected = [two, three, parts[2].clone(), one, parts[0].clone(), parts[1].clone()];
    assert!(made.train == expected, "{:?}", made.train.iter().map(|part| &part[..40]).collect::<Vec<_>>());
    assert_eq!(made.held_out, [held, out]);
    let counts = &made.counts;
    assert_eq!((counts.files, counts.documents, counts.parts, counts.dropped.len()), (6, 6, 8, 0));
    assert_eq!((counts.file_bytes, counts.text_bytes), (60_118 + 3000, 60_118 + 3000));
    // The second part brings the first shard to 2 times 601 bytes; of the next, each is long enough but for the fourth.
    let shards: Vec<(u64, u64)> = made.shards[0].iter().map(|shard| (shard.documents, shard.bytes)).collect();
    assert_eq!(shards, [(2, 1202), (1, 10_019), (2, 601 + 25_049), (1, 25_049)]);
    assert_eq!((made.shards[1].len(), made.shards[1][0].documents), (1, 2), "what is held out is one file");
    let first = format!("{}\0{}\0", expected[0], expected[1]);
    let hex: String = Sha256::digest(first).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(made.shards[0][0].sha256, hex);
}

/// Files count by their paths: a.md, b.md, ...
#[test]
fn lines_and_texts_occur_once() {
    let [shared, own, lost, late] = ["shared", "own", "lost", "late"].map(|what| prose(what, 500));
    let thin = prose("thin", 100);
    // No letter or digit of ASCII: equal lines stay, equal texts do not.
    let cyrillic = "\u{434}\u{43e}\u{43a} ".repeat(80);
    let cyrillic = cyrillic.trim_end();
    let files = [
        ("a.md", format!("{shared}\n\nUpper and lower case: 40 letters and digits of a key\n\nA short line.\n\n{cyrillic}")),
        // The same line by its key, in other letters and signs.
        ("b.md", format!("{}\n\n{own}\n\nA short line.\n\nA short line.", shared.to_uppercase().replace(' ', " - "))),
        // Enough prose before, not after; what was seen here stays seen.
        ("c.md", format!("{shared}\n\n{thin}")),
        ("d.md", format!("{thin}\n\n{late}\n\n\nUPPER AND LOWER CASE (40 letters and digits of a key)")),
        ("e.md", cyrillic.to_owned()),
        ("f.md", cyrillic.to_owned()),
        ("g.md", format!("{lost}\n\n{lost}\n\nIts end.")),
    ];
    let files: Vec<(&str, &[u8])> = files.iter().map(|(path, text)| (*path, text.as_bytes())).collect();
    let made = make("md", &files, u64::MAX);
    let mut texts: Vec<String> = made.train.into_iter().chain(made.held_out).collect();
    let mut expected = [
        format!("{shared}\n\nUpper and lower case: 40 letters and digits of a key\n\nA short line.\n\n{cyrillic}"),
        format!("{own}\n\nA short line.\n\nA short line."),
        late,
        cyrillic.to_owned(),
        format!("{lost}\n\nIts end."),
    ];
    texts.sort();
    expected.sort();
    assert_eq!(texts, expected);
    let dropped: Vec<(&str, u64)> = made.counts.dropped.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    assert_eq!(dropped, [("duplicate", 1), ("not_prose_after_dedup", 1)]);
}
