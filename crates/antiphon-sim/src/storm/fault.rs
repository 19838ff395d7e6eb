//! What may go wrong in a storm, and how much of it a seed wants.

use super::draw::Draw;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $text:literal),+ $(,)?) => {
        /// A kind of fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $($(#[$doc])* $name,)+
        }

        impl Fault {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The name in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

faults! {
    /// A report never arrives; only a later look finds what it said.
    LostReport = "lost_report",
    /// A report takes up to an hour, and others overtake it.
    LateReport = "late_report",
    /// A report arrives twice.
    DoubledReport = "doubled_report",
    /// A report that arrived long ago arrives again.
    OldReport = "old_report",
    /// A node is no longer offered; what runs there may run on, or die with it.
    NodeDown = "node_down",
    /// A GPU of a node breaks.
    GpuLost = "gpu_lost",
    /// Nobody reaches the backend: orders wait, looks fail.
    Outage = "outage",
    /// A launch fails, wholly or for some of its tasks.
    FailedLaunch = "failed_launch",
    /// The server ends before a commit.
    CrashBeforeCommit = "crash_before_commit",
    /// A commit fails; nothing of it is there afterwards, as a torn write leaves it.
    TornCommit = "torn_commit",
    /// A commit is durable, and its sync is reported as failed.
    UnreportedCommit = "unreported_commit",
    /// The server ends after a commit, before all of its actions are given out.
    CrashAfterCommit = "crash_after_commit",
    /// The server ends between two of its orders to the backend.
    CrashBetweenOrders = "crash_between_orders",
    /// A task ends by itself, in any class of exit.
    FailedTask = "failed_task",
    /// Tasks that pay no heed to SIGTERM and to directives.
    Stubborn = "stubborn",
    /// Users cancel, hold, release and direct.
    User = "user",
    /// Operators preempt, drain, plan maintenance and pause.
    Operator = "operator",
    /// Settings and teams change.
    Settings = "settings",
    /// Findings that nobody expects.
    Finding = "finding",
}

/// How much of each fault a seed wants; some are off.
pub(super) struct Weights(Vec<u32>);

impl Weights {
    pub(super) fn draw(draw: &mut Draw) -> Self {
        let weight = |_: &Fault| if draw.one_in(3) { 0 } else { draw.count(1, 4) };
        Self(Fault::ALL.iter().map(weight).collect())
    }

    /// Of one fault; 0 where it is off.
    pub(super) fn of(&self, fault: Fault) -> u32 {
        let place = Fault::ALL.iter().position(|other| *other == fault);
        self.0[place.expect("it is one of all")]
    }

    /// Those that are on.
    pub(super) fn on(&self) -> impl Iterator<Item = Fault> {
        let all = Fault::ALL.iter().copied();
        all.zip(&self.0)
            .filter(|(_, weight)| **weight > 0)
            .map(|(fault, _)| fault)
    }
}
