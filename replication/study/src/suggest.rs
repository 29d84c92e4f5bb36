//! What to say of a word that is not known: the one that was probably meant, or all there are.

/// The candidate that is nearest to `word`, if any is near enough to be a slip.
pub fn closest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = |candidate: &&str| candidate.len().abs_diff(word.len()) <= 1 + candidate.len().max(word.len()) / 4;
    candidates
        // A distance takes time and room as the product of both lengths; it is never less than their difference.
        .filter(near)
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().max(word.len()) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `unknown KIND `word`` with the nearest candidate, or all of them.
pub fn unknown(kind: &str, word: &str, candidates: &[&str]) -> String {
    match closest(word, candidates.iter().copied()) {
        Some(near) => format!("unknown {kind} `{word}` (did you mean `{near}`?)"),
        None => format!("unknown {kind} `{word}`; there are: {}", candidates.join(", ")),
    }
}
