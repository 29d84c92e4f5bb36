//! Ranks that are processes, connected each with each by TCP.
//!
//! A thread a connection reads whatever comes, so that no two ranks ever wait for each other to read. Another says every second that this
//! rank is there and watches that the others say so, too. The first thing that goes wrong is kept; every call then ends with it, and if the
//! computation does not come to a call in time, the process is ended.

use std::fmt::Debug;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::frame::{self, Frame, Kind};
use super::place::Place;
use super::{Waited, rendezvous};
use crate::error::TrainerError;

pub use super::rendezvous::Purpose;

/// How often a rank says that it is there.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How often everything is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long the computation may go on after another rank was lost, before the process is ended in its midst.
const GRACE: Duration = Duration::from_secs(5);
/// How long an end waits for the others' last words.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long to wait for others.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until all have come.
    pub rendezvous: Duration,
    /// For any sign of a rank that is there.
    pub silence: Duration,
}

/// What is shared with the threads.
#[derive(Debug)]
struct Shared {
    rank: usize,
    started: Instant,
    peers: Vec<Option<Peer>>,
    /// The first thing that went wrong: exit code and what it was.
    failure: Mutex<Option<(u8, String)>>,
    /// This rank is about to end in good order.
    leaves: AtomicBool,
}

#[derive(Debug)]
struct Peer {
    writer: Mutex<Writer>,
    /// The same connection, to end a write that waits.
    connection: TcpStream,
    /// Milliseconds since the start at which something came last.
    heard: AtomicU64,
    /// It has said its last word.
    has_left: AtomicBool,
}

#[derive(Debug)]
struct Writer {
    stream: TcpStream,
    /// Messages so far.
    sequence: u64,
}

/// Messages of one peer, and how many were taken.
#[derive(Debug)]
struct Inbox {
    frames: Receiver<Frame>,
    sequence: u64,
}

/// All ranks, each connected with each.
#[derive(Debug)]
pub struct Mesh {
    shared: Arc<Shared>,
    inboxes: Vec<Option<Mutex<Inbox>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Since that was asked last.
    pub(super) waited: Mutex<Waited>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for last words until they have come, or [`LAST_WORDS`] are over.
fn wait_for_words(have_come: impl Fn() -> bool) {
    let deadline = Instant::now() + LAST_WORDS;
    while !have_come() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Mesh {
    /// Meets the other ranks. `give_up` is called with what happened if this process has to end although its computation does not come to a
    /// call in which it would be told.
    pub fn connect(place: &Place, purpose: &Purpose, patience: Patience, give_up: fn(&TrainerError)) -> Result<Self, TrainerError> {
        let connections = rendezvous::meet(place, purpose, patience.rendezvous)?;
        let failed = |error: io::Error| TrainerError::Machine(format!("a connection between ranks cannot be set up: {error}"));
        let mut readers = Vec::new();
        let mut peers = Vec::new();
        for connection in connections {
            let Some(stream) = connection else {
                readers.push(None);
                peers.push(None);
                continue;
            };
            stream.set_nodelay(true).map_err(failed)?;
            stream.set_read_timeout(None).map_err(failed)?;
            stream.set_write_timeout(Some(patience.silence)).map_err(failed)?;
            readers.push(Some(stream.try_clone().map_err(failed)?));
            let connection = stream.try_clone().map_err(failed)?;
            let writer = Mutex::new(Writer { stream, sequence: 0 });
            peers.push(Some(Peer { writer, connection, heard: AtomicU64::new(0), has_left: AtomicBool::new(false) }));
        }
        let shared = Arc::new(Shared {
            rank: place.rank,
            started: Instant::now(),
            peers,
            failure: Mutex::new(None),
            leaves: AtomicBool::new(false),
        });
        let mut threads = Vec::new();
        let mut inboxes = Vec::new();
        for (rank, reader) in readers.into_iter().enumerate() {
            inboxes.push(reader.map(|stream| {
                let (sender, frames) = mpsc::channel();
                let shared = shared.clone();
                threads.push(std::thread::spawn(move || shared.read(rank, stream, &sender)));
                Mutex::new(Inbox { frames, sequence: 0 })
            }));
        }
        let watcher = shared.clone();
        std::thread::spawn(move || watcher.watch(patience.silence, give_up));
        Ok(Self { shared, inboxes, threads: Mutex::new(threads), waited: Mutex::default() })
    }

    pub(super) fn number(&self) -> usize {
        self.shared.rank
    }

    pub(super) fn count(&self) -> usize {
        self.inboxes.len()
    }

    /// What has gone wrong with this or another rank.
    pub(super) fn check(&self) -> Result<(), TrainerError> {
        self.shared.fails()
    }

    /// Does what cannot be told to stop: where it takes longer than `limit`, this process ends with `what`.
    pub(super) fn within<R>(&self, limit: Duration, what: String, work: impl FnOnce() -> R) -> R {
        let (is_done, waits) = mpsc::channel::<()>();
        let shared = self.shared.clone();
        std::thread::spawn(move || {
            if waits.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                shared.fail(4, what);
            }
        });
        let result = work();
        drop(is_done);
        result
    }

    /// The other ranks, those after this one first: not all write to the same one at once.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.shared.rank, self.count());
        (1..size).map(move |offset| (rank + offset) % size)
    }

