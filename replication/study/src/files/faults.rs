//! Faults at the n-th operation that changes a file: for one test, which asks for this feature.

use std::io;
use std::sync::Mutex;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The operation does nothing and says so.
    Fail,
    /// It does half and says that the disk is full.
    Short,
    /// It does half, and the process is gone.
    Kill,
}

impl Fault {
    pub const ALL: [Self; 3] = [Self::Fail, Self::Short, Self::Kill];
}

static STATE: Mutex<(u64, Option<(u64, Fault)>)> = Mutex::new((0, None));

/// The `nth` operation from now on, the first is 1, has this fault; those after it none.
pub fn arm(nth: u64, fault: Fault) {
    *STATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = (0, Some((nth, fault)));
}

/// How many operations there have been.
pub fn count() -> u64 {
    STATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).0
}

pub(super) fn operation(half: impl FnOnce()) -> io::Result<()> {
    let (count, armed) = {
        let mut state = STATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.0 += 1;
        *state
    };
    match armed.filter(|(nth, _)| *nth == count) {
        None => Ok(()),
        Some((_, Fault::Fail)) => Err(io::Error::other("a fault that a test asked for")),
        Some((_, Fault::Short)) => {
            half();
            Err(io::ErrorKind::StorageFull.into())
        }
        Some((_, Fault::Kill)) => {
            half();
            std::process::abort()
        }
    }
}
