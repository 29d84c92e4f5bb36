//! What the waves of one workgroup did, in order, with the place of every access: for those who ask when, and not what.

use std::collections::BTreeMap;

use crate::decode::LANES;

/// Where each lane accesses LDS or memory; None for an inactive one, and for one outside its buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Bytes that a lane touches.
    pub bytes: usize,
    pub lanes: [Option<u64>; LANES],
}

/// What the waves of a workgroup executed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// For each wave the positions of its instructions in the kernel, in the order in which it came to them.
    pub waves: Vec<Vec<u32>>,
    /// The accesses of a wave's n-th instruction, by (wave, n). Scalar loads have none.
    pub accesses: BTreeMap<(usize, usize), Vec<Access>>,
}

impl Trace {
    pub(crate) fn begin(&mut self, wave: usize, position: usize) {
        if self.waves.len() <= wave {
            self.waves.resize(wave + 1, Vec::new());
        }
        self.waves[wave].push(position as u32);
    }

    /// An access of the instruction that `wave` began last.
    pub(crate) fn note(&mut self, wave: usize, bytes: usize, lanes: &[Option<u64>]) {
        let mut access = Access { bytes, lanes: [None; LANES] };
        for (to, from) in access.lanes.iter_mut().zip(lanes) {
            *to = *from;
        }
        let last = self.waves.get(wave).map_or(0, |steps| steps.len().saturating_sub(1));
        self.accesses.entry((wave, last)).or_default().push(access);
    }
}
