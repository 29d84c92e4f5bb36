//! Plays traces on a compute unit: every four clocks each wave of each SIMD may issue one instruction.

use std::collections::{BTreeMap, VecDeque};

use gfx950_interpreter::banks::Grouping;
use gfx950_interpreter::decode::Instruction;
use gfx950_interpreter::trace::{Access, Trace};

use crate::machine::{
    ADDRESS_QUEUE, BARRIER, CADENCE, FABRIC_BYTES, LAUNCH, LDS_BYTES, LDS_LATENCY, LDS_QUEUE, LOCAL_COUNT, MEMORY_BYTES, MEMORY_LATENCY,
    REGISTERS, SCALAR_LATENCY, SIMDS, UNITS, VECTOR_COUNT,
};
use crate::memory;
use crate::units::{self, Timed, Unit};
use crate::usage::{Estimate, Meter, Reason};

/// Clocks after which waves are taken to wait for each other.
const LIMIT: u64 = 1 << 30;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClockError {
    /// A trace names an instruction that is not there.
    #[error("the trace comes to instruction {position}, the kernel has {count}: trace and kernel must belong together")]
    Position { position: usize, count: usize },
    /// Nothing ends.
    #[error("no end after {0} clocks: some waves of the trace wait for others at a barrier")]
    Endless(u64),
    /// The interpreter.
    #[error(transparent)]
    Launch(#[from] gfx950_interpreter::fault::LaunchError),
    #[error("{0}")]
    Product(String),
}

/// A wave on a SIMD.
struct Wave<'a> {
    trace: &'a Trace,
    number: usize,
    group: usize,
    next: usize,
    /// When it may issue again.
    ready: u64,
    priority: u16,
    /// When each register's last vector or matrix result is there.
    registers: Vec<u64>,
    /// When outstanding operations are done, by number; u64::MAX: not known yet.
    vector: VecDeque<(u64, u64)>,
    local: VecDeque<u64>,
    waits: bool,
    ended: bool,
}

impl<'a> Wave<'a> {
    fn new(trace: &'a Trace, number: usize, group: usize, ready: u64) -> Self {
        Self {
            trace,
            number,
            group,
            next: 0,
            ready,
            priority: 0,
            registers: vec![0; REGISTERS as usize],
            vector: VecDeque::new(),
            local: VecDeque::new(),
            waits: false,
            ended: trace.waves[number].is_empty(),
        }
    }

    fn retire(&mut self, now: u64) {
        // Both finish in order.
        while self.vector.front().is_some_and(|&(_, done)| done <= now) {
            self.vector.pop_front();
        }
        while self.local.front().is_some_and(|&done| done <= now) {
            self.local.pop_front();
        }
    }

    fn registers_ready(&self, timed: &Timed, now: u64) -> bool {
        let mut needed = timed.reads.iter().flat_map(|&(first, count)| first..first + count);
        needed.all(|at| self.registers.get(at).is_none_or(|&when| when <= now))
    }
}

/// What one SIMD's waves share.
#[derive(Default, Clone, Copy)]
struct Simd {
    vector_free: u64,
    matrix_free: u64,
}

/// The kinds of instruction of which a SIMD issues one every four clocks.
#[derive(Default, Clone, Copy)]
struct Ports {
    vector: bool,
    scalar: bool,
    lds: bool,
    memory: bool,
}

/// One of 256 equal shares of what all units use together. Clocks are counted in parts, so that no fraction of one is lost.
#[derive(Default, Clone, Copy)]
struct Share {
    free: u64,
}

impl Share {
    /// Clocks at which so many bytes have come, asked for at `now`, of `rate` bytes a clock for all units.
    fn take(&mut self, now: u64, bytes: u64, rate: u64) -> u64 {
        self.free = self.free.max(now * rate) + bytes * UNITS;
        self.free.div_ceil(rate)
    }
}

/// A stream from memory and back: no byte is read twice.
#[derive(Default)]
struct Stream {
    /// Workgroups that have not begun.
    left: u64,
    memory: Share,
    fabric: Share,
    bytes: u64,
    /// When the last byte has come or gone.
    done: u64,
}

struct Cu<'a> {
    timed: Vec<Timed>,
    taken: Vec<u64>,
    waves: Vec<Wave<'a>>,
    simds: [Simd; SIMDS],
    lds_free: u64,
    address_free: u64,
    /// Loads to LDS on their way: (when, number) to (wave, clocks of the port).
    arrivals: BTreeMap<(u64, u64), (usize, u64)>,
    operations: u64,
    meter: Meter,
    /// None: operands come from caches.
    stream: Option<Stream>,
}

/// Workgroups that begin together on one compute unit, each by its trace.
///
/// # Errors
/// Traces that do not belong to these instructions, or whose waves do not meet.
pub fn simulate(instructions: &[Instruction], groups: &[&Trace]) -> Result<Estimate, ClockError> {
    Cu::new(instructions, groups, None)?.run()
}

