//! The operations that can be decoded: for each encoding family its opcodes, their names, and how many 32-bit registers the
//! destination and each source take.
//!
//! Opcodes and names are those of LLVM's gfx950 target, which `tests/against_llvm.rs` compares on every instruction of every kernel. An
//! operation is listed here only if `crate::execute` knows what it does; anything else is refused by its encoding.

/// One row of a family's table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) op: Op,
    /// Registers of the destination, then of each source. For memory operations only those of the data.
    pub(super) widths: &'static [u8],
}

macro_rules! operations {
    ($($(#[$doc:meta])* $family:ident { $($code:literal $name:ident [$($width:literal)*],)* })*) => {
        /// All operations.
        pub const ALL: &[Op] = &[$($(Op::$name,)*)*];

        /// An operation, named as the assembler names it, without the suffix of its encoding.
        #[allow(non_camel_case_types)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Op { $($($name,)*)* }

        impl Op {
            /// The assembler's mnemonic, without the suffix of its encoding.
            pub fn name(self) -> &'static str {
                match self { $($(Op::$name => stringify!($name),)*)* }
            }
        }

        $($(#[$doc])* pub(super) fn $family(code: u32) -> Option<Entry> {
            match code {
                $($code => Some(Entry { op: Op::$name, widths: &[$($width),*] }),)*
                _ => None,
            }
        })*
    };
}

operations! {
    sop2 {
        0x00 s_add_u32 [1 1 1], 0x01 s_sub_u32 [1 1 1], 0x02 s_add_i32 [1 1 1], 0x03 s_sub_i32 [1 1 1], 0x04 s_addc_u32 [1 1 1],
        0x05 s_subb_u32 [1 1 1], 0x06 s_min_i32 [1 1 1], 0x07 s_min_u32 [1 1 1], 0x08 s_max_i32 [1 1 1], 0x09 s_max_u32 [1 1 1],
        0x0a s_cselect_b32 [1 1 1], 0x0b s_cselect_b64 [2 2 2], 0x0c s_and_b32 [1 1 1], 0x0d s_and_b64 [2 2 2], 0x0e s_or_b32 [1 1 1],
        0x0f s_or_b64 [2 2 2], 0x10 s_xor_b32 [1 1 1], 0x11 s_xor_b64 [2 2 2], 0x12 s_andn2_b32 [1 1 1], 0x13 s_andn2_b64 [2 2 2],
        0x14 s_orn2_b32 [1 1 1], 0x15 s_orn2_b64 [2 2 2], 0x16 s_nand_b32 [1 1 1], 0x18 s_nor_b32 [1 1 1], 0x19 s_nor_b64 [2 2 2],
        0x1a s_xnor_b32 [1 1 1], 0x1c s_lshl_b32 [1 1 1], 0x1d s_lshl_b64 [2 2 1],
        0x1e s_lshr_b32 [1 1 1], 0x1f s_lshr_b64 [2 2 1], 0x20 s_ashr_i32 [1 1 1], 0x21 s_ashr_i64 [2 2 1], 0x22 s_bfm_b32 [1 1 1],
        0x24 s_mul_i32 [1 1 1], 0x25 s_bfe_u32 [1 1 1], 0x26 s_bfe_i32 [1 1 1],
        0x2c s_mul_hi_u32 [1 1 1], 0x2d s_mul_hi_i32 [1 1 1], 0x2e s_lshl1_add_u32 [1 1 1], 0x2f s_lshl2_add_u32 [1 1 1],
        0x30 s_lshl3_add_u32 [1 1 1], 0x31 s_lshl4_add_u32 [1 1 1], 0x32 s_pack_ll_b32_b16 [1 1 1], 0x33 s_pack_lh_b32_b16 [1 1 1],
        0x34 s_pack_hh_b32_b16 [1 1 1],
    }
    /// One scalar source.
    sop1 {
        0x00 s_mov_b32 [1 1], 0x01 s_mov_b64 [2 2], 0x04 s_not_b32 [1 1],
        0x05 s_not_b64 [2 2], 0x08 s_brev_b32 [1 1], 0x0c s_bcnt1_i32_b32 [1 1],
        0x0d s_bcnt1_i32_b64 [1 2], 0x10 s_ff1_i32_b32 [1 1], 0x11 s_ff1_i32_b64 [1 2],
        0x12 s_flbit_i32_b32 [1 1], 0x13 s_flbit_i32_b64 [1 2], 0x16 s_sext_i32_i8 [1 1], 0x17 s_sext_i32_i16 [1 1], 0x1a s_bitset1_b32 [1 1],
        0x20 s_and_saveexec_b64 [2 2],
        0x21 s_or_saveexec_b64 [2 2], 0x23 s_andn2_saveexec_b64 [2 2],
        0x30 s_abs_i32 [1 1],
    }
    sopc {
        0x00 s_cmp_eq_i32 [1 1], 0x01 s_cmp_lg_i32 [1 1], 0x02 s_cmp_gt_i32 [1 1], 0x03 s_cmp_ge_i32 [1 1], 0x04 s_cmp_lt_i32 [1 1],
        0x05 s_cmp_le_i32 [1 1], 0x06 s_cmp_eq_u32 [1 1], 0x07 s_cmp_lg_u32 [1 1], 0x08 s_cmp_gt_u32 [1 1], 0x09 s_cmp_ge_u32 [1 1],
        0x0a s_cmp_lt_u32 [1 1], 0x0b s_cmp_le_u32 [1 1], 0x0c s_bitcmp0_b32 [1 1], 0x0d s_bitcmp1_b32 [1 1], 0x12 s_cmp_eq_u64 [2 2],
        0x13 s_cmp_lg_u64 [2 2],
    }
    /// A 16-bit constant.
    sopk {
        0x00 s_movk_i32 [1], 0x02 s_cmpk_eq_i32 [1], 0x03 s_cmpk_lg_i32 [1], 0x04 s_cmpk_gt_i32 [1],
        0x05 s_cmpk_ge_i32 [1], 0x06 s_cmpk_lt_i32 [1], 0x07 s_cmpk_le_i32 [1], 0x08 s_cmpk_eq_u32 [1], 0x09 s_cmpk_lg_u32 [1],
        0x0a s_cmpk_gt_u32 [1], 0x0b s_cmpk_ge_u32 [1], 0x0c s_cmpk_lt_u32 [1], 0x0d s_cmpk_le_u32 [1], 0x0e s_addk_i32 [1], 0x0f s_mulk_i32 [1],
    }
    sopp {
        0x00 s_nop [], 0x01 s_endpgm [], 0x02 s_branch [], 0x04 s_cbranch_scc0 [], 0x05 s_cbranch_scc1 [], 0x06 s_cbranch_vccz [],
        0x07 s_cbranch_vccnz [], 0x08 s_cbranch_execz [], 0x09 s_cbranch_execnz [], 0x0a s_barrier [], 0x0c s_waitcnt [], 0x0e s_sleep [], 0x0f s_setprio [],
    }
    smem {
        0x00 s_load_dword [1], 0x01 s_load_dwordx2 [2], 0x02 s_load_dwordx4 [4], 0x03 s_load_dwordx8 [8],
    }
    vop2 {
        0x00 v_cndmask_b32 [1 1 1], 0x01 v_add_f32 [1 1 1], 0x02 v_sub_f32 [1 1 1], 0x03 v_subrev_f32 [1 1 1], 0x04 v_fmac_f64 [2 2 2], 0x05 v_mul_f32 [1 1 1],
        0x06 v_mul_i32_i24 [1 1 1], 0x08 v_mul_u32_u24 [1 1 1], 0x09 v_mul_hi_u32_u24 [1 1 1],
        0x0a v_min_f32 [1 1 1], 0x0b v_max_f32 [1 1 1], 0x0c v_min_i32 [1 1 1], 0x0d v_max_i32 [1 1 1], 0x0e v_min_u32 [1 1 1],
        0x0f v_max_u32 [1 1 1], 0x10 v_lshrrev_b32 [1 1 1], 0x11 v_ashrrev_i32 [1 1 1], 0x12 v_lshlrev_b32 [1 1 1],
        0x13 v_and_b32 [1 1 1], 0x14 v_or_b32 [1 1 1], 0x15 v_xor_b32 [1 1 1], 0x17 v_fmamk_f32 [1 1 1], 0x18 v_fmaak_f32 [1 1 1],
        0x19 v_add_co_u32 [1 1 1], 0x1a v_sub_co_u32 [1 1 1], 0x1b v_subrev_co_u32 [1 1 1], 0x1c v_addc_co_u32 [1 1 1],
        0x1d v_subb_co_u32 [1 1 1], 0x1e v_subbrev_co_u32 [1 1 1],
        0x2a v_lshlrev_b16 [1 1 1], 0x34 v_add_u32 [1 1 1], 0x35 v_sub_u32 [1 1 1],
        0x36 v_subrev_u32 [1 1 1], 0x3b v_fmac_f32 [1 1 1], 0x3d v_xnor_b32 [1 1 1],
    }
    /// One vector source.
    vop1 {
        0x00 v_nop [], 0x01 v_mov_b32 [1 1], 0x02 v_readfirstlane_b32 [1 1], 0x05 v_cvt_f32_i32 [1 1], 0x06 v_cvt_f32_u32 [1 1],
        0x07 v_cvt_u32_f32 [1 1], 0x08 v_cvt_i32_f32 [1 1],
        0x0f v_cvt_f32_f64 [1 2], 0x10 v_cvt_f64_f32 [2 1],
        0x11 v_cvt_f32_ubyte0 [1 1], 0x12 v_cvt_f32_ubyte1 [1 1], 0x13 v_cvt_f32_ubyte2 [1 1], 0x14 v_cvt_f32_ubyte3 [1 1],
        0x1b v_fract_f32 [1 1], 0x1c v_trunc_f32 [1 1], 0x1d v_ceil_f32 [1 1], 0x1e v_rndne_f32 [1 1], 0x1f v_floor_f32 [1 1],
        0x20 v_exp_f32 [1 1], 0x21 v_log_f32 [1 1], 0x22 v_rcp_f32 [1 1], 0x23 v_rcp_iflag_f32 [1 1], 0x24 v_rsq_f32 [1 1],
        0x25 v_rcp_f64 [2 2], 0x26 v_rsq_f64 [2 2],
        0x27 v_sqrt_f32 [1 1], 0x2b v_not_b32 [1 1], 0x2c v_bfrev_b32 [1 1],
        0x2d v_ffbh_u32 [1 1], 0x2e v_ffbl_b32 [1 1], 0x33 v_frexp_exp_i32_f32 [1 1], 0x34 v_frexp_mant_f32 [1 1], 0x38 v_mov_b64 [2 2],
        0x52 v_accvgpr_mov_b32 [1 1],
        0x5a v_permlane32_swap_b32 [1 1], 0x5b v_cvt_f32_bf16 [1 1],
    }
    vopc {
        0x10 v_cmp_class_f32 [2 1 1], 0x12 v_cmp_class_f64 [2 2 1], 0x41 v_cmp_lt_f32 [2 1 1], 0x42 v_cmp_eq_f32 [2 1 1], 0x43 v_cmp_le_f32 [2 1 1],
        0x44 v_cmp_gt_f32 [2 1 1], 0x45 v_cmp_lg_f32 [2 1 1], 0x46 v_cmp_ge_f32 [2 1 1], 0x47 v_cmp_o_f32 [2 1 1],
        0x48 v_cmp_u_f32 [2 1 1], 0x49 v_cmp_nge_f32 [2 1 1], 0x4a v_cmp_nlg_f32 [2 1 1], 0x4b v_cmp_ngt_f32 [2 1 1],
        0x4c v_cmp_nle_f32 [2 1 1], 0x4d v_cmp_neq_f32 [2 1 1], 0x4e v_cmp_nlt_f32 [2 1 1],
        0x61 v_cmp_lt_f64 [2 2 2], 0x64 v_cmp_gt_f64 [2 2 2], 0x6a v_cmp_nlg_f64 [2 2 2], 0x6d v_cmp_neq_f64 [2 2 2], 0x6e v_cmp_nlt_f64 [2 2 2], 0xa1 v_cmp_lt_i16 [2 1 1],
        0xa2 v_cmp_eq_i16 [2 1 1], 0xa3 v_cmp_le_i16 [2 1 1], 0xa4 v_cmp_gt_i16 [2 1 1], 0xa5 v_cmp_ne_i16 [2 1 1],
        0xa6 v_cmp_ge_i16 [2 1 1], 0xa9 v_cmp_lt_u16 [2 1 1], 0xaa v_cmp_eq_u16 [2 1 1], 0xab v_cmp_le_u16 [2 1 1],
        0xac v_cmp_gt_u16 [2 1 1], 0xad v_cmp_ne_u16 [2 1 1], 0xae v_cmp_ge_u16 [2 1 1], 0xc1 v_cmp_lt_i32 [2 1 1],
        0xc2 v_cmp_eq_i32 [2 1 1], 0xc3 v_cmp_le_i32 [2 1 1], 0xc4 v_cmp_gt_i32 [2 1 1], 0xc5 v_cmp_ne_i32 [2 1 1],
        0xc6 v_cmp_ge_i32 [2 1 1], 0xc9 v_cmp_lt_u32 [2 1 1], 0xca v_cmp_eq_u32 [2 1 1], 0xcb v_cmp_le_u32 [2 1 1],
        0xcc v_cmp_gt_u32 [2 1 1], 0xcd v_cmp_ne_u32 [2 1 1], 0xce v_cmp_ge_u32 [2 1 1], 0xe1 v_cmp_lt_i64 [2 2 2],
        0xe2 v_cmp_eq_i64 [2 2 2], 0xe3 v_cmp_le_i64 [2 2 2], 0xe4 v_cmp_gt_i64 [2 2 2], 0xe5 v_cmp_ne_i64 [2 2 2],
        0xe6 v_cmp_ge_i64 [2 2 2], 0xe9 v_cmp_lt_u64 [2 2 2], 0xea v_cmp_eq_u64 [2 2 2], 0xeb v_cmp_le_u64 [2 2 2],
        0xec v_cmp_gt_u64 [2 2 2], 0xed v_cmp_ne_u64 [2 2 2], 0xee v_cmp_ge_u64 [2 2 2],
    }
    /// Three vector sources; the other vector operations also have a form in this encoding.
    vop3 {
        0x1c2 v_mad_i32_i24 [1 1 1 1], 0x1c3 v_mad_u32_u24 [1 1 1 1], 0x1c8 v_bfe_u32 [1 1 1 1], 0x1c9 v_bfe_i32 [1 1 1 1],
        0x1ca v_bfi_b32 [1 1 1 1], 0x1cb v_fma_f32 [1 1 1 1], 0x1cc v_fma_f64 [2 2 2 2], 0x1ce v_alignbit_b32 [1 1 1 1], 0x1cf v_alignbyte_b32 [1 1 1 1],
        0x1d0 v_min3_f32 [1 1 1 1], 0x1d1 v_min3_i32 [1 1 1 1], 0x1d2 v_min3_u32 [1 1 1 1], 0x1d3 v_max3_f32 [1 1 1 1],
        0x1d4 v_max3_i32 [1 1 1 1], 0x1d5 v_max3_u32 [1 1 1 1], 0x1d6 v_med3_f32 [1 1 1 1], 0x1d7 v_med3_i32 [1 1 1 1],
        0x1d8 v_med3_u32 [1 1 1 1],
        0x1de v_div_fixup_f32 [1 1 1 1], 0x1df v_div_fixup_f64 [2 2 2 2], 0x1e0 v_div_scale_f32 [1 1 1 1],
        0x1e1 v_div_scale_f64 [2 2 2 2], 0x1e2 v_div_fmas_f32 [1 1 1 1], 0x1e3 v_div_fmas_f64 [2 2 2 2],
        0x1e8 v_mad_u64_u32 [2 1 1 2], 0x1e9 v_mad_i64_i32 [2 1 1 2], 0x1ed v_perm_b32 [1 1 1 1], 0x1f3 v_xad_u32 [1 1 1 1],
        0x1fd v_lshl_add_u32 [1 1 1 1], 0x1fe v_add_lshl_u32 [1 1 1 1], 0x1ff v_add3_u32 [1 1 1 1], 0x200 v_lshl_or_b32 [1 1 1 1],
        0x201 v_and_or_b32 [1 1 1 1], 0x202 v_or3_b32 [1 1 1 1], 0x208 v_lshl_add_u64 [2 2 1 2], 0x233 v_bitop3_b16 [1 1 1 1], 0x234 v_bitop3_b32 [1 1 1 1],
        0x23d v_cvt_scalef32_pk_fp4_f32 [1 1 1 1],
        0x268 v_cvt_pk_bf16_f32 [1 1 1], 0x280 v_add_f64 [2 2 2], 0x281 v_mul_f64 [2 2 2], 0x282 v_min_f64 [2 2 2],
        0x283 v_max_f64 [2 2 2], 0x284 v_ldexp_f64 [2 2 1], 0x285 v_mul_lo_u32 [1 1 1], 0x286 v_mul_hi_u32 [1 1 1], 0x287 v_mul_hi_i32 [1 1 1],
        0x288 v_ldexp_f32 [1 1 1], 0x289 v_readlane_b32 [1 1 1], 0x28b v_bcnt_u32_b32 [1 1 1],
        0x28c v_mbcnt_lo_u32_b32 [1 1 1], 0x28d v_mbcnt_hi_u32_b32 [1 1 1], 0x28f v_lshlrev_b64 [2 1 2], 0x290 v_lshrrev_b64 [2 1 2],
        0x291 v_ashrrev_i64 [2 1 2], 0x293 v_bfm_b32 [1 1 1],
        0x29c v_add_i32 [1 1 1], 0x29d v_sub_i32 [1 1 1], 0x2a9 v_maximum3_f32 [1 1 1 1],
    }
    /// Packed and matrix operations.
    vop3p {
        0x2c v_mfma_ld_scale_b32 [1],
        0x2d v_mfma_f32_16x16x128_f8f6f4 [4 4 4 4], 0x2e v_mfma_f32_32x32x64_f8f6f4 [16 4 4 16], 0x30 v_pk_fma_f32 [2 2 2 2],
        0x31 v_pk_mul_f32 [2 2 2], 0x32 v_pk_add_f32 [2 2 2], 0x33 v_pk_mov_b32 [2 2 2],
        0x35 v_mfma_f32_16x16x32_bf16 [4 4 4 4], 0x37 v_mfma_f32_32x32x16_bf16 [16 4 4 16],
        0x58 v_accvgpr_read_b32 [1 1], 0x59 v_accvgpr_write_b32 [1 1],
    }
    ds {
        0x08 ds_max_u32 [1], 0x0d ds_write_b32 [1], 0x0e ds_write2_b32 [1], 0x0f ds_write2st64_b32 [1], 0x1e ds_write_b8 [1],
        0x1f ds_write_b16 [1], 0x36 ds_read_b32 [1], 0x37 ds_read2_b32 [2], 0x38 ds_read2st64_b32 [2], 0x39 ds_read_i8 [1],
        0x3a ds_read_u8 [1], 0x3b ds_read_i16 [1], 0x3c ds_read_u16 [1],
        0x3f ds_bpermute_b32 [1], 0x4d ds_write_b64 [2], 0x4e ds_write2_b64 [2], 0x55 ds_write_b16_d16_hi [1],
        0x76 ds_read_b64 [2], 0x77 ds_read2_b64 [4],
        0xdf ds_write_b128 [4], 0xe3 ds_read_b64_tr_b16 [2], 0xff ds_read_b128 [4],
    }
    mubuf {
        0x10 buffer_load_ubyte [1], 0x14 buffer_load_dword [1],
        0x17 buffer_load_dwordx4 [4], 0x1f buffer_store_dwordx4 [4],
    }
    flat {
        0x10 global_load_ubyte [1], 0x11 global_load_sbyte [1], 0x12 global_load_ushort [1], 0x13 global_load_sshort [1],
        0x14 global_load_dword [1], 0x15 global_load_dwordx2 [2], 0x17 global_load_dwordx4 [4],
        0x18 global_store_byte [1], 0x1a global_store_short [1], 0x1b global_store_short_d16_hi [1],
        0x1c global_store_dword [1], 0x1d global_store_dwordx2 [2], 0x1e global_store_dwordx3 [3], 0x1f global_store_dwordx4 [4],
        0x47 global_atomic_umax [1],
    }
}
