//! How ranks find each other: rank 0 listens, hears who comes, compares what they are about to do, and tells everyone where the others are.
//!
//! Whatever else connects is closed and waited past. A process of another job is told so, since two jobs may try the same ports.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::place::{PORTS, Place};
use crate::error::TrainerError;

/// What every greeting begins with: the program, and the version of what ranks say.
const MAGIC: [u8; 8] = *b"mxfp4-r1";

/// Bytes of the longest greeting: an answer holds an address for every rank.
const LONGEST: u32 = 1 << 20;

/// How long a new connection may take to say who it is, and a rank to be told that it was heard.
const GREETING: Duration = Duration::from_secs(3);

/// How often what may not be there yet is tried again.
const AGAIN: Duration = Duration::from_millis(20);

/// What all ranks have to have in common. They are compared with rank 0's, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Purpose {
    /// SHA-256 of the run file.
    pub run_sha256: String,
    /// Version, and SHA-256 of the program.
    pub trainer: String,
    /// `cpu`, or the GPU and its libraries.
    pub device: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hello {
    job: String,
    rank: usize,
    size: usize,
    purpose: Purpose,
    /// Where this rank listens for those after it.
    port: u16,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Answer {
    /// This is rank 0 of the job; wait for the others.
    Heard,
    OtherJob,
    /// Everybody is here, and listens there; by rank.
    Welcome(Vec<SocketAddr>),
    Refused {
        code: u8,
        what: String,
    },
}

/// One connection to each other rank, by rank; none at this rank's own place.
pub(super) type Connections = Vec<Option<TcpStream>>;

/// Meets the others until `patience` is over.
pub(super) fn meet(place: &Place, purpose: &Purpose, patience: Duration) -> Result<Connections, TrainerError> {
    let deadline = Instant::now() + patience;
    if place.rank == 0 { receive(place, purpose, patience, deadline) } else { come(place, purpose, patience, deadline) }
}

/// What rank 0 does.
fn receive(place: &Place, purpose: &Purpose, patience: Duration, deadline: Instant) -> Result<Connections, TrainerError> {
    let listener = listen(place)?;
    let comers = comers(listener);
    let mut connections: Connections = (0..place.size).map(|_| None).collect();
    let mut addresses = vec![SocketAddr::from(([0, 0, 0, 0], 0)); place.size];
    let (mut deadline, mut result) = (deadline, Ok(()));
    loop {
        let missing: Vec<usize> = (1..place.size).filter(|rank| connections[*rank].is_none()).collect();
        if missing.is_empty() {
            break;
        }
        let Ok((mut stream, hello)) = comers.next(deadline) else {
            result = result.and(Err(missed(&missing, patience)));
            break;
        };
        if hello.job != place.job {
            let _ = say(&mut stream, &Answer::OtherJob);
            continue;
        }
        if say(&mut stream, &Answer::Heard).is_err() {
            continue;
        }
        let refusal = compare(place, purpose, &hello, &connections);
        if let Ok(peer) = stream.peer_addr()
            && hello.rank < place.size
            && connections[hello.rank].is_none()
        {
            addresses[hello.rank] = SocketAddr::new(peer.ip(), hello.port);
            connections[hello.rank] = Some(stream);
        } else if let Some(what) = &refusal {
            let _ = say(&mut stream, &Answer::Refused { code: 2, what: what.clone() });
        }
        if let Some(what) = refusal {
            result = result.and(Err(TrainerError::BadInput(what)));
            // Those who are on their way shall hear of it, too.
            deadline = deadline.min(Instant::now() + GREETING);
        }
    }
    let answer = match &result {
        Ok(()) => Answer::Welcome(addresses),
        Err(error) => Answer::Refused { code: error.exit_code(), what: error.to_string() },
    };
    for stream in connections.iter_mut().flatten() {
        // Who is gone already is noticed at the first message.
        let _ = say(stream, &answer);
    }
    result.map(|()| connections)
}

/// On MASTER_ADDR, on the first free port after MASTER_PORT; on all addresses where that name is not this machine's own.
fn listen(place: &Place) -> Result<TcpListener, TrainerError> {
    let ports = place.port + 1..=place.port + PORTS;
    let mut last = None;
    for any in [false, true] {
        for port in ports.clone() {
            let bound = if any { TcpListener::bind(("0.0.0.0", port)) } else { TcpListener::bind((&*place.address, port)) };
            match bound {
                Ok(listener) => return Ok(listener),
                Err(error) => last = Some(error),
            }
        }
        if last.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::AddrInUse) {
            break;
        }
    }
    let why = last.map_or_else(String::new, |error| format!(" ({error})"));
    Err(TrainerError::Machine(format!(
        "rank 0 cannot listen on {}, ports {} to {}{why}; set MASTER_ADDR to a name or address of rank 0's machine, or another MASTER_PORT",
        place.address,
        ports.start(),
        ports.end()
    )))
}

