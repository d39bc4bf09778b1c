//! The Kubernetes and etcd side of the master: the API of a cluster and its objects, nodes that are
//! drained or removed, the members of etcd, the pod network, and the losses with a leaving host.
//!
//! - Inputs: the declared state, the API servers and the members of etcd.
//! - Outputs: objects by server-side apply, answers about nodes, members and volumes.
//! - It sends nothing to a minion and does not depend on jobs.

pub mod etcd;
pub mod kubernetes;
pub mod leaving;
pub mod pod_network;
