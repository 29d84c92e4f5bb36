// Every operation of decode/op.rs, and the forms in which its operands come: assembled and disassembled by LLVM, and compared with what
// the decoder makes of the same words (tests/against_llvm.rs).
s_add_u32 s2, s4, s6
s_sub_u32 s2, s4, s6
s_add_i32 s2, s4, s6
s_sub_i32 s2, s4, s6
s_addc_u32 s2, s4, s6
s_subb_u32 s2, s4, s6
s_min_i32 s2, s4, s6
s_min_u32 s2, s4, s6
s_max_i32 s2, s4, s6
s_max_u32 s2, s4, s6
s_cselect_b32 s2, s4, s6
s_and_b32 s2, s4, s6
s_or_b32 s2, s4, s6
s_xor_b32 s2, s4, s6
s_andn2_b32 s2, s4, s6
s_orn2_b32 s2, s4, s6
s_nand_b32 s2, s4, s6
s_nor_b32 s2, s4, s6
s_xnor_b32 s2, s4, s6
s_lshl_b32 s2, s4, s6
s_lshr_b32 s2, s4, s6
s_ashr_i32 s2, s4, s6
s_bfm_b32 s2, s4, s6
s_mul_i32 s2, s4, s6
s_bfe_u32 s2, s4, s6
s_bfe_i32 s2, s4, s6
s_mul_hi_u32 s2, s4, s6
s_mul_hi_i32 s2, s4, s6
s_lshl1_add_u32 s2, s4, s6
s_lshl2_add_u32 s2, s4, s6
s_lshl3_add_u32 s2, s4, s6
s_lshl4_add_u32 s2, s4, s6
s_pack_ll_b32_b16 s2, s4, s6
s_pack_lh_b32_b16 s2, s4, s6
s_pack_hh_b32_b16 s2, s4, s6
s_cselect_b64 s[2:3], s[4:5], s[6:7]
s_and_b64 s[2:3], s[4:5], s[6:7]
s_or_b64 s[2:3], s[4:5], s[6:7]
s_xor_b64 s[2:3], s[4:5], s[6:7]
s_andn2_b64 s[2:3], s[4:5], s[6:7]
s_orn2_b64 s[2:3], s[4:5], s[6:7]
s_lshl_b64 s[2:3], s[4:5], s6
s_lshr_b64 s[2:3], s[4:5], s6
s_ashr_i64 s[2:3], s[4:5], s6
s_mov_b32 s2, s4
s_not_b32 s2, s4
s_brev_b32 s2, s4
s_bcnt1_i32_b32 s2, s4
s_ff1_i32_b32 s2, s4
s_flbit_i32_b32 s2, s4
s_sext_i32_i8 s2, s4
s_sext_i32_i16 s2, s4
s_abs_i32 s2, s4
s_mov_b64 s[2:3], s[4:5]
s_not_b64 s[2:3], s[4:5]
s_and_saveexec_b64 s[2:3], s[4:5]
s_andn2_saveexec_b64 s[2:3], s[4:5]
s_bcnt1_i32_b64 s2, s[4:5]
s_flbit_i32_b64 s2, s[4:5]
s_cmp_eq_i32 s2, s4
s_cmp_lg_i32 s2, s4
s_cmp_gt_i32 s2, s4
s_cmp_ge_i32 s2, s4
s_cmp_lt_i32 s2, s4
s_cmp_le_i32 s2, s4
s_cmp_eq_u32 s2, s4
s_cmp_lg_u32 s2, s4
s_cmp_gt_u32 s2, s4
s_cmp_ge_u32 s2, s4
s_cmp_lt_u32 s2, s4
s_cmp_le_u32 s2, s4
s_bitcmp0_b32 s2, s4
s_bitcmp1_b32 s2, s4
s_cmp_eq_u64 s[2:3], s[4:5]
s_cmp_lg_u64 s[2:3], s[4:5]
s_movk_i32 s2, 0x1234
s_cmpk_eq_i32 s2, 0x1234
s_cmpk_lg_i32 s2, 0x1234
s_cmpk_gt_i32 s2, 0x1234
s_cmpk_ge_i32 s2, 0x1234
s_cmpk_lt_i32 s2, 0x1234
s_cmpk_le_i32 s2, 0x1234
s_cmpk_eq_u32 s2, 0x1234
s_cmpk_lg_u32 s2, 0x1234
s_cmpk_gt_u32 s2, 0x1234
s_cmpk_ge_u32 s2, 0x1234
s_cmpk_lt_u32 s2, 0x1234
s_cmpk_le_u32 s2, 0x1234
s_addk_i32 s2, 0x1234
s_endpgm
s_barrier
s_nop 4
s_branch 4
s_cbranch_scc0 4
s_cbranch_scc1 4
s_cbranch_vccz 4
s_cbranch_vccnz 4
s_cbranch_execz 4
s_cbranch_execnz 4
s_waitcnt 4
s_load_dword s4, s[6:7], 0x10
s_load_dwordx2 s[4:5], s[6:7], 0x10
s_load_dwordx4 s[4:7], s[8:9], 0x10
s_load_dwordx8 s[8:15], s[4:5], 0x10
v_add_f32 v1, v2, v3
v_sub_f32 v1, v2, v3
v_subrev_f32 v1, v2, v3
v_mul_f32 v1, v2, v3
v_mul_i32_i24 v1, v2, v3
v_mul_u32_u24 v1, v2, v3
v_min_f32 v1, v2, v3
v_max_f32 v1, v2, v3
v_min_i32 v1, v2, v3
v_max_i32 v1, v2, v3
v_min_u32 v1, v2, v3
v_max_u32 v1, v2, v3
v_lshrrev_b32 v1, v2, v3
v_ashrrev_i32 v1, v2, v3
v_lshlrev_b32 v1, v2, v3
v_and_b32 v1, v2, v3
v_or_b32 v1, v2, v3
v_xor_b32 v1, v2, v3
v_xnor_b32 v1, v2, v3
v_add_u32 v1, v2, v3
v_sub_u32 v1, v2, v3
v_subrev_u32 v1, v2, v3
v_fmac_f32 v1, v2, v3
v_add_co_u32 v1, vcc, v2, v3
v_sub_co_u32 v1, vcc, v2, v3
v_addc_co_u32 v1, vcc, v2, v3, vcc
v_subb_co_u32 v1, vcc, v2, v3, vcc
v_cndmask_b32 v1, v2, v3, vcc
v_fmaak_f32 v1, v2, v3, 0x11112222
v_fmamk_f32 v1, v2, 0x11112222, v3
v_mov_b32 v1, v2
v_cvt_f32_i32 v1, v2
v_cvt_f32_u32 v1, v2
v_cvt_u32_f32 v1, v2
v_cvt_i32_f32 v1, v2
v_cvt_f32_bf16 v1, v2
v_cvt_f32_ubyte0 v1, v2
v_cvt_f32_ubyte1 v1, v2
v_cvt_f32_ubyte2 v1, v2
v_cvt_f32_ubyte3 v1, v2
v_fract_f32 v1, v2
v_trunc_f32 v1, v2
v_ceil_f32 v1, v2
v_rndne_f32 v1, v2
v_floor_f32 v1, v2
v_exp_f32 v1, v2
v_log_f32 v1, v2
v_rcp_f32 v1, v2
v_rcp_iflag_f32 v1, v2
v_rsq_f32 v1, v2
v_sqrt_f32 v1, v2
v_not_b32 v1, v2
v_bfrev_b32 v1, v2
v_ffbh_u32 v1, v2
v_ffbl_b32 v1, v2
v_frexp_exp_i32_f32 v1, v2
v_frexp_mant_f32 v1, v2
v_accvgpr_mov_b32 a1, a2
v_mov_b64 v[2:3], v[4:5]
v_readfirstlane_b32 s1, v2
v_cmp_lt_f32 vcc, v2, v3
v_cmp_eq_f32 vcc, v2, v3
v_cmp_le_f32 vcc, v2, v3
v_cmp_gt_f32 vcc, v2, v3
v_cmp_ge_f32 vcc, v2, v3
v_cmp_lg_f32 vcc, v2, v3
v_cmp_o_f32 vcc, v2, v3
v_cmp_u_f32 vcc, v2, v3
v_cmp_nge_f32 vcc, v2, v3
v_cmp_nlg_f32 vcc, v2, v3
v_cmp_ngt_f32 vcc, v2, v3
v_cmp_nle_f32 vcc, v2, v3
v_cmp_neq_f32 vcc, v2, v3
v_cmp_nlt_f32 vcc, v2, v3
v_cmp_lt_i32 vcc, v2, v3
v_cmp_eq_i32 vcc, v2, v3
v_cmp_le_i32 vcc, v2, v3
v_cmp_gt_i32 vcc, v2, v3
v_cmp_ge_i32 vcc, v2, v3
v_cmp_ne_i32 vcc, v2, v3
v_cmp_lt_u32 vcc, v2, v3
v_cmp_eq_u32 vcc, v2, v3
v_cmp_le_u32 vcc, v2, v3
v_cmp_gt_u32 vcc, v2, v3
v_cmp_ge_u32 vcc, v2, v3
v_cmp_ne_u32 vcc, v2, v3
v_cmp_lt_u16 vcc, v2, v3
v_cmp_eq_u16 vcc, v2, v3
v_cmp_le_u16 vcc, v2, v3
v_cmp_gt_u16 vcc, v2, v3
v_cmp_ge_u16 vcc, v2, v3
v_cmp_ne_u16 vcc, v2, v3
v_cmp_lt_i16 vcc, v2, v3
v_cmp_eq_i16 vcc, v2, v3
v_cmp_le_i16 vcc, v2, v3
v_cmp_gt_i16 vcc, v2, v3
v_cmp_ge_i16 vcc, v2, v3
v_cmp_ne_i16 vcc, v2, v3
v_cmp_lt_u64 vcc, v[2:3], v[4:5]
v_cmp_eq_u64 vcc, v[2:3], v[4:5]
v_cmp_le_u64 vcc, v[2:3], v[4:5]
v_cmp_gt_u64 vcc, v[2:3], v[4:5]
v_cmp_ge_u64 vcc, v[2:3], v[4:5]
v_cmp_ne_u64 vcc, v[2:3], v[4:5]
v_cmp_lt_i64 vcc, v[2:3], v[4:5]
v_cmp_eq_i64 vcc, v[2:3], v[4:5]
v_cmp_le_i64 vcc, v[2:3], v[4:5]
v_cmp_gt_i64 vcc, v[2:3], v[4:5]
v_cmp_ge_i64 vcc, v[2:3], v[4:5]
v_cmp_ne_i64 vcc, v[2:3], v[4:5]
v_cmp_class_f32 vcc, v2, v3
v_mad_i32_i24 v1, v2, v3, v4
v_mad_u32_u24 v1, v2, v3, v4
v_bfe_u32 v1, v2, v3, v4
v_bfe_i32 v1, v2, v3, v4
v_bfi_b32 v1, v2, v3, v4
v_fma_f32 v1, v2, v3, v4
v_alignbit_b32 v1, v2, v3, v4
v_alignbyte_b32 v1, v2, v3, v4
v_min3_f32 v1, v2, v3, v4
v_min3_i32 v1, v2, v3, v4
v_min3_u32 v1, v2, v3, v4
v_max3_f32 v1, v2, v3, v4
v_maximum3_f32 v1, |v2|, -v3, v4
v_max3_i32 v1, v2, v3, v4
v_max3_u32 v1, v2, v3, v4
v_med3_f32 v1, v2, v3, v4
v_med3_i32 v1, v2, v3, v4
v_med3_u32 v1, v2, v3, v4
v_perm_b32 v1, v2, v3, v4
v_xad_u32 v1, v2, v3, v4
v_lshl_add_u32 v1, v2, v3, v4
v_add_lshl_u32 v1, v2, v3, v4
v_add3_u32 v1, v2, v3, v4
v_lshl_or_b32 v1, v2, v3, v4
v_and_or_b32 v1, v2, v3, v4
v_or3_b32 v1, v2, v3, v4
v_bitop3_b32 v1, v2, v3, v4
v_mad_u64_u32 v[2:3], vcc, v4, v5, v[6:7]
v_mad_i64_i32 v[2:3], vcc, v4, v5, v[6:7]
v_mul_lo_u32 v1, v2, v3
v_mul_hi_u32 v1, v2, v3
v_mul_hi_i32 v1, v2, v3
v_ldexp_f32 v1, v2, v3
v_bcnt_u32_b32 v1, v2, v3
v_mbcnt_lo_u32_b32 v1, v2, v3
v_mbcnt_hi_u32_b32 v1, v2, v3
v_bfm_b32 v1, v2, v3
v_cvt_pk_bf16_f32 v1, v2, v3
v_add_i32 v1, v2, v3
v_sub_i32 v1, v2, v3
v_lshlrev_b64 v[2:3], v4, v[6:7]
v_lshrrev_b64 v[2:3], v4, v[6:7]
v_ashrrev_i64 v[2:3], v4, v[6:7]
v_lshl_add_u64 v[2:3], v[4:5], 3, v[6:7]
v_readlane_b32 s1, v2, s3
v_cvt_scalef32_pk_fp4_f32 v1, v2, v3, v4
v_pk_add_f32 v[2:3], v[4:5], v[6:7]
v_pk_mul_f32 v[2:3], v[4:5], v[6:7]
v_pk_mov_b32 v[2:3], v[4:5], v[6:7]
v_pk_fma_f32 v[2:3], v[4:5], v[6:7], v[8:9]
v_accvgpr_write_b32 a1, v2
v_accvgpr_read_b32 v1, a2
ds_write_b32 v1, v2
ds_write_b8 v1, v2
ds_write_b16 v1, v2
ds_write_b64 v1, v[2:3]
ds_write_b128 v1, v[2:5]
ds_write2_b32 v1, v2, v3
ds_write2_b64 v1, v[2:3], v[4:5]
ds_read_b32 v1, v2
ds_read_i8 v1, v2
ds_read_u8 v1, v2
ds_read_i16 v1, v2
ds_read_u16 v1, v2
ds_read_b64 v[2:3], v2
ds_read2_b32 v[2:3], v2
ds_read_b128 v[2:5], v2
ds_read2_b64 v[2:5], v2
ds_bpermute_b32 v1, v2, v3
global_load_dword v2, v[8:9], off
global_load_dwordx2 v[2:3], v[8:9], off
buffer_load_dwordx4 v[2:5], v8, s[4:7], 0 offen
global_load_dwordx4 v[2:5], v[8:9], off
buffer_load_ubyte v2, v8, s[4:7], 0 offen
global_load_ubyte v2, v[8:9], off
global_load_sbyte v2, v[8:9], off
global_load_ushort v2, v[8:9], off
global_load_sshort v2, v[8:9], off
global_store_dword v[8:9], v2, off
global_store_dwordx2 v[8:9], v[2:3], off
global_store_dwordx3 v[8:9], v[2:4], off
global_store_dwordx4 v[8:9], v[2:5], off
buffer_store_dwordx4 v[2:5], v8, s[4:7], 0 offen
global_store_byte v[8:9], v2, off
global_store_short v[8:9], v2, off
global_store_short_d16_hi v[8:9], v2, off
v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[8:11], v[0:3] cbsz:4 blgp:4
v_mfma_f32_16x16x128_f8f6f4 a[0:3], v[4:7], a[8:11], a[0:3] cbsz:4 blgp:4
v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[8:11], v[0:3], v12, v13 op_sel_hi:[0,0,0] cbsz:4 blgp:4
v_mfma_scale_f32_16x16x128_f8f6f4 a[0:3], a[4:7], v[8:11], a[0:3], v12, v13 op_sel:[1,0,0] op_sel_hi:[0,1,0] cbsz:4 blgp:4
v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3]
v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:15], v[0:3] cbsz:1 blgp:4
v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[12:19], v[0:3], v20, v21 op_sel_hi:[0,0,0] cbsz:4 blgp:1
v_mfma_f32_32x32x64_f8f6f4 a[0:15], v[16:23], v[24:31], a[0:15] blgp:1
v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[16:19], v[24:27], v[0:15] cbsz:4 blgp:4
v_mfma_scale_f32_32x32x64_f8f6f4 v[0:15], v[16:23], v[24:31], v[0:15], v32, v33 op_sel_hi:[0,0,0]
v_mfma_scale_f32_32x32x64_f8f6f4 v[0:15], v[16:19], v[24:31], v[0:15], v32, v33 op_sel:[0,1,0] op_sel_hi:[1,0,0] cbsz:4
s_mov_b32 s5, 0x12345678
s_add_u32 vcc_lo, exec_hi, -16
s_mov_b64 exec, 0
s_mov_b64 vcc, s[100:101]
s_mov_b32 m0, 64
s_and_b64 s[0:1], vcc, exec
s_cmp_lt_i32 s7, 0xabcd
s_load_dwordx2 s[4:5], s[6:7], s9
s_load_dword s4, s[6:7], -0x10
s_waitcnt vmcnt(63) expcnt(7) lgkmcnt(3)
s_waitcnt vmcnt(17)
s_waitcnt expcnt(0)
v_add_f32_e64 v1, -v2, |v3| clamp mul:2
v_mul_f32_e64 v1, v2, -|v3| div:2
v_fma_f32 v1, -v2, v3, |v4| mul:4
v_add_f32_e32 v1, 0x40490fdb, v3
v_mul_f32_e32 v1, 0.15915494, v3
v_add_f32_sdwa v1, v2, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
v_add_u32_sdwa v1, sext(v2), v3 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_2 src1_sel:WORD_0
v_mov_b32_sdwa v1, v2 dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:BYTE_3
v_cvt_f32_u32_sdwa v1, s2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1
v_cmp_eq_u32_sdwa vcc, v2, v3 src0_sel:BYTE_0 src1_sel:WORD_1
v_cmp_eq_u32_sdwa s[4:5], v2, v3 src0_sel:DWORD src1_sel:DWORD
v_mov_b32_dpp v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
v_add_f32_dpp v1, v2, v3 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1
v_add_f32_dpp v1, v2, v3 row_ror:4 row_mask:0xa bank_mask:0x5
v_add_f32_dpp v1, v2, v3 row_bcast:15 row_mask:0xa bank_mask:0xf
v_max_u32_dpp v1, v2, v3 row_half_mirror row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v1, v2 row_newbcast:3 row_mask:0xf bank_mask:0xf
v_cndmask_b32_e64 v1, v2, v3, s[4:5]
v_cmp_gt_f32_e64 s[4:5], -v2, |v3|
v_cmp_lt_u64_e64 vcc, v[2:3], s[4:5]
v_addc_co_u32_e64 v1, s[2:3], v2, v3, s[4:5]
v_add_co_u32_e64 v1, s[2:3], v2, v3
v_mad_u64_u32 v[2:3], s[4:5], v4, s6, v[8:9]
v_sub_u32_e64 v1, v2, 2 clamp
v_readlane_b32 s1, v2, 5
v_bitop3_b32 v1, v2, v3, v4 bitop3:0x96
v_bitop3_b32 v1, v2, v3, 7 bitop3:9
v_cvt_scalef32_pk_fp4_f32 v1, v2, v3, v4 op_sel:[0,0,1,1]
v_pk_add_f32 v[2:3], v[4:5], v[6:7] neg_lo:[0,1] neg_hi:[0,1]
v_pk_fma_f32 v[2:3], v[4:5], s[6:7], v[8:9] op_sel:[1,0,0] op_sel_hi:[0,0,1]
v_pk_mov_b32 v[2:3], v[4:5], v[6:7] op_sel:[1,0]
v_accvgpr_write_b32 a5, 1.0
ds_read2_b32 v[2:3], v4 offset0:3 offset1:255
ds_read_b128 a[4:7], v1 offset:65520
buffer_load_dwordx4 v1, s[4:7], 0 offen offset:4095 lds
global_load_dwordx4 v[2:5], v8, s[4:5] offset:-4096
global_load_dword a2, v[8:9], off offset:4095 sc1
global_store_short_d16_hi v[8:9], v2, off nt
global_store_byte v8, v2, s[4:5]
v_subbrev_co_u32_e32 v1, vcc, v2, v3, vcc
s_setprio 4
s_sleep 4
v_nop
v_div_scale_f32 v1, vcc, v2, v3, v2
v_div_scale_f32 v1, s[4:5], v2, 1.0, -v2
v_div_fmas_f32 v1, v2, v3, v4
v_div_fixup_f32 v1, -v2, |v3|, s4
s_or_saveexec_b64 s[2:3], s[4:5]
v_subrev_co_u32_e32 v1, vcc, v2, v3
v_subrev_co_u32_e64 v1, s[2:3], v2, v3
v_lshlrev_b16_e32 v1, v2, v3
ds_write2st64_b32 v1, v2, v3 offset1:1
ds_read2st64_b32 v[2:3], v4 offset0:1 offset1:9
s_nor_b64 s[2:3], s[4:5], s[6:7]
s_ff1_i32_b64 s2, s[4:5]
s_mulk_i32 s2, 0xc00
v_fmac_f64 v[2:3], v[4:5], v[6:7]
v_cvt_f32_f64 v1, v[2:3]
v_cvt_f64_f32 v[2:3], v1
v_cvt_f64_f32_e64 v[2:3], -|v1|
v_rcp_f64 v[2:3], v[4:5]
v_rsq_f64 v[2:3], s[4:5]
v_cmp_class_f64 vcc, v[2:3], v4
v_cmp_class_f64 s[2:3], v[2:3], s4
v_cmp_gt_f64 vcc, 0.5, v[2:3]
v_cmp_gt_f64 s[4:5], -v[2:3], |v[6:7]|
v_cmp_neq_f64 vcc, 0, v[2:3]
v_cmp_nlt_f64 vcc, s[4:5], v[2:3]
v_add_f64 v[2:3], v[4:5], -v[6:7]
v_mul_f64 v[2:3], v[4:5], 0.5
v_min_f64 v[2:3], v[4:5], 1.0
v_fma_f64 v[2:3], -v[4:5], v[6:7], 0.5
v_ldexp_f64 v[2:3], v[4:5], s2
v_ldexp_f64 v[2:3], v[4:5], v6
v_div_scale_f64 v[2:3], vcc, v[4:5], v[6:7], v[4:5]
v_div_scale_f64 v[2:3], s[4:5], s[6:7], v[6:7], s[6:7]
v_div_fmas_f64 v[2:3], v[4:5], v[6:7], v[8:9]
v_div_fixup_f64 v[2:3], v[4:5], v[6:7], s[8:9]
v_bitop3_b16 v1, v2, 3, v4 bitop3:0xc8
ds_max_u32 v1, v2 offset:8448
global_atomic_umax v1, v2, s[4:5]
global_atomic_umax v[2:3], v4, off offset:8
global_load_dword v1, v[2:3], off sc1
s_waitcnt vmcnt(63) expcnt(7) lgkmcnt(15)
ds_write_b16_d16_hi v1, v2 offset:144
v_mul_hi_u32_u24 v1, v2, v3
v_mul_hi_u32_u24_e64 v1, s2, v3
v_mfma_f32_16x16x32_bf16 v[2:5], v[6:9], v[10:13], v[2:5]
v_mfma_f32_16x16x32_bf16 v[2:5], v[6:9], v[10:13], 0
v_mfma_f32_16x16x32_bf16 a[2:5], a[6:9], v[10:13], a[2:5]
v_cmp_lt_f64 s[2:3], s[2:3], v[2:3]
v_max_f64 v[2:3], v[4:5], v[4:5]
v_cmp_nlg_f64 s[0:1], |v[2:3]|, s[0:1]
v_mfma_f32_32x32x16_bf16 v[0:15], v[16:19], v[20:23], v[0:15]
v_mfma_f32_32x32x16_bf16 v[0:15], v[16:19], v[20:23], 0
v_mfma_f32_32x32x16_bf16 a[0:15], v[16:19], a[20:23], a[0:15]
ds_read_b64_tr_b16 v[2:3], v4 offset:8
ds_read_b64_tr_b16 a[2:3], v4
v_permlane32_swap_b32 v2, v3
buffer_load_dword v2, s[4:7], s8 offen lds
buffer_load_dword v2, v3, s[4:7], 0 offen offset:16
s_bitset1_b32 s2, s4
s_bitset1_b32 s2, 17