/// Connections that greeted as a rank does, until this goes away.
struct Comers {
    received: Receiver<(TcpStream, Hello)>,
    is_over: Arc<AtomicBool>,
}

impl Comers {
    /// The next one until the deadline.
    fn next(&self, deadline: Instant) -> Result<(TcpStream, Hello), RecvTimeoutError> {
        self.received.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    }
}

impl Drop for Comers {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Each comer has a thread while it greets, so that a silent stranger holds up nobody.
fn comers(listener: TcpListener) -> Comers {
    let (sender, received) = mpsc::channel();
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = is_over.clone();
    std::thread::spawn(move || {
        if listener.set_nonblocking(true).is_err() {
            return;
        }
        while !ends.load(Ordering::Relaxed) {
            let Ok((mut stream, _)) = listener.accept() else {
                std::thread::sleep(AGAIN);
                continue;
            };
            let sender = sender.clone();
            std::thread::spawn(move || {
                if stream.set_nonblocking(false).is_ok()
                    && let Ok(hello) = hear(&mut stream, GREETING)
                {
                    let _ = sender.send((stream, hello));
                }
            });
        }
    });
    Comers { received, is_over }
}

fn missed(ranks: &[usize], patience: Duration) -> TrainerError {
    let names: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    let (word, were) = if ranks.len() == 1 { ("rank", "has") } else { ("ranks", "have") };
    TrainerError::Machine(format!(
        "{word} {} {were} not come within {} s; look at their output, or allow more time with --rendezvous-timeout",
        names.join(", "),
        patience.as_secs_f64()
    ))
}

/// Why a rank cannot take part.
fn compare(place: &Place, purpose: &Purpose, hello: &Hello, connections: &Connections) -> Option<String> {
    let rank = hello.rank;
    let short = |hash: &str| hash.chars().take(16).collect::<String>();
    if hello.size != place.size {
        return Some(format!("rank {rank} was told of {} ranks, rank 0 of {}; start all with the same number", hello.size, place.size));
    }
    if rank == 0 || rank >= place.size || connections[rank].is_some() {
        return Some(format!("two processes take themselves for rank {rank}; give every process a number of its own"));
    }
    let Purpose { run_sha256, trainer, device } = &hello.purpose;
    if *run_sha256 != purpose.run_sha256 {
        let (theirs, ours) = (short(run_sha256), short(&purpose.run_sha256));
        return Some(format!("rank {rank} runs another run file (SHA-256 {theirs}…) than rank 0 ({ours}…); give all ranks the same file"));
    }
    if *trainer != purpose.trainer {
        return Some(format!(
            "rank {rank} is another trainer ({trainer}) than rank 0 ({}); start the same program everywhere",
            purpose.trainer
        ));
    }
    (*device != purpose.device).then(|| {
        format!(
            "rank {rank} computes on another kind of device ({device}) than rank 0 ({}); give all ranks the same --device, the same kind of GPU and \
             the same libraries",
            purpose.device
        )
    })
}

/// What every other rank does.
fn come(place: &Place, purpose: &Purpose, patience: Duration, deadline: Instant) -> Result<Connections, TrainerError> {
    let (mut to_first, listener) = find_first(place, purpose, patience, deadline)?;
    // What rank 0 has to say at the deadline shall arrive.
    let answer = hear(&mut to_first, deadline.saturating_duration_since(Instant::now()) + GREETING);
    let addresses = match answer {
        Ok(Answer::Welcome(addresses)) if addresses.len() == place.size => addresses,
        Ok(Answer::Refused { code, what }) => return Err(TrainerError::Elsewhere { code, what }),
        Ok(_) => return Err(TrainerError::Machine("rank 0 says what no trainer says; end it and start again".into())),
        Err(error) => {
            return Err(TrainerError::Machine(format!("rank 0 ended while the ranks were meeting ({error}); look at its output")));
        }
    };
    let mut connections: Connections = (0..place.size).map(|_| None).collect();
    connections[0] = Some(to_first);
    let hello = Hello { job: place.job.clone(), rank: place.rank, size: place.size, purpose: purpose.clone(), port: 0 };
    let lost =
        |rank: usize, error: io::Error| TrainerError::Machine(format!("rank {rank} cannot be reached from rank {}: {error}", place.rank));
    for rank in 1..place.rank {
        let mut stream = TcpStream::connect_timeout(&addresses[rank], patience).map_err(|error| lost(rank, error))?;
        say(&mut stream, &hello).map_err(|error| lost(rank, error))?;
        connections[rank] = Some(stream);
    }
    let deadline = Instant::now() + patience;
    let comers = comers(listener);
    while let Some(missing) = (place.rank + 1..place.size).find(|rank| connections[*rank].is_none()) {
        let (stream, hello) = comers.next(deadline).map_err(|_| missed(&[missing], patience))?;
        if hello.job == place.job && (place.rank + 1..place.size).contains(&hello.rank) {
            connections[hello.rank] = Some(stream);
        }
    }
    Ok(connections)
}

/// Tries the ports of rank 0 until one of them answers for this job; with it, where this rank listens.
fn find_first(place: &Place, purpose: &Purpose, patience: Duration, deadline: Instant) -> Result<(TcpStream, TcpListener), TrainerError> {
    let mut last = "nobody listens there".to_owned();
    while Instant::now() < deadline {
        for port in place.port + 1..=place.port + PORTS {
            match greet_first(place, purpose, port, deadline) {
                Ok(found) => return Ok(found),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => last = error.to_string(),
            }
        }
        std::thread::sleep(AGAIN);
    }
    Err(TrainerError::Machine(format!(
        "rank 0 has not answered rank {} at {}, ports {} to {}, within {} s ({last}); look at rank 0's output, MASTER_ADDR and MASTER_PORT",
        place.rank,
        place.address,
        place.port + 1,
        place.port + PORTS,
        patience.as_secs_f64()
    )))
}

fn greet_first(place: &Place, purpose: &Purpose, port: u16, deadline: Instant) -> io::Result<(TcpStream, TcpListener)> {
    let patience = GREETING.min(deadline.saturating_duration_since(Instant::now())).max(AGAIN);
    let address = (&*place.address, port).to_socket_addrs()?.next().ok_or_else(|| io::Error::other("the name has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    let own: IpAddr = stream.local_addr()?.ip();
    let listener = TcpListener::bind((own, 0))?;
    let hello =
        Hello { job: place.job.clone(), rank: place.rank, size: place.size, purpose: purpose.clone(), port: listener.local_addr()?.port() };
    say(&mut stream, &hello)?;
    match hear(&mut stream, patience)? {
        Answer::Heard => Ok((stream, listener)),
        Answer::OtherJob => Err(io::Error::other("another job's rank 0 is there")),
        _ => Err(io::Error::other("somebody who is not rank 0 is there")),
    }
}

/// Writes a greeting: the magic, its length, JSON.
fn say(to: &mut TcpStream, what: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(what)?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text);
    to.set_write_timeout(Some(GREETING))?;
    to.write_all(&bytes)
}

/// Reads a greeting.
fn hear<T: DeserializeOwned>(from: &mut TcpStream, patience: Duration) -> io::Result<T> {
    from.set_read_timeout(Some(patience.max(AGAIN)))?;
    let mut start = [0; 12];
    from.read_exact(&mut start)?;
    let stranger = || io::Error::new(io::ErrorKind::InvalidData, "it is no trainer, or one of another version");
    let length = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
    if start[..8] != MAGIC || length > LONGEST {
        return Err(stranger());
    }
    let mut text = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(|_| stranger())
}
