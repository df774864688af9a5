//! The due tasks of one pool, in the order of execution.
//!
//! Invariants:
//! * A task is in the queue at most once, which the task's state ensures.
//! * The highest waiting priority is served, unless another was passed over [`STARVATION_LIMIT`] times, which is then next. So
//!   no priority starves, and a high one waits for at most one task of each lower priority.
//! * Within a priority, owners are served round-robin, and the tasks of an owner first in, first out.

use crate::kind::Priority;
use std::collections::VecDeque;

/// Number of times that a waiting priority is passed over before it is served.
pub const STARVATION_LIMIT: u32 = 16;

/// A task, as the index of its slot.
pub(crate) type SlotIndex = u32;

#[derive(Debug, Default)]
pub(crate) struct RunQueue {
    len: usize,
    /// A task that was queued while the queue was empty. It stays here until it is taken or another task arrives,
    /// because this cache line is in use by both threads anyway.
    single: Option<QueuedTask>,
    classes: [PriorityClass; Priority::COUNT],
}

#[derive(Clone, Copy, Debug)]
struct QueuedTask {
    priority: Priority,
    owner: u16,
    task: SlotIndex,
}

/// The tasks of one priority.
#[derive(Debug, Default)]
struct PriorityClass {
    /// Tasks by owner. The deque of an owner stays when it is empty.
    owners: Vec<VecDeque<SlotIndex>>,
    /// Owners with tasks of this priority, in round-robin order.
    ring: VecDeque<u16>,
    /// Number of times that the priority was passed over since it was last served.
    passed_over: u32,
}

impl RunQueue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, priority: Priority, owner: u16, task: SlotIndex) {
        let waiting = QueuedTask {
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

    fn sort_in(&mut self, waiting: QueuedTask) {
        let QueuedTask {
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

    pub(crate) fn pop(&mut self) -> Option<SlotIndex> {
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
                lower.passed_over += 1;
            }
        }
        let class = &mut self.classes[chosen];
        class.passed_over = 0;
        let owner = class.ring.pop_front()?;
        let tasks = &mut class.owners[usize::from(owner)];
        let task = tasks.pop_front();
        if !tasks.is_empty() {
            class.ring.push_back(owner);
        }
        self.len -= 1;
        task
    }

    /// Returns the priority to serve next.
    fn choose(&self) -> Option<usize> {
        let waiting = |class: &&PriorityClass| !class.ring.is_empty();
        let starving =
            |class: &PriorityClass| !class.ring.is_empty() && class.passed_over >= STARVATION_LIMIT;
        self.classes
            .iter()
            .position(starving)
            .or_else(|| self.classes.iter().position(|class| waiting(&class)))
    }

    /// Removes all tasks of an owner.
    pub(crate) fn take_owner(&mut self, owner: u16, into: &mut Vec<SlotIndex>) {
        self.sort_in_single();
        for class in &mut self.classes {
            if let Some(tasks) = class.owners.get_mut(usize::from(owner)) {
                self.len -= tasks.len();
                into.extend(tasks.drain(..));
                class.ring.retain(|other| *other != owner);
                if class.ring.is_empty() {
                    class.passed_over = 0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn drain(queue: &mut RunQueue) -> Vec<SlotIndex> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn tasks_of_one_owner_run_first_in_first_out() {
        let mut queue = RunQueue::default();
        for task in 0..5 {
            queue.push(Priority::Normal, 0, task);
        }
        assert_eq!(drain(&mut queue), [0, 1, 2, 3, 4]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn owners_are_served_round_robin() {
        let mut queue = RunQueue::default();
        for task in 0..4 {
            queue.push(Priority::Normal, 7, task);
        }
        queue.push(Priority::Normal, 2, 10);
        queue.push(Priority::Normal, 2, 11);
        assert_eq!(drain(&mut queue), [0, 10, 1, 11, 2, 3]);
    }

    #[test]
    fn high_priority_does_not_wait_behind_a_batch_of_low_priority() {
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
        for _ in 0..3 * STARVATION_LIMIT {
            queue.push(Priority::High, 0, 0);
            order.push(queue.pop().unwrap());
        }
        let at = |task| order.iter().position(|other| *other == task).unwrap();
        assert_eq!(at(2), STARVATION_LIMIT as usize);
        assert_eq!(at(1), STARVATION_LIMIT as usize + 1);
    }

    #[test]
    fn take_owner_removes_only_the_tasks_of_that_owner() {
        let mut queue = RunQueue::default();
        for task in 0..12 {
            let priority = [Priority::High, Priority::Normal, Priority::Low][task as usize % 3];
            queue.push(priority, (task % 2) as u16, task);
        }
        let mut gone = Vec::new();
        queue.take_owner(1, &mut gone);
        assert_eq!(queue.len(), 6);
        let left: HashSet<SlotIndex> = drain(&mut queue).into_iter().collect();
        assert_eq!(left, HashSet::from([0, 2, 4, 6, 8, 10]));
        assert_eq!(gone.len(), 6);
        queue.take_owner(9, &mut gone);
        assert_eq!(gone.len(), 6);
    }
}
