//! The state of one wave: registers, what is known of their contents, and loads under way.
//!
//! A vector register is defined or not for each lane, a scalar register for each bit (masks are built bit by bit). Undefined contents
//! may be moved and computed with, as compilers do; they may not decide anything (`FaultKind::Undefined`).

use std::collections::VecDeque;

use super::LANES;
use crate::decode::{EXEC, M0, Operand, VCC};
use crate::fault::{FaultKind, Stop};
use crate::lds::Lds;
use crate::memory::POISON;

/// One 32-bit register of all lanes, and the lanes in which it is defined.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lanes {
    pub(crate) values: [u32; LANES],
    pub(crate) defined: u64,
}

impl Lanes {
    pub(crate) const fn splat(value: u32) -> Self {
        Self { values: [value; LANES], defined: !0 }
    }
}

/// A source in all lanes where it lies: registers are read far more often than they have to be copied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) values: &'a [u32; LANES],
    pub(crate) defined: u64,
}

/// A scalar value of up to 64 bits, and which bits are defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scalar {
    pub(crate) value: u64,
    pub(crate) defined: u64,
}

impl Scalar {
    pub(crate) const fn known(value: u64) -> Self {
        Self { value, defined: !0 }
    }

    /// The value, if its low `bits` bits are defined.
    pub(crate) fn expect(self, bits: u32, used: &str) -> Result<u64, Stop> {
        let mask = if bits >= 64 { !0 } else { (1 << bits) - 1 };
        if self.defined & mask == mask { Ok(self.value & mask) } else { Err(Stop::undefined(used)) }
    }
}

/// A vector memory operation under way.
#[derive(Debug, Clone)]
pub(crate) struct Vector {
    /// First register and number of registers that it loads.
    pub(crate) registers: (u16, u16),
    /// What it will write to LDS: offset, bytes, whether they are defined.
    pub(crate) to_lds: Vec<(u64, [u8; 16], usize, bool)>,
}

/// An LDS or scalar memory operation under way.
#[derive(Debug, Clone)]
pub(crate) enum Local {
    /// First register, number of registers, and the LDS bytes read and written: offsets and sizes.
    Lds { registers: (u16, u16), read: Vec<(u64, usize)>, written: Vec<(u64, usize)> },
    /// First scalar register and number.
    Scalar { registers: (u8, u8) },
}

#[derive(Debug, Clone)]
pub(crate) struct Wave {
    pub(crate) index: usize,
    /// Position in the kernel's instructions.
    pub(crate) next: usize,
    pub(crate) scc: Scalar,
    scalars: [u32; 128],
    scalars_defined: [u32; 128],
    scalars_pending: [u8; 128],
    vectors: Vec<[u32; LANES]>,
    vectors_defined: Vec<u64>,
    vectors_pending: Vec<u8>,
    vector_memory: VecDeque<Vector>,
    local_memory: VecDeque<Local>,
}

impl Wave {
    /// With so many vector registers, those for accumulation beginning at 256.
    pub(crate) fn new(index: usize, vectors: usize) -> Self {
        let mut wave = Self {
            index,
            next: 0,
            scc: Scalar { value: 0, defined: 0 },
            scalars: [POISON; 128],
            scalars_defined: [0; 128],
            scalars_pending: [0; 128],
            vectors: vec![[POISON; LANES]; vectors],
            vectors_defined: vec![0; vectors],
            vectors_pending: vec![0; vectors],
            vector_memory: VecDeque::new(),
            local_memory: VecDeque::new(),
        };
        wave.set_scalar(EXEC, 2, Scalar::known(!0));
        wave
    }

    pub(crate) fn exec(&self) -> u64 {
        u64::from(self.scalars[usize::from(EXEC)]) | u64::from(self.scalars[usize::from(EXEC) + 1]) << 32
    }

    pub(crate) fn m0(&self) -> Result<u32, Stop> {
        Ok(self.scalar_register(M0, 1)?.expect(32, "M0")? as u32)
    }

    /// `width` registers (1 or 2) from `number` on.
    pub(crate) fn scalar_register(&self, number: u8, width: usize) -> Result<Scalar, Stop> {
        let mut result = Scalar { value: 0, defined: if width == 1 { !0 << 32 } else { 0 } };
        for i in 0..width {
            let at = usize::from(number) + i;
            if at >= 128 || (at > 101 && !matches!(at, 106 | 107 | 124 | 126 | 127)) {
                return Err(Stop::unsupported(format!("scalar register {at}")));
            }
            if self.scalars_pending[at] != 0 {
                return Err(FaultKind::Pending { register: format!("s{at}") }.into());
            }
            result.value |= u64::from(self.scalars[at]) << (32 * i);
            result.defined |= u64::from(self.scalars_defined[at]) << (32 * i);
        }
        Ok(result)
    }

