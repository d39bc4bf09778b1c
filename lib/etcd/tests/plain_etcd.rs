//! The changes on real etcd processes on loopback addresses, with TLS.
//!
//! `HALITE_ETCD` names the program; `HALITE_ETCD_KILLS` is the number of times that each change is
//! killed (6, the whole proof is 200), and `HALITE_ETCD_SEED` repeats the random moments of a run.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod plain_etcd {
    mod alone;
    mod answers;
    mod chaos;
    mod foreign;
    mod grow_and_shrink;
    mod ids;
    mod learner;
    mod sight;
    mod site;
    mod space;
    mod writer;
}
