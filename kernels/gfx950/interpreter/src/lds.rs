//! One workgroup's LDS: bytes, which of them were written, and who touched them since the last barrier.
//!
//! Two waves that touch a byte between two barriers, at least one of them writing, race: the fault does not depend on the order in which
//! the waves happen to run here. Atomic operations race with reads and writes, not with one another. A read or write is under way until the wave's s_waitcnt retires it; so is a load that goes straight to LDS, and
//! until then its old bytes stay.

use crate::banks::Grouping;
use crate::fault::{FaultKind, Stop};

#[derive(Debug, Clone, Copy, Default)]
struct Shadow {
    defined: bool,
    /// Epoch and wave of the last write that has been retired or made; epochs count barriers and begin at 1.
    write_epoch: u32,
    writer: u16,
    /// Epoch of the last read, and the waves that read in it.
    read_epoch: u32,
    readers: u32,
    /// Waves whose reads are under way.
    reading: u32,
    /// Wave + 1 whose write is under way, 0 if none.
    writing: u16,
    /// Wave + 1 whose load to LDS is under way, 0 if none.
    loading: u16,
    /// Epoch of the last atomic operation, the waves that made one in it, and those whose is under way.
    atomic_epoch: u32,
    atomics: u32,
    atomics_pending: u32,
}

impl Shadow {
    fn note_atomic(&mut self, wave: usize, epoch: u32) {
        if self.atomic_epoch != epoch {
            (self.atomic_epoch, self.atomics) = (epoch, 0);
        }
        self.atomics |= 1 << wave;
    }

    /// Whether it is plain that nothing keeps a wave from reading.
    fn is_readable(&self, wave: usize, epoch: u32) -> bool {
        let settled = self.loading == 0 && (self.writing == 0 || usize::from(self.writing) == wave + 1);
        let unwritten = self.write_epoch != epoch || usize::from(self.writer) == wave;
        settled && unwritten && self.atomics_pending == 0 && self.atomic_epoch != epoch
    }

    /// The same of writing.
    fn is_writable(&self, wave: usize, epoch: u32) -> bool {
        let others = !(1 << wave);
        self.is_readable(wave, epoch) && self.reading & others == 0 && (self.read_epoch != epoch || self.readers & others == 0)
    }
}

/// LDS of one workgroup.
#[derive(Debug, Clone)]
pub(crate) struct Lds {
    bytes: Vec<u8>,
    /// Of the bytes up to the last one that was touched.
    shadow: Vec<Shadow>,
    epoch: u32,
    conflicts: [u64; 2],
}

impl Lds {
    pub(crate) fn new(size: usize) -> Self {
        Self { bytes: crate::memory::poison(size), shadow: Vec::new(), epoch: 1, conflicts: [0; 2] }
    }

    /// As it is when a workgroup begins. Most touch but a part, and many small ones are launched.
    pub(crate) fn begin_group(&mut self) {
        let touched = self.shadow.len();
        self.bytes[..touched].copy_from_slice(&crate::memory::poison(touched));
        self.shadow.clear();
        (self.epoch, self.conflicts) = (1, [0; 2]);
    }

    /// Counts the bank conflicts of one access, the offsets being those of all lanes, None of an inactive one.
    pub(crate) fn count(&mut self, offsets: &[Option<u64>], size: usize) {
        for (sum, conflicts) in self.conflicts.iter_mut().zip(Grouping::conflicts_of_all(offsets, size)) {
            *sum += conflicts;
        }
    }

    /// Bank conflicts so far, in the order of [`Grouping::ALL`].
    pub(crate) fn conflicts(&self) -> [u64; 2] {
        self.conflicts
    }

    pub(crate) fn barrier(&mut self) {
        self.epoch += 1;
    }

    /// The bytes of an access, which are touched from now on.
    fn range(&mut self, offset: u64, bytes: usize) -> Result<std::ops::Range<usize>, Stop> {
        let end = offset.saturating_add(bytes as u64);
        if end > self.bytes.len() as u64 {
            return Err(FaultKind::LdsBounds { bytes, offset, size: self.bytes.len() }.into());
        }
        if self.shadow.len() < end as usize {
            self.shadow.resize(end as usize, Shadow::default());
        }
        Ok(offset as usize..end as usize)
    }

