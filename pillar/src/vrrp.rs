//! The priorities with which the control-plane hosts compete for the virtual address.

use std::collections::BTreeSet;

use halite_names::NodeName;

use crate::declaration::{Declaration, Document};
use crate::node::Node;
use crate::role::Role;

/// The priority of the first host. The others get the highest lower one that is free. It is the
/// highest that VRRP allows for a host that does not own the address: after another host resigns, a
/// host waits for (256 - priority) / 256 of an advertisement (RFC 5798, `Skew_Time`), during which
/// no host answers at the address.
const FIRST: u8 = 254;

impl Declaration {
    /// The VRRP priority of a host if this cluster's keepalived holds the virtual address; `None`
    /// for a host without a control plane. A recorded one stays. The hosts without a record get the
    /// unrecorded ones, in the order of their addresses; a host without an address comes last.
    #[must_use]
    pub fn vrrp_priority(&self, name: &str) -> Option<u8> {
        if !self.cluster.api_server.keeps_vip() {
            return None;
        }
        let planes = || {
            let nodes = self.nodes.iter();
            nodes.filter(|(_, node)| node.has(Role::ControlPlane))
        };
        if let Some(own) = recorded(
            self.nodes
                .get(name)
                .filter(|node| node.has(Role::ControlPlane))?,
        ) {
            return Some(own);
        }
        let taken: BTreeSet<u8> = planes().filter_map(|(_, node)| recorded(node)).collect();
        let mut without: Vec<(&NodeName, &Document<Node>)> = planes()
            .filter(|(_, node)| recorded(node).is_none())
            .collect();
        // As texts: the order of earlier versions, which recorded no priority.
        without.sort_by_key(|(other, node)| {
            let address = node.control_plane();
            (
                address.is_none(),
                address.map(|address| address.to_string()),
                *other,
            )
        });
        let rank = without
            .iter()
            .position(|(other, _)| other.as_str() == name)?;
        (1..=FIRST)
            .rev()
            .filter(|free| !taken.contains(free))
            .nth(rank)
    }
}

fn recorded(node: &Node) -> Option<u8> {
    node.resolved.as_ref()?.vrrp_priority
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::load::{Text, Texts, load};
    use crate::validate::Context;

    /// Control planes by name, last octet of the address and record.
    fn declaration(vip: &str, hosts: &[(&str, u8, Option<u8>)]) -> Declaration {
        let text = |file: &str, text: String| Text {
            file: file.to_owned(),
            text,
        };
        let node = |(name, octet, priority): &(&str, u8, Option<u8>)| {
            let bootstrap = if *name == "cp-1" {
                "bootstrap, registry, "
            } else {
                ""
            };
            let mut document = format!(
                "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [{bootstrap}control-plane, etcd]\n\
                 resolved:\n  controlPlane: 10.0.0.{octet}\n  workloadPlane: 10.0.0.{octet}\n"
            );
            if let Some(priority) = priority {
                writeln!(document, "  vrrpPriority: {priority}").unwrap();
            }
            text(&format!("nodes/{name}.yaml"), document)
        };
        let worker = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: worker-1}\nroles: [worker]\naddress: 10.0.0.99\n";
        let mut nodes: Vec<Text> = hosts.iter().map(node).collect();
        nodes.push(text("nodes/worker-1.yaml", worker.to_owned()));
        let cluster = format!(
            "apiVersion: halite/v1\nkind: Cluster\nmetadata: {{name: test}}\nkubernetes: {{version: \"1.36\"}}\n\
             networks:\n  controlPlane: {{cidrs: [10.0.0.0/24]}}\n{vip}"
        );
        let texts = Texts {
            cluster: text("cluster.yaml", cluster),
            nodes,
            ..Texts::default()
        };
        load(&texts, &Context::default()).unwrap()
    }

    const VIP: &str = "apiServer: {vip: 10.0.0.100}\n";

    fn all(declaration: &Declaration) -> Vec<(&str, Option<u8>)> {
        let names = declaration.nodes.keys().map(NodeName::as_str);
        names
            .map(|name| (name, declaration.vrrp_priority(name)))
            .collect()
    }

    #[test]
    fn a_record_stays_when_another_host_comes_or_goes() {
        let new = declaration(VIP, &[("cp-1", 11, None), ("cp-2", 12, None)]);
        assert_eq!(
            all(&new),
            [("cp-1", Some(254)), ("cp-2", Some(253)), ("worker-1", None)]
        );
        // A new host with the lowest address takes a free priority, and changes no other.
        let three = declaration(
            VIP,
            &[
                ("cp-1", 11, Some(254)),
                ("cp-2", 12, Some(253)),
                ("cp-3", 10, None),
            ],
        );
        assert_eq!(three.vrrp_priority("cp-3"), Some(252));
        assert_eq!(three.vrrp_priority("cp-2"), Some(253));
        // The priority of a host that has left is free again.
        let replaced = declaration(
            VIP,
            &[
                ("cp-1", 11, Some(254)),
                ("cp-2", 12, None),
                ("cp-3", 10, Some(252)),
            ],
        );
        assert_eq!(replaced.vrrp_priority("cp-2"), Some(253));
    }

    #[test]
    fn without_keepalived_no_host_has_a_priority() {
        let hosts = [("cp-1", 11, Some(254)), ("cp-2", 12, None)];
        for vip in ["", "apiServer: {vip: 10.0.0.100, keepalived: false}\n"] {
            let declaration = declaration(vip, &hosts);
            let priorities = all(&declaration);
            assert!(
                priorities.iter().all(|(_, priority)| priority.is_none()),
                "{vip}: {priorities:?}"
            );
        }
    }
}