    fn set_scalar(&mut self, number: u8, width: usize, value: Scalar) {
        for i in 0..width {
            self.scalars[usize::from(number) + i] = (value.value >> (32 * i)) as u32;
            self.scalars_defined[usize::from(number) + i] = (value.defined >> (32 * i)) as u32;
        }
    }

    /// Writes a scalar destination. EXEC may not become undefined: it decides what happens.
    pub(crate) fn write_scalar(&mut self, operand: Operand, width: usize, value: Scalar) -> Result<(), Stop> {
        let Operand::Scalar(number) = operand else { return Err(Stop::unsupported("a scalar result in no scalar register")) };
        self.scalar_register(number, width)?; // exists, and no load into it is under way
        let mask = if width == 1 { 0xFFFF_FFFF } else { !0 };
        if number >= EXEC && value.defined & mask != mask {
            return Err(Stop::undefined("EXEC"));
        }
        self.set_scalar(number, width, value);
        Ok(())
    }

    /// Writes one bit a lane; inactive lanes get 0.
    pub(crate) fn write_mask(&mut self, operand: Operand, bits: u64, defined: u64) -> Result<(), Stop> {
        let exec = self.exec();
        self.write_scalar(operand, 2, Scalar { value: bits & exec, defined: defined | !exec })
    }

    /// A scalar source of one or two registers.
    pub(crate) fn scalar(&self, operand: Operand, width: usize) -> Result<Scalar, Stop> {
        match operand {
            Operand::Scalar(number) => self.scalar_register(number, width),
            Operand::Literal(value) if width == 1 => Ok(Scalar::known(u64::from(value))),
            // A 32-bit literal of a 64-bit operation is zero-extended.
            Operand::Literal(value) => Ok(Scalar::known(u64::from(value))),
            Operand::Inline(code) => self.inline(code, width),
            Operand::Vector(_) | Operand::None => Err(Stop::unsupported("a vector register as a scalar source")),
        }
    }

    fn inline(&self, code: u8, width: usize) -> Result<Scalar, Stop> {
        const FLOATS: [f32; 8] = [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0];
        const HALF_TURN: u32 = 0x3E22_F983; // 1 / (2 pi)
        let integer = |value: i64| Ok(Scalar::known(if width == 1 { u64::from(value as u32) } else { value as u64 }));
        match code {
            128..=192 => integer(i64::from(code) - 128),
            193..=208 => integer(192 - i64::from(code)),
            240..=247 if width == 1 => Ok(Scalar::known(u64::from(FLOATS[usize::from(code - 240)].to_bits()))),
            248 if width == 1 => Ok(Scalar::known(u64::from(HALF_TURN))),
            251 => self.flag(self.scalar_register(VCC, 2)?),
            252 => Ok(Scalar::known(u64::from(self.exec() == 0))),
            253 => Ok(self.scc),
            _ => Err(Stop::unsupported(format!("constant {code} in an operation of {width} registers"))),
        }
    }

    fn flag(&self, mask: Scalar) -> Result<Scalar, Stop> {
        Ok(Scalar::known(u64::from(mask.expect(64, "VCCZ")? == 0)))
    }

    /// Register `offset` of a source, in all lanes.
    pub(crate) fn lanes(&self, operand: Operand, offset: usize) -> Result<Lanes, Stop> {
        let mut room = [0; LANES];
        let View { values, defined } = self.view(operand, offset, &mut room)?;
        Ok(Lanes { values: *values, defined })
    }

    /// The same, in `room` where it is one value for all lanes.
    pub(crate) fn view<'a>(&'a self, operand: Operand, offset: usize, room: &'a mut [u32; LANES]) -> Result<View<'a>, Stop> {
        let scalar = match operand {
            Operand::Vector(number) => {
                let at = usize::from(number) + offset;
                if at >= self.vectors.len() {
                    return Err(Stop::unsupported(format!("vector register {at}")));
                }
                if self.vectors_pending[at] != 0 {
                    return Err(pending(at));
                }
                return Ok(View { values: &self.vectors[at], defined: self.vectors_defined[at] });
            }
            Operand::Scalar(number) => self.scalar_register(number + offset as u8, 1)?,
            // Wide constants: integers are sign-extended.
            _ if offset > 0 => Scalar::known(self.scalar(operand, 2)?.value >> 32),
            _ => self.scalar(operand, 1)?,
        };
        room.fill(scalar.value as u32);
        Ok(View { values: room, defined: if scalar.defined == !0 { !0 } else { 0 } })
    }

