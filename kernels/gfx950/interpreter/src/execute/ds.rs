//! LDS operations. They are made when they are issued, lane by lane; until the s_waitcnt that guards them their registers may not be
//! touched, nor what they wrote by other waves.

use super::wave::{Lanes, Local, Wave};
use super::{LANES, Machine};
use crate::decode::{Instruction, Op, Operand};
use crate::fault::Stop;

/// Size of one element in bytes, and whether a narrow one is sign-extended.
fn element(op: Op) -> Result<(usize, bool), Stop> {
    use Op::*;
    Ok(match op {
        ds_write_b8 | ds_read_u8 => (1, false),
        ds_read_i8 => (1, true),
        ds_write_b16 | ds_write_b16_d16_hi | ds_read_u16 => (2, false),
        ds_read_i16 => (2, true),
        ds_write_b32 | ds_write2_b32 | ds_write2st64_b32 | ds_read2st64_b32 | ds_read_b32 | ds_read2_b32 => (4, false),
        ds_write_b64 | ds_write2_b64 | ds_read_b64 | ds_read2_b64 | ds_read_b64_tr_b16 => (8, false),
        ds_write_b128 | ds_read_b128 => (16, false),
        _ => return Err(Stop::unsupported(op.name())),
    })
}

/// The constant offsets in bytes of the elements that a lane touches: one or two. Those of two count elements, or 64 of them.
fn offsets(i: &Instruction, size: usize) -> Vec<u64> {
    let name = i.op.name();
    let (first, second) = (i.access.offset as u64, u64::from(i.access.offset1));
    let unit = size as u64 * if name.contains("st64") { 64 } else { 1 };
    if name.contains("read2") || name.contains("write2") { vec![first * unit, second * unit] } else { vec![first] }
}

pub(super) fn execute(wave: &mut Wave, i: &Instruction, machine: &mut Machine<'_>) -> Result<(), Stop> {
    if i.op == Op::ds_bpermute_b32 {
        return backward_permute(wave, i);
    }
    if i.op == Op::ds_max_u32 {
        return atomic(wave, i, machine);
    }
    if i.op.name().contains("write") { write(wave, i, machine) } else { read(wave, i, machine) }
}

fn addresses(wave: &Wave, i: &Instruction) -> Result<Lanes, Stop> {
    let lanes = wave.lanes(i.access.address, 0)?;
    let undefined = !lanes.defined & wave.exec();
    if undefined != 0 {
        return Err(Stop::undefined("an LDS address").at(undefined.trailing_zeros() as usize));
    }
    Ok(lanes)
}

/// Register plus constant, in 32 bits: the compiler counts on a negative register's wrapping around.
fn address(addresses: &Lanes, lane: usize, offset: u64) -> u64 {
    u64::from(addresses.values[lane].wrapping_add(offset as u32))
}

/// Where the lanes access LDS; None for an inactive one.
fn touched(addresses: &Lanes, exec: u64, offset: u64) -> Vec<Option<u64>> {
    (0..LANES).map(|lane| (exec >> lane & 1 == 1).then(|| address(addresses, lane, offset))).collect()
}

fn write(wave: &mut Wave, i: &Instruction, machine: &mut Machine<'_>) -> Result<(), Stop> {
    let (size, _) = element(i.op)?;
    let (addresses, exec) = (addresses(wave, i)?, wave.exec());
    let shift = if i.op.name().ends_with("d16_hi") { 16 } else { 0 };
    let mut written = Vec::new();
    for (data, offset) in i.access.data.into_iter().zip(offsets(i, size)) {
        let registers: Vec<Lanes> = (0..size.div_ceil(4)).map(|register| wave.lanes(data, register)).collect::<Result<_, _>>()?;
        let lanes = touched(&addresses, exec, offset);
        machine.lds.count(&lanes, size);
        machine.note(wave, size, &lanes);
        for lane in (0..LANES).filter(|lane| exec >> lane & 1 == 1) {
            let bytes = super::stored(&registers, lane, shift);
            let defined = registers.iter().all(|lanes| lanes.defined >> lane & 1 == 1);
            let at = address(&addresses, lane, offset);
            machine.lds.write(wave.index, at, &bytes[..size], defined).map_err(|stop| stop.at(lane))?;
            written.push((at, size));
        }
    }
    wave.issue_local(Local::Lds { registers: (0, 0), read: Vec::new(), written });
    Ok(())
}

