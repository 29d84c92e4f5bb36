//! An instruction as text, in the words of LLVM's disassembler, so that the two can be compared and an error can be read.

use std::fmt;

use super::op::Op;
use super::{EXEC, Encoding, Instruction, M0, Operand, Sdwa, VCC};

/// A scalar register or a group of them.
fn scalar(number: u8, width: usize) -> String {
    match (number, width) {
        (VCC, 1) => "vcc_lo".to_owned(),
        (107, 1) => "vcc_hi".to_owned(),
        (VCC, _) => "vcc".to_owned(),
        (EXEC, 1) => "exec_lo".to_owned(),
        (127, 1) => "exec_hi".to_owned(),
        (EXEC, _) => "exec".to_owned(),
        (M0, _) => "m0".to_owned(),
        (_, 1) => format!("s{number}"),
        _ => format!("s[{number}:{}]", usize::from(number) + width - 1),
    }
}

fn vector(number: u16, width: usize) -> String {
    let (file, number) = if number < 256 { ('v', usize::from(number)) } else { ('a', usize::from(number) - 256) };
    if width == 1 { format!("{file}{number}") } else { format!("{file}[{number}:{}]", number + width - 1) }
}

fn inline(code: u8) -> String {
    const FLOATS: [&str; 9] = ["0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494"];
    match code {
        128..=192 => (code - 128).to_string(),
        193..=208 => format!("-{}", code - 192),
        240..=248 => FLOATS[usize::from(code - 240)].to_owned(),
        251 => "src_vccz".to_owned(),
        252 => "src_execz".to_owned(),
        253 => "src_scc".to_owned(),
        _ => format!("reserved({code})"),
    }
}

/// `width` 32-bit registers from the operand on, or the constant.
pub(super) fn operand(operand: Operand, width: usize) -> String {
    match operand {
        Operand::None => "off".to_owned(),
        Operand::Scalar(number) => scalar(number, width),
        Operand::Vector(number) => vector(number, width),
        Operand::Inline(code) => inline(code),
        Operand::Literal(value) => format!("{value:#x}"),
    }
}

/// `[1,0,...]` from the low `count` bits.
fn list(bits: u8, count: usize) -> String {
    let digits: Vec<String> = (0..count).map(|i| ((bits >> i) & 1).to_string()).collect();
    format!("[{}]", digits.join(","))
}

impl Instruction {
    fn sources(&self) -> usize {
        self.src.iter().filter(|source| **source != Operand::None).count()
    }

    /// Mnemonic with the suffix of its encoding.
    pub fn mnemonic(&self) -> String {
        let name = self.op.name();
        let modifiers = &self.modifiers;
        let suffix = match self.encoding {
            // Operations that have one encoding only carry no suffix.
            Encoding::Vop1 if matches!(self.op, Op::v_nop | Op::v_readfirstlane_b32 | Op::v_accvgpr_mov_b32) => "",
            Encoding::Vop2 if matches!(self.op, Op::v_fmaak_f32 | Op::v_fmamk_f32) => "",
            Encoding::Vop1 | Encoding::Vop2 | Encoding::Vopc if modifiers.sdwa.is_some() => "_sdwa",
            Encoding::Vop1 | Encoding::Vop2 | Encoding::Vopc if modifiers.dpp.is_some() => "_dpp",
            Encoding::Vop1 | Encoding::Vop2 | Encoding::Vopc => "_e32",
            Encoding::Vop3 if self.has_short_form() => "_e64",
            _ => "",
        };
        if self.scales.is_some() { name.replacen("v_mfma_", "v_mfma_scale_", 1) } else { format!("{name}{suffix}") }
    }

    /// Whether the operation exists in a 32-bit encoding, too.
    fn has_short_form(&self) -> bool {
        let known = |lookup: fn(u32) -> Option<super::op::Entry>| (0..256).any(|code| lookup(code).is_some_and(|e| e.op == self.op));
        known(super::op::vop1) || known(super::op::vop2) || known(super::op::vopc)
    }

    /// A source with its sign, magnitude or extension.
    fn source_text(&self, index: usize) -> String {
        let text = operand(self.src[index], self.source_width(index));
        let modifiers = &self.modifiers;
        if self.encoding == Encoding::Vop3p {
            return text;
        }
        if modifiers.sdwa.is_some_and(|sdwa| index < 2 && sdwa.sext[index]) {
            return format!("sext({text})");
        }
        let text = if modifiers.abs >> index & 1 == 1 { format!("|{text}|") } else { text };
        if modifiers.neg >> index & 1 == 1 { format!("-{text}") } else { text }
    }

