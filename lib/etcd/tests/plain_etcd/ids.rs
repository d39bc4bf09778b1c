//! The ids in a member's log, by which the minion identifies the owner of a directory's data.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use halite_etcd::{Client, Members as _};
use halite_host_reports::etcd::{LOG, is_log};
use halite_host_reports::etcd_log::{self, Ids};

use super::site::{PATIENCE, Site, answered, changes, pace};

/// The ids in the first file of a member's log.
fn ids(data: &Path) -> Ids {
    let log = data.join(LOG);
    let names = fs::read_dir(&log).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let first = names.filter(|name| is_log(name)).min().unwrap();
    let mut head = Vec::new();
    let file = File::open(log.join(first)).unwrap();
    file.take(etcd_log::HEAD).read_to_end(&mut head).unwrap();
    etcd_log::ids(&head).unwrap_or_else(|| panic!("no ids in {head:?}"))
}

/// The ids that the cluster itself knows.
async fn known(client: &Client, name: &str) -> Ids {
    let members = answered("the members", async || client.list().await).await;
    let member = members.iter().find(|member| member.name == name).unwrap();
    let status = answered("the state", async || client.status(member).await).await;
    assert_eq!(status.member, member.id);
    Ids {
        cluster: status.cluster,
        member: member.id.0,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_has_the_ids_that_the_cluster_gave_its_member() {
    let mut site = Site::new(&["cp-1", "cp-2"]);
    let client = site.client();
    site.found("cp-1", &client).await;
    let first = known(&client, "cp-1").await;
    assert_eq!(ids(&site.node("cp-1").data()), first);

    // The ids are known before the member starts.
    let joined = site.join("cp-2", &client).await;
    let second = known(&client, "cp-2").await;
    assert_eq!(ids(&site.node("cp-2").data()), second);
    assert_eq!(joined.id.0, second.member);
    assert_eq!(joined.cluster, Some(first.cluster));
    assert_eq!(second.cluster, first.cluster);

    // A cluster of one from the last member keeps its id.
    let pace = pace();
    let changes = changes(&client, &pace, PATIENCE);
    site.node_mut("cp-1").kill();
    let last = site.node_mut("cp-2");
    last.kill();
    last.flags.push("--force-new-cluster".to_owned());
    last.start_again();
    changes.wait_alone("cp-2").await.unwrap();
    assert_eq!(known(&client, "cp-2").await, second);
    assert_eq!(ids(&site.node("cp-2").data()), second);

    // A member that is added again is a different one, even with its previous address.
    site.node("cp-1").wipe();
    let again = changes.add_learner(&site.node("cp-1").host, true).await;
    let again = again.unwrap();
    assert_ne!(again.id.0, first.member);
    assert_eq!(again.cluster, Some(first.cluster));
}
