//! Launching a kernel: workgroups one after another, the waves of each in a chosen order.

use std::collections::BTreeMap;

use crate::decode::{ALL, EXEC, Encoding, LANES, Op};
use crate::execute::{self, Flow, Lanes, Machine, Scalar, Wave};
use crate::fault::{Fault, FaultKind, LaunchError, Stop};
use crate::lds::Lds;
use crate::memory::Memory;
use crate::object::Kernel;
use crate::trace::Trace;

/// In which order the waves of a workgroup run. A correct kernel gives the same result in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Each wave until it meets a barrier or ends, the first wave first; workgroups in order.
    Serial,
    /// The same, the last wave and the last workgroup first.
    Reversed,
    /// One instruction of each wave in turn.
    RoundRobin,
}

impl Order {
    pub const ALL: [Self; 3] = [Self::Serial, Self::Reversed, Self::RoundRobin];
}

#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    pub kernel: &'a Kernel,
    /// Workgroups along x, y and z.
    pub grid: [u32; 3],
    /// Work items of a workgroup along x (y and z are 1).
    pub threads: u32,
    /// Bytes of LDS beyond what the kernel declares (`extern __shared__`).
    pub dynamic_lds: u32,
    /// The bytes of the kernel's explicit arguments, laid out as the compiler expects them.
    pub arguments: &'a [u8],
    /// Order of the waves.
    pub order: Order,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// How often each operation was executed, over all waves.
    pub executed: BTreeMap<Op, u64>,
    /// LDS bank conflicts, under each of the groupings in [`crate::banks::Grouping::ALL`].
    pub bank_conflicts: [u64; 2],
}

impl Statistics {
    pub fn add(&mut self, other: &Self) {
        for (op, count) in &other.executed {
            *self.executed.entry(*op).or_insert(0) += count;
        }
        for (sum, more) in self.bank_conflicts.iter_mut().zip(other.bank_conflicts) {
            *sum += more;
        }
    }
}

/// Work of one workgroup after which it is taken for endless, in instructions, of which a matrix operation counts for many.
const LIMIT: u64 = 20_000_000;
const MATRIX: u64 = 100;

pub fn launch(memory: &mut Memory, launch: &Launch<'_>) -> Result<Statistics, LaunchError> {
    let [x, y, z] = launch.grid;
    let mut groups: Vec<[u32; 3]> = (0..z).flat_map(|z| (0..y).flat_map(move |y| (0..x).map(move |x| [x, y, z]))).collect();
    if launch.order == Order::Reversed {
        groups.reverse();
    }
    launch_groups(memory, launch, &groups, None)
}

/// Executes one workgroup of a launch and nothing else of it, and says what its waves did.
///
/// # Errors
/// As [`launch`].
pub fn traced(memory: &mut Memory, launch: &Launch<'_>, group: [u32; 3]) -> Result<Trace, LaunchError> {
    let mut trace = Trace::default();
    launch_groups(memory, launch, &[group], Some(&mut trace))?;
    Ok(trace)
}

/// Some workgroups of a launch, in this order.
fn launch_groups(
    memory: &mut Memory,
    launch: &Launch<'_>,
    groups: &[[u32; 3]],
    trace: Option<&mut Trace>,
) -> Result<Statistics, LaunchError> {
    check(launch)?;
    let arguments = memory.input("kernel arguments", &arguments(launch)?);
    let packet = memory.input("dispatch packet", &packet(launch, arguments.0));
    let result = all_groups(memory, launch, (arguments.0, packet.0), groups, trace);
    memory.rewind(arguments);
    result
}

/// The 64-byte packet that a queue would be given (HSA kernel dispatch packet): sizes and the arguments' address.
fn packet(launch: &Launch<'_>, arguments: u64) -> [u8; 64] {
    let mut bytes = [0; 64];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(2, &3u16.to_le_bytes());
    put(4, &(launch.threads as u16).to_le_bytes());
    put(6, &1u16.to_le_bytes());
    put(8, &1u16.to_le_bytes());
    // In work items, of which y and z have one a workgroup.
    for (at, items) in [(12, launch.grid[0].saturating_mul(launch.threads)), (16, launch.grid[1]), (20, launch.grid[2])] {
        put(at, &items.to_le_bytes());
    }
    put(28, &launch.kernel.descriptor.lds.saturating_add(launch.dynamic_lds).to_le_bytes());
    put(40, &arguments.to_le_bytes());
    bytes
}

