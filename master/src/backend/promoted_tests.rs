//! A promoted master, whose host differs from the one in the documents.

use std::fs;

use super::fixture::Site;

fn node(site: &Site, name: &str, address: &str, roles: &str) {
    let text = format!(
        "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [{roles}]\naddress: {address}\n"
    );
    fs::write(site.path().join(format!("etc/nodes/{name}.yaml")), text).unwrap();
}

#[test]
fn a_master_records_its_host_once_and_names_the_others_to_minions() {
    let site = Site::new(&[]);
    let cluster = site.path().join("etc/cluster.yaml");
    let before = fs::read_to_string(&cluster).unwrap();
    drop(site.live());
    assert_eq!(
        fs::read_to_string(&cluster).unwrap(),
        before,
        "the first host has the master"
    );

    // The address of this master is another control plane's.
    let resolved = "resolved:\n  kubernetes: v1.36.3\n  bundle: 0.1.0\n";
    fs::write(&cluster, format!("{before}{resolved}")).unwrap();
    node(
        &site,
        "bootstrap-1",
        "10.10.0.12",
        "bootstrap, registry, etcd, control-plane",
    );
    node(&site, "cp-2", "10.10.0.11", "etcd, control-plane");
    for _ in 0..2 {
        let life = site.live();
        let masters = life.runtime.block_on(life.backend.masters()).unwrap();
        assert_eq!(masters, ["10.10.0.11:4550", "10.10.0.12:4550"]);
        let text = fs::read_to_string(&cluster).unwrap();
        assert_eq!(text.matches("master: \"cp-2\"").count(), 1, "{text}");
        assert!(text.starts_with(&before), "the rest stays");
    }
}
