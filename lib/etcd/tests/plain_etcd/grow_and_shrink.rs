//! 1→3→5→3→1 members under a loop of writes, with kills.

use std::sync::Arc;

use halite_etcd::{ChangeError, Client, Members as _, Removal};

use super::chaos::{Chance, MemberChange, kills, with_kills};
use super::site::{PATIENCE, Site, answered, changes, pace, voters};
use super::writer::{Writer, assert_equal_hashes};

const NAMES: [&str; 5] = ["cp-1", "cp-2", "cp-3", "cp-4", "cp-5"];

struct Run {
    site: Site,
    client: Arc<Client>,
    chance: Chance,
    cut: usize,
}

impl Run {
    async fn add(&mut self, name: &str) {
        let host = self.site.node(name).host.clone();
        let change = MemberChange::Add(host.clone());
        let (joined, cut) = with_kills(&self.client, &change, &mut self.chance).await;
        self.cut += cut;
        let joined = joined.unwrap();
        self.site
            .node_mut(name)
            .start("existing", &joined.initial_cluster);
        let change = MemberChange::Promote(host);
        self.cut += with_kills(&self.client, &change, &mut self.chance).await.1;
        assert!(voters(&self.client).await.iter().any(|voter| voter == name));
    }

    async fn remove(&mut self, name: &str) {
        let change = MemberChange::Remove(Removal {
            name: name.to_owned(),
            peer_url: None,
            dead: false,
        });
        self.cut += with_kills(&self.client, &change, &mut self.chance).await.1;
        assert!(!voters(&self.client).await.iter().any(|voter| voter == name));
        self.site.node_mut(name).kill();
        self.site.node(name).wipe();
    }

    /// Kills the process of a random member and starts it again: the next change meets a cluster
    /// with a missing member.
    async fn kill_a_member(&mut self) {
        let all = voters(&self.client).await;
        let name = self.chance.pick(&all).clone();
        let node = self.site.node_mut(&name);
        node.kill();
        node.start_again();
    }

    async fn leader(&self) -> String {
        answered("who leads", async || {
            for member in self.client.list().await.unwrap_or_default() {
                if let Ok(status) = self.client.status(&member).await
                    && status.leader == Some(member.id)
                {
                    return Ok(member.name);
                }
            }
            Err("no member says that it leads".to_owned())
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_to_five_and_back_loses_no_acknowledged_write() {
    let site = Site::new(&NAMES);
    let client = Arc::new(site.client());
    let writer_client = site.client();
    let mut run = Run {
        site,
        client: Arc::clone(&client),
        chance: Chance::new(),
        cut: 0,
    };
    run.site.found(NAMES[0], &client).await;
    let writer = Writer::start(writer_client);
    for (number, name) in NAMES.iter().enumerate().skip(1) {
        // With two members none may be missing.
        if number >= 3 {
            run.kill_a_member().await;
        }
        run.add(name).await;
    }
    assert_eq!(voters(&client).await, NAMES);
    assert_equal_hashes(&client).await;
    while voters(&client).await.len() > 1 {
        let all = voters(&client).await;
        if all.len() > 3 {
            run.kill_a_member().await;
        }
        // The leader and any member in turn: one case moves the leader, the other does not.
        let name = if all.len() % 2 == 1 {
            run.leader().await
        } else {
            run.chance.pick(&all).clone()
        };
        run.remove(&name).await;
    }
    assert_equal_hashes(&client).await;
    let written = writer.finish(&client).await;
    println!(
        "{} writes acknowledged, {} unknown, {} changes killed",
        written.acknowledged.len(),
        written.unknown,
        run.cut
    );
    assert!(written.acknowledged.len() > 100);
    assert!(run.cut >= kills(), "too few kills met a change");
    let last = voters(&client).await.remove(0);
    let pace = pace();
    let removal = Removal {
        name: last.clone(),
        peer_url: None,
        dead: true,
    };
    let refused = changes(client.as_ref(), &pace, PATIENCE)
        .remove(&removal)
        .await;
    assert_eq!(refused, Err(ChangeError::LastVoter { name: last.clone() }));
    assert_eq!(voters(&client).await, [last]);
}