/// The argument segment: the caller's bytes, then what the runtime fills in.
fn arguments(launch: &Launch<'_>) -> Result<Vec<u8>, LaunchError> {
    let kernel = launch.kernel;
    let mut bytes = launch.arguments.to_vec();
    // The segment is aligned to 16 bytes, and the compiler widens loads up to its next multiple.
    bytes.resize((kernel.descriptor.arguments as usize).next_multiple_of(16), 0);
    for hidden in kernel.resources.arguments.iter().filter(|argument| argument.kind.starts_with("hidden_")) {
        let value = match hidden.kind.as_str() {
            "hidden_block_count_x" => launch.grid[0],
            "hidden_block_count_y" => launch.grid[1],
            "hidden_block_count_z" => launch.grid[2],
            "hidden_group_size_x" => launch.threads,
            "hidden_group_size_y" | "hidden_group_size_z" => 1,
            "hidden_grid_dims" => 3,
            "hidden_dynamic_lds_size" => launch.dynamic_lds,
            // Every workgroup is whole, and there are no offsets.
            kind if kind.starts_with("hidden_remainder") || kind.starts_with("hidden_global_offset") || kind == "hidden_none" => 0,
            // Queues, hostcalls, heaps: left zero, which a kernel that uses them shows as an access outside every allocation.
            _ => 0,
        };
        let at = hidden.offset as usize;
        let value = u64::from(value).to_le_bytes();
        match bytes.get_mut(at..at + (hidden.size as usize).min(8)) {
            Some(place) => place.copy_from_slice(&value[..place.len()]),
            None => {
                let problem = format!("its argument {} lies outside the argument segment", hidden.kind);
                return Err(LaunchError::Request { kernel: kernel.name.clone(), problem });
            }
        }
    }
    Ok(bytes)
}

fn all_groups(
    memory: &mut Memory,
    launch: &Launch<'_>,
    pointers: (u64, u64),
    groups: &[[u32; 3]],
    mut trace: Option<&mut Trace>,
) -> Result<Statistics, LaunchError> {
    let mut executed = vec![0; ALL.len()];
    let mut conflicts = [0; 2];
    let mut lds = Lds::new(launch.kernel.descriptor.lds as usize + launch.dynamic_lds as usize);
    memory.begin_launch();
    for &group in groups {
        memory.begin_group();
        lds.begin_group();
        let waves = (launch.threads as usize).div_ceil(LANES);
        let mut run = Group {
            launch,
            group,
            waves: (0..waves).map(|index| start(launch, index, group, pointers)).collect::<Result<_, _>>()?,
            states: vec![State::Running; waves],
            lds: &mut lds,
            executed: 0,
            work: 0,
            trace: trace.as_deref_mut(),
        };
        run.all(memory, &mut executed)?;
        conflicts.iter_mut().zip(run.lds.conflicts()).for_each(|(sum, more)| *sum += more);
    }
    let executed = ALL.iter().copied().zip(executed).filter(|(_, count)| *count > 0).collect();
    Ok(Statistics { executed, bank_conflicts: conflicts })
}

fn check(launch: &Launch<'_>) -> Result<(), LaunchError> {
    let kernel = launch.kernel;
    let refuse = |problem: String| Err(LaunchError::Request { kernel: kernel.name.clone(), problem });
    let explicit = kernel.resources.arguments.iter().filter(|argument| !argument.kind.starts_with("hidden_"));
    let (given, wanted) = (launch.arguments.len(), explicit.map(|argument| (argument.offset + argument.size) as usize).max().unwrap_or(0));
    if given != wanted {
        return refuse(format!("{given} bytes of arguments given, {wanted} expected"));
    }
    if launch.threads == 0 || u64::from(launch.threads) > kernel.resources.max_flat_workgroup_size {
        return refuse(format!("{} threads given, at most {} expected", launch.threads, kernel.resources.max_flat_workgroup_size));
    }
    const LARGEST_LDS: u64 = 163_840;
    let lds = u64::from(kernel.descriptor.lds) + u64::from(launch.dynamic_lds);
    if lds > LARGEST_LDS {
        return refuse(format!("{lds} bytes of LDS, at most {LARGEST_LDS} are there"));
    }
    if launch.grid.contains(&0) {
        return refuse("an empty grid".to_owned());
    }
    Ok(())
}