    /// The mask of operations that read one is 64 bits wide, whatever the table says of their sources.
    fn source_width(&self, index: usize) -> usize {
        match self.op {
            Op::v_cndmask_b32 | Op::v_addc_co_u32 | Op::v_subb_co_u32 | Op::v_subbrev_co_u32 if index == 2 => 2,
            _ => self.width(index + 1),
        }
    }

    fn operands(&self) -> Vec<String> {
        let mut parts = Vec::new();
        if self.dst != Operand::None {
            parts.push(operand(self.dst, self.width(0)));
        }
        if self.carry != Operand::None {
            parts.push(operand(self.carry, 2));
        }
        // Comparisons have no destination in the table's SOPC; their widths begin with the first source.
        let shift = usize::from(self.encoding != Encoding::Sopc);
        for index in 0..self.sources() {
            parts.push(if shift == 1 { self.source_text(index) } else { operand(self.src[index], self.width(index)) });
        }
        parts
    }

    fn scalar_text(&self) -> String {
        let constant = self.constant;
        match self.encoding {
            Encoding::Sopk => format!("{}, {constant:#x}", operand(self.dst, 1)),
            Encoding::Sopp if self.op == Op::s_waitcnt => {
                let (vm, exp, lgkm) = wait_counts(constant);
                let mut parts = Vec::new();
                // One that waits for nothing is written in full.
                let nothing = (vm, exp, lgkm) == (63, 7, 15);
                if vm < 63 || nothing {
                    parts.push(format!("vmcnt({vm})"));
                }
                if exp < 7 || nothing {
                    parts.push(format!("expcnt({exp})"));
                }
                if lgkm < 15 || nothing {
                    parts.push(format!("lgkmcnt({lgkm})"));
                }
                parts.join(" ")
            }
            Encoding::Sopp if matches!(self.op, Op::s_endpgm | Op::s_barrier) => String::new(),
            _ => constant.to_string(),
        }
    }

    fn memory_text(&self) -> String {
        let access = &self.access;
        let data = |index: usize| operand(access.data[index], self.width(0));
        match self.encoding {
            Encoding::Smem => {
                let sign = if access.offset < 0 { "-" } else { "" };
                let mut offset = format!("{sign}{:#x}", access.offset.unsigned_abs());
                if access.scalar_offset != Operand::None {
                    offset = operand(access.scalar_offset, 1);
                }
                format!("{}, {}, {offset}", operand(self.dst, self.width(0)), operand(access.base, 2))
            }
            Encoding::Ds => {
                let mut parts = Vec::new();
                if self.dst != Operand::None {
                    parts.push(operand(self.dst, self.width(0)));
                }
                parts.push(operand(access.address, 1));
                parts.extend((0..2).filter(|&i| access.data[i] != Operand::None).map(data));
                let mut text = parts.join(", ");
                let two = self.op.name().contains("read2") || self.op.name().contains("write2");
                if two && access.offset != 0 {
                    text += &format!(" offset0:{}", access.offset);
                }
                if two && access.offset1 != 0 {
                    text += &format!(" offset1:{}", access.offset1);
                }
                if !two && access.offset != 0 {
                    text += &format!(" offset:{}", access.offset);
                }
                text
            }
            Encoding::Mubuf => {
                let register = if access.data[0] != Operand::None { data(0) } else { operand(self.dst, self.width(0)) };
                let mut text = if access.lds { String::new() } else { format!("{register}, ") };
                text += &format!("{}, {}, {}", operand(access.address, 1), operand(access.base, 4), operand(access.scalar_offset, 1));
                if access.offen {
                    text += " offen";
                }
                if access.offset != 0 {
                    text += &format!(" offset:{}", access.offset);
                }
                text + &self.policy_text() + if access.lds { " lds" } else { "" }
            }
            _ => {
                let wide = if access.base == Operand::None { 2 } else { 1 };
                let mut parts = Vec::new();
                if self.dst != Operand::None {
                    parts.push(operand(self.dst, self.width(0)));
                }
                parts.push(operand(access.address, wide));
                if access.data[0] != Operand::None {
                    parts.push(data(0));
                }
                parts.push(operand(access.base, 2));
                let offset = if access.offset == 0 { String::new() } else { format!(" offset:{}", access.offset) };
                parts.join(", ") + &offset + &self.policy_text()
            }
        }
    }

    fn policy_text(&self) -> String {
        [" sc0", " sc1", " nt"].into_iter().enumerate().filter(|(i, _)| self.access.policy >> i & 1 == 1).map(|(_, text)| text).collect()
    }