    /// No other wave's write, and no load at all, may be under way.
    fn settled(&self, wave: usize, offset: usize) -> Result<(), Stop> {
        let shadow = &self.shadow[offset];
        if shadow.loading != 0 {
            return Err(FaultKind::InFlight { offset, wave: usize::from(shadow.loading) - 1, what: "load to LDS" }.into());
        }
        if shadow.writing != 0 && usize::from(shadow.writing) - 1 != wave {
            return Err(FaultKind::InFlight { offset, wave: usize::from(shadow.writing) - 1, what: "write" }.into());
        }
        Ok(())
    }

    /// No other wave's atomic operation may be under way, or have been made since the last barrier.
    fn without_atomics(&self, wave: usize, offset: usize, this: &'static str) -> Result<(), Stop> {
        let shadow = &self.shadow[offset];
        let others = shadow.atomics_pending & !(1 << wave);
        if others != 0 {
            return Err(FaultKind::InFlight { offset, wave: others.trailing_zeros() as usize, what: "atomic operation" }.into());
        }
        let others = shadow.atomics & !(1 << wave);
        if shadow.atomic_epoch == self.epoch && others != 0 {
            return Err(FaultKind::Race { offset, this, that: "changed atomically", wave: others.trailing_zeros() as usize }.into());
        }
        Ok(())
    }

    /// No other wave may have written since the last barrier.
    fn unwritten(&self, wave: usize, offset: usize, this: &'static str) -> Result<(), Stop> {
        let shadow = &self.shadow[offset];
        if shadow.write_epoch == self.epoch && usize::from(shadow.writer) != wave {
            return Err(FaultKind::Race { offset, this, that: "written", wave: usize::from(shadow.writer) }.into());
        }
        Ok(())
    }

    fn unread(&self, wave: usize, offset: usize) -> Result<(), Stop> {
        let shadow = &self.shadow[offset];
        let others = shadow.readers & !(1 << wave);
        if shadow.read_epoch == self.epoch && others != 0 {
            return Err(FaultKind::Race { offset, this: "written", that: "read", wave: others.trailing_zeros() as usize }.into());
        }
        let others = shadow.reading & !(1 << wave);
        if others != 0 {
            return Err(FaultKind::InFlight { offset, wave: others.trailing_zeros() as usize, what: "read" }.into());
        }
        Ok(())
    }

    /// Nothing may keep a wave from writing to these bytes.
    fn may_write(&self, wave: usize, range: std::ops::Range<usize>) -> Result<(), Stop> {
        if self.shadow[range.clone()].iter().all(|shadow| shadow.is_writable(wave, self.epoch)) {
            return Ok(());
        }
        for at in range {
            self.settled(wave, at)?;
            self.unwritten(wave, at, "written")?;
            self.unread(wave, at)?;
            self.without_atomics(wave, at, "written")?;
        }
        Ok(())
    }

    /// Reads; says whether every byte was written before. The read is under way until [`Lds::finish_read`]: nobody else may write there.
    pub(crate) fn read(&mut self, wave: usize, offset: u64, into: &mut [u8]) -> Result<bool, Stop> {
        let range = self.range(offset, into.len())?;
        let (mut defined, epoch) = (true, self.epoch);
        if !self.shadow[range.clone()].iter().all(|shadow| shadow.is_readable(wave, epoch)) {
            for at in range.clone() {
                self.settled(wave, at)?;
                self.unwritten(wave, at, "read")?;
                self.without_atomics(wave, at, "read")?;
            }
        }
        for shadow in &mut self.shadow[range.clone()] {
            if shadow.read_epoch != epoch {
                (shadow.read_epoch, shadow.readers) = (epoch, 0);
            }
            shadow.readers |= 1 << wave;
            shadow.reading |= 1 << wave;
            defined &= shadow.defined;
        }
        into.copy_from_slice(&self.bytes[range]);
        Ok(defined)
    }

    /// Writes; the write is under way until [`Lds::finish_write`].
    pub(crate) fn write(&mut self, wave: usize, offset: u64, from: &[u8], defined: bool) -> Result<(), Stop> {
        let range = self.range(offset, from.len())?;
        self.may_write(wave, range.clone())?;
        for shadow in &mut self.shadow[range.clone()] {
            (shadow.write_epoch, shadow.writer, shadow.writing, shadow.defined) = (self.epoch, wave as u16, wave as u16 + 1, defined);
        }
        self.bytes[range].copy_from_slice(from);
        Ok(())
    }

