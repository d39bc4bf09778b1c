//! Tests of the stages of a rotation.

use std::fs;

use halite_errors::chain;
use halite_pillar::ca_rotation::RotationStage::{Only, Sign, Trust};
use halite_pillar::ca_rotation::{CaRotation, ROTATED_CAS, RotationStage, SERVICE_ACCOUNTS};
use halite_proto::pki;
use halite_proto::pki::PrivateKey;
use tempfile::TempDir;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::rotation::path;
use super::*;

const NOW: Millis = 1_800_000_000_000;

fn made() -> (Cas, TempDir) {
    let directory = TempDir::new().unwrap();
    let cas = Cas::create_or_load(directory.path(), "prod", NOW).unwrap();
    (cas, directory)
}

fn begin(cas: &Cas, name: &str, stage: RotationStage) -> bool {
    cas.begin_stage(name, stage, "prod", NOW).unwrap()
}

fn signed(cas: &Cas, server: bool) -> Vec<Vec<u8>> {
    let request = PrivateKey::generate().unwrap().request("x").unwrap();
    let profile = Profile {
        common_name: "x".to_owned(),
        server_auth: server,
        client_auth: !server,
        days: 365,
        ..Profile::default()
    };
    let issued = cas.sign("kubernetes", &request, &profile, NOW).unwrap();
    assert_eq!(issued.ca_pem, cas.certificate_pem("kubernetes").unwrap());
    let all = pki::certificates(&issued.certificate_pem).unwrap();
    all.iter().map(|der| der.to_vec()).collect()
}

/// Returns whether one certificate is signed by another, by key, name and key identifier.
fn is_signed_by(certificate: &[u8], ca_pem: &str) -> bool {
    let ca = pki::certificates(ca_pem).unwrap().swap_remove(0);
    let (_, ca) = X509Certificate::from_der(&ca).unwrap();
    let (_, certificate) = X509Certificate::from_der(certificate).unwrap();
    let is_signed = certificate.verify_signature(Some(ca.public_key())).is_ok();
    is_signed && certificate.issuer() == ca.subject()
}

/// Each stage as a master has it that was killed and started again.
fn all_stages(name: &str, value: impl Fn(&Cas) -> String) -> Vec<String> {
    let (cas, directory) = made();
    let mut found = vec![value(&cas)];
    for stage in [Trust, Sign, Only] {
        assert!(begin(&cas, name, stage));
        assert_eq!(cas.rotation(name), Some(stage));
        let loaded = Cas::load(directory.path()).unwrap();
        assert_eq!(value(&loaded), value(&cas));
        // The step is repeated, and so is the first one by a new run.
        for again in [Trust, stage] {
            assert!(!begin(&loaded, name, again));
        }
        assert_eq!(value(&loaded), value(&cas));
        found.push(value(&cas));
    }
    assert!(cas.end_rotation(name).unwrap() && !cas.end_rotation(name).unwrap());
    assert_eq!(cas.rotation(name), None);
    found.push(value(&cas));
    let loaded = Cas::create_or_load(directory.path(), "prod", NOW).unwrap();
    found.push(value(&loaded));
    found
}

#[test]
fn both_are_trusted_before_the_new_one_signs_and_the_old_one_leaves_last() {
    for name in ROTATED_CAS {
        let trusted = all_stages(name, |cas| {
            let all = cas.certificates(name).unwrap();
            assert!(
                cas.certificate_pem(name)
                    .unwrap()
                    .starts_with(all[0].trim_end())
            );
            assert_eq!(
                cas.two(name).map(Vec::from),
                (all.len() == 2).then_some(all.clone())
            );
            all.join("+")
        });
        let (old, new) = (trusted[0].clone(), trusted[3].clone());
        assert_ne!(old, new);
        let [first, second] = [format!("{old}+{new}"), format!("{new}+{old}")];
        let wanted = [old, first, second, new.clone(), new.clone(), new];
        assert_eq!(trusted, wanted);
    }
    let public = all_stages(SERVICE_ACCOUNTS, |cas| {
        cas.sa_public_pem().replace("\n\n", "\n")
    });
    let (old, new) = (public[0].clone(), public[3].clone());
    let [first, second] = [format!("{old}{new}"), format!("{new}{old}")];
    let wanted = [old, first, second, new.clone(), new.clone(), new];
    assert_eq!(public, wanted);
    let keys = all_stages(SERVICE_ACCOUNTS, |cas| cas.sa_key_pem().to_owned());
    assert_eq!(keys[0], keys[1]);
    assert!(keys[1] != keys[2] && keys[2..].iter().all(|key| *key == keys[2]));
}

