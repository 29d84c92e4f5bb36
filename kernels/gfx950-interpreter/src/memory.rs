//! Global memory: a table of named allocations, far apart, each byte either defined or not.
//!
//! Every access of a kernel must lie inside one allocation. What a kernel is to fill begins undefined, so that an element which it
//! leaves out or reads too early shows.

use std::collections::BTreeMap;

use crate::fault::FaultKind;

/// What undefined bytes hold: as an F32, a NaN that no arithmetic here makes.
pub(crate) const POISON: u32 = 0x7FA5_A5A5;

/// Where the first allocation lies; the upper half of an address is never zero, so that a truncated one is caught.
const FIRST: u64 = 0x7A_1000_0000;
/// Distance between the end of one allocation and the next: more than a 32-bit offset reaches, in both directions.
const GAP: u64 = 0x2_0000_0000;
/// Allocations begin at multiples of this.
const ALIGNMENT: u64 = 256;

/// An address that a kernel can be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address(pub u64);

#[derive(Debug, Clone)]
struct Allocation {
    name: String,
    bytes: Vec<u8>,
    /// Which bytes were written; None: all.
    defined: Option<Vec<bool>>,
    writable: bool,
}

/// All allocations.
#[derive(Debug, Clone)]
pub struct Memory {
    allocations: BTreeMap<u64, Allocation>,
    next: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Self { allocations: BTreeMap::new(), next: FIRST }
    }
}

impl Memory {
    /// No allocations.
    pub fn new() -> Self {
        Self::default()
    }

    fn add(&mut self, allocation: Allocation) -> Address {
        let base = self.next;
        self.next = (base + allocation.bytes.len() as u64 + GAP).next_multiple_of(ALIGNMENT);
        self.allocations.insert(base, allocation);
        Address(base)
    }

    /// Read-only bytes.
    pub fn input(&mut self, name: &str, bytes: &[u8]) -> Address {
        self.add(Allocation { name: name.to_owned(), bytes: bytes.to_vec(), defined: None, writable: false })
    }

    /// Bytes that the kernel may read and write.
    pub fn updated(&mut self, name: &str, bytes: &[u8]) -> Address {
        self.add(Allocation { name: name.to_owned(), bytes: bytes.to_vec(), defined: None, writable: true })
    }

    /// `size` bytes that the kernel is to write, undefined until it does.
    pub fn output(&mut self, name: &str, size: usize) -> Address {
        let bytes = POISON.to_le_bytes().into_iter().cycle().take(size).collect();
        self.add(Allocation { name: name.to_owned(), bytes, defined: Some(vec![false; size]), writable: true })
    }

    /// What an allocation holds, if every byte of it is defined.
    ///
    /// # Errors
    /// The number of undefined bytes and the position of the first; or an address that begins no allocation.
    pub fn bytes(&self, address: Address) -> Result<&[u8], String> {
        let allocation = self.allocations.get(&address.0).ok_or_else(|| format!("{:#x} begins no allocation", address.0))?;
        if let Some(defined) = &allocation.defined
            && let Some(first) = defined.iter().position(|defined| !defined)
        {
            let count = defined.iter().filter(|defined| !**defined).count();
            return Err(format!("{count} bytes of {} were never written, the first at {first}", allocation.name));
        }
        Ok(&allocation.bytes)
    }

    fn locate(&self, access: &'static str, address: u64, bytes: usize) -> Result<(u64, usize), FaultKind> {
        let below = self.allocations.range(..=address).next_back();
        if let Some((&base, allocation)) = below {
            let start = address - base;
            if start.saturating_add(bytes as u64) <= allocation.bytes.len() as u64 {
                return Ok((base, start as usize));
            }
        }
        let near = below.map(|(base, allocation)| {
            format!(" (nearest below: {} of {} bytes, {} bytes from its start)", allocation.name, allocation.bytes.len(), address - base)
        });
        Err(FaultKind::Bounds { access, bytes, address, near: near.unwrap_or_default() })
    }

    /// `N` bytes, and whether all of them are defined.
    pub(crate) fn load(&self, address: u64, into: &mut [u8]) -> Result<bool, FaultKind> {
        let (base, start) = self.locate("a load", address, into.len())?;
        let Some(allocation) = self.allocations.get(&base) else { return Ok(false) };
        let range = start..start + into.len();
        into.copy_from_slice(&allocation.bytes[range.clone()]);
        Ok(allocation.defined.as_ref().is_none_or(|defined| defined[range].iter().all(|&defined| defined)))
    }

    pub(crate) fn store(&mut self, address: u64, from: &[u8]) -> Result<(), FaultKind> {
        let (base, start) = self.locate("a store", address, from.len())?;
        let Some(allocation) = self.allocations.get_mut(&base) else { return Ok(()) };
        if !allocation.writable {
            return Err(FaultKind::ReadOnly { name: allocation.name.clone() });
        }
        let range = start..start + from.len();
        allocation.bytes[range.clone()].copy_from_slice(from);
        if let Some(defined) = &mut allocation.defined {
            defined[range].fill(true);
        }
        Ok(())
    }
}
