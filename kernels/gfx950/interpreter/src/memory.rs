//! Global memory: a table of named allocations, far apart, each byte either defined or not.
//!
//! Every access of a kernel must lie inside one allocation, and touch no byte that another workgroup of the same launch wrote. What a kernel is to fill begins undefined, so that an element which it
//! leaves out or reads too early shows.

use std::cell::Cell;

use crate::fault::FaultKind;

/// What undefined bytes hold: as an F32, a NaN that no arithmetic here makes.
pub(crate) const POISON: u32 = 0x7FA5_A5A5;

/// So many undefined bytes.
pub(crate) fn poison(size: usize) -> Vec<u8> {
    let mut bytes = POISON.to_le_bytes().repeat(size.div_ceil(4));
    bytes.truncate(size);
    bytes
}

/// Where the first allocation lies; the upper half of an address is never zero, so that a truncated one is caught.
const FIRST: u64 = 0x7A_1000_0000;
/// Distance between the end of one allocation and the next: more than a 32-bit offset reaches, in both directions.
const GAP: u64 = 0x2_0000_0000;
/// Allocations begin at multiples of this.
const ALIGNMENT: u64 = 256;

/// Marks a workgroup that wrote by an atomic operation.
const ATOMIC: u32 = 1 << 31;

/// An address that a kernel can be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address(pub u64);

#[derive(Debug, Clone)]
struct Allocation {
    base: u64,
    name: String,
    bytes: Vec<u8>,
    /// Which bytes were written; None: all.
    defined: Option<Vec<bool>>,
    writable: bool,
    /// The workgroup that wrote each byte last, by its number over all launches (plus `ATOMIC` if by an atomic operation); empty until
    /// one writes.
    writers: Vec<u32>,
}

#[derive(Debug, Clone)]
pub struct Memory {
    /// In order of address.
    allocations: Vec<Allocation>,
    /// Which of them was accessed last: mostly the next access goes there, too.
    recent: Cell<usize>,
    next: u64,
    /// The workgroup that runs, and the first one of its launch.
    group: u32,
    first_of_launch: u32,
}

impl Default for Memory {
    fn default() -> Self {
        Self { allocations: Vec::new(), recent: Cell::new(0), next: FIRST, group: 0, first_of_launch: 1 }
    }
}

impl Memory {
    pub fn new() -> Self {
        Self::default()
    }

    fn add(&mut self, name: &str, bytes: Vec<u8>, defined: Option<Vec<bool>>, writable: bool) -> Address {
        let base = self.next;
        self.next = (base + bytes.len() as u64 + GAP).next_multiple_of(ALIGNMENT);
        self.allocations.push(Allocation { base, name: name.to_owned(), bytes, defined, writable, writers: Vec::new() });
        Address(base)
    }

    /// Which allocation begins there.
    fn position(&self, address: Address) -> Option<usize> {
        self.allocations.binary_search_by_key(&address.0, |allocation| allocation.base).ok()
    }

    /// Read-only bytes.
    pub fn input(&mut self, name: &str, bytes: &[u8]) -> Address {
        self.add(name, bytes.to_vec(), None, false)
    }

    /// Bytes that the kernel may read and write.
    pub fn updated(&mut self, name: &str, bytes: &[u8]) -> Address {
        self.add(name, bytes.to_vec(), None, true)
    }

    /// `size` bytes that the kernel is to write, undefined until it does.
    pub fn output(&mut self, name: &str, size: usize) -> Address {
        self.add(name, poison(size), Some(vec![false; size]), true)
    }

    /// What an allocation holds, if every byte of it is defined.
    ///
    /// # Errors
    /// The number of undefined bytes and the position of the first; or an address that begins no allocation.
    pub fn bytes(&self, address: Address) -> Result<&[u8], String> {
        let position = self.position(address).ok_or_else(|| format!("{:#x} begins no allocation", address.0))?;
        let allocation = &self.allocations[position];
        if let Some(defined) = &allocation.defined
            && let Some(first) = defined.iter().position(|defined| !defined)
        {
            let count = defined.iter().filter(|defined| !**defined).count();
            return Err(format!("{count} bytes of {} were never written, the first at {first}", allocation.name));
        }
        Ok(&allocation.bytes)
    }