    /// Writes register `offset` of a destination in the lanes of `mask`.
    pub(crate) fn write_lanes(&mut self, operand: Operand, offset: usize, mask: u64, lanes: &Lanes) -> Result<(), Stop> {
        let Operand::Vector(number) = operand else { return Err(Stop::unsupported("a vector result in no vector register")) };
        let at = usize::from(number) + offset;
        if at >= self.vectors.len() {
            return Err(Stop::unsupported(format!("vector register {at}")));
        }
        if self.vectors_pending[at] != 0 {
            return Err(pending(at));
        }
        if mask == !0 {
            self.vectors[at] = lanes.values;
        } else {
            for (lane, (to, from)) in self.vectors[at].iter_mut().zip(lanes.values).enumerate() {
                *to = if mask >> lane & 1 == 1 { from } else { *to };
            }
        }
        self.vectors_defined[at] = (self.vectors_defined[at] & !mask) | (lanes.defined & mask);
        Ok(())
    }

    /// Marks `count` registers as being loaded. Their new contents are already there, but may not be touched.
    pub(crate) fn hold(&mut self, operand: Operand, count: usize) -> (u16, u16) {
        let Operand::Vector(first) = operand else { return (0, 0) };
        let end = (usize::from(first) + count).min(self.vectors_pending.len());
        for at in usize::from(first)..end {
            self.vectors_pending[at] += 1;
        }
        (first, end.saturating_sub(usize::from(first)) as u16)
    }

    pub(crate) fn hold_scalars(&mut self, first: u8, count: usize) {
        for at in usize::from(first)..(usize::from(first) + count).min(128) {
            self.scalars_pending[at] += 1;
        }
        self.local_memory.push_back(Local::Scalar { registers: (first, count as u8) });
    }

    pub(crate) fn issue(&mut self, operation: Vector) {
        self.vector_memory.push_back(operation);
    }

    pub(crate) fn issue_local(&mut self, operation: Local) {
        self.local_memory.push_back(operation);
    }

    fn release(&mut self, (first, count): (u16, u16)) {
        for at in usize::from(first)..usize::from(first + count) {
            self.vectors_pending[at] -= 1;
        }
    }

    /// Retires the oldest vector memory operations until at most `count` are left: they finish in order.
    pub(crate) fn wait_vector(&mut self, count: usize, lds: &mut Lds) {
        while self.vector_memory.len() > count {
            let Some(operation) = self.vector_memory.pop_front() else { break };
            self.release(operation.registers);
            for (offset, bytes, size, defined) in operation.to_lds {
                lds.finish_load(self.index, offset, &bytes[..size], defined);
            }
        }
    }

    /// The same for LDS and scalar memory. Scalar loads finish in any order, so that while one is under way only a wait for all retires
    /// anything.
    pub(crate) fn wait_local(&mut self, count: usize, lds: &mut Lds) {
        let scalar = self.local_memory.iter().any(|operation| matches!(operation, Local::Scalar { .. }));
        if scalar && count > 0 {
            return;
        }
        while self.local_memory.len() > count {
            match self.local_memory.pop_front() {
                Some(Local::Lds { registers, read, written }) => {
                    self.release(registers);
                    for (offset, bytes) in read {
                        lds.finish_read(self.index, offset, bytes);
                    }
                    for (offset, bytes) in written {
                        lds.finish_write(self.index, offset, bytes);
                    }
                }
                Some(Local::Scalar { registers: (first, count) }) => {
                    for at in usize::from(first)..usize::from(first) + usize::from(count) {
                        self.scalars_pending[at] -= 1;
                    }
                }
                None => break,
            }
        }
    }

    /// Loads to LDS that are under way.
    pub(crate) fn loads_to_lds(&self) -> usize {
        self.vector_memory.iter().filter(|operation| !operation.to_lds.is_empty()).count()
    }
}

fn pending(at: usize) -> Stop {
    let register = if at < 256 { format!("v{at}") } else { format!("a{}", at - 256) };
    FaultKind::Pending { register }.into()
}
