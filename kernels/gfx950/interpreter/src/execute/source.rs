//! Sources of vector operations as an operation sees them: parts of registers (SDWA), other lanes (DPP), signs; and the part of a
//! destination that SDWA replaces.

use super::LANES;
use super::arithmetic::Kind;
use super::wave::{Lanes, View, Wave};
use crate::decode::{Dpp, Instruction, Sdwa};
use crate::fault::Stop;

/// The part of a register that sub-dword addressing selects.
fn part(value: u32, select: u8, sign: bool) -> u32 {
    let (shift, bits) = match select {
        0..=3 => (8 * u32::from(select), 8),
        4 | 5 => (16 * u32::from(select - 4), 16),
        _ => (0, 32),
    };
    let up = 32 - bits;
    let value = (value >> shift) << up;
    if sign { ((value as i32) >> up) as u32 } else { value >> up }
}

/// The destination with its selected part replaced.
pub(super) fn inserted(old: u32, result: u32, sdwa: &Sdwa) -> Result<u32, Stop> {
    const KEEP: u8 = 2;
    let (shift, mask) = match sdwa.dst_sel {
        0..=3 => (8 * u32::from(sdwa.dst_sel), 0xFF),
        4 | 5 => (16 * u32::from(sdwa.dst_sel - 4), 0xFFFF),
        _ => return Ok(result),
    };
    match sdwa.dst_unused {
        0 => Ok((result & mask) << shift),
        KEEP => Ok((old & !(mask << shift)) | (result & mask) << shift),
        _ => Err(Stop::unsupported("a sign-extended SDWA destination")),
    }
}

/// The lane from which DPP reads, if there is one.
fn dpp_source(control: u16, lane: usize) -> Result<Option<usize>, Stop> {
    let (row, at) = (lane & !15, lane & 15);
    let amount = usize::from(control & 15);
    Ok(match control {
        0..=0xFF => Some((lane & !3) | usize::from(control >> (2 * (lane & 3)) & 3)),
        0x101..=0x10F => (at + amount < 16).then(|| row + at + amount),
        0x111..=0x11F => at.checked_sub(amount).map(|at| row + at),
        0x121..=0x12F => Some(row + (at + 16 - amount) % 16),
        0x140 => Some(row + 15 - at),
        0x141 => Some(row + (at & 8) + 7 - (at & 7)),
        0x142 => (lane >= 16).then(|| row - 1),
        0x143 => (lane >= 32).then_some(31),
        0x150..=0x15F => Some(row + amount),
        _ => return Err(Stop::unsupported(format!("DPP control {control:#x}"))),
    })
}

/// Source 0 as each lane sees it through DPP, and the lanes that may write.
fn permuted(source: &Lanes, dpp: &Dpp, exec: u64) -> Result<(Lanes, u64), Stop> {
    let mut result = Lanes::splat(0);
    let mut enabled = 0;
    for lane in 0..LANES {
        let takes_part = dpp.row_mask >> (lane / 16) & 1 == 1 && dpp.bank_mask >> (lane % 16 / 4) & 1 == 1;
        let from = dpp_source(dpp.control, lane)?.filter(|&from| exec >> from & 1 == 1);
        if let Some(from) = from {
            result.values[lane] = source.values[from];
            result.defined = (result.defined & !(1 << lane)) | (source.defined >> from & 1) << lane;
        }
        // A lane without a source reads zero, or does not write.
        if takes_part && (from.is_some() || dpp.bound_control) {
            enabled |= 1 << lane;
        }
    }
    Ok((result, enabled))
}

/// Source `index` after lane permutation, part selection, magnitude and sign; and the lanes that may write. What is changed is changed in
/// `room`.
pub(super) fn source<'a>(
    wave: &'a Wave,
    i: &Instruction,
    index: usize,
    kind: Kind,
    room: &'a mut [u32; LANES],
) -> Result<(View<'a>, u64), Stop> {
    let modifiers = &i.modifiers;
    let (abs, neg) = (modifiers.abs >> index & 1 == 1, modifiers.neg >> index & 1 == 1);
    let dpp = modifiers.dpp.filter(|_| index == 0);
    let sdwa = modifiers.sdwa.filter(|_| index < 2);
    if dpp.is_none() && sdwa.is_none() && !abs && !neg {
        return Ok((wave.view(i.src[index], 0, room)?, !0));
    }
    let mut lanes = wave.lanes(i.src[index], 0)?;
    let mut enabled = !0;
    if let Some(dpp) = &dpp {
        (lanes, enabled) = permuted(&lanes, dpp, wave.exec())?;
    }
    if let Some(sdwa) = &sdwa {
        if (abs || neg) && sdwa.src_sel[index] != 6 {
            return Err(Stop::unsupported("a sign modifier on a part of a register"));
        }
        for value in &mut lanes.values {
            *value = part(*value, sdwa.src_sel[index], sdwa.sext[index]);
        }
    }
    if (abs || neg) && kind == Kind::Integer {
        return Err(Stop::unsupported("a sign modifier on an integer"));
    }
    let (kept, flipped) = (if abs { 0x7FFF_FFFF } else { !0 }, if neg { 0x8000_0000 } else { 0 });
    for (to, value) in room.iter_mut().zip(lanes.values) {
        *to = (value & kept) ^ flipped;
    }
    Ok((View { values: room, defined: lanes.defined }, enabled))
}
