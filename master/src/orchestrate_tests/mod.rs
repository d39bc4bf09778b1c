//! Tests of orchestrations on a whole master, which only this crate has: the shipped ones, and the
//! steps that wait, stall, are cancelled, or are cut off by the end of the master.

mod adding_tests;
mod back_tests;
mod back_twice_tests;
mod ca_identities_tests;
mod ca_tests;
mod cancel_tests;
mod destroy_tests;
mod encryption_fixture;
mod encryption_tests;
mod etcd_tests;
mod fixture;
mod gates_tests;
mod hooks_tests;
mod isolated_tests;
mod kubelet_findings_tests;
mod leave_tests;
mod node_tests;
mod obstacle_tests;
mod other_options_tests;
mod outdated_minions_tests;
mod pause_tests;
mod pod_network_tests;
mod reboot_tests;
mod reserved_tests;
mod roles_leave_tests;
mod roles_tests;
mod rotation_hosts_tests;
mod rotation_tests;
mod run_tests;
mod shown_plan_tests;
mod stall_fixture;
mod stall_tests;
pub(crate) mod upgrade_fixture;
mod upgrade_interrupted_tests;
mod vip_tests;