    fn modifier_text(&self) -> String {
        let modifiers = &self.modifiers;
        let sources = self.sources();
        let mut text = String::new();
        match self.encoding {
            Encoding::Vop3p if !matches!(self.op, Op::v_accvgpr_read_b32 | Op::v_accvgpr_write_b32) => {
                if modifiers.op_sel != 0 {
                    text += &format!(" op_sel:{}", list(modifiers.op_sel, sources));
                }
                let all = (1 << sources) - 1;
                if modifiers.op_sel_hi & all != all {
                    text += &format!(" op_sel_hi:{}", list(modifiers.op_sel_hi, sources));
                }
                for (name, bits) in [("neg_lo", modifiers.neg), ("neg_hi", modifiers.neg_hi)] {
                    if bits != 0 {
                        text += &format!(" {name}:{}", list(bits, sources));
                    }
                }
            }
            Encoding::Matrix => {
                if self.scales.is_some() {
                    if modifiers.op_sel != 0 {
                        text += &format!(" op_sel:{}", list(modifiers.op_sel, 3));
                    }
                    if modifiers.op_sel_hi != 7 {
                        text += &format!(" op_sel_hi:{}", list(modifiers.op_sel_hi, 3));
                    }
                }
                for (name, bits) in [("cbsz", self.constant & 7), ("blgp", self.constant >> 3)] {
                    if bits != 0 {
                        text += &format!(" {name}:{bits}");
                    }
                }
            }
            Encoding::Vop3 => {
                if matches!(self.op, Op::v_bitop3_b32 | Op::v_bitop3_b16) && self.constant != 0 {
                    text += &format!(
                        " bitop3:{}",
                        if self.constant < 10 { self.constant.to_string() } else { format!("{:#x}", self.constant) }
                    );
                }
                // Conversions with a packed destination write one of its bytes, which two bits name.
                if modifiers.op_sel != 0 {
                    text += &format!(
                        " op_sel:{}",
                        list(modifiers.op_sel, if self.op == Op::v_cvt_scalef32_pk_fp4_f32 { 4 } else { sources + 1 })
                    );
                }
            }
            _ => {}
        }
        if modifiers.clamp {
            text += " clamp";
        }
        text += ["", " mul:2", " mul:4", " div:2"][usize::from(modifiers.omod & 3)];
        if let Some(sdwa) = modifiers.sdwa {
            text += &self.sdwa_text(&sdwa);
        }
        if let Some(dpp) = modifiers.dpp {
            text += &format!(" {} row_mask:{:#x} bank_mask:{:#x}", dpp_control(dpp.control), dpp.row_mask, dpp.bank_mask);
            if dpp.bound_control {
                text += " bound_ctrl:1";
            }
        }
        text
    }

    fn sdwa_text(&self, sdwa: &Sdwa) -> String {
        const PARTS: [&str; 8] = ["BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD", "?"];
        const UNUSED: [&str; 4] = ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE", "?"];
        let mut text = String::new();
        if self.encoding != Encoding::Vopc {
            text += &format!(" dst_sel:{} dst_unused:{}", PARTS[usize::from(sdwa.dst_sel & 7)], UNUSED[usize::from(sdwa.dst_unused & 3)]);
        }
        text += &format!(" src0_sel:{}", PARTS[usize::from(sdwa.src_sel[0] & 7)]);
        if self.encoding != Encoding::Vop1 {
            text += &format!(" src1_sel:{}", PARTS[usize::from(sdwa.src_sel[1] & 7)]);
        }
        text
    }
}

fn dpp_control(control: u16) -> String {
    match control {
        0..=0xFF => {
            let lanes: Vec<String> = (0..4).map(|i| (control >> (2 * i) & 3).to_string()).collect();
            format!("quad_perm:[{}]", lanes.join(","))
        }
        0x101..=0x10F => format!("row_shl:{}", control & 15),
        0x111..=0x11F => format!("row_shr:{}", control & 15),
        0x121..=0x12F => format!("row_ror:{}", control & 15),
        0x140 => "row_mirror".to_owned(),
        0x141 => "row_half_mirror".to_owned(),
        0x142 => "row_bcast:15".to_owned(),
        0x143 => "row_bcast:31".to_owned(),
        0x150..=0x15F => format!("row_newbcast:{}", control & 15),
        _ => format!("dpp_ctrl:{control:#x}"),
    }
}

/// The counts that s_waitcnt waits for: vector memory (6 bits in two parts), export, LDS and scalar memory.
pub fn wait_counts(constant: u16) -> (u16, u16, u16) {
    ((constant & 15) | (constant >> 14) << 4, (constant >> 4) & 7, (constant >> 8) & 15)
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = match self.encoding {
            Encoding::Sopk | Encoding::Sopp => self.scalar_text(),
            Encoding::Smem | Encoding::Ds | Encoding::Mubuf | Encoding::Global => self.memory_text(),
            _ => {
                let mut parts = self.operands();
                if let Some(scales) = self.scales {
                    parts.extend(scales.source.iter().map(|&source| operand(source, 1)));
                }
                parts.join(", ") + &self.modifier_text()
            }
        };
        write!(f, "{} {body}", self.mnemonic())
    }
}
