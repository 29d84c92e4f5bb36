//! Byte-level BPE: training, tokenising, inspecting.
