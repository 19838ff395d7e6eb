//! Somebody who looks on while virtual time passes: told what is logged, and asked before time goes on. Decides nothing.

use antiphon_types::{Event, Timestamp};

/// Who looks on. A closure over the number of jobs that are done is one.
pub trait Onlooker {
    /// So many jobs are done; says whether to go on.
    fn progress(&mut self, done: usize) -> bool;

    /// Something was logged.
    fn logged(&mut self, event: Event) {
        drop(event);
    }

    /// Nothing more happens before `next`; says whether to go on. May let real time pass.
    fn before(&mut self, next: Timestamp) -> bool {
        let _ = next;
        true
    }
}

impl<F: FnMut(usize) -> bool> Onlooker for F {
    fn progress(&mut self, done: usize) -> bool {
        self(done)
    }
}