    /// Copies into an allocation, wherever in it `address` lies: what a host does. Read-only allocations take it, too.
    pub fn write(&mut self, address: Address, from: &[u8]) -> Result<(), FaultKind> {
        let (position, start) = self.locate("a copy", address.0, from.len())?;
        let allocation = &mut self.allocations[position];
        allocation.bytes[start..start + from.len()].copy_from_slice(from);
        if let Some(defined) = &mut allocation.defined {
            defined[start..start + from.len()].fill(true);
        }
        Ok(())
    }

    /// Copies out of an allocation, wherever in it `address` lies; undefined bytes come as poison.
    pub fn read(&self, address: Address, into: &mut [u8]) -> Result<(), FaultKind> {
        let (position, start) = self.locate("a copy", address.0, into.len())?;
        into.copy_from_slice(&self.allocations[position].bytes[start..start + into.len()]);
        Ok(())
    }

    /// As [`Memory::read`], for what is computed with.
    ///
    /// # Errors
    /// When the bytes are not inside one allocation, or some of them were never written.
    pub fn read_defined(&self, address: Address, into: &mut [u8]) -> Result<(), FaultKind> {
        self.read(address, into)?;
        let (position, start) = self.locate("a copy", address.0, into.len())?;
        let allocation = &self.allocations[position];
        let defined = allocation.defined.as_ref().map(|defined| &defined[start..start + into.len()]);
        match defined.and_then(|defined| defined.iter().position(|defined| !defined)) {
            Some(at) => Err(FaultKind::Undefined { used: format!("byte {} of {}", start + at, allocation.name) }),
            None => Ok(()),
        }
    }

    /// Frees what a launch brought with it, the newest allocation last; their addresses are given out again, because a process may
    /// launch more often than there are places in the 48 bits that a buffer resource has for an address.
    pub(crate) fn rewind(&mut self, address: Address) {
        self.allocations.truncate(self.allocations.partition_point(|allocation| allocation.base < address.0));
        self.next = address.0;
    }

    /// Frees an allocation; its address is not given out again. Says whether there was one.
    pub fn release(&mut self, address: Address) -> bool {
        self.position(address).map(|position| self.allocations.remove(position)).is_some()
    }

    /// Which allocation an access lies in, and where in it.
    fn locate(&self, access: &'static str, address: u64, bytes: usize) -> Result<(usize, usize), FaultKind> {
        let start_in = |allocation: &Allocation| {
            let start = address.checked_sub(allocation.base)?;
            (start.saturating_add(bytes as u64) <= allocation.bytes.len() as u64).then_some(start as usize)
        };
        if let Some(start) = self.allocations.get(self.recent.get()).and_then(start_in) {
            return Ok((self.recent.get(), start));
        }
        let below = self.allocations.partition_point(|allocation| allocation.base <= address).checked_sub(1);
        if let Some(position) = below
            && let Some(start) = start_in(&self.allocations[position])
        {
            self.recent.set(position);
            return Ok((position, start));
        }
        let near = below.map(|position| {
            let Allocation { base, name, bytes, .. } = &self.allocations[position];
            format!(" (nearest below: {name} of {} bytes, {} bytes from its start)", bytes.len(), address - base)
        });
        Err(FaultKind::Bounds { access, bytes, address, near: near.unwrap_or_default() })
    }

    /// A launch begins: what earlier ones wrote may be read and overwritten by any workgroup.
    pub(crate) fn begin_launch(&mut self) {
        self.first_of_launch = self.group + 1;
    }

    /// The next workgroup of the launch runs from here on.
    pub(crate) fn begin_group(&mut self) {
        self.group += 1;
    }

