use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use halite_age::Identity;
use halite_pillar::declaration::Declaration;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::sealed::SealedSecrets;
use halite_pillar::validate::Context;
use tempfile::TempDir;

use super::*;

const PLAIN: &str = "smtp: canary-4711\n";

/// A host with the directories of a master or standby.
struct SecretHost {
    directory: TempDir,
}

impl SecretHost {
    fn new() -> Self {
        let host = Self {
            directory: TempDir::new().unwrap(),
        };
        fs::create_dir(host.directory.path().join("etc")).unwrap();
        host
    }

    fn file(&self) -> SecretFile {
        let below = |name: &str| self.directory.path().join(name);
        SecretFile::new(&below("etc"), &below("state"))
    }

    fn own(&self) -> SecretRecipient {
        SecretRecipient {
            host: Some("cp-1".to_owned()),
            recipient: self.file().own_recipient().unwrap(),
        }
    }
}

/// Documents with a master, standbys and recovery recipients.
fn declaration(standbys: &[&str], recovery: &[String]) -> Declaration {
    let node = |(number, name): (usize, &str)| Text {
        file: format!("nodes/{name}.yaml"),
        text: format!(
            "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [{}etcd, control-plane]\naddress: 10.10.0.1{number}\n",
            if number == 0 {
                "bootstrap, registry, "
            } else {
                ""
            },
        ),
    };
    let names = std::iter::once("cp-1").chain(standbys.iter().copied());
    let texts = Texts {
        cluster: Text {
            file: "cluster.yaml".to_owned(),
            text: format!(
                "apiVersion: halite/v1\nkind: Cluster\nmetadata: {{name: test}}\nnetworks:\n  controlPlane: {{cidrs: [10.10.0.0/24]}}\n\
                 kubernetes: {{version: \"1.36\"}}\napiServer: {{vip: 10.10.0.100}}\nmaster: {{standbys: [{}]}}\nbackup: {{recipients: [{}]}}\n",
                standbys.join(", "),
                recovery.join(", ")
            ),
        },
        nodes: names.enumerate().map(node).collect(),
        ..Texts::default()
    };
    load(&texts, &Context::default()).unwrap()
}

fn content(file: &SecretFile) -> String {
    file.read().unwrap().unwrap().reveal().to_owned()
}

/// All bytes of all files below a directory.
fn everything(directory: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(everything(&path)),
            false => all.extend(fs::read(&path).unwrap()),
        }
    }
    all
}

