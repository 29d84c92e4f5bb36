//! What a compute unit did in a phase, and what bounds it.

use crate::machine::SIMDS;

/// Why a wave that could have issued did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The matrix pipe was busy.
    Matrix,
    /// Another wave of the SIMD issued to the same unit.
    Arbitration,
    /// A register was not ready.
    Register,
    /// s_waitcnt: vector memory.
    VectorMemory,
    /// s_waitcnt: LDS or scalar memory.
    LocalMemory,
    /// Too much waits before the address unit, or the counter is full.
    AddressUnit,
    /// The same before LDS.
    LdsPort,
    Barrier,
}

impl Reason {
    const ALL: [Self; 8] = [
        Self::Matrix,
        Self::Arbitration,
        Self::Register,
        Self::VectorMemory,
        Self::LocalMemory,
        Self::AddressUnit,
        Self::LdsPort,
        Self::Barrier,
    ];

    fn words(self) -> &'static str {
        match self {
            Self::Matrix => "the matrix pipe",
            Self::Arbitration => "other waves",
            Self::Register => "registers",
            Self::VectorMemory => "vector memory",
            Self::LocalMemory => "LDS data",
            Self::AddressUnit => "the address unit",
            Self::LdsPort => "the LDS port",
            Self::Barrier => "the barrier",
        }
    }
}

/// Clocks, all waves and SIMDs of a compute unit together where it does not say otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Clocks that passed.
    pub clocks: u64,
    /// Of all matrix pipes.
    pub matrix: u64,
    /// Of all vector units, matrix operations not included.
    pub vector: u64,
    /// In which waves issued.
    pub issue: u64,
    /// Of the LDS port.
    pub lds: u64,
    /// Of the address unit.
    pub address: u64,
    /// Of the unit's share of memory; 0 where operands come from caches.
    pub memory: u64,
    /// Of waves that wait, in the order of [`Reason`].
    pub stalls: [u64; 8],
    /// Clocks of the LDS port that bank conflicts took, by consecutive lanes and by those that were measured; the second is in `lds`.
    pub conflicts: [u64; 2],
}

impl Usage {
    pub(crate) fn stall(&mut self, reason: Reason, clocks: u64) {
        self.stalls[reason as usize] += clocks;
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            clocks: self.clocks - before.clocks,
            matrix: self.matrix - before.matrix,
            vector: self.vector - before.vector,
            issue: self.issue - before.issue,
            lds: self.lds - before.lds,
            address: self.address - before.address,
            memory: self.memory - before.memory,
            stalls: std::array::from_fn(|at| self.stalls[at] - before.stalls[at]),
            conflicts: std::array::from_fn(|at| self.conflicts[at] - before.conflicts[at]),
        }
    }
}

/// A part of a run, between the first and the last matrix operation or outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    pub name: &'static str,
    pub usage: Usage,
    waves: usize,
}

impl Phase {
    /// The busiest unit's share of the clocks, and its name: matrix pipes, vector units, issue (of a wave on the average), LDS port, address
    /// unit, memory.
    pub fn busiest(&self) -> (f64, &'static str) {
        let Usage { matrix, vector, issue, lds, address, memory, .. } = self.usage;
        let clocks = self.usage.clocks.max(1) as f64;
        let shares = [
            (matrix as f64 / SIMDS as f64, "matrix pipe"),
            (vector as f64 / SIMDS as f64, "vector units"),
            (issue as f64 / self.waves.max(1) as f64, "issue"),
            (lds as f64, "LDS port"),
            (address as f64, "address unit"),
            (memory as f64, "memory"),
        ];
        let busiest = shares.into_iter().fold((0.0, "nothing"), |best, share| if share.0 > best.0 { share } else { best });
        (busiest.0 / clocks, busiest.1)
    }

    /// What the waves waited for most, as a share of their time.
    pub fn longest_wait(&self) -> (f64, &'static str) {
        let (clocks, reason) = Reason::ALL
            .into_iter()
            .map(|reason| (self.usage.stalls[reason as usize], reason))
            .max_by_key(|(clocks, _)| *clocks)
            .unwrap_or((0, Reason::Matrix));
        (clocks as f64 / (self.usage.clocks.max(1) * self.waves.max(1) as u64) as f64, reason.words())
    }

    /// What bounds it, as a reader is told: a unit that is busy four fifths of the time, or what is waited for beside the busiest one.
    pub fn bound(&self) -> String {
        let (share, unit) = self.busiest();
        let bound = format!("{unit} {:.0} %", 100.0 * share);
        if share >= 0.8 {
            return bound;
        }
        let (waited, reason) = self.longest_wait();
        format!("{bound}, waits for {reason} {:.0} %", 100.0 * waited)
    }
}

/// What the model says of workgroups that run on one compute unit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Estimate {
    /// Until the last wave ends.
    pub clocks: u64,
    /// Before the first matrix operation, between it and the last one, after it; one phase if there is none.
    pub phases: Vec<Phase>,
}

/// Collects usage while it is simulated.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) now: Usage,
    first: Option<Usage>,
    last: Usage,
}

impl Meter {
    pub(crate) fn matrix(&mut self) {
        self.first.get_or_insert(self.now);
        self.last = self.now;
    }

    pub(crate) fn finish(self, waves: usize) -> Estimate {
        let phase = |name, usage| Phase { name, usage, waves };
        let phases = match self.first {
            None => vec![phase("whole", self.now)],
            Some(first) => {
                vec![phase("prologue", first), phase("loop", self.last.since(&first)), phase("epilogue", self.now.since(&self.last))]
            }
        };
        Estimate { clocks: self.now.clocks, phases }
    }
}
