//! The CA of identities is replaced: the minion trusts the CAs that its master names, shows them to
//! it, and gets a certificate of the one that signs.

use std::sync::Arc;

use halite_proto::pki;
use halite_proto::v1::MinionHello;

use super::world::{Ca, world};

fn hash(ca: &Ca) -> String {
    pki::sha256_hex(&pki::certificates(&ca.pem).unwrap()[0])
}

/// Checks what the minion trusts, and the CA of its certificate.
fn check(hello: MinionHello, cas: &[&Arc<Ca>], signer: &Arc<Ca>) {
    let trust = hello.trust.unwrap();
    let wanted: Vec<String> = cas.iter().map(|ca| hash(ca)).collect();
    assert_eq!(trust.cas, wanted);
    assert_eq!(trust.signed_by, hash(signer));
}

#[tokio::test]
async fn a_minion_trusts_both_cas_then_has_a_certificate_of_the_new_one_and_loses_the_old_one() {
    let mut world = world().await;
    let (old, new) = (Arc::clone(&world.master.ca), Arc::new(Ca::new()));
    world.enrolled().await;
    let going = world.minion();
    let (stream, hello) = world.stream().await;
    check(hello, &[&old], &old);
    world.has_cas(&[&old, &new]);
    stream.send(world.hello()).await;
    let (stream, hello) = world.stream().await;
    check(hello, &[&old, &new], &old);
    world.has_cas(&[&new, &old]);
    stream.send(world.hello()).await;
    let (_stream, hello) = world.stream().await;
    check(hello, &[&new, &old], &old);
    // It has its certificate renewed, and shows it.
    let (stream, hello) = world.stream().await;
    check(hello, &[&new, &old], &new);
    world.has_cas(&[&new]);
    stream.send(world.hello()).await;
    let (_stream, hello) = world.stream().await;
    check(hello, &[&new], &new);
    going.send_replace(true);
}

#[tokio::test]
async fn a_host_that_was_off_while_minions_got_other_certificates_gets_one_with_its_key() {
    let mut world = world().await;
    let (old, new) = (Arc::clone(&world.master.ca), Arc::new(Ca::new()));
    world.enrolled().await;
    // It was on while both were trusted.
    std::fs::write(world.config.ca(), format!("{}{}", old.pem, new.pem)).unwrap();
    world.has_cas(&[&new]);
    let going = world.minion();
    let (_stream, hello) = world.stream().await;
    check(hello, &[&old, &new], &new);
    let (_stream, hello) = world.stream().await;
    check(hello, &[&new], &new);
    going.send_replace(true);
}

/// A master that can sign its epoch but names no CA changes nothing, and neither does a replaced
/// one.
#[tokio::test]
async fn a_replaced_master_gives_a_minion_no_cas() {
    let mut world = world().await;
    let old = Arc::clone(&world.master.ca);
    world.enrolled().await;
    world.says(5, &[]);
    let going = world.minion();
    let (stream, hello) = world.stream().await;
    check(hello, &[&old], &old);
    let before = std::fs::read(world.config.ca()).unwrap();
    world.has_cas(&[&old, &Arc::new(Ca::new())]);
    world.says(4, &[]);
    stream.send(world.hello()).await;
    let (_stream, hello) = world.stream().await;
    check(hello, &[&old], &old);
    assert_eq!(std::fs::read(world.config.ca()).unwrap(), before);
    going.send_replace(true);
}
