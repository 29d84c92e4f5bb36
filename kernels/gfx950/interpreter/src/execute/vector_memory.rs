//! Buffer and global accesses, and buffer loads that go straight to LDS.
//!
//! Buffers: only raw ones (stride 0). A lane whose offset lies outside the resource loads zero and stores nothing; loads to LDS write
//! that zero. An access that begins inside and ends outside is a fault, so that nothing depends on how the hardware treats it. Data is
//! read when the load is issued; registers may not be touched, and LDS keeps its old bytes, until the s_waitcnt that guards it.

use super::wave::{Lanes, Vector, Wave};
use super::{LANES, Machine};
use crate::decode::{Encoding, Instruction, Op, Operand};
use crate::fault::{FaultKind, Stop};

/// Size of what one lane accesses, and whether a narrow element is sign-extended.
fn element(i: &Instruction) -> (usize, bool) {
    let name = i.op.name();
    let size = match () {
        _ if name.contains("byte") => 1,
        _ if name.contains("short") => 2,
        _ => 4 * i.width(0),
    };
    (size, name.ends_with("sbyte") || name.ends_with("sshort"))
}

/// A buffer resource: base and size in bytes.
struct Resource {
    base: u64,
    records: u64,
}

fn resource(wave: &Wave, i: &Instruction) -> Result<Resource, Stop> {
    let Operand::Scalar(first) = i.access.base else { return Err(Stop::unsupported("a buffer resource in no scalar register")) };
    let word = |at: u8| wave.scalar_register(first + at, 1).and_then(|scalar| scalar.expect(32, "a buffer resource"));
    let (low, high, records, flags) = (word(0)?, word(1)?, word(2)?, word(3)?);
    // Stride 0, no swizzle; 32-bit data format, as LLVM's builtin for raw buffers is given.
    const FLAGS: u64 = 0x0002_7000;
    if high >> 16 != 0 || flags != FLAGS {
        return Err(Stop::unsupported(format!("a buffer resource with words {high:#x} and {flags:#x} (stride or swizzle)")));
    }
    Ok(Resource { base: low | (high & 0xFFFF) << 32, records })
}

/// Where each active lane accesses memory; None where it is outside its buffer.
fn addresses(wave: &Wave, i: &Instruction, size: usize) -> Result<Vec<Option<u64>>, Stop> {
    let exec = wave.exec();
    let low = if i.access.address == Operand::None { Lanes::splat(0) } else { wave.lanes(i.access.address, 0)? };
    let mut result = vec![None; LANES];
    let undefined = !low.defined & exec;
    if undefined != 0 {
        return Err(Stop::undefined("an address").at(undefined.trailing_zeros() as usize));
    }
    let active = (0..LANES).filter(|lane| exec >> lane & 1 == 1);
    if i.encoding == Encoding::Mubuf {
        let resource = resource(wave, i)?;
        let scalar = wave.scalar(i.access.scalar_offset, 1)?.expect(32, "a buffer offset")?;
        for lane in active {
            let offset = u64::from(low.values[lane]) + i.access.offset as u64;
            if offset < resource.records.saturating_sub(scalar) {
                if offset + scalar + size as u64 > resource.records {
                    let kind = FaultKind::Straddle { bytes: size, offset: offset + scalar, records: resource.records };
                    return Err(Stop::from(kind).at(lane));
                }
                result[lane] = Some(resource.base + scalar + offset);
            }
        }
    } else if i.access.base == Operand::None {
        let high = wave.lanes(i.access.address, 1)?;
        let undefined = !high.defined & exec;
        if undefined != 0 {
            return Err(Stop::undefined("an address").at(undefined.trailing_zeros() as usize));
        }
        for lane in active {
            let address = u64::from(low.values[lane]) | u64::from(high.values[lane]) << 32;
            result[lane] = Some(address.wrapping_add_signed(i64::from(i.access.offset)));
        }
    } else {
        let base = wave.scalar(i.access.base, 2)?.expect(64, "an address")?;
        for lane in active {
            result[lane] = Some(base.wrapping_add(u64::from(low.values[lane])).wrapping_add_signed(i64::from(i.access.offset)));
        }
    }
    Ok(result)
}

pub(super) fn execute(wave: &mut Wave, i: &Instruction, machine: &mut Machine<'_>) -> Result<(), Stop> {
    match () {
        _ if i.access.lds => load_to_lds(wave, i, machine),
        _ if i.op.name().contains("store") => store(wave, i, machine),
        _ if i.op == Op::global_atomic_umax => atomic(wave, i, machine),
        _ => load(wave, i, machine),
    }
}