    /// Workgroups of a launch run in no order: none may touch what another one of the same launch wrote, except both in accesses that
    /// the device makes visible to all (`shared`).
    fn alone(&self, allocation: &Allocation, range: std::ops::Range<usize>, access: &'static str, shared: bool) -> Result<(), FaultKind> {
        let Some(writers) = allocation.writers.get(range.clone()) else { return Ok(()) };
        let foreign = |writer: u32| writer & !ATOMIC >= self.first_of_launch && writer & !ATOMIC != self.group;
        match writers.iter().position(|&writer| foreign(writer) && !(shared && writer & ATOMIC != 0)) {
            Some(at) => Err(FaultKind::SharedGlobal { access, name: allocation.name.clone(), offset: range.start + at }),
            None => Ok(()),
        }
    }

    /// `N` bytes, and whether all of them are defined.
    pub(crate) fn load(&self, address: u64, into: &mut [u8]) -> Result<bool, FaultKind> {
        self.load_as(address, into, false)
    }

    /// The same where atomic operations of other workgroups may have written.
    pub(crate) fn load_shared(&self, address: u64, into: &mut [u8]) -> Result<bool, FaultKind> {
        self.load_as(address, into, true)
    }

    /// Replaces a 32-bit word by a function of it; says whether it was defined.
    pub(crate) fn atomic(&mut self, address: u64, function: impl Fn(u32) -> u32) -> Result<bool, FaultKind> {
        let mut word = [0; 4];
        if !address.is_multiple_of(4) {
            return Err(FaultKind::Unsupported("an atomic operation that is not aligned to its size".to_owned()));
        }
        let defined = self.load_shared(address, &mut word)?;
        self.store_as(address, &function(u32::from_le_bytes(word)).to_le_bytes(), true)?;
        Ok(defined)
    }

    fn load_as(&self, address: u64, into: &mut [u8], shared: bool) -> Result<bool, FaultKind> {
        let (position, start) = self.locate("a load", address, into.len())?;
        let allocation = &self.allocations[position];
        let range = start..start + into.len();
        self.alone(allocation, range.clone(), "loads", shared)?;
        into.copy_from_slice(&allocation.bytes[range.clone()]);
        Ok(allocation.defined.as_ref().is_none_or(|defined| defined[range].iter().all(|&defined| defined)))
    }

    pub(crate) fn store(&mut self, address: u64, from: &[u8]) -> Result<(), FaultKind> {
        self.store_as(address, from, false)
    }

