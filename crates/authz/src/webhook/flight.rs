//! Identical questions share one call.
//!
//! The first to ask is the pilot and makes the call; whoever asks the same meanwhile is a passenger and waits for its outcome. A
//! pilot that goes away before it lands wakes its passengers, and one of them becomes the next pilot.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Questions that are being asked.
pub(super) struct Flights<T> {
    under_way: Mutex<HashMap<String, Arc<Mutex<Flight<T>>>>>,
}

struct Flight<T> {
    state: State<T>,
    waiting: Vec<Waker>,
}

enum State<T> {
    UnderWay,
    Landed(T),
    /// The pilot went away.
    Lost,
}

/// Who makes the call, and who waits for it.
pub(super) enum Seat<'a, T> {
    Pilot(Pilot<'a, T>),
    Passenger(Passenger<T>),
}

/// Makes the call.
pub(super) struct Pilot<'a, T> {
    flights: &'a Flights<T>,
    key: String,
    flight: Arc<Mutex<Flight<T>>>,
}

/// Waits for the outcome; there is none if the pilot went away.
pub(super) struct Passenger<T> {
    flight: Arc<Mutex<Flight<T>>>,
}

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Flights { under_way: Mutex::default() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Flights<T> {
    /// Takes a seat for a question.
    pub(super) fn join(&self, key: &str) -> Seat<'_, T> {
        let mut under_way = lock(&self.under_way);
        if let Some(flight) = under_way.get(key) {
            return Seat::Passenger(Passenger { flight: flight.clone() });
        }
        let flight = Arc::new(Mutex::new(Flight { state: State::UnderWay, waiting: Vec::new() }));
        under_way.insert(key.to_owned(), flight.clone());
        Seat::Pilot(Pilot { flights: self, key: key.to_owned(), flight })
    }
}

impl<T> Pilot<'_, T> {
    /// Tells the passengers.
    pub(super) fn land(self, outcome: T) {
        lock(&self.flight).state = State::Landed(outcome);
    }
}

impl<T> Drop for Pilot<'_, T> {
    fn drop(&mut self) {
        lock(&self.flights.under_way).remove(&self.key);
        let mut flight = lock(&self.flight);
        if matches!(flight.state, State::UnderWay) {
            flight.state = State::Lost;
        }
        for waker in flight.waiting.drain(..) {
            waker.wake();
        }
    }
}

impl<T: Clone> Future for Passenger<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut flight = lock(&self.flight);
        match &flight.state {
            State::UnderWay => {}
            State::Landed(outcome) => return Poll::Ready(Some(outcome.clone())),
            State::Lost => return Poll::Ready(None),
        }
        if !flight.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            flight.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}