    pub(super) fn send(&self, to: usize, kind: Kind, payload: &[u8]) -> Result<(), TrainerError> {
        self.shared.fails()?;
        let Some(peer) = &self.shared.peers[to] else { return Ok(()) };
        let mut writer = lock(&peer.writer);
        let sequence = writer.sequence;
        writer.sequence += 1;
        let written = frame::write(&mut writer.stream, kind, sequence, payload);
        drop(writer);
        written.or_else(|error| {
            if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
                self.shared.wait_for_reason();
            }
            self.shared.fail(4, format!("rank {to} does not take what it is sent ({error}): it has ended or hangs"));
            self.shared.fails()
        })
    }

    pub(super) fn receive(&self, from: usize, kind: Kind, length: Option<usize>) -> Result<Vec<u8>, TrainerError> {
        let Some(inbox) = &self.inboxes[from] else { return Ok(Vec::new()) };
        let mut inbox = lock(inbox);
        let frame = loop {
            match inbox.frames.recv_timeout(LOOK) {
                Ok(frame) => break frame,
                Err(RecvTimeoutError::Timeout) => self.shared.fails()?,
                Err(RecvTimeoutError::Disconnected) => {
                    self.shared.fail(4, format!("rank {from} has left before the run's end"));
                    self.shared.fails()?;
                }
            }
        };
        let sequence = inbox.sequence;
        inbox.sequence += 1;
        if frame.kind != kind || frame.sequence != sequence || length.is_some_and(|length| length != frame.payload.len()) {
            let (found, bytes, number) = (frame.kind, frame.payload.len(), frame.sequence);
            let expected = length.map_or_else(String::new, |length| format!(" of {length} bytes"));
            self.shared.fail(
                4,
                format!(
                    "rank {from} sent {found:?} of {bytes} bytes as message {number} to rank {}, which waited for {kind:?}{expected} as message \
                     {sequence}: the ranks do not do the same",
                    self.shared.rank
                ),
            );
            self.shared.fails()?;
        }
        Ok(frame.payload)
    }

    /// The last word to the others: why this rank cannot go on.
    pub(super) fn tell_end(&self, code: u8, what: &str) {
        let mut payload = vec![code];
        payload.extend(what.as_bytes());
        self.shared.last_word(Kind::Abort, &payload);
    }

    /// The last word to the others: this rank ends in good order.
    pub(super) fn close(&self) {
        self.shared.last_word(Kind::Leave, &[]);
        let threads = std::mem::take(&mut *lock(&self.threads));
        // Ending with unread bytes may take back what was said last.
        wait_for_words(|| threads.iter().all(JoinHandle::is_finished));
    }
}

impl Shared {
    fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Keeps what went wrong, unless something did before.
    fn fail(&self, code: u8, what: String) {
        lock(&self.failure).get_or_insert((code, what));
    }

