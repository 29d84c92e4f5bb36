//! What ranks exchange, as threads of one process: every call against what its definition says, and calls that do not fit each other.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::TcpListener;
use std::time::{Duration, Instant};

use kernels::cpu::{Cpu, InstructionSet, SQUARES_CHUNK};
use trainer::error::TrainerError;
use trainer::ranks::place::Place;
use trainer::ranks::tcp::{Mesh, Patience, Purpose};
use trainer::ranks::{Alone, Bucket, Ranks, Waited};
use trainer::shards::Shards;

/// Does `work` on each of `size` ranks; results in the order of the ranks.
fn among<R: Send>(size: usize, work: impl Fn(usize, &dyn Ranks<Cpu>) -> R + Sync) -> Vec<R> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().min(60_000);
    let patience = Patience { rendezvous: Duration::from_secs(30), silence: Duration::from_secs(20) };
    let purpose = Purpose { run_sha256: "run".into(), trainer: "trainer".into(), device: "cpu".into() };
    let one = &|rank: usize| {
        let (address, job, source) = ("127.0.0.1".to_owned(), "job".to_owned(), "the test".to_owned());
        let place = Place { rank, size, local_rank: rank, address, port, job, source };
        let mesh = Mesh::connect(&place, &purpose, patience, |error| panic!("{error}")).unwrap();
        work(rank, &mesh)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..size).map(|rank| scope.spawn(move || one(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn cpu() -> Cpu {
    Cpu::new(InstructionSet::detect(), 1).unwrap()
}

/// Numbers that say whose they are and where.
fn numbers(rank: usize, total: usize) -> Vec<f32> {
    (0..total).map(|index| (rank * 1_000_000 + index) as f32).collect()
}

/// Fewer chunks than ranks, and an array of more than one message.
#[test]
fn every_call_does_what_it_says() {
    for (size, total) in [(2, 70_000), (3, 100), (3, 5 * SQUARES_CHUNK + 11), (2, 80 * SQUARES_CHUNK)] {
        let buckets = [total / 3..total, total / 7..total / 3, 0..total / 7];
        let shards = Shards::new(total, size, buckets.clone());
        among(size, |rank, ranks| {
            let (device, own) = (cpu(), shards.of(rank));
            assert_eq!((ranks.rank(), ranks.size()), (rank, size));

            let mut pieces = ranks.room(&device, &shards).unwrap();
            for range in &buckets {
                let base = Shards::base(range);
                let own = numbers(rank, total)[base..].to_vec();
                ranks.begin(&device, &Bucket { numbers: &own, base, range: range.clone(), packed: None }, &shards, &mut pieces).unwrap();
                ranks.end(&device).unwrap();
                let part = shards.part(rank, range);
                for from in shards.senders(rank) {
                    let place = shards.piece(rank, from);
                    assert!(pieces[place..place + part.len()] == numbers(from, total)[part.clone()], "exchange");
                }
            }
            assert!(ranks.finish(&device).unwrap().gradients > 0.0);
            assert_eq!(ranks.finish(&device).unwrap(), Waited::default());

            let mut parameters = numbers(rank, total);
            (0..shards.rounds()).for_each(|round| ranks.share(&device, &mut parameters, &shards, round).unwrap());
            let wanted: Vec<f32> =
                shards.segments().iter().flat_map(|segment| numbers(segment.owner, total)[segment.range.clone()].to_vec()).collect();
            assert!(parameters == wanted, "share");
            assert!(ranks.finish(&device).unwrap().parameters > 0.0);

            let shard_of = |all: Vec<f32>| own.iter().flat_map(|range| all[range.clone()].to_vec()).collect::<Vec<f32>>();
            let shard = shard_of(numbers(7, total));
            let collected = ranks.collect(&device, &shard, &shards).unwrap();
            assert_eq!(collected.is_some(), rank == 0);
            assert!(collected.is_none_or(|all| *all == *numbers(7, total)), "collect");

            let all = if rank == 0 { numbers(9, total) } else { Vec::new() };
            assert!(ranks.scatter(&all, &shards).unwrap() == shard_of(numbers(9, total)), "scatter");

            // Some ranks come twice, one of them in a row, and one of three never.
            let owners = [0, 1, 1, 0, 1];
            let last = ranks.relay(&owners, &mut |link, before| Ok([&before[..], &[link as u8, rank as u8]].concat())).unwrap();
            let wanted = owners.iter().enumerate().flat_map(|(link, owner)| [link as u8, *owner as u8]).collect::<Vec<_>>();
            assert_eq!(last, (rank == 1).then_some(wanted));

            let records = ranks.gather(&vec![rank as u8; rank]).unwrap();
            assert_eq!(records, (0..size).map(|from| vec![from as u8; from]).collect::<Vec<_>>());
            ranks.barrier().unwrap();
            ranks.leave();
        });
    }
}

/// One rank alone is the same calls.
#[test]
fn alone_everything_is_its_own() {
    let (device, total) = (cpu(), 3 * SQUARES_CHUNK + 5);
    let (shards, own) = (Shards::new(total, 1, [700..total, 0..700]), numbers(0, total));
    let ranks: &dyn Ranks<Cpu> = &Alone;
    let mut pieces = ranks.room(&device, &shards).unwrap();
    for range in [700..total, 0..700] {
        ranks.begin(&device, &Bucket { numbers: &own, base: 0, range: range.clone(), packed: None }, &shards, &mut pieces).unwrap();
        assert!(pieces[..range.len()] == own[range], "exchange");
    }
    assert!(*ranks.collect(&device, &own, &shards).unwrap().unwrap() == *own);
    assert!(ranks.scatter(&own, &shards).unwrap() == own);
    assert_eq!(ranks.gather(&[1, 2]).unwrap(), [[1, 2]]);
}

/// Ranks that do not make the same calls are told so at once; nobody waits.
#[test]
fn calls_that_do_not_fit_are_an_error() {
    let (started, total) = (Instant::now(), 4 * SQUARES_CHUNK);
    let shards = Shards::new(total, 2, std::iter::once(0..total));
    let errors = among(2, |rank, ranks| {
        let (device, mut parameters) = (cpu(), numbers(rank, total));
        let error = match rank {
            0 => ranks.barrier().unwrap_err(),
            _ => ranks.share(&device, &mut parameters, &shards, 0).unwrap_err(),
        };
        ranks.abort(&error);
        error.to_string()
    });
    // Both see it, or one sees it and the other is told.
    assert!(errors.iter().all(|error| error.contains("the ranks do not do the same")), "{errors:?}");
    let other = Shards::new(total + 8, 2, std::iter::once(0..total + 8));
    let errors = among(2, |rank, ranks| {
        let (device, mut parameters) = (cpu(), numbers(rank, total + 8));
        let shards = if rank == 0 { &shards } else { &other };
        let error = ranks.share(&device, &mut parameters, shards, 0).and_then(|()| ranks.barrier());
        error.as_ref().err().inspect(|error| ranks.abort(error));
        error.unwrap_err().to_string()
    });
    assert!(errors.iter().all(|error| error.contains("the ranks do not do the same")), "{errors:?}");
    assert!(started.elapsed() < Duration::from_secs(10));
}

/// The cause goes to everyone with its exit code.
#[test]
fn what_ends_one_rank_is_told_to_all() {
    let ends = among(3, |rank, ranks| {
        if rank == 1 {
            ranks.abort(&TrainerError::BadFile("train.bin: cannot read".into()));
            return None;
        }
        let error = ranks.barrier().unwrap_err();
        ranks.abort(&error);
        Some((error.exit_code(), error.to_string()))
    });
    let told = Some((3, "rank 1: train.bin: cannot read".to_owned()));
    assert_eq!(ends, [told.clone(), None, told]);
}

/// A write to a rank that is gone fails before its last word may have been read; the word is told all the same.
#[test]
fn the_last_word_of_a_rank_comes_before_the_failure_of_a_write() {
    for _ in 0..20 {
        let ends = among(2, |rank, ranks| {
            if rank == 1 {
                ranks.abort(&TrainerError::BadFile("train.bin: cannot read".into()));
                return None;
            }
            // Only sends.
            let mut send = || ranks.relay(&[0, 1], &mut |_, _| Ok(vec![0; 1 << 16]));
            let error = std::iter::repeat_with(&mut send).find_map(Result::err).unwrap();
            ranks.abort(&error);
            Some(error.to_string())
        });
        assert_eq!(ends, [Some("rank 1: train.bin: cannot read".to_owned()), None]);
    }
}