#[test]
fn what_is_written_is_read_on_this_host_only_and_is_nowhere_in_plain_text() {
    let (host, other) = (SecretHost::new(), SecretHost::new());
    let recovery = Identity::generate().unwrap();
    let declared = declaration(&[], &[recovery.recipient().to_string()]);
    let file = host.file();
    assert!(file.read().unwrap().is_none());
    file.write(PLAIN, &declared).unwrap();
    assert_eq!(content(&file), PLAIN);
    assert!(
        !everything(host.directory.path())
            .windows(11)
            .any(|part| part == b"canary-4711")
    );
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let identity = file.identity_path();
    assert_eq!(
        (
            mode(file.path()),
            mode(&identity),
            mode(identity.parent().unwrap())
        ),
        (0o600, 0o600, 0o700)
    );
    let recovery = SecretRecipient {
        host: None,
        recipient: recovery.recipient(),
    };
    assert_eq!(file.recipients().unwrap().0, [host.own(), recovery.clone()]);

    fs::copy(file.path(), other.file().path()).unwrap();
    let list = |host: &SecretHost| host.directory.path().join("etc").join(RECIPIENTS_FILE);
    fs::copy(list(&host), list(&other)).unwrap();
    let missing = other.file().read().unwrap_err();
    assert!(matches!(missing, SecretFileError::NoIdentity { .. }));
    other.file().own_recipient().unwrap();
    let refused = other.file().read().unwrap_err();
    assert!(matches!(refused, SecretFileError::NoMatch { .. }));
    for error in [missing, refused] {
        let text = error.to_string();
        for part in [
            "ctl secrets recover --key FILE",
            &host.own().to_string(),
            &recovery.to_string(),
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[test]
fn a_changed_file_and_a_changed_list_are_refused_and_stay() {
    let host = SecretHost::new();
    let declared = declaration(&[], &[]);
    let file = host.file();
    file.write(PLAIN, &declared).unwrap();
    let mut bytes = fs::read(file.path()).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(file.path(), &bytes).unwrap();
    assert!(matches!(
        file.read().unwrap_err(),
        SecretFileError::Damaged { .. }
    ));
    assert!(file.rotate(&declared).is_err());
    assert_eq!(fs::read(file.path()).unwrap(), bytes);
    let list = host.directory.path().join("etc").join(RECIPIENTS_FILE);
    fs::write(list, "# host cp-1\nage1canary\n").unwrap();
    let error = file.recipients().unwrap_err().to_string();
    assert!(
        error.contains("line 2") && !error.contains("canary"),
        "{error}"
    );
}

#[test]
fn a_plain_text_that_another_command_has_changed_is_not_replaced() {
    let host = SecretHost::new();
    let (declared, file) = (declaration(&[], &[]), host.file());
    file.replace(None, PLAIN, &declared).unwrap();
    assert!(matches!(
        file.replace(None, "smtp: lost\n", &declared).unwrap_err(),
        SecretFileError::Changed(_)
    ));
    let before = file.read().unwrap();
    // Encrypted again, to the same or other recipients, it is the same text.
    file.rotate(&declared).unwrap();
    file.replace(before.as_ref(), "smtp: next\n", &declared)
        .unwrap();
    assert!(file.replace(before.as_ref(), PLAIN, &declared).is_err());
    // A call that has written the file, but not the list, is completed by the next one.
    file.replace(before.as_ref(), "smtp: next\n", &declared)
        .unwrap();
    assert_eq!(content(&file), "smtp: next\n");
}

#[test]
fn a_standby_can_decrypt_once_it_is_known_and_leaves_with_the_next_write() {
    let (master, standby) = (SecretHost::new(), SecretHost::new());
    let both = declaration(&["cp-2"], &[]);
    let file = master.file();
    file.write(PLAIN, &both).unwrap();
    let own = standby.file().own_recipient().unwrap();
    let copy = || {
        fs::copy(file.path(), standby.file().path()).unwrap();
        standby.file().read()
    };
    assert!(copy().is_err());
    assert!(file.add_host("cp-2", own, &both).unwrap());
    assert!(!file.add_host("cp-2", own, &both).unwrap());
    assert_eq!(copy().unwrap().unwrap().reveal(), PLAIN);
    assert_eq!(content(&file), PLAIN);
    // It stays while the master writes, and after a rotation of the master's identity.
    file.write(PLAIN, &both).unwrap();
    file.rotate(&both).unwrap();
    assert!(copy().is_ok());
    file.write(PLAIN, &declaration(&[], &[])).unwrap();
    assert!(copy().is_err());
    assert_eq!(file.recipients().unwrap().0, [master.own()]);
}

#[test]
fn a_standby_that_connects_before_there_is_a_file_is_among_its_first_recipients() {
    let (master, standby) = (SecretHost::new(), SecretHost::new());
    let both = declaration(&["cp-2"], &[]);
    let own = standby.file().own_recipient().unwrap();
    assert!(master.file().add_host("cp-2", own, &both).unwrap());
    assert!(!master.file().exists());
    master.file().write(PLAIN, &both).unwrap();
    fs::copy(master.file().path(), standby.file().path()).unwrap();
    assert_eq!(content(&standby.file()), PLAIN);
}

#[test]
fn a_rotation_that_ends_after_any_step_leaves_a_readable_file_and_is_continued() {
    for last in [
        RotationStep::Made,
        RotationStep::Encrypted,
        RotationStep::Replaced,
    ] {
        for writes in [false, true] {
            let host = SecretHost::new();
            let (declared, file) = (declaration(&[], &[]), host.file());
            file.write(PLAIN, &declared).unwrap();
            let before = fs::read_to_string(file.identity_path()).unwrap();
            file.rotate_up_to(&declared, last).unwrap();
            assert_eq!(content(&file), PLAIN, "{last:?}");
            if writes {
                file.write("smtp: other\n", &declared).unwrap();
            }
            let expected = if writes { "smtp: other\n" } else { PLAIN };
            assert_eq!(content(&file), expected, "{last:?}");
            file.rotate(&declared).unwrap();
            assert_eq!(content(&file), expected, "{last:?}");
            assert_eq!(file.recipients().unwrap().0, [host.own()]);
            let next = file.identity_path().with_extension("next");
            assert!(!next.exists());
            // The previous identity is gone, and useless for the new file.
            fs::write(file.identity_path(), before).unwrap();
            assert!(matches!(
                file.read().unwrap_err(),
                SecretFileError::NoMatch { .. }
            ));
        }
    }
}

#[test]
fn documents_that_were_read_before_a_rotation_are_opened_after_it() {
    let host = SecretHost::new();
    let (declared, file) = (declaration(&[], &[]), host.file());
    file.write(PLAIN, &declared).unwrap();
    let before = fs::read(file.path()).unwrap();
    let texts = || Texts {
        sealed: Some(SealedSecrets {
            bytes: before.clone(),
            ..SealedSecrets::default()
        }),
        ..Texts::default()
    };
    file.rotate(&declared).unwrap();
    let mut opened = texts();
    file.open_in(&mut opened).unwrap();
    let sealed = opened.sealed.unwrap();
    assert_eq!(sealed.plain.unwrap().reveal(), PLAIN);
    assert_eq!(sealed.bytes, fs::read(file.path()).unwrap());
    // Neither the previous nor the present content is for this host.
    fs::write(file.path(), &before).unwrap();
    assert!(matches!(
        file.open_in(&mut texts()).unwrap_err(),
        SecretFileError::NoMatch { .. }
    ));
}

#[test]
fn a_recovery_key_opens_the_file_on_a_new_host() {
    let (host, new) = (SecretHost::new(), SecretHost::new());
    let (recovery, stranger) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let declared = declaration(&[], &[recovery.recipient().to_string()]);
    host.file().write(PLAIN, &declared).unwrap();
    for name in [halite_pillar::sealed::SEALED_FILE, RECIPIENTS_FILE] {
        let of = |host: &SecretHost| host.directory.path().join("etc").join(name);
        fs::copy(of(&host), of(&new)).unwrap();
    }
    let refused = new.file().recover(&[stranger], Some(&declared));
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains(&recovery.recipient().to_string()),
        "{refused}"
    );
    assert!(new.file().read().is_err());
    new.file().recover(&[recovery], Some(&declared)).unwrap();
    assert_eq!(content(&new.file()), PLAIN);
    assert_eq!(new.file().recipients().unwrap().0.len(), 2);
}

#[test]
fn changed_recovery_recipients_and_standbys_are_noticed_until_the_file_is_encrypted_again() {
    let (host, standby) = (SecretHost::new(), SecretHost::new());
    let key = || Identity::generate().unwrap().recipient().to_string();
    let (first, second) = (key(), key());
    let file = host.file();
    let declared = declaration(&["cp-2"], std::slice::from_ref(&first));
    // Without a file there is nothing to encrypt again.
    assert!(!file.audit(&declared).unwrap().outdated);
    file.write(PLAIN, &declared).unwrap();
    let audit = file.audit(&declared).unwrap();
    assert!(!audit.outdated);
    assert_eq!(audit.missing, ["cp-2"]);
    let own = standby.file().own_recipient().unwrap();
    file.add_host("cp-2", own, &declared).unwrap();
    let audit = file.audit(&declared).unwrap();
    assert_eq!((audit.outdated, audit.missing), (false, Vec::new()));

    for other in [
        declaration(&["cp-2"], &[first.clone(), second.clone()]),
        declaration(&["cp-2"], &[second]),
        declaration(&["cp-2"], &[]),
        declaration(&[], &[first]),
    ] {
        assert!(file.audit(&other).unwrap().outdated);
        file.rotate(&other).unwrap();
        assert!(!file.audit(&other).unwrap().outdated);
        let next = file.identity_path().with_extension("next");
        assert!(!next.exists());
    }
}

#[test]
fn an_interrupted_rotation_changes_no_recipient_and_an_unknown_identity_does() {
    for last in [RotationStep::Made, RotationStep::Encrypted] {
        let host = SecretHost::new();
        let (declared, file) = (declaration(&[], &[]), host.file());
        file.write(PLAIN, &declared).unwrap();
        file.rotate_up_to(&declared, last).unwrap();
        assert!(!file.audit(&declared).unwrap().outdated, "{last:?}");
        file.rotate(&declared).unwrap();
        let other = Identity::generate().unwrap();
        fs::write(file.identity_path(), other.to_text().as_bytes()).unwrap();
        assert!(file.audit(&declared).unwrap().outdated, "{last:?}");
    }
}
