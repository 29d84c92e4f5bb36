//! Jobs spread over places, one at a time in each: the threads that start trainers. Knows nothing of what a job is.
//!
//! A place is what `--device` of the trainer says: `cuda:0`, or `cpu`, of which there may be several. A job that a place lost (a killed
//! process, a device that is gone) is tried once more on another device, and a place that loses two jobs in a row gets no more.
//! A job near its end may hand its place on, so that the next one starts beside what is left of it: never more than two at once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How one attempt at a job ended.
#[derive(Debug)]
pub enum Attempt<T> {
    /// With a result, good or bad, that another place would give, too.
    Done(T),
    /// The place may be to blame; the result to report if there is no other place.
    Lost(T),
}

/// A job's hold of its place.
pub struct Turn<'a>(&'a (dyn Fn() + Sync));

impl Turn<'_> {
    /// The next job may start there, although this one has not ended.
    pub fn hand_on(&self) {
        (self.0)();
    }
}

struct Job<T> {
    number: usize,
    /// Where it was lost, and what to report when nobody else takes it.
    lost: Option<(String, T)>,
}

struct State<T> {
    waiting: VecDeque<Job<T>>,
    at_work: usize,
    places: Vec<Place>,
    ended: Vec<(usize, T)>,
}

struct Place {
    device: String,
    /// It still takes jobs.
    open: bool,
    /// A job holds it, and has not handed it on.
    held: bool,
    lost_in_a_row: usize,
}

/// Carries out `jobs` (numbers that mean something to `attempt`) in `places`. `go_on` is asked before each start; `say` gets a line when
/// a job moves or a place is given up. What `attempt` is given last hands its place on early. Jobs that were not started are not in the result.
pub fn spread<T: Send>(
    jobs: impl IntoIterator<Item = usize>,
    places: &[String],
    go_on: &(dyn Fn() -> bool + Sync),
    attempt: &(dyn Fn(usize, &str, &Turn<'_>) -> Attempt<T> + Sync),
    say: &(dyn Fn(&str) + Sync),
) -> Vec<(usize, T)> {
    let place = |device: &String| Place { device: device.clone(), open: true, held: false, lost_in_a_row: 0 };
    let waiting = jobs.into_iter().map(|number| Job { number, lost: None }).collect();
    let state = State { waiting, at_work: 0, places: places.iter().map(place).collect(), ended: Vec::new() };
    let work = Work { state: Mutex::new(state), changed: Condvar::new(), go_on, attempt, say };
    std::thread::scope(|scope| {
        // One thread for the job that holds a place, one for the next.
        for place in (0..places.len()).flat_map(|place| [place; 2]) {
            let work = &work;
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, move || work.of(place)) {
                say(&format!("fewer runs are started on {}: the system gives no thread ({error})", places[place]));
            }
        }
    });
    let State { waiting, mut ended, .. } = work.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    ended.extend(waiting.into_iter().filter_map(|job| Some((job.number, job.lost?.1))));
    ended
}

struct Work<'a, T> {
    state: Mutex<State<T>>,
    /// A place is free, or a job has ended.
    changed: Condvar,
    go_on: &'a (dyn Fn() -> bool + Sync),
    attempt: &'a (dyn Fn(usize, &str, &Turn<'_>) -> Attempt<T> + Sync),
    say: &'a (dyn Fn(&str) + Sync),
}

impl<T: Send> Work<'_, T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Jobs in one place, until there are none, or none may be started.
    fn of(&self, place: usize) {
        while let Some((job, device)) = self.next(place) {
            let handed_on = AtomicBool::new(false);
            let hand_on = || {
                if !handed_on.swap(true, Ordering::Relaxed) {
                    self.lock().places[place].held = false;
                    self.changed.notify_all();
                }
            };
            let result = (self.attempt)(job.number, &device, &Turn(&hand_on));
            let mut state = self.lock();
            self.took(&mut state, place, job, result);
            // If it was handed on, another job may hold it now.
            if !handed_on.load(Ordering::Relaxed) {
                state.places[place].held = false;
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits for the place to be free, and for a job.
    fn next(&self, place: usize) -> Option<(Job<T>, String)> {
        let mut state = self.lock();
        while state.places[place].open && (self.go_on)() {
            if !state.places[place].held {
                let device = state.places[place].device.clone();
                if let Some(job) = take(&mut state, &device) {
                    state.places[place].held = true;
                    return Some((job, device));
                }
                // A job at work elsewhere may yet come here.
                if state.at_work == 0 {
                    return None;
                }
            }
            // `go_on` may change without a word.
            (state, _) = self.changed.wait_timeout(state, Duration::from_millis(20)).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    fn took(&self, state: &mut State<T>, place: usize, job: Job<T>, result: Attempt<T>) {
        state.at_work -= 1;
        let device = state.places[place].device.clone();
        let result = match result {
            Attempt::Done(result) => {
                state.places[place].lost_in_a_row = 0;
                state.ended.push((job.number, result));
                return;
            }
            Attempt::Lost(result) => result,
        };
        state.places[place].lost_in_a_row += 1;
        if job.lost.is_none() && state.places.iter().any(|other| other.open && other.device != device) {
            (self.say)(&format!("a run was lost on {device}; it is tried once more on another device"));
            state.waiting.push_front(Job { number: job.number, lost: Some((device.clone(), result)) });
        } else {
            state.ended.push((job.number, result));
        }
        if state.places[place].lost_in_a_row >= 2 && state.places[place].open && state.places.iter().any(|other| other.device != device) {
            (self.say)(&format!("{device} lost two runs in a row; nothing more is started there"));
            state.places[place].open = false;
        }
    }
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
        let noted = |job: usize, place: &str, _: &Turn<'_>| {
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
        let attempt = |job: usize, _: &str, _: &Turn<'_>| {
            started.fetch_add(1, Ordering::Relaxed);
            Attempt::Done(job)
        };
        let ended = spread(0..9, &places(&["cpu"]), &|| started.load(Ordering::Relaxed) < 4, &attempt, &|_| ());
        assert_eq!(ended.len(), 4);
    }

    #[test]
    fn a_place_that_is_handed_on_holds_two_jobs_and_never_three() {
        let (at_work, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let attempt = |job: usize, _: &str, turn: &Turn<'_>| {
            most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(5));
            if job.is_multiple_of(2) {
                turn.hand_on();
                turn.hand_on();
                std::thread::sleep(Duration::from_millis(30));
            }
            at_work.fetch_sub(1, Ordering::SeqCst);
            Attempt::Done(job)
        };
        let mut ended = spread(0..12, &places(&["cuda:0"]), &|| true, &attempt, &|_| ());
        ended.sort_unstable();
        assert_eq!(ended, (0..12).map(|job| (job, job)).collect::<Vec<_>>());
        assert_eq!(most.into_inner(), 2);
    }
}