    fn store_as(&mut self, address: u64, from: &[u8], atomic: bool) -> Result<(), FaultKind> {
        let (position, start) = self.locate("a store", address, from.len())?;
        self.alone(&self.allocations[position], start..start + from.len(), "stores to", atomic)?;
        let group = self.group | if atomic { ATOMIC } else { 0 };
        let allocation = &mut self.allocations[position];
        if !allocation.writable {
            return Err(FaultKind::ReadOnly { name: allocation.name.clone() });
        }
        let range = start..start + from.len();
        allocation.bytes[range.clone()].copy_from_slice(from);
        allocation.writers.resize(allocation.bytes.len(), 0);
        allocation.writers[range.clone()].fill(group);
        if let Some(defined) = &mut allocation.defined {
            defined[range].fill(true);
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Address, Memory};
    use crate::fault::FaultKind;

    #[test]
    fn copies_define_bytes_and_stay_inside() {
        let mut memory = Memory::new();
        let base = memory.output("weights", 8);
        assert_eq!(memory.bytes(base).unwrap_err(), "8 bytes of weights were never written, the first at 0");
        memory.write(Address(base.0 + 4), &[1, 2, 3, 4]).unwrap();
        assert!(memory.bytes(base).unwrap_err().starts_with("4 bytes"));
        let (mut found, mut low) = ([0; 4], [0; 4]);
        memory.read(Address(base.0 + 4), &mut found).unwrap();
        assert_eq!(found, [1, 2, 3, 4]);
        assert_eq!(memory.load(base.0, &mut low), Ok(false));
        let said = memory.write(Address(base.0 + 5), &[0; 4]).unwrap_err().to_string();
        assert!(said.contains("outside every allocation") && said.contains("weights of 8 bytes"), "{said}");
        // Half of it is defined: the other half is poison to a reader who does not mind, and nothing to compute with.
        assert_eq!(memory.read_defined(Address(base.0 + 4), &mut found), Ok(()));
        assert_eq!(memory.read(base, &mut found), Ok(()));
        let said = memory.read_defined(Address(base.0 + 1), &mut found).unwrap_err().to_string();
        assert_eq!(said, "byte 1 of weights depends on a value that was never written");
        assert!(memory.release(base) && !memory.release(base));
        assert!(matches!(memory.read(base, &mut found), Err(FaultKind::Bounds { .. })));
    }

    #[test]
    fn workgroups_of_one_launch_share_nothing_that_one_of_them_writes() {
        let mut memory = Memory::new();
        let base = memory.output("sums", 8);
        let shared = |access| Err(FaultKind::SharedGlobal { access, name: "sums".to_owned(), offset: 4 });
        memory.begin_launch();
        memory.begin_group();
        memory.store(base.0 + 4, &[1; 4]).unwrap();
        assert_eq!(memory.load(base.0 + 4, &mut [0; 4]), Ok(true));
        memory.begin_group();
        memory.store(base.0, &[2; 4]).unwrap();
        assert_eq!(memory.store(base.0 + 2, &[2; 4]).map(|()| true), shared("stores to"));
        assert_eq!(memory.load(base.0, &mut [0; 8]), shared("loads"));
        memory.begin_launch();
        memory.begin_group();
        assert_eq!(memory.load(base.0, &mut [0; 8]), Ok(true));
    }

    #[test]
    fn workgroups_share_a_word_that_they_change_atomically() {
        let mut memory = Memory::new();
        let base = memory.updated("largest", &[0; 8]);
        memory.begin_launch();
        memory.begin_group();
        assert_eq!(memory.atomic(base.0, |old| old.max(3)), Ok(true));
        memory.begin_group();
        assert_eq!(memory.atomic(base.0, |old| old.max(2)), Ok(true));
        memory.begin_group();
        let mut word = [0; 4];
        assert_eq!(memory.load_shared(base.0, &mut word), Ok(true));
        assert_eq!(word, [3, 0, 0, 0]);
        assert!(matches!(memory.load(base.0, &mut word), Err(FaultKind::SharedGlobal { .. })));
        assert!(matches!(memory.store(base.0, &word), Err(FaultKind::SharedGlobal { .. })));
        // What another workgroup stored plainly is not to be changed atomically either.
        memory.store(base.0 + 4, &word).unwrap();
        memory.begin_group();
        assert!(matches!(memory.atomic(base.0 + 4, |old| old), Err(FaultKind::SharedGlobal { .. })));
        assert!(matches!(memory.atomic(base.0 + 2, |old| old), Err(FaultKind::Unsupported(_))));
    }

    #[test]
    fn a_launch_leaves_no_address_behind() {
        let mut memory = Memory::new();
        let kept = memory.updated("kept", &[1]);
        let [arguments, packet] = ["kernel arguments", "dispatch packet"].map(|name| memory.input(name, &[2]));
        memory.rewind(arguments);
        assert_eq!(memory.load(kept.0, &mut [0]), Ok(true));
        assert!(memory.load(packet.0, &mut [0]).is_err());
        assert_eq!(memory.input("kernel arguments", &[3]), arguments);
    }

    #[test]
    fn inputs_are_read_only_to_kernels() {
        let mut memory = Memory::new();
        let base = memory.input("tokens", &[1, 2]);
        assert_eq!(memory.store(base.0, &[0]), Err(FaultKind::ReadOnly { name: "tokens".to_owned() }));
        assert_eq!(memory.load(base.0, &mut [0; 2]), Ok(true));
    }
}