fn store(wave: &mut Wave, i: &Instruction, machine: &mut Machine<'_>) -> Result<(), Stop> {
    let (size, _) = element(i);
    let shift = if i.op.name().ends_with("d16_hi") { 16 } else { 0 };
    let addresses = addresses(wave, i, size)?;
    machine.note(wave, size, &addresses);
    let registers: Vec<Lanes> = (0..size.div_ceil(4)).map(|register| wave.lanes(i.access.data[0], register)).collect::<Result<_, _>>()?;
    for (lane, address) in addresses.into_iter().enumerate() {
        let Some(address) = address else { continue };
        if registers.iter().any(|lanes| lanes.defined >> lane & 1 == 0) {
            return Err(Stop::undefined("what is stored").at(lane));
        }
        let bytes = super::stored(&registers, lane, shift);
        machine.memory.store(address, &bytes[..size]).map_err(|kind| Stop::from(kind).at(lane))?;
    }
    wave.issue(Vector { registers: (0, 0), to_lds: Vec::new() });
    Ok(())
}

/// global_atomic_umax without a result: the larger of what is there and the lane's value, lane after lane.
fn atomic(wave: &mut Wave, i: &Instruction, machine: &mut Machine<'_>) -> Result<(), Stop> {
    let (addresses, data) = (addresses(wave, i, 4)?, wave.lanes(i.access.data[0], 0)?);
    machine.note(wave, 4, &addresses);
    for (lane, address) in addresses.into_iter().enumerate() {
        let Some(address) = address else { continue };
        if data.defined >> lane & 1 == 0 {
            return Err(Stop::undefined("what is stored").at(lane));
        }
        let value = data.values[lane];
        let changed = machine.memory.atomic(address, |old| old.max(value)).map_err(|kind| Stop::from(kind).at(lane))?;
        if !changed {
            return Err(Stop::undefined("an atomic operation's result").at(lane));
        }
    }
    wave.issue(Vector { registers: (0, 0), to_lds: Vec::new() });
    Ok(())
}

/// A load of this scope or a wider one sees what atomic operations of other workgroups wrote.
fn device_scope(i: &Instruction) -> bool {
    const SC1: u8 = 2;
    i.encoding == Encoding::Global && i.access.policy & SC1 != 0
}

fn load(wave: &mut Wave, i: &Instruction, machine: &mut Machine<'_>) -> Result<(), Stop> {
    let (size, sign) = element(i);
    let d16 = i.op.name().contains("d16");
    let (addresses, exec) = (addresses(wave, i, size)?, wave.exec());
    machine.note(wave, size, &addresses);
    let mut results = vec![Lanes { values: [0; LANES], defined: !0 }; size.div_ceil(4)];
    if d16 {
        results[0] = wave.lanes(i.dst, 0)?;
    }
    for (lane, address) in addresses.into_iter().enumerate() {
        let mut bytes = [0; 16];
        let defined = match address {
            Some(address) if device_scope(i) => {
                machine.memory.load_shared(address, &mut bytes[..size]).map_err(|kind| Stop::from(kind).at(lane))?
            }
            Some(address) => machine.memory.load(address, &mut bytes[..size]).map_err(|kind| Stop::from(kind).at(lane))?,
            None => true,
        };
        for (word, lanes) in results.iter_mut().enumerate() {
            let raw = u32::from_le_bytes([bytes[4 * word], bytes[4 * word + 1], bytes[4 * word + 2], bytes[4 * word + 3]]);
            let value = super::extended(raw, size, sign);
            lanes.values[lane] = if d16 { super::half_loaded(lanes.values[lane], value, i.op.name()) } else { value };
            if !defined {
                lanes.defined &= !(1 << lane);
            }
        }
    }
    for (word, lanes) in results.iter().enumerate() {
        wave.write_lanes(i.dst, word, exec, lanes)?;
    }
    let registers = wave.hold(i.dst, results.len());
    wave.issue(Vector { registers, to_lds: Vec::new() });
    Ok(())
}

/// Lane l writes its bytes at M0 + the constant offset + l times their number.
fn load_to_lds(wave: &mut Wave, i: &Instruction, machine: &mut Machine<'_>) -> Result<(), Stop> {
    let (size, _) = element(i);
    if size != 16 && size != 4 {
        return Err(Stop::unsupported(format!("a load of {size} bytes to LDS")));
    }
    let start = u64::from(wave.m0()?) + i.access.offset as u64;
    let exec = wave.exec();
    let mut to_lds = Vec::new();
    let addresses = addresses(wave, i, size)?;
    machine.note(wave, size, &addresses);
    for (lane, address) in addresses.into_iter().enumerate() {
        if exec >> lane & 1 == 0 {
            continue;
        }
        let mut bytes = [0; 16];
        let defined = match address {
            Some(address) => machine.memory.load(address, &mut bytes[..size]).map_err(|kind| Stop::from(kind).at(lane))?,
            None => true,
        };
        let at = start + (lane * size) as u64;
        machine.lds.begin_load(wave.index, at, size).map_err(|stop| stop.at(lane))?;
        to_lds.push((at, bytes, size, defined));
    }
    wave.issue(Vector { registers: (0, 0), to_lds });
    Ok(())
}