/// Workgroups that are all alike, so many of them at once, each in the place of one that ended. Every unit of the device does the same, and has
/// an equal share of memory.
///
/// # Errors
/// The same.
pub fn simulate_stream(instructions: &[Instruction], trace: &Trace, workgroups: u64, together: u64) -> Result<Estimate, ClockError> {
    let first = together.min(workgroups);
    let stream = Stream { left: workgroups - first, ..Stream::default() };
    Cu::new(instructions, &vec![trace; first as usize], Some(stream))?.run()
}

impl<'a> Cu<'a> {
    fn new(instructions: &[Instruction], groups: &[&'a Trace], stream: Option<Stream>) -> Result<Self, ClockError> {
        let mut waves = Vec::new();
        for (group, trace) in groups.iter().enumerate() {
            for (number, steps) in trace.waves.iter().enumerate() {
                if let Some(&position) = steps.iter().find(|&&position| position as usize >= instructions.len()) {
                    return Err(ClockError::Position { position: position as usize, count: instructions.len() });
                }
                waves.push(Wave::new(trace, number, group, 0));
            }
        }
        Ok(Cu {
            timed: instructions.iter().map(units::timed).collect(),
            taken: instructions.iter().map(units::taken).collect(),
            waves,
            simds: [Simd::default(); SIMDS],
            lds_free: 0,
            address_free: 0,
            arrivals: BTreeMap::new(),
            operations: 0,
            meter: Meter::default(),
            stream,
        })
    }

    fn run(mut self) -> Result<Estimate, ClockError> {
        let mut now = 0;
        while self.waves.iter().any(|wave| !wave.ended) {
            if now >= LIMIT {
                return Err(ClockError::Endless(LIMIT));
            }
            self.cycle(now);
            now += CADENCE;
            self.meter.now.clocks = now;
        }
        if let Some(stream) = &self.stream {
            self.meter.now.clocks = now.max(stream.done);
        }
        let waves = self.waves.len();
        Ok(self.meter.finish(waves))
    }

    fn cycle(&mut self, now: u64) {
        self.arrive(now);
        // Who comes first to what all SIMDs share goes round.
        for turn in 0..SIMDS {
            let simd = (turn + (now / CADENCE) as usize) % SIMDS;
            let mut order: Vec<usize> = (simd..self.waves.len()).step_by(SIMDS).filter(|&at| !self.waves[at].ended).collect();
            order.sort_by_key(|&at| std::cmp::Reverse(self.waves[at].priority));
            let mut ports = Ports::default();
            for at in order {
                if self.waves[at].ready > now {
                    continue;
                }
                match self.issue(at, simd, now, &mut ports) {
                    Ok(()) => self.meter.now.issue += CADENCE,
                    Err(reason) => self.meter.now.stall(reason, CADENCE),
                }
            }
        }
        self.meet(now);
        self.follow(now);
    }

    /// Workgroups that ended make room for those that have not begun.
    fn follow(&mut self, now: u64) {
        let Some(stream) = &mut self.stream else { return };
        let groups = self.waves.iter().map(|wave| wave.group + 1).max().unwrap_or(0);
        for group in 0..groups {
            if stream.left > 0 && self.waves.iter().all(|wave| wave.group != group || wave.ended) {
                stream.left -= 1;
                for wave in self.waves.iter_mut().filter(|wave| wave.group == group) {
                    *wave = Wave::new(wave.trace, wave.number, group, now + LAUNCH);
                }
            }
        }
    }

    /// What has come from memory for LDS takes its turn at the port.
    fn arrive(&mut self, now: u64) {
        while let Some(entry) = self.arrivals.first_entry() {
            let (when, number) = *entry.key();
            if when > now {
                break;
            }
            let (wave, clocks) = entry.remove();
            self.lds_free = self.lds_free.max(when) + clocks;
            self.meter.now.lds += clocks;
            if let Some(operation) = self.waves[wave].vector.iter_mut().find(|operation| operation.0 == number) {
                operation.1 = self.lds_free;
            }
        }
    }

    /// Workgroups whose waves all wait at a barrier go on.
    fn meet(&mut self, now: u64) {
        let groups = self.waves.iter().map(|wave| wave.group + 1).max().unwrap_or(0);
        for group in 0..groups {
            let mut waves = self.waves.iter().filter(|wave| wave.group == group && !wave.ended).peekable();
            if waves.peek().is_some() && waves.all(|wave| wave.waits) {
                for wave in self.waves.iter_mut().filter(|wave| wave.group == group && !wave.ended) {
                    (wave.waits, wave.ready) = (false, now + BARRIER);
                }
            }
        }
    }

    fn issue(&mut self, at: usize, simd: usize, now: u64, ports: &mut Ports) -> Result<(), Reason> {
        let wave = &mut self.waves[at];
        if wave.waits {
            return Err(Reason::Barrier);
        }
        wave.retire(now);
        let steps = &wave.trace.waves[wave.number];
        let position = steps[wave.next] as usize;
        let timed = &self.timed[position];
        if !wave.registers_ready(timed, now) {
            return Err(Reason::Register);
        }
        match timed.unit {
            Unit::Vector | Unit::Matrix => {
                let state = &mut self.simds[simd];
                let is_matrix = timed.unit == Unit::Matrix;
                if is_matrix && state.matrix_free > now {
                    return Err(Reason::Matrix);
                }
                claim(&mut ports.vector)?;
                if state.vector_free > now {
                    return Err(Reason::Arbitration);
                }
                if is_matrix {
                    state.matrix_free = now + timed.busy;
                    self.meter.matrix();
                    self.meter.now.matrix += timed.busy;
                } else {
                    state.vector_free = now + timed.busy;
                    self.meter.now.vector += timed.busy;
                }
                if let Some((first, count)) = timed.writes {
                    wave.registers.iter_mut().skip(first).take(count).for_each(|when| *when = now + timed.latency);
                }
            }
            Unit::Scalar => claim(&mut ports.scalar)?,
            Unit::ScalarMemory => {
                claim(&mut ports.scalar)?;
                let done = wave.local.back().copied().unwrap_or(0).max(now + SCALAR_LATENCY);
                wave.local.push_back(done);
            }
            Unit::Lds => self.lds(at, now, ports)?,
            Unit::VectorMemory { to_lds } => self.vector_memory(at, now, to_lds, ports)?,
            Unit::Wait { vector, .. } if wave.vector.len() > vector => return Err(Reason::VectorMemory),
            Unit::Wait { local, .. } if wave.local.len() > local => return Err(Reason::LocalMemory),
            Unit::Barrier => wave.waits = true,
            Unit::Priority(priority) => wave.priority = priority,
            Unit::End => wave.ended = true,
            Unit::Wait { .. } | Unit::Nothing => {}
        }
        let wave = &mut self.waves[at];
        let steps = &wave.trace.waves[wave.number];
        let jumped = steps.get(wave.next + 1).is_some_and(|&next| next as usize != position + 1);
        wave.ready = now + self.timed[position].issue + if jumped { self.taken[position] } else { 0 };
        wave.next += 1;
        // A trace of straight-line code has no end of its own.
        wave.ended |= wave.next == steps.len();
        Ok(())
    }

    fn lds(&mut self, at: usize, now: u64, ports: &mut Ports) -> Result<(), Reason> {
        let wave = &mut self.waves[at];
        if wave.local.len() >= LOCAL_COUNT || self.lds_free > now + LDS_QUEUE {
            return Err(Reason::LdsPort);
        }
        claim(&mut ports.lds)?;
        let accesses = accesses(wave);
        let clocks = |grouping| accesses.iter().map(|access| memory::port(access, grouping)).sum::<u64>();
        let [consecutive, measured] = Grouping::ALL.map(clocks);
        let least: u64 = accesses.iter().map(least).sum();
        for (sum, clocks) in self.meter.now.conflicts.iter_mut().zip([consecutive, measured]) {
            *sum += clocks - least.min(clocks);
        }
        self.lds_free = self.lds_free.max(now) + measured;
        self.meter.now.lds += measured;
        let done = self.lds_free + LDS_LATENCY;
        wave.local.push_back(done);
        Ok(())
    }

    fn vector_memory(&mut self, at: usize, now: u64, to_lds: bool, ports: &mut Ports) -> Result<(), Reason> {
        let wave = &mut self.waves[at];
        if wave.vector.len() >= VECTOR_COUNT || self.address_free > now + ADDRESS_QUEUE {
            return Err(Reason::AddressUnit);
        }
        claim(&mut ports.memory)?;
        let accesses = accesses(wave);
        let clocks: u64 = accesses.iter().map(memory::address).sum();
        self.address_free = self.address_free.max(now) + clocks;
        self.meter.now.address += clocks;
        self.operations += 1;
        let mut data = self.address_free + MEMORY_LATENCY;
        if let Some(stream) = &mut self.stream {
            let [wanted, moved] = [memory::wanted, memory::moved].map(|bytes| accesses.iter().map(bytes).sum::<u64>());
            let come = stream.memory.take(self.address_free, wanted, MEMORY_BYTES);
            let come = come.max(stream.fabric.take(self.address_free, moved, FABRIC_BYTES));
            stream.bytes += wanted;
            self.meter.now.memory = stream.bytes * UNITS / MEMORY_BYTES;
            stream.done = stream.done.max(come);
            data = come + MEMORY_LATENCY;
        }
        if to_lds {
            self.arrivals.insert((data, self.operations), (at, memory::arrival(accesses)));
        }
        wave.vector.push_back((self.operations, if to_lds { u64::MAX } else { data }));
        Ok(())
    }
}

fn claim(port: &mut bool) -> Result<(), Reason> {
    if std::mem::replace(port, true) { Err(Reason::Arbitration) } else { Ok(()) }
}

/// Clocks of the port without any conflict.
fn least(access: &Access) -> u64 {
    ((access.lanes.len() * access.bytes.max(4)) as u64).div_ceil(LDS_BYTES)
}

fn accesses<'a>(wave: &Wave<'a>) -> &'a [Access] {
    wave.trace.accesses.get(&(wave.number, wave.next)).map_or(&[], Vec::as_slice)
}