    /// Replaces a 32-bit word by a function of it; under way until [`Lds::finish_write`].
    pub(crate) fn atomic(&mut self, wave: usize, offset: u64, function: impl Fn(u32) -> u32, defined: bool) -> Result<(), Stop> {
        let range = self.range(offset, 4)?;
        for at in range.clone() {
            self.settled(wave, at)?;
            self.unwritten(wave, at, "changed atomically")?;
            self.unread(wave, at)?;
            let epoch = self.epoch;
            let shadow = &mut self.shadow[at];
            shadow.note_atomic(wave, epoch);
            shadow.atomics_pending |= 1 << wave;
            shadow.defined &= defined;
        }
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes[range.clone()]);
        self.bytes[range].copy_from_slice(&function(u32::from_le_bytes(word)).to_le_bytes());
        Ok(())
    }

    pub(crate) fn finish_read(&mut self, wave: usize, offset: u64, bytes: usize) {
        let start = offset as usize;
        self.shadow[start..start + bytes].iter_mut().for_each(|shadow| shadow.reading &= !(1 << wave));
    }

    pub(crate) fn finish_write(&mut self, wave: usize, offset: u64, bytes: usize) {
        let start = offset as usize;
        for shadow in &mut self.shadow[start..start + bytes] {
            if usize::from(shadow.writing) == wave + 1 {
                shadow.writing = 0;
                shadow.write_epoch = self.epoch;
            }
            if shadow.atomics_pending >> wave & 1 == 1 {
                shadow.atomics_pending &= !(1 << wave);
                shadow.note_atomic(wave, self.epoch);
            }
        }
    }

    /// A load to these bytes begins.
    pub(crate) fn begin_load(&mut self, wave: usize, offset: u64, bytes: usize) -> Result<(), Stop> {
        let range = self.range(offset, bytes)?;
        self.may_write(wave, range.clone())?;
        self.shadow[range].iter_mut().for_each(|shadow| shadow.loading = wave as u16 + 1);
        Ok(())
    }

    pub(crate) fn finish_load(&mut self, wave: usize, offset: u64, from: &[u8], defined: bool) {
        let start = offset as usize;
        self.bytes[start..start + from.len()].copy_from_slice(from);
        for shadow in &mut self.shadow[start..start + from.len()] {
            shadow.loading = 0;
            (shadow.write_epoch, shadow.writer, shadow.defined) = (self.epoch, wave as u16, defined);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Lds;
    use crate::fault::FaultKind;

    fn read(lds: &mut Lds, wave: usize, offset: u64) -> Result<bool, FaultKind> {
        lds.read(wave, offset, &mut [0; 4]).map_err(|stop| stop.kind)
    }

    fn write(lds: &mut Lds, wave: usize, offset: u64) -> Result<(), FaultKind> {
        lds.write(wave, offset, &[1, 2, 3, 4], true).map_err(|stop| stop.kind)
    }

    #[test]
    fn what_was_never_written_is_undefined_and_what_lies_beyond_is_a_fault() {
        let mut lds = Lds::new(16);
        assert_eq!(read(&mut lds, 0, 12), Ok(false));
        assert!(matches!(read(&mut lds, 0, 13), Err(FaultKind::LdsBounds { bytes: 4, offset: 13, size: 16 })));
        write(&mut lds, 0, 4).unwrap();
        assert_eq!(read(&mut lds, 0, 4), Ok(true));
        assert_eq!(read(&mut lds, 0, 6), Ok(false), "half of it");
    }

    #[test]
    fn two_waves_race_unless_a_barrier_lies_between() {
        let pairs: [(bool, bool); 4] = [(true, true), (true, false), (false, true), (false, false)];
        for (first_writes, second_writes) in pairs {
            for barrier in [false, true] {
                let mut lds = Lds::new(16);
                let touch = |lds: &mut Lds, wave, writes| if writes { write(lds, wave, 0) } else { read(lds, wave, 0).map(|_| ()) };
                touch(&mut lds, 0, first_writes).unwrap();
                lds.finish_write(0, 0, 4);
                lds.finish_read(0, 0, 4);
                if barrier {
                    lds.barrier();
                }
                let second = touch(&mut lds, 1, second_writes);
                let races = !barrier && (first_writes || second_writes);
                assert_eq!(matches!(second, Err(FaultKind::Race { wave: 0, .. })), races, "{first_writes} {second_writes} {barrier}");
            }
        }
    }

    #[test]
    fn a_read_under_way_keeps_others_from_writing_even_after_a_barrier() {
        let mut lds = Lds::new(16);
        read(&mut lds, 3, 0).unwrap();
        lds.barrier();
        assert_eq!(write(&mut lds, 0, 0), Err(FaultKind::InFlight { offset: 0, wave: 3, what: "read" }));
        assert!(lds.begin_load(0, 0, 4).is_err());
        write(&mut lds, 3, 0).unwrap();
        lds.finish_write(3, 0, 4);
        lds.finish_read(3, 0, 4);
        lds.barrier();
        write(&mut lds, 0, 0).unwrap();
    }

    #[test]
    fn a_write_under_way_is_seen_by_its_own_wave_alone() {
        let mut lds = Lds::new(16);
        write(&mut lds, 2, 0).unwrap();
        lds.barrier();
        assert_eq!(read(&mut lds, 2, 0), Ok(true));
        assert!(matches!(read(&mut lds, 1, 0), Err(FaultKind::InFlight { offset: 0, wave: 2, what: "write" })));
        // Retired after the barrier, it counts as made after it.
        lds.finish_write(2, 0, 4);
        assert!(matches!(read(&mut lds, 1, 0), Err(FaultKind::Race { wave: 2, .. })));
        lds.barrier();
        assert_eq!(read(&mut lds, 1, 0), Ok(true));
    }

    #[test]
    fn atomic_operations_race_with_reads_and_writes_but_not_with_one_another() {
        let atomic = |lds: &mut Lds, wave| lds.atomic(wave, 0, |old| old.max(7), true).map_err(|stop| stop.kind);
        let mut lds = Lds::new(16);
        lds.write(0, 0, &[5, 0, 0, 0], true).unwrap();
        assert!(matches!(atomic(&mut lds, 1), Err(FaultKind::InFlight { wave: 0, .. })));
        lds.finish_write(0, 0, 4);
        assert!(matches!(atomic(&mut lds, 1), Err(FaultKind::Race { wave: 0, that: "written", .. })));
        lds.barrier();
        atomic(&mut lds, 1).unwrap();
        atomic(&mut lds, 0).unwrap();
        lds.finish_write(1, 0, 4);
        // Both waves changed it: even the last one may not read it yet.
        for wave in 0..2 {
            assert!(matches!(read(&mut lds, wave, 0), Err(FaultKind::InFlight { .. } | FaultKind::Race { .. })), "{wave}");
        }
        lds.barrier();
        assert!(matches!(read(&mut lds, 1, 0), Err(FaultKind::InFlight { wave: 0, what: "atomic operation", .. })));
        lds.finish_write(0, 0, 4);
        assert!(matches!(write(&mut lds, 1, 0), Err(FaultKind::Race { that: "changed atomically", wave: 0, .. })));
        lds.barrier();
        let mut word = [0; 4];
        assert_eq!(lds.read(1, 0, &mut word).map_err(|stop| stop.kind), Ok(true));
        assert_eq!(word, [7, 0, 0, 0]);
        assert!(matches!(atomic(&mut lds, 0), Err(FaultKind::Race { that: "read", wave: 1, .. })));
    }

    #[test]
    fn a_load_under_way_may_be_touched_by_nobody_and_arrives_when_it_is_waited_for() {
        let mut lds = Lds::new(16);
        lds.begin_load(1, 0, 4).unwrap();
        for wave in 0..2 {
            assert!(matches!(read(&mut lds, wave, 3), Err(FaultKind::InFlight { offset: 3, wave: 1, what: "load to LDS" })));
            assert!(matches!(write(&mut lds, wave, 0), Err(FaultKind::InFlight { .. })));
            assert!(lds.begin_load(wave, 0, 4).is_err());
        }
        lds.finish_load(1, 0, &[9; 4], true);
        assert_eq!(read(&mut lds, 1, 0), Ok(true));
        assert!(matches!(read(&mut lds, 0, 0), Err(FaultKind::Race { wave: 1, .. })));
        // Nor may a load begin where another wave has read since the last barrier.
        assert!(lds.begin_load(0, 0, 4).is_err());
        lds.finish_read(1, 0, 4);
        lds.barrier();
        lds.begin_load(0, 0, 4).unwrap();
    }
}
