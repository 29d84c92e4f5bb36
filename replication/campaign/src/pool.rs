//! Jobs spread over places, one at a time in each: the threads that start trainers. Knows nothing of what a job is.
//!
//! A place is what `--device` of the trainer says: `cuda:0`, or `cpu`, of which there may be several. A job that a place lost (a killed
//! process, a device that is gone) is tried once more on another device, and a place that loses two jobs in a row gets no more.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How one attempt at a job ended.
#[derive(Debug)]
pub enum Attempt<T> {
    /// With a result, good or bad, that another place would give, too.
    Done(T),
    /// The place may be to blame; the result to report if there is no other place.
    Lost(T),
}

struct Job<T> {
    number: usize,
    /// Where it was lost, and what to report when nobody else takes it.
    lost: Option<(String, T)>,
}

struct State<T> {
    waiting: VecDeque<Job<T>>,
    at_work: usize,
    /// Places that still take jobs.
    open: Vec<bool>,
    ended: Vec<(usize, T)>,
}

/// Carries out `jobs` (numbers that mean something to `attempt`) in `places`. `go_on` is asked before each start; `say` gets a line when
/// a job moves or a place is given up. Jobs that were not started are not in the result.
pub fn spread<T: Send>(
    jobs: impl IntoIterator<Item = usize>,
    places: &[String],
    go_on: &(dyn Fn() -> bool + Sync),
    attempt: &(dyn Fn(usize, &str) -> Attempt<T> + Sync),
    say: &(dyn Fn(&str) + Sync),
) -> Vec<(usize, T)> {
    let waiting = jobs.into_iter().map(|number| Job { number, lost: None }).collect();
    let state = Mutex::new(State { waiting, at_work: 0, open: vec![true; places.len()], ended: Vec::new() });
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        for (place, device) in places.iter().enumerate() {
            let work = move || {
                let mut lost_in_a_row = 0;
                while go_on() {
                    let Some(job) = take(&mut lock(), device) else {
                        // A job at work elsewhere may yet come here.
                        if lock().at_work == 0 {
                            return;
                        }
                        std::thread::sleep(Duration::from_millis(20));
                        continue;
                    };
                    let result = attempt(job.number, device);
                    let mut state = lock();
                    state.at_work -= 1;
                    match result {
                        Attempt::Done(result) => {
                            lost_in_a_row = 0;
                            state.ended.push((job.number, result));
                        }
                        Attempt::Lost(result) => {
                            lost_in_a_row += 1;
                            let elsewhere = places.iter().zip(&state.open).any(|(other, open)| *open && other != device);
                            if job.lost.is_none() && elsewhere {
                                say(&format!("a run was lost on {device}; it is tried once more on another device"));
                                state.waiting.push_front(Job { number: job.number, lost: Some((device.clone(), result)) });
                            } else {
                                state.ended.push((job.number, result));
                            }
                            if lost_in_a_row == 2 && places.iter().any(|other| other != device) {
                                say(&format!("{device} lost two runs in a row; nothing more is started there"));
                                state.open[place] = false;
                                return;
                            }
                        }
                    }
                }
            };
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, work) {
                say(&format!("nothing is started on {device}: the system gives no thread ({error})"));
                lock().open[place] = false;
            }
        }
    });
    let State { waiting, mut ended, .. } = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    ended.extend(waiting.into_iter().filter_map(|job| Some((job.number, job.lost?.1))));
    ended
}

/// The first job that was not lost on this device.
fn take<T>(state: &mut State<T>, device: &str) -> Option<Job<T>> {
    let index = state.waiting.iter().position(|job| job.lost.as_ref().is_none_or(|(lost_on, _)| lost_on != device))?;
    state.at_work += 1;
    state.waiting.remove(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn places(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Results in the order of jobs, and where each attempt was made.
    fn run(jobs: usize, names: &[&str], attempt: impl Fn(usize, &str) -> Attempt<String> + Sync) -> (Vec<(usize, String)>, Vec<String>) {
        let attempts = Mutex::new(Vec::new());
        let noted = |job: usize, place: &str| {
            attempts.lock().unwrap().push(format!("{job} {place}"));
            std::thread::sleep(Duration::from_millis(5));
            attempt(job, place)
        };
        let mut ended = spread(0..jobs, &places(names), &|| true, &noted, &|_| ());
        ended.sort();
        (ended, attempts.into_inner().unwrap())
    }

    #[test]
    fn every_job_is_done_once_and_every_place_works() {
        let (ended, attempts) = run(20, &["cuda:0", "cuda:1", "cuda:3"], |job, _| Attempt::Done(job.to_string()));
        assert_eq!(ended, (0..20).map(|job| (job, job.to_string())).collect::<Vec<_>>());
        assert_eq!(attempts.len(), 20);
        for place in ["cuda:0", "cuda:1", "cuda:3"] {
            assert!(attempts.iter().any(|attempt| attempt.ends_with(place)), "{place} did nothing: {attempts:?}");
        }
    }

    #[test]
    fn a_lost_job_is_tried_once_on_another_device() {
        let (ended, attempts) = run(6, &["cuda:0", "cuda:1"], |job, place| match job {
            3 => Attempt::Lost(format!("lost on {place}")),
            _ => Attempt::Done("done".to_owned()),
        });
        let of_three: Vec<&String> = attempts.iter().filter(|attempt| attempt.starts_with("3 ")).collect();
        assert_eq!(of_three.len(), 2, "{attempts:?}");
        assert_ne!(of_three[0], of_three[1], "both attempts on one device");
        assert!(ended[3].1.starts_with("lost on"));
        assert!(ended.iter().filter(|(job, _)| *job != 3).all(|(_, result)| result == "done"));
        let (ended, attempts) = run(3, &["cpu", "cpu"], |_, place| Attempt::Lost(place.to_owned()));
        assert_eq!((ended.len(), attempts.len()), (3, 3), "another slot of the same processor is no other device");
    }

    #[test]
    fn a_dead_device_stops_taking_jobs_and_loses_none() {
        let (ended, attempts) = run(12, &["cuda:0", "cuda:1"], |job, place| match place {
            "cuda:1" => Attempt::Lost("lost".to_owned()),
            _ => Attempt::Done(job.to_string()),
        });
        assert_eq!(ended, (0..12).map(|job| (job, job.to_string())).collect::<Vec<_>>());
        assert!(attempts.iter().filter(|attempt| attempt.ends_with("cuda:1")).count() <= 2, "{attempts:?}");
    }

    #[test]
    fn when_every_device_is_dead_the_rest_is_not_started() {
        let (ended, attempts) = run(9, &["cuda:0", "cuda:1"], |_, _| Attempt::Lost("lost".to_owned()));
        assert!(attempts.len() <= 4 && ended.len() <= 4 && !ended.is_empty(), "{ended:?} {attempts:?}");
    }

    #[test]
    fn nothing_starts_once_it_may_not() {
        let started = AtomicUsize::new(0);
        let attempt = |job: usize, _: &str| {
            started.fetch_add(1, Ordering::Relaxed);
            Attempt::Done(job)
        };
        let ended = spread(0..9, &places(&["cpu"]), &|| started.load(Ordering::Relaxed) < 4, &attempt, &|_| ());
        assert_eq!(ended.len(), 4);
    }
}
