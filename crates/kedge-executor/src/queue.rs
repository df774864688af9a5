//! The due tasks of one pool, in the order in which they should run.
//!
//! Invariants:
//! * A task is in it at most once (the task's state sees to that).
//! * Of the waiting priorities the highest is served, but one that was passed over [`PATIENCE`] times comes next: so
//!   none waits for ever, and a high one waits for at most one of each lower.
//! * Within a priority the owners take turns; within an owner it is first come, first served.

use crate::kind::Priority;
use std::collections::VecDeque;

/// So often a waiting priority is passed over before it is served once.
pub const PATIENCE: u32 = 16;

/// A task, by its place in the slab.
pub(crate) type Index = u32;

#[derive(Debug, Default)]
pub(crate) struct RunQueue {
    len: usize,
    /// A task that came while nothing else waited. It stays here, on the memory that who queues and who runs it touch
    /// anyway, until it is taken or another comes.
    single: Option<Waiting>,
    classes: [Class; Priority::COUNT],
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    priority: Priority,
    owner: u16,
    task: Index,
}

/// The tasks of one priority.
#[derive(Debug, Default)]
struct Class {
    /// By owner; an owner's deque stays when it is empty.
    owners: Vec<VecDeque<Index>>,
    /// Owners that have tasks here, in the order of their turns.
    ring: VecDeque<u16>,
    /// How often it was passed over since it was served.
    passed: u32,
}

impl RunQueue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, priority: Priority, owner: u16, task: Index) {
        let waiting = Waiting {
            priority,
            owner,
            task,
        };
        self.len += 1;
        if self.len == 1 {
            self.single = Some(waiting);
            return;
        }
        self.sort_in_single();
        self.sort_in(waiting);
    }

    fn sort_in_single(&mut self) {
        if let Some(single) = self.single.take() {
            self.sort_in(single);
        }
    }

    fn sort_in(&mut self, waiting: Waiting) {
        let Waiting {
            priority,
            owner,
            task,
        } = waiting;
        let class = &mut self.classes[priority as usize];
        let at = usize::from(owner);
        if class.owners.len() <= at {
            class.owners.resize_with(at + 1, VecDeque::new);
        }
        let tasks = &mut class.owners[at];
        if tasks.is_empty() {
            class.ring.push_back(owner);
        }
        tasks.push_back(task);
    }

    pub(crate) fn pop(&mut self) -> Option<Index> {
        if self.len == 0 {
            return None;
        }
        if let Some(single) = self.single.take() {
            self.len = 0;
            return Some(single.task);
        }
        let chosen = self.choose()?;
        for lower in &mut self.classes[chosen + 1..] {
            if !lower.ring.is_empty() {
                lower.passed += 1;
            }
        }
        let class = &mut self.classes[chosen];
        class.passed = 0;
        let owner = class.ring.pop_front()?;
        let tasks = &mut class.owners[usize::from(owner)];
        let task = tasks.pop_front();
        if !tasks.is_empty() {
            class.ring.push_back(owner);
        }
        self.len -= 1;
        task
    }

    /// The class whose turn it is.
    fn choose(&self) -> Option<usize> {
        let waiting = |class: &&Class| !class.ring.is_empty();
        let starving = |class: &Class| !class.ring.is_empty() && class.passed >= PATIENCE;
        self.classes
            .iter()
            .position(starving)
            .or_else(|| self.classes.iter().position(|class| waiting(&class)))
    }

    /// Takes out all that an owner has here.
    pub(crate) fn strip(&mut self, owner: u16, into: &mut Vec<Index>) {
        self.sort_in_single();
        for class in &mut self.classes {
            if let Some(tasks) = class.owners.get_mut(usize::from(owner)) {
                self.len -= tasks.len();
                into.extend(tasks.drain(..));
                class.ring.retain(|other| *other != owner);
                if class.ring.is_empty() {
                    class.passed = 0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn drain(queue: &mut RunQueue) -> Vec<Index> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn one_owner_is_served_in_order() {
        let mut queue = RunQueue::default();
        for task in 0..5 {
            queue.push(Priority::Normal, 0, task);
        }
        assert_eq!(drain(&mut queue), [0, 1, 2, 3, 4]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn owners_take_turns() {
        let mut queue = RunQueue::default();
        for task in 0..4 {
            queue.push(Priority::Normal, 7, task);
        }
        queue.push(Priority::Normal, 2, 10);
        queue.push(Priority::Normal, 2, 11);
        assert_eq!(drain(&mut queue), [0, 10, 1, 11, 2, 3]);
    }

    #[test]
    fn a_high_one_does_not_wait_behind_a_batch_of_low_ones() {
        let mut queue = RunQueue::default();
        for task in 0..100 {
            queue.push(Priority::Low, 0, task);
        }
        assert_eq!(queue.pop(), Some(0));
        queue.push(Priority::High, 0, 1_000);
        assert_eq!(queue.pop(), Some(1_000));
        assert_eq!(queue.pop(), Some(1));
    }

    #[test]
    fn no_priority_starves() {
        let mut queue = RunQueue::default();
        queue.push(Priority::Low, 0, 1);
        queue.push(Priority::Normal, 0, 2);
        let mut order = Vec::new();
        for _ in 0..3 * PATIENCE {
            queue.push(Priority::High, 0, 0);
            order.push(queue.pop().unwrap());
        }
        let at = |task| order.iter().position(|other| *other == task).unwrap();
        assert_eq!(at(2), PATIENCE as usize);
        assert_eq!(at(1), PATIENCE as usize + 1);
    }

    #[test]
    fn an_owner_is_stripped_and_the_rest_stays() {
        let mut queue = RunQueue::default();
        for task in 0..12 {
            let priority = [Priority::High, Priority::Normal, Priority::Low][task as usize % 3];
            queue.push(priority, (task % 2) as u16, task);
        }
        let mut gone = Vec::new();
        queue.strip(1, &mut gone);
        assert_eq!(queue.len(), 6);
        let left: HashSet<Index> = drain(&mut queue).into_iter().collect();
        assert_eq!(left, HashSet::from([0, 2, 4, 6, 8, 10]));
        assert_eq!(gone.len(), 6);
        queue.strip(9, &mut gone);
        assert_eq!(gone.len(), 6);
    }
}
