//! The changes on the cluster in memory: what they do, what they refuse, and that each can be
//! stopped after every write and run again.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod changes {
    mod alone;
    mod kill_points;
    mod refusals;
    mod sight;
    mod space;
    mod support;
}
