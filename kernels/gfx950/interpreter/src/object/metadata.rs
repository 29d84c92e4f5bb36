//! The metadata note: MessagePack, of which maps, arrays, strings, integers and booleans occur.

use super::ObjectError;
use super::elf::Elf;

/// What the compiler says that one kernel uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resources {
    pub name: String,
    /// Vector registers, accumulation registers included.
    pub vgprs: u64,
    pub agprs: u64,
    pub sgprs: u64,
    /// Vector registers spilled to scratch.
    pub vgpr_spills: u64,
    pub sgpr_spills: u64,
    /// Bytes of LDS.
    pub group_segment_fixed_size: u64,
    /// Bytes of scratch for each work item.
    pub private_segment_fixed_size: u64,
    /// Bytes of arguments.
    pub kernarg_segment_size: u64,
    pub max_flat_workgroup_size: u64,
    /// Its arguments, in order; those that the runtime fills in have a kind that begins with `hidden_`.
    pub arguments: Vec<Argument>,
}

/// One argument of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Argument {
    /// Where it lies in the argument segment, in bytes.
    pub offset: u64,
    /// How many bytes it takes.
    pub size: u64,
    /// `by_value`, `global_buffer`, or what the runtime puts there.
    pub kind: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Number(u64),
    Text(String),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Other,
}

impl Value {
    fn get(&self, key: &str) -> Option<&Value> {
        let Value::Map(entries) = self else { return None };
        entries.iter().find(|(name, _)| matches!(name, Value::Text(text) if text == key)).map(|(_, value)| value)
    }

    fn text(&self, key: &str) -> String {
        match self.get(key) {
            Some(Value::Text(text)) => text.clone(),
            _ => String::new(),
        }
    }

    fn number(&self, key: &str) -> u64 {
        match self.get(key) {
            Some(Value::Number(number)) => *number,
            _ => 0,
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    depth: u32,
}

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Result<&[u8], ObjectError> {
        let bytes = self.bytes;
        let (head, tail) = bytes.split_at_checked(count).ok_or_else(|| ObjectError::Format("its metadata is cut short".to_owned()))?;
        self.bytes = tail;
        Ok(head)
    }

    fn unsigned(&mut self, count: usize) -> Result<u64, ObjectError> {
        Ok(self.take(count)?.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    fn text(&mut self, length: u64) -> Result<Value, ObjectError> {
        let bytes = self.take(length as usize)?;
        Ok(Value::Text(String::from_utf8_lossy(bytes).into_owned()))
    }

    fn list(&mut self, length: u64) -> Result<Value, ObjectError> {
        (0..length).map(|_| self.value()).collect::<Result<_, _>>().map(Value::List)
    }

    fn map(&mut self, length: u64) -> Result<Value, ObjectError> {
        (0..length).map(|_| Ok((self.value()?, self.value()?))).collect::<Result<_, _>>().map(Value::Map)
    }

    fn value(&mut self) -> Result<Value, ObjectError> {
        const DEEPEST: u32 = 32;
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(ObjectError::Format("its metadata is nested too deeply".to_owned()));
        }
        let value = self.one();
        self.depth -= 1;
        value
    }

    fn one(&mut self) -> Result<Value, ObjectError> {
        let tag = self.take(1)?[0];
        match tag {
            0x00..=0x7F => Ok(Value::Number(u64::from(tag))),
            0x80..=0x8F => self.map(u64::from(tag & 15)),
            0x90..=0x9F => self.list(u64::from(tag & 15)),
            0xA0..=0xBF => self.text(u64::from(tag & 31)),
            0xC0 | 0xC2 | 0xC3 | 0xE0..=0xFF => Ok(Value::Other),
            0xCC..=0xCF => self.unsigned(1 << (tag - 0xCC)).map(Value::Number),
            0xD0..=0xD3 => self.unsigned(1 << (tag - 0xD0)).map(|_| Value::Other),
            0xD9..=0xDB => {
                let length = self.unsigned(1 << (tag - 0xD9))?;
                self.text(length)
            }
            0xDC | 0xDD => {
                let length = self.unsigned(2 << (tag - 0xDC))?;
                self.list(length)
            }
            0xDE | 0xDF => {
                let length = self.unsigned(2 << (tag - 0xDE))?;
                self.map(length)
            }
            _ => Err(ObjectError::Format(format!("its metadata has a MessagePack tag {tag:#x}"))),
        }
    }
}

/// The resources of every kernel.
pub(super) fn resources(elf: &Elf<'_>) -> Result<Vec<Resources>, ObjectError> {
    let root = Reader { bytes: elf.metadata()?, depth: 0 }.value()?;
    let Some(Value::List(kernels)) = root.get("amdhsa.kernels") else {
        return Err(ObjectError::Format("its metadata lists no kernels".to_owned()));
    };
    Ok(kernels.iter().map(of_kernel).collect())
}

fn of_kernel(kernel: &Value) -> Resources {
    Resources {
        name: kernel.text(".name"),
        vgprs: kernel.number(".vgpr_count"),
        agprs: kernel.number(".agpr_count"),
        sgprs: kernel.number(".sgpr_count"),
        vgpr_spills: kernel.number(".vgpr_spill_count"),
        sgpr_spills: kernel.number(".sgpr_spill_count"),
        group_segment_fixed_size: kernel.number(".group_segment_fixed_size"),
        private_segment_fixed_size: kernel.number(".private_segment_fixed_size"),
        kernarg_segment_size: kernel.number(".kernarg_segment_size"),
        max_flat_workgroup_size: kernel.number(".max_flat_workgroup_size"),
        arguments: match kernel.get(".args") {
            Some(Value::List(arguments)) => arguments.iter().map(argument).collect(),
            _ => Vec::new(),
        },
    }
}

fn argument(value: &Value) -> Argument {
    Argument { offset: value.number(".offset"), size: value.number(".size"), kind: value.text(".value_kind") }
}
