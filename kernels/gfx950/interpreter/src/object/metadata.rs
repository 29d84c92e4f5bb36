//! The metadata note, in MessagePack: what the compiler says of every kernel. Names are those of LLVM's AMDGPU usage guide, "Code Object V5 Metadata".

use serde::Deserialize;

use super::ObjectError;

/// Maps and arrays in one another, at most; the compiler nests five.
const DEEPEST: usize = 32;

#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "amdhsa.kernels")]
    kernels: Vec<Resources>,
}

/// What the compiler says that one kernel uses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Resources {
    #[serde(rename = ".name")]
    pub name: String,
    /// Vector registers, accumulation registers included.
    #[serde(rename = ".vgpr_count")]
    pub vgprs: u64,
    /// Of which so many are for accumulation. What is written in assembly by hand may leave these three out.
    #[serde(rename = ".agpr_count", default)]
    pub agprs: u64,
    #[serde(rename = ".sgpr_count")]
    pub sgprs: u64,
    /// Vector registers spilled to scratch.
    #[serde(rename = ".vgpr_spill_count", default)]
    pub vgpr_spills: u64,
    #[serde(rename = ".sgpr_spill_count", default)]
    pub sgpr_spills: u64,
    /// Bytes of LDS.
    #[serde(rename = ".group_segment_fixed_size")]
    pub group_segment_fixed_size: u64,
    /// Bytes of scratch for each work item.
    #[serde(rename = ".private_segment_fixed_size")]
    pub private_segment_fixed_size: u64,
    /// Bytes of arguments.
    #[serde(rename = ".kernarg_segment_size")]
    pub kernarg_segment_size: u64,
    #[serde(rename = ".max_flat_workgroup_size")]
    pub max_flat_workgroup_size: u64,
    /// Its arguments, in order; those that the runtime fills in have a kind that begins with `hidden_`.
    #[serde(rename = ".args", default)]
    pub arguments: Vec<Argument>,
}

/// One argument of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Argument {
    /// Where it lies in the argument segment, in bytes.
    #[serde(rename = ".offset")]
    pub offset: u64,
    /// How many bytes it takes.
    #[serde(rename = ".size")]
    pub size: u64,
    /// `by_value`, `global_buffer`, or what the runtime puts there.
    #[serde(rename = ".value_kind")]
    pub kind: String,
}

/// The resources of every kernel.
pub(super) fn resources(note: &[u8]) -> Result<Vec<Resources>, ObjectError> {
    let mut reader = rmp_serde::Deserializer::from_read_ref(note);
    reader.set_max_depth(DEEPEST);
    let metadata = Metadata::deserialize(&mut reader);
    metadata.map(|metadata| metadata.kernels).map_err(|error| ObjectError::Format(format!("its metadata: {error}")))
}

#[cfg(test)]
mod tests {
    use super::resources;

    /// A MessagePack map of fewer than 16 entries; texts are shorter than 32 bytes, numbers less than 128.
    fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = vec![0x80 | entries.len() as u8];
        for (key, value) in entries {
            bytes.extend(text(key));
            bytes.extend(value);
        }
        bytes
    }

    fn text(text: &str) -> Vec<u8> {
        [&[0xA0 | text.len() as u8], text.as_bytes()].concat()
    }

    fn kernel(vgprs: Vec<u8>) -> Vec<u8> {
        let mut entries = vec![(".name", text("k")), (".vgpr_count", vgprs), (".unknown", map(&[("a", vec![0xC0])]))];
        let numbers = [".agpr_count", ".sgpr_count", ".vgpr_spill_count", ".sgpr_spill_count", ".group_segment_fixed_size"];
        let sizes = [".private_segment_fixed_size", ".kernarg_segment_size", ".max_flat_workgroup_size"];
        entries.extend(numbers.into_iter().chain(sizes).map(|name| (name, vec![7])));
        map(&[("amdhsa.kernels", [vec![0x91], map(&entries)].concat())])
    }

    #[test]
    fn what_is_wrong_with_metadata_is_said() {
        let good = kernel(vec![42]);
        let read = resources(&good);
        assert!(
            read.as_ref().is_ok_and(|kernels| kernels.len() == 1 && kernels[0].vgprs == 42 && kernels[0].arguments.is_empty()),
            "{read:?}"
        );
        // What assembly by hand leaves out: its own name takes the place of the number's.
        let at = good.windows(11).position(|part| part == b".agpr_count").unwrap();
        let without = [&good[..at], b".unknown_nr", &good[at + 11..]].concat();
        assert!(resources(&without).is_ok_and(|kernels| kernels[0].agprs == 0));
        let said = |bytes: &[u8]| resources(bytes).map_or_else(|error| error.to_string(), |_| "nothing".to_owned());
        for length in 0..good.len() {
            assert!(said(&good[..length]).starts_with("not a gfx950 code object: its metadata: "), "{length}");
        }
        assert!(said(&map(&[("amdhsa.version", vec![5])])).contains("missing field `amdhsa.kernels`"));
        assert!(said(&kernel(text("many"))).contains("wrong msgpack marker"));
        assert!(said(&map(&[("amdhsa.kernels", vec![0x91, 0x80])])).contains("missing field `.name`"));
        // A list that says to have 2^32 - 1 elements, and lists in lists.
        assert!(said(&map(&[("amdhsa.kernels", vec![0xDD, 0xFF, 0xFF, 0xFF, 0xFF])])) != "nothing");
        let deep = map(&[("a", [vec![0x91; 100_000], vec![0xC0]].concat())]);
        assert!(said(&deep).contains("depth"), "{}", said(&deep));
    }
}
