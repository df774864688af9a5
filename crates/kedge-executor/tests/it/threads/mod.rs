//! With threads.

mod end;
mod held_up;
mod wakes;