    /// Waits until a reader has said why a connection ended. A write to a peer that is gone fails at once, maybe before a reader has come to
    /// that peer's last word, which names the rank at fault.
    fn wait_for_reason(&self) {
        wait_for_words(|| self.fails().is_err());
    }

    /// What went wrong.
    fn fails(&self) -> Result<(), TrainerError> {
        match &*lock(&self.failure) {
            None => Ok(()),
            Some((code, what)) => Err(TrainerError::Elsewhere { code: *code, what: what.clone() }),
        }
    }

    fn others(&self) -> impl Iterator<Item = (usize, &Peer)> {
        self.peers.iter().enumerate().filter_map(|(rank, peer)| Some((rank, peer.as_ref()?)))
    }

    /// Reads what a peer sends until it leaves.
    fn read(&self, from: usize, mut stream: TcpStream, inbox: &Sender<Frame>) {
        let Some(peer) = &self.peers[from] else { return };
        loop {
            let frame = match frame::read(&mut stream, || peer.heard.store(self.now(), Ordering::Relaxed)) {
                Ok(frame) => frame,
                Err(error) => {
                    if !self.leaves.load(Ordering::Relaxed) {
                        let why = match error.kind() {
                            io::ErrorKind::InvalidData => format!("sent what no rank sends ({error})"),
                            _ => "has ended without a word (was it killed?)".to_owned(),
                        };
                        self.fail(4, format!("rank {from} {why}"));
                    }
                    return;
                }
            };
            match frame.kind {
                Kind::Heartbeat => {}
                Kind::Leave => return peer.has_left.store(true, Ordering::Relaxed),
                Kind::Abort => {
                    let (code, text) = frame.payload.split_first().unwrap_or((&4, b"it does not say why"));
                    return self.fail(*code, String::from_utf8_lossy(text).into_owned());
                }
                _ => {
                    if inbox.send(frame).is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Says that this rank is there, and looks whether the others are, until this one leaves.
    fn watch(&self, silence: Duration, give_up: fn(&TrainerError)) {
        let (mut said, mut failed) = (None::<Instant>, None::<Instant>);
        while !self.leaves.load(Ordering::Relaxed) {
            let is_due = said.is_none_or(|said| said.elapsed() >= HEARTBEAT.min(silence / 4));
            for (rank, peer) in self.others().filter(|(_, peer)| !peer.has_left.load(Ordering::Relaxed)) {
                // Whoever holds the writer is writing, which says as much.
                if is_due && let Ok(mut writer) = peer.writer.try_lock() {
                    // That the peer is gone, its reader notices.
                    let _ = frame::write(&mut writer.stream, Kind::Heartbeat, 0, &[]);
                }
                let silent = self.now().saturating_sub(peer.heard.load(Ordering::Relaxed));
                if silent > silence.as_millis() as u64 {
                    self.fail(4, format!("rank {rank} has given no sign for {} s: it hangs, or its machine does", silence.as_secs_f64()));
                    let _ = peer.connection.shutdown(Shutdown::Both);
                }
            }
            said = if is_due { Some(Instant::now()) } else { said };
            if let Err(error) = self.fails() {
                let since = *failed.get_or_insert_with(Instant::now);
                if since.elapsed() > GRACE {
                    return give_up(&error);
                }
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The last word to everyone who can be told now.
    fn last_word(&self, kind: Kind, payload: &[u8]) {
        self.leaves.store(true, Ordering::Relaxed);
        for (_, peer) in self.others() {
            let deadline = Instant::now() + 10 * LOOK;
            while Instant::now() < deadline {
                if let Ok(mut writer) = peer.writer.try_lock() {
                    let sequence = writer.sequence;
                    // Nothing more can be done for one who is gone.
                    let _ = writer.stream.set_write_timeout(Some(LOOK));
                    let _ = frame::write(&mut writer.stream, kind, sequence, payload);
                    let _ = writer.stream.shutdown(Shutdown::Write);
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
