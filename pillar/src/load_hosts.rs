//! Reads a list of hosts, and reports every problem of it at once.

use std::collections::BTreeMap;

use halite_document::Problem;
use halite_names::NodeName;

use crate::host_list::{HostList, ListedHost};
use crate::load::{Text, document};
use crate::schema;

/// Reads a list of hosts.
///
/// # Errors
/// All problems of the file, sorted by place: its fields, invalid names, and names and addresses
/// that two hosts have.
pub fn load_hosts(text: &Text) -> Result<Vec<ListedHost>, Vec<Problem>> {
    let mut problems = Vec::new();
    let list = document::<HostList>(text, schema::host_list(), &mut problems);
    let Some(list) = list else {
        return Err(problems);
    };
    if list.hosts.is_empty() && list.source.is_sound("hosts") {
        let empty = list.source.problem("hosts", "the list has no host");
        problems.push(empty.hint("for example `- {name: worker-1, address: 10.0.0.12}`"));
    }
    let (mut names, mut addresses) = (BTreeMap::new(), BTreeMap::new());
    for (number, host) in list.hosts.iter().enumerate() {
        let path = format!("hosts[{number}].name");
        if list.source.is_sound(&path) {
            let line = list.source.position(&path).line;
            if let Err(error) = host.name.parse::<NodeName>() {
                problems.push(list.source.problem(&path, error.to_string()));
            }
            if let Some(first) = names.insert(host.name.as_str(), line) {
                let message = format!("line {first} already has the name {}", host.name);
                let problem = list.source.problem(&path, message);
                problems.push(problem.hint("give one of them another name, or remove it"));
            }
        }
        let path = format!("hosts[{number}].address");
        if let (Some(address), true) = (host.address, list.source.is_sound(&path)) {
            let line = list.source.position(&path).line;
            if let Some(first) = addresses.insert(address, line) {
                let message = format!("line {first} already has the address {address}");
                let problem = list.source.problem(&path, message);
                problems.push(problem.hint("give one of them another address"));
            }
        }
    }
    if problems.is_empty() {
        return Ok(list.value.hosts);
    }
    problems.sort();
    Err(problems)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::role::Role;

    fn read_text(text: &str) -> Result<Vec<ListedHost>, String> {
        let text = Text {
            file: "hosts.yaml".to_owned(),
            text: text.to_owned(),
        };
        let lines = |problems: Vec<Problem>| {
            let lines = problems.iter().map(ToString::to_string);
            lines.collect::<Vec<_>>().join("\n")
        };
        load_hosts(&text).map_err(lines)
    }

    const HEAD: &str = "apiVersion: halite/v1\nkind: HostList\nhosts:\n";

    #[test]
    fn a_host_has_the_fields_of_a_node_document_and_is_a_worker_by_default() {
        let hosts = read_text(&format!(
            "{HEAD}- {{name: worker-1, address: 10.0.0.12}}\n- name: cp-2\n  roles: [control-plane, etcd]\n  \
             labels: {{disk: ssd}}\n  taints: []\n  custom: {{rack: 7}}\n"
        ))
        .unwrap();
        assert_eq!(hosts[0].roles, [Role::Worker]);
        assert_eq!(hosts[0].address, Some(Ipv4Addr::new(10, 0, 0, 12)));
        assert_eq!(hosts[1].roles, [Role::ControlPlane, Role::Etcd]);
        assert_eq!(hosts[1].labels["disk"], "ssd");
        assert_eq!(hosts[1].taints.as_deref(), Some(&[][..]));
        assert_eq!(hosts[1].custom["rack"], 7);
    }

    #[test]
    fn one_report_has_all_problems_with_their_places() {
        let said = read_text(&format!(
            "{HEAD}- {{name: worker-1, address: 10.0.0.12}}\n- {{name: worker_2, role: worker}}\n\
             - {{name: worker-1, address: 10.0.0.12}}\n- {{name: w, address: 10.0.0, roles: [wrker]}}\n- {{name: master}}\n"
        ))
        .unwrap_err();
        for place in [
            "hosts.yaml:5:10: hosts[1].name: ",
            "hosts.yaml:5:20: hosts[1].role: ",
            "hosts.yaml:6:10: hosts[2].name: line 4 already has the name worker-1",
            "hosts.yaml:6:29: hosts[2].address: line 4 already has the address 10.0.0.12",
            "hosts.yaml:7:22: hosts[3].address: ",
            "hosts.yaml:7:38: hosts[3].roles[0]: ",
            "hosts.yaml:8:10: hosts[4].name: cannot name a node `master`",
        ] {
            assert!(said.contains(place), "{place}: {said}");
        }
    }

    #[test]
    fn an_empty_list_and_another_kind_are_refused() {
        assert!(
            read_text("apiVersion: halite/v1\nkind: HostList\nhosts: []\n")
                .unwrap_err()
                .contains("the list has no host")
        );
        assert!(
            read_text("apiVersion: halite/v1\nkind: Node\nhosts: [{name: a}]\n")
                .unwrap_err()
                .contains("kind")
        );
    }
}
