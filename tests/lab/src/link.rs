//! Cuts of the links between two hosts of a lab, in one direction or in both.
//!
//! The receiver drops packets from the sender before its own packet filter and connection table see
//! them. Within one network these are all packets from the sender's network cards; through the
//! router they are the packets from the sender's own addresses. The receiver's loss of power ends
//! the cut.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::Lab;
use crate::command::{output, run};
use crate::host::Host;

/// The receiver's table of the cuts from one sender.
fn table(from: &Host) -> String {
    format!("lab_cut_{}", from.spec.name.replace('-', "_"))
}

/// The receiver's rules that drop packets from a sender.
fn rules(from: &Host) -> String {
    let (mut addresses, mut cards) = (BTreeSet::new(), BTreeSet::new());
    for network in from.networks() {
        addresses.insert(network.address(from.spec.number));
        cards.insert(network.mac(from.spec.number));
    }
    let list = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(", ");
    format!(
        "table inet {} {{\n chain in {{\n  type filter hook prerouting priority -400; policy accept;\n  \
         ip saddr {{ {} }} drop\n  ether saddr {{ {} }} drop\n }}\n}}\n",
        table(from),
        list(addresses),
        list(cards)
    )
}

/// `nft` with further arguments, in the network namespace of a host.
fn nft<'a>(namespace: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    [&["netns", "exec", namespace, "nft"], args].concat()
}

impl Lab {
    /// Cuts the direction from one host to another, both of which are on, unless it is already cut.
    pub fn cut_link(&self, from: &Host, to: &Host) -> Result<()> {
        self.restore_link(from, to)?;
        run("ip", &nft(&to.namespace(), &[&rules(from)])).map(drop)
    }

    /// Ends the cut of a direction, if there is one.
    pub fn restore_link(&self, from: &Host, to: &Host) -> Result<()> {
        let (namespace, table) = (to.namespace(), table(from));
        let list = nft(&namespace, &["list", "table", "inet", &table]);
        if output("ip", &list)?.status.success() {
            run("ip", &nft(&namespace, &["delete", "table", "inet", &table]))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::layout::HA;

    #[test]
    fn packets_from_the_sender_are_dropped_in_every_network() {
        let spec = HA.member("cp-2").unwrap().spec(Vec::new());
        let host = Host::new("x", Path::new("/labs"), Path::new("/base"), spec);
        assert_eq!(
            rules(&host),
            "\
table inet lab_cut_cp_2 {
 chain in {
  type filter hook prerouting priority -400; policy accept;
  ip saddr { 10.10.0.12, 10.20.0.12 } drop
  ether saddr { 02:00:0a:0a:00:0c, 02:00:0a:14:00:0c } drop
 }
}
"
        );
    }
}