/// A wave's registers before its first instruction, with the addresses of the arguments and of the dispatch packet.
fn start(launch: &Launch<'_>, index: usize, group: [u32; 3], (arguments, packet): (u64, u64)) -> Result<Wave, LaunchError> {
    use crate::decode::Operand;
    let descriptor = &launch.kernel.descriptor;
    let mut wave = Wave::new(index, launch.kernel.vector_registers());
    let mut failed = Ok(());
    let mut set = |wave: &mut Wave, at: u32, width: usize, value: u64| {
        if let Err(stop) = wave.write_scalar(Operand::Scalar(at as u8), width, Scalar::known(value)) {
            failed = Err(LaunchError::Request { kernel: launch.kernel.name.clone(), problem: stop.kind.to_string() });
        }
    };
    if let Some(at) = descriptor.argument_pointer {
        set(&mut wave, at, 2, arguments);
    }
    if let Some(at) = descriptor.dispatch_pointer {
        set(&mut wave, at, 2, packet);
    }
    let mut at = descriptor.user_sgprs;
    for (wanted, id) in descriptor.group_ids.into_iter().zip(group) {
        if wanted {
            set(&mut wave, at, 1, u64::from(id));
            at += 1;
        }
    }
    let mut items = Lanes::splat(0);
    for (lane, item) in items.values.iter_mut().enumerate() {
        *item = (index * LANES + lane) as u32;
    }
    if let Err(stop) = wave.write_lanes(Operand::Vector(0), 0, !0, &items) {
        return Err(LaunchError::Request { kernel: launch.kernel.name.clone(), problem: stop.kind.to_string() });
    }
    // The last wave of a workgroup may have fewer lanes.
    let lanes = (launch.threads as usize).saturating_sub(index * LANES);
    if lanes < LANES {
        set(&mut wave, u32::from(EXEC), 2, (1 << lanes) - 1);
    }
    failed.map(|()| wave)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Waiting,
    Ended,
}

struct Group<'a> {
    launch: &'a Launch<'a>,
    group: [u32; 3],
    waves: Vec<Wave>,
    states: Vec<State>,
    lds: &'a mut Lds,
    executed: u64,
    work: u64,
    trace: Option<&'a mut Trace>,
}

impl Group<'_> {
    /// Which instruction lies at an address.
    fn position(&self, address: u64) -> Option<usize> {
        self.launch.kernel.instructions.binary_search_by_key(&address, |i| i.address).ok()
    }

    fn all(&mut self, memory: &mut Memory, counts: &mut [u64]) -> Result<(), LaunchError> {
        let entry = self.launch.kernel.descriptor.entry;
        for index in 0..self.waves.len() {
            match self.position(entry) {
                Some(position) => self.waves[index].next = position,
                None => return Err(self.fault(index, 0, FaultKind::Jump(entry).into())),
            }
        }
        let mut order: Vec<usize> = (0..self.waves.len()).collect();
        if self.launch.order == Order::Reversed {
            order.reverse();
        }
        while self.states.iter().any(|state| *state != State::Ended) {
            for &index in &order {
                while self.states[index] == State::Running {
                    self.one(index, memory, counts)?;
                    if self.launch.order == Order::RoundRobin {
                        break;
                    }
                }
            }
            // All that have not ended wait: they have met.
            if !self.states.contains(&State::Running) {
                self.lds.barrier();
                self.states.iter_mut().filter(|state| **state == State::Waiting).for_each(|state| *state = State::Running);
            }
        }
        Ok(())
    }

    fn one(&mut self, index: usize, memory: &mut Memory, counts: &mut [u64]) -> Result<(), LaunchError> {
        let position = self.waves[index].next;
        let Some(instruction) = self.launch.kernel.instructions.get(position) else {
            return Err(self.fault(index, position, FaultKind::Jump(0).into()));
        };
        self.executed += 1;
        self.work += if instruction.encoding == Encoding::Matrix { MATRIX } else { 1 };
        if self.work > LIMIT {
            return Err(self.fault(index, position, FaultKind::Endless(self.executed).into()));
        }
        counts[instruction.op as usize] += 1;
        let wave = &mut self.waves[index];
        wave.next = position + 1;
        if let Some(trace) = &mut self.trace {
            trace.begin(index, position);
        }
        let flow = execute::step(wave, instruction, &mut Machine { memory, lds: self.lds, trace: self.trace.as_deref_mut() });
        match flow {
            Ok(Flow::Next) => {}
            Ok(Flow::Jump(target)) => match self.position(target) {
                Some(next) => self.waves[index].next = next,
                None => return Err(self.fault(index, position, FaultKind::Jump(target).into())),
            },
            Ok(Flow::Barrier) => self.states[index] = State::Waiting,
            Ok(Flow::End) => {
                let left = self.waves[index].loads_to_lds();
                if left > 0 {
                    return Err(self.fault(index, position, FaultKind::LeftOver(left).into()));
                }
                self.states[index] = State::Ended;
            }
            Err(stop) => return Err(self.fault(index, position, stop)),
        }
        Ok(())
    }

    fn fault(&self, wave: usize, position: usize, stop: Stop) -> LaunchError {
        let instruction = self.launch.kernel.instructions.get(position);
        LaunchError::Fault(Box::new(Fault {
            kernel: self.launch.kernel.name.clone(),
            workgroup: self.group,
            wave,
            lane: stop.lane,
            address: instruction.map_or(0, |i| i.address),
            instruction: instruction.map_or_else(String::new, ToString::to_string),
            kind: stop.kind,
        }))
    }
}
