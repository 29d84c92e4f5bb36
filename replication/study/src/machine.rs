//! Names of machines in result directories: from a GPU, else from processor and cores, and never from the host's name.

use contract::device::GpuFacts;

/// Name of the first GPU; none where it has none.
pub fn of_gpus(gpus: &[GpuFacts]) -> Option<String> {
    gpus.first().and_then(|gpu| gpu.name.as_deref()).map(tidy).filter(|name| !name.is_empty())
}

/// Lower-case letters, digits and single dashes of a name, at most 32 of them.
pub fn tidy(name: &str) -> String {
    let text: String = name.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let parts: Vec<&str> = text.split('-').filter(|part| !part.is_empty()).collect();
    parts.join("-").chars().take(32).collect::<String>().trim_end_matches('-').to_owned()
}

/// `Intel(R) Xeon(R) CPU @ 2.90GHz` with two cores is `xeon-2c`.
pub fn of_processor(model: &str, architecture: &str, cores: usize) -> String {
    let before = model.split('@').next().unwrap_or_default().to_lowercase();
    let plain = ["(r)", "(tm)", "(c)"].iter().fold(before, |text, mark| text.replace(mark, " "));
    let noise = ["intel", "amd", "cpu", "processor", "with", "radeon", "graphics", "gen"];
    let said = |word: &&str| !noise.contains(word) && !word.ends_with("-core");
    let mut words: Vec<String> = plain.split_whitespace().filter(said).map(tidy).filter(|word| !word.is_empty()).take(3).collect();
    if words.is_empty() {
        words.push(architecture.replace('_', "-"));
    }
    words.push(format!("{cores}c"));
    words.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_names_come_from_the_processor() {
        for (model, cores, expected) in [
            ("Intel(R) Xeon(R) Processor", 2, "xeon-2c"),
            ("Intel(R) Xeon(R) Platinum 8488C CPU @ 2.90GHz", 8, "xeon-platinum-8488c-8c"),
            ("AMD EPYC 9R14 96-Core Processor", 4, "epyc-9r14-4c"),
            ("13th Gen Intel(R) Core(TM) i7-1365U", 12, "13th-core-i7-1365u-12c"),
            ("Apple M2 Pro", 10, "apple-m2-pro-10c"),
            ("../../etc", 1, "etc-1c"),
        ] {
            assert_eq!(of_processor(model, "x86_64", cores), expected);
        }
        assert_eq!(of_processor("", "x86_64", 1), "x86-64-1c");
    }
}
