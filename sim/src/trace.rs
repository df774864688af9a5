//! A trace of a history, with a line for each event, for the analysis of a failure.
//!
//! ```text
//!    182.431 ms  n_1     vBucket 0: stream from n_0 begins behind 12
//! ```
//!
//! The time is that of the history, followed by the node or other subject. Without a listener, no line is made.

use std::cell::{Cell, RefCell};
use std::fmt;

type TraceListener = Box<dyn FnMut(&str)>;

thread_local! {
    static TOLD: RefCell<Option<TraceListener>> = const { RefCell::new(None) };
    static TIME_NS: Cell<u64> = const { Cell::new(0) };
}

/// Calls `told` with a line for each event of the histories that this thread runs from now on.
pub fn trace(told: impl FnMut(&str) + 'static) {
    TOLD.set(Some(Box::new(told)));
}

/// Sets the time since the start of the history, in nanoseconds.
pub(crate) fn set_time(ns: u64) {
    TIME_NS.set(ns);
}

pub(crate) fn is_on() -> bool {
    TOLD.with_borrow(Option::is_some)
}

pub(crate) fn tell(who: &dyn fmt::Display, what: fmt::Arguments<'_>) {
    let ms = TIME_NS.get() as f64 / 1e6;
    let line = format!("{ms:>10.3} ms  {:<6}  {what}", who.to_string());
    TOLD.with_borrow_mut(|told| {
        if let Some(told) = told {
            told(&line);
        }
    });
}

/// `note!(who, "what {happened}")`: reports an event if there is a listener.
macro_rules! note {
    ($who:expr, $($what:tt)+) => {
        if $crate::trace::is_on() {
            $crate::trace::tell(&$who, format_args!($($what)+));
        }
    };
}

pub(crate) use note;