/// ds_max_u32: the larger of what is there and the lane's value, lane after lane.
fn atomic(wave: &mut Wave, i: &Instruction, machine: &mut Machine<'_>) -> Result<(), Stop> {
    let (addresses, exec, data) = (addresses(wave, i)?, wave.exec(), wave.lanes(i.access.data[0], 0)?);
    machine.note(wave, 4, &touched(&addresses, exec, i.access.offset as u64));
    let mut written = Vec::new();
    for lane in (0..LANES).filter(|lane| exec >> lane & 1 == 1) {
        let (at, value, defined) = (address(&addresses, lane, i.access.offset as u64), data.values[lane], data.defined >> lane & 1 == 1);
        machine.lds.atomic(wave.index, at, |old| old.max(value), defined).map_err(|stop| stop.at(lane))?;
        written.push((at, 4));
    }
    wave.issue_local(Local::Lds { registers: (0, 0), read: Vec::new(), written });
    Ok(())
}

fn read(wave: &mut Wave, i: &Instruction, machine: &mut Machine<'_>) -> Result<(), Stop> {
    let (size, sign) = element(i.op)?;
    let (addresses, exec) = (addresses(wave, i)?, wave.exec());
    let d16 = i.op.name().contains("d16");
    let words = size.div_ceil(4);
    let mut touched_bytes = Vec::new();
    for (element, offset) in offsets(i, size).into_iter().enumerate() {
        let mut results = vec![Lanes { values: [0; LANES], defined: 0 }; words];
        let lanes = touched(&addresses, exec, offset);
        machine.lds.count(&lanes, size);
        machine.note(wave, size, &lanes);
        if d16 {
            results[0] = wave.lanes(i.dst, 0)?;
        }
        for lane in (0..LANES).filter(|lane| exec >> lane & 1 == 1) {
            let mut bytes = [0; 16];
            let at = address(&addresses, lane, offset);
            touched_bytes.push((at, size));
            let defined = machine.lds.read(wave.index, at, &mut bytes[..size]).map_err(|stop| stop.at(lane))?;
            for (word, lanes) in results.iter_mut().enumerate() {
                let raw = u32::from_le_bytes([bytes[4 * word], bytes[4 * word + 1], bytes[4 * word + 2], bytes[4 * word + 3]]);
                let value = super::extended(raw, size, sign);
                lanes.values[lane] = if d16 { super::half_loaded(lanes.values[lane], value, i.op.name()) } else { value };
                let kept = !d16 || lanes.defined >> lane & 1 == 1;
                lanes.defined = (lanes.defined & !(1 << lane)) | u64::from(defined && kept) << lane;
            }
        }
        if i.op == Op::ds_read_b64_tr_b16 {
            transpose(&mut results, exec)?;
        }
        for (word, lanes) in results.iter().enumerate() {
            wave.write_lanes(i.dst, element * words + word, exec, lanes)?;
        }
    }
    let registers = wave.hold(i.dst, i.width(0));
    wave.issue_local(Local::Lds { registers, read: touched_bytes, written: Vec::new() });
    Ok(())
}

/// ds_read_b64_tr_b16: 16 lanes exchange what they read, four 16-bit elements each. Lane l of them gets element l mod 4 of the lanes l / 4, 4 + l / 4,
/// 8 + l / 4 and 12 + l / 4: where four lanes each read a row of 16 elements, column l of four rows. What inactive lanes do to it is not documented.
fn transpose(results: &mut [Lanes], exec: u64) -> Result<(), Stop> {
    const GROUP: usize = 16;
    if exec != !0 {
        return Err(Stop::unsupported("a transposed read with inactive lanes"));
    }
    let read: Vec<Lanes> = results.to_vec();
    results.fill(Lanes { values: [0; LANES], defined: !0 });
    for lane in 0..LANES {
        for element in 0..4 {
            let (from, wanted) = (lane / GROUP * GROUP + 4 * element + lane % GROUP / 4, lane % 4);
            let (source, target) = (&read[wanted / 2], &mut results[element / 2]);
            target.values[lane] |= (source.values[from] >> (16 * (wanted % 2)) & 0xFFFF) << (16 * (element % 2));
            if source.defined >> from & 1 == 0 {
                target.defined &= !(1 << lane);
            }
        }
    }
    Ok(())
}

/// ds_bpermute_b32: lane l reads the data of lane (address / 4) mod 64. No LDS is touched; an inactive source lane gives zero.
fn backward_permute(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    let (addresses, data, exec) = (addresses(wave, i)?, wave.lanes(i.access.data[0], 0)?, wave.exec());
    let mut result = Lanes { values: [0; LANES], defined: !0 };
    for lane in (0..LANES).filter(|lane| exec >> lane & 1 == 1) {
        let from = (addresses.values[lane].wrapping_add(i.access.offset as u32) / 4) as usize % LANES;
        if exec >> from & 1 == 1 {
            result.values[lane] = data.values[from];
            result.defined = (result.defined & !(1 << lane)) | (data.defined >> from & 1) << lane;
        }
    }
    wave.write_lanes(i.dst, 0, exec, &result)?;
    let registers = wave.hold(if exec == 0 { Operand::None } else { i.dst }, 1);
    wave.issue_local(Local::Lds { registers, read: Vec::new(), written: Vec::new() });
    Ok(())
}