#[test]
fn the_signer_follows_the_stage_and_servers_are_also_verified_by_the_old_ca() {
    let (cas, _directory) = made();
    let old = cas.certificate_pem("kubernetes").unwrap().to_owned();
    begin(&cas, "kubernetes", Trust);
    let [leaf] = &signed(&cas, true)[..] else {
        panic!("the old CA needs no other");
    };
    assert!(is_signed_by(leaf, &old));
    begin(&cas, "kubernetes", Sign);
    let new = cas.certificates("kubernetes").unwrap()[0].to_owned();
    let [leaf, cross] = &signed(&cas, true)[..] else {
        panic!("the certificate of a server is not followed by its CA");
    };
    assert!(is_signed_by(leaf, &new) && !is_signed_by(leaf, &old));
    assert!(is_signed_by(cross, &old) && !is_signed_by(cross, &new));
    let parts = [cross.clone(), pki::certificates(&new).unwrap()[0].to_vec()];
    let keys = parts.map(|der| pki::Inspected::from_der(&der).unwrap());
    assert_eq!(keys[0].fingerprint, keys[1].fingerprint);
    assert!(keys[0].is_ca && keys[0].subject == keys[1].subject);
    assert_eq!(signed(&cas, false).len(), 1);
    begin(&cas, "kubernetes", Only);
    assert_eq!(signed(&cas, true).len(), 1);
    assert_eq!(cas.dropped("kubernetes").collect::<Vec<_>>(), [&old]);
    // The other CAs are untouched.
    assert_eq!(cas.certificates("etcd").unwrap().len(), 1);
}

#[test]
fn a_compromised_ca_leaves_at_once() {
    let (cas, directory) = made();
    let old = cas.certificate_pem("etcd").unwrap().to_owned();
    assert!(begin(&cas, "etcd", Only));
    let new = cas.certificate_pem("etcd").unwrap().to_owned();
    assert!(!new.contains(old.trim()));
    assert!(!begin(&cas, "etcd", Only));
    assert_eq!(cas.certificate_pem("etcd").unwrap(), new);
    // Without the option, its hosts would get the new one one after the other.
    for stage in [Trust, Sign] {
        let error = cas.begin_stage("etcd", stage, "prod", NOW).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("ctl certs rotate etcd --compromised"),
            "{error}"
        );
    }
    // The same if it became known during a rotation.
    begin(&cas, "kubernetes", Trust);
    assert!(begin(&cas, "kubernetes", Only));
    assert!(cas.begin_stage("kubernetes", Trust, "prod", NOW).is_err());
    let record = fs::read_to_string(path(directory.path(), "etcd")).unwrap();
    assert!(!record.contains("cross"));
}

/// The end writes two files and removes one.
#[test]
fn an_end_that_is_killed_half_way_is_repeated() {
    let (cas, directory) = made();
    for stage in [Trust, Only] {
        begin(&cas, "kubernetes", stage);
    }
    let new = cas.certificate_pem("kubernetes").unwrap().to_owned();
    fs::write(directory.path().join("ca/kubernetes.crt"), &new).unwrap();
    let loaded = Cas::create_or_load(directory.path(), "prod", NOW).unwrap();
    assert!(loaded.end_rotation("kubernetes").unwrap());
    let loaded = Cas::load(directory.path()).unwrap();
    assert_eq!(loaded.certificate_pem("kubernetes").unwrap(), new);
}

#[test]
fn what_cannot_be_rotated_is_refused_and_a_damaged_record_is_never_replaced() {
    let (cas, directory) = made();
    for (name, stage, wanted) in [
        ("other", Trust, "cannot rotate \"other\""),
        ("kubernetes", Sign, "no rotation of it has begun"),
    ] {
        let error = cas.begin_stage(name, stage, "prod", NOW).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
    }
    begin(&cas, "kubernetes", Trust);
    let error = cas.end_rotation("kubernetes").unwrap_err().to_string();
    assert!(error.contains("still trusted"), "{error}");
    fs::write(path(directory.path(), "etcd"), "{\"key\": canary").unwrap();
    let error = cas.begin_stage("etcd", Trust, "prod", NOW).unwrap_err();
    let error = [
        chain(&error),
        chain(&Cas::load(directory.path()).unwrap_err()),
    ]
    .concat();
    assert!(
        error.contains("etcd.rotation.json") && !error.contains("canary"),
        "{error}"
    );
}

