//! The changes on the cluster in memory: their effects, their refusals, and that each can be
//! interrupted after every write and run again.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod changes {
    mod alone;
    mod kill_points;
    mod refusals;
    mod sight;
    mod space;
    mod support;
}
