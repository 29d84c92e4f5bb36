//! What can go wrong while a kernel runs: where, which instruction, which lane, and why it matters.

use crate::object::ObjectError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// A register is read or overwritten while a load into it is under way.
    #[error("uses {register} while a load into it is under way: an s_waitcnt is missing")]
    Pending { register: String },
    /// A value that was never written decides something that others can see.
    #[error("{used} depends on a value that was never written")]
    Undefined { used: String },
    /// A global access touches no allocation, or leaves one.
    #[error("{access} of {bytes} bytes at {address:#x} is outside every allocation{near}")]
    Bounds {
        /// Load or store.
        access: &'static str,
        bytes: usize,
        /// Where.
        address: u64,
        /// The allocation that ends or begins nearest.
        near: String,
    },
    /// A store to an allocation that the kernel may only read.
    #[error("stores to {name}, which is read-only")]
    ReadOnly { name: String },
    /// Two workgroups of a launch touch a byte, one of them having written it: they run in no order.
    #[error("{access} byte {offset} of {name}, which another workgroup of the same launch wrote")]
    SharedGlobal {
        access: &'static str,
        name: String,
        /// Which byte.
        offset: usize,
    },
    /// A buffer access begins inside the resource and ends outside.
    #[error("a buffer access of {bytes} bytes at offset {offset} straddles the end of the resource ({records} bytes)")]
    Straddle {
        bytes: usize,
        /// From the resource's base.
        offset: u64,
        records: u64,
    },
    /// An LDS access beyond what the kernel asked for.
    #[error("an LDS access of {bytes} bytes at {offset} is beyond the kernel's {size} bytes")]
    LdsBounds {
        bytes: usize,
        /// Where.
        offset: u64,
        size: usize,
    },
    /// Two waves touch a byte between two barriers, at least one of them writing.
    #[error("LDS race: byte {offset} is {this} here and was {that} by wave {wave} since the last barrier")]
    Race {
        /// Which byte.
        offset: usize,
        this: &'static str,
        that: &'static str,
        wave: usize,
    },
    /// An LDS byte is touched while a load to it, or another wave's write to it, is under way.
    #[error("LDS byte {offset} is touched while wave {wave}'s {what} is under way: an s_waitcnt is missing")]
    InFlight {
        /// Which byte.
        offset: usize,
        wave: usize,
        what: &'static str,
    },
    /// The wave ends while loads to LDS are under way.
    #[error("ends while {0} loads to LDS are under way")]
    LeftOver(usize),
    /// Not modelled.
    #[error("{0} is not modelled")]
    Unsupported(String),
    /// Control goes to an address that is no instruction of the kernel.
    #[error("jumps to {0:#x}, which is no instruction of this kernel")]
    Jump(u64),
    /// Probably a loop without end.
    #[error("did not end after {0} instructions in one workgroup")]
    Endless(u64),
}

/// A fault with everything needed to find it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("kernel {kernel}, workgroup {workgroup:?}, wave {wave}{}, at {address:#x}: {instruction}: {kind}", .lane.map(|lane| format!(", lane {lane}")).unwrap_or_default())]
pub struct Fault {
    pub kernel: String,
    pub workgroup: [u32; 3],
    pub wave: usize,
    /// Which lane, where one alone is to blame.
    pub lane: Option<usize>,
    /// Where the instruction lies in the code object's image.
    pub address: u64,
    /// The instruction as the disassembler writes it.
    pub instruction: String,
    pub kind: FaultKind,
}

/// A fault before the runner adds kernel, wave and instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) lane: Option<usize>,
    pub(crate) kind: FaultKind,
}

impl From<FaultKind> for Stop {
    fn from(kind: FaultKind) -> Self {
        Self { lane: None, kind }
    }
}

impl Stop {
    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        FaultKind::Unsupported(what.into()).into()
    }

    pub(crate) fn undefined(used: impl Into<String>) -> Self {
        FaultKind::Undefined { used: used.into() }.into()
    }

    /// The same, in `lane`.
    pub(crate) fn at(self, lane: usize) -> Self {
        Self { lane: Some(lane), ..self }
    }
}

/// Why a launch did not finish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    #[error(transparent)]
    Fault(#[from] Box<Fault>),
    /// The code object does not have it, or cannot be read.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// What the caller asked for does not fit the kernel.
    #[error("kernel {kernel}: {problem}")]
    Request {
        kernel: String,
        /// What does not fit.
        problem: String,
    },
}