/// Hosts refuse a smaller number than their own, so it must grow with each stage, and an end that
/// was interrupted must not count twice.
#[test]
fn the_number_of_a_stage_never_gets_smaller() {
    for name in ["etcd", SERVICE_ACCOUNTS] {
        let (mut cas, directory) = made();
        let mut numbers = vec![cas.stage_number(name)];
        let dropped = directory.path().join(CaRotation::dropped_path(name));
        for stages in [&[Trust, Sign, Only][..], &[Only]] {
            for stage in stages {
                begin(&cas, name, *stage);
                numbers.push(cas.stage_number(name));
            }
            let record = fs::read_to_string(path(directory.path(), name)).unwrap();
            cas.end_rotation(name).unwrap();
            numbers.push(cas.stage_number(name));
            // The master was killed before the record was removed, and ends the rotation again.
            let list = fs::read_to_string(&dropped).unwrap();
            fs::write(path(directory.path(), name), record).unwrap();
            cas = Cas::load(directory.path()).unwrap();
            assert_eq!(cas.stage_number(name), *numbers.last().unwrap());
            cas.end_rotation(name).unwrap();
            assert_eq!(fs::read_to_string(&dropped).unwrap(), list);
            cas = Cas::load(directory.path()).unwrap();
        }
        assert_eq!(numbers, [0, 1, 2, 3, 3, 6, 6], "{name}");
        assert_eq!(cas.dropped(name).count(), 2);
    }
}

#[test]
fn the_time_at_which_all_hosts_have_a_stage_is_recorded_once_for_each_stage() {
    let (cas, directory) = made();
    let reached = |cas: &Cas, now| cas.stage_reached("sa", now).unwrap();
    assert_eq!(reached(&cas, 1), None);
    begin(&cas, "sa", Trust);
    assert_eq!(reached(&cas, 1), Some(1));
    begin(&cas, "sa", Sign);
    assert_eq!(reached(&cas, 5), Some(5));
    let loaded = Cas::load(directory.path()).unwrap();
    assert_eq!(reached(&loaded, 9), Some(5));
    let unfinished = loaded.unfinished("sa").unwrap();
    assert_eq!((unfinished.stage, unfinished.began), (Sign, NOW));
}

/// The same for the CA of identities, whose signature counts, not its name: both CAs have the same.
#[test]
fn identities_epochs_and_statements_are_signed_by_the_ca_of_the_stage() {
    let (cas, _directory) = made();
    let identity = |cas: &Cas| {
        let request = PrivateKey::generate().unwrap().request("x").unwrap();
        let identity = "halite://prod/minion/a".parse().unwrap();
        let profile = Profile::identity(&identity);
        cas.sign(HALITE, &request, &profile, NOW)
            .unwrap()
            .certificate_pem
    };
    let old = cas.certificate_pem(HALITE).unwrap().to_owned();
    let by_old = identity(&cas);
    begin(&cas, HALITE, Trust);
    assert!(cas.has_signed_identity(&by_old) && cas.has_signed_identity(&identity(&cas)));
    assert!(cas.sign_epoch(1, "a").unwrap().is_proven(&old));
    let mut stages = cas.stages();
    begin(&cas, HALITE, Sign);
    assert!(stages.has_changed().unwrap());
    stages.mark_unchanged();
    assert!(!begin(&cas, HALITE, Sign) && !stages.has_changed().unwrap());
    let by_new = identity(&cas);
    assert!(!cas.has_signed_identity(&by_old) && cas.has_signed_identity(&by_new));
    let epoch = cas.sign_epoch(1, "a").unwrap();
    assert!(!epoch.is_proven(&old) && epoch.is_proven(cas.certificate_pem(HALITE).unwrap()));
    begin(&cas, HALITE, Only);
    assert!(cas.end_rotation(HALITE).unwrap());
    assert!(cas.has_signed_identity(&by_new));
    assert_eq!(cas.dropped(HALITE).collect::<Vec<_>>(), [&old]);
}
