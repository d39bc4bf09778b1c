use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use halite_age::Identity;
use halite_pillar::load::load;
use halite_pillar::validate::Context;
use halite_terminal::{Format, Paint, Screen};
use tempfile::TempDir;

use super::*;
use crate::FAILED;
use crate::commands::secrets::edit::Draft;
use crate::commands::secrets::encrypt::{Move, entry};

const HEAD: &str = "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: test}\nnetworks:\n  controlPlane: {cidrs: [10.10.0.0/24]}\nkubernetes: {version: \"1.36\"}\n";
const NODE: &str = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: cp-1}\nroles: [bootstrap, registry, etcd, control-plane]\naddress: 10.10.0.11\n";
const SECRETS: &str = "# mine\nsecrets:\n  smtp: {value: canary-4711, roles: [worker]}\n  key: # a key\n    value: |\n      canary-a: b\n      canary-c\n    nodes: [master]\n\n# keep\ncustom: {a: 1}\n";

/// A host with a declaration.
struct DeclaredHost {
    directory: TempDir,
}

impl DeclaredHost {
    fn new(rest: &str) -> Self {
        let host = Self {
            directory: TempDir::new().unwrap(),
        };
        let etc = host.site().config;
        fs::create_dir_all(etc.join("nodes")).unwrap();
        fs::write(etc.join("cluster.yaml"), format!("{HEAD}{rest}")).unwrap();
        fs::write(etc.join("nodes/cp-1.yaml"), NODE).unwrap();
        host
    }

    fn site(&self) -> SecretSite {
        let below = |name: &str| self.directory.path().join(name);
        SecretSite {
            config: below("etc"),
            state: below("state"),
        }
    }

    fn document(&self) -> String {
        fs::read_to_string(self.site().document()).unwrap()
    }

    /// The values, as the master has them.
    fn values(&self) -> Vec<(String, Option<String>)> {
        let open = self.site().open().unwrap();
        let secrets = open.declaration.cluster.secrets.iter();
        secrets
            .map(|(name, secret)| (name.clone(), secret.known().map(str::to_owned)))
            .collect()
    }
}

fn is_plain(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => is_plain(&path),
            false => String::from_utf8_lossy(&fs::read(&path).unwrap()).contains("canary"),
        }
    })
}

fn screen() -> Screen {
    Screen::new(Format::Json)
}

#[test]
fn encrypt_moves_all_values_and_nothing_else() {
    let host = DeclaredHost::new(SECRETS);
    let site = host.site();
    let before = host.values();
    assert!(encrypt::encrypt(&site, true, &mut screen()).unwrap());
    assert_eq!(host.document(), format!("{HEAD}{SECRETS}"));
    assert!(!site.file().exists());
    assert!(encrypt::encrypt(&site, false, &mut screen()).unwrap());
    assert!(!is_plain(host.directory.path()));
    assert_eq!(host.values(), before);
    assert_eq!(
        host.document(),
        format!(
            "{HEAD}# mine\n# Their values are in secrets.yaml.age: ctl secrets edit\nsecrets:\n  key: {{nodes: [master]}}\n  smtp: {{roles: [worker]}}\n\n# keep\ncustom: {{a: 1}}\n"
        )
    );
    assert!(!encrypt::encrypt(&site, false, &mut screen()).unwrap());
    // Another value is added to them.
    let added = host.document().replace(
        "  smtp: {roles: [worker]}\n",
        "  smtp: {roles: [worker]}\n  more: {value: canary-more, roles: [worker]}\n",
    );
    fs::write(site.document(), added).unwrap();
    assert!(encrypt::encrypt(&site, false, &mut screen()).unwrap());
    assert!(!is_plain(host.directory.path()));
    assert_eq!(host.values().len(), 3);
    assert!(before.iter().all(|value| host.values().contains(value)));
}

#[test]
fn a_move_that_ends_between_its_two_files_loses_nothing_and_is_completed() {
    let host = DeclaredHost::new(SECRETS);
    let site = host.site();
    let before = host.values();
    let prepared = Move::prepare(&site).unwrap().unwrap();
    assert_eq!(prepared.names, ["key", "smtp"]);
    prepared.write_encrypted(&site).unwrap();
    assert_eq!(host.values(), before);
    assert_eq!(host.document(), format!("{HEAD}{SECRETS}"));
    let again = Move::prepare(&site).unwrap().unwrap();
    again.write_encrypted(&site).unwrap();
    again.write_document(&site).unwrap();
    assert_eq!(host.values(), before);
    assert!(!is_plain(host.directory.path()));
    let plain = site.file().read().unwrap().unwrap();
    assert_eq!(plain.reveal().matches("canary-4711").count(), 1);
}

#[test]
fn a_document_that_changed_meanwhile_is_kept_and_copies_of_values_are_named() {
    let host = DeclaredHost::new(SECRETS);
    let site = host.site();
    let prepared = Move::prepare(&site).unwrap().unwrap();
    prepared.write_encrypted(&site).unwrap();
    let changed = host.document().replace("custom: {a: 1}", "custom: {a: 2}");
    fs::write(site.document(), &changed).unwrap();
    let error = prepared.write_document(&site).unwrap_err().to_string();
    assert!(error.contains("run this command again"), "{error}");
    assert_eq!(host.document(), changed);
    fs::write(site.config.join("cluster.yaml.bak"), &changed).unwrap();
    let again = Move::prepare(&site).unwrap().unwrap();
    again.write_document(&site).unwrap();
    let copies = again.copies(&site).unwrap();
    assert_eq!(
        copies,
        [site.config.join("cluster.yaml.bak").display().to_string()]
    );
}

#[test]
fn links_and_strange_names_stop_no_move_and_copies_below_them_are_found() {
    let host = DeclaredHost::new(SECRETS);
    let site = host.site();
    let copy = site.config.join(OsStr::from_bytes(b"copy-\xff.yaml"));
    fs::write(&copy, "old: canary-4711\n").unwrap();
    symlink("/no/such/file", site.config.join("link")).unwrap();
    symlink(&site.config, site.config.join("circle")).unwrap();
    let prepared = Move::prepare(&site).unwrap().unwrap();
    let copies = prepared.copies(&site).unwrap();
    let expected = [&site.document(), &copy].map(|path| path.display().to_string());
    assert_eq!(copies, expected);
    assert!(encrypt::encrypt(&site, false, &mut screen()).unwrap());
    assert!(!host.document().contains("canary"));
}

#[test]
fn a_copy_of_a_value_of_several_lines_is_found_in_another_form() {
    let block = "secrets:\n  key:\n    value: |\n      -----BEGIN KEY-----\n      canary-line\n      short\n    nodes: [master]\n";
    let host = DeclaredHost::new(block);
    let site = host.site();
    let prepared = Move::prepare(&site).unwrap().unwrap();
    prepared.write_encrypted(&site).unwrap();
    prepared.write_document(&site).unwrap();
    for (name, text) in [
        ("indented", "key: |\n          canary-line\n"),
        (
            "quoted",
            "key: \"-----BEGIN KEY-----\\ncanary-line\\nshort\\n\"\n",
        ),
        ("other", "-----BEGIN KEY-----\nother-line\nshort\n"),
    ] {
        fs::write(site.config.join(name), text).unwrap();
    }
    let expected = ["indented", "quoted"].map(|name| site.config.join(name).display().to_string());
    assert_eq!(prepared.copies(&site).unwrap(), expected);
}

#[test]
fn two_values_of_a_name_are_refused_with_both_places_and_without_the_values() {
    let host = DeclaredHost::new(SECRETS);
    let site = host.site();
    encrypt::encrypt(&site, false, &mut screen()).unwrap();
    let other = SECRETS.replace("canary-4711", "canary-other");
    fs::write(site.document(), format!("{HEAD}{other}")).unwrap();
    let error = Move::prepare(&site).err().unwrap().to_string();
    for part in ["secrets.yaml.age:4:", "cluster.yaml:9:", "another value"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(!error.contains("canary"), "{error}");
}

#[test]
fn every_value_survives_its_entry() {
    let values = [
        "x",
        "yes",
        "4711",
        "a: b # c",
        "\"",
        "'",
        "\\",
        "a\nb\n",
        "a\nb",
        "\n",
        " a\nb\n",
        "a\n\nb\n",
        "a\tb\n",
        "a\r\nb\n",
        "ü\nx\n",
        "---\n...\n",
        "a\nb\n\n",
        "# a\nb\n",
        "{{ x }}",
        "a \nb \n",
    ];
    for value in values {
        let text = entry("name", value);
        let node = halite_secrets::yaml::parse("f", &text).unwrap();
        assert_eq!(
            node.to_json(),
            serde_json::json!({ "name": value }),
            "{text}"
        );
    }
}

#[test]
fn an_edited_text_is_checked_before_it_is_written() {
    let host = DeclaredHost::new("secrets:\n  smtp: {roles: [worker]}\n");
    let site = host.site();
    // Without a value, the documents are refused, and the first text names what is needed.
    assert!(site.open().is_err());
    let draft = Draft::open(&site).unwrap();
    assert!(draft.before.ends_with("smtp: \"\"\n"), "{}", draft.before);
    let problems = draft.check(&draft.before).unwrap_err();
    assert!(problems[0].to_string().contains("secrets.yaml.age:2:7"));
    let declaration = draft.check("smtp: canary\n").unwrap();
    draft.write(&site, "smtp: canary\n", &declaration).unwrap();
    assert!(draft.write(&site, "smtp: lost\n", &declaration).is_err());
    assert_eq!(
        host.values(),
        [("smtp".to_owned(), Some("canary".to_owned()))]
    );
    let draft = Draft::open(&site).unwrap();
    assert_eq!(draft.before, "smtp: canary\n");
    let problems = draft.check("smtp: [canary]\nother: canary\n").unwrap_err();
    let text = report(&problems);
    assert!(
        text.contains("is not a text")
            && text.contains("does not declare")
            && !text.contains("canary"),
        "{text}"
    );
}

#[test]
fn the_lists_have_names_places_and_recipients_and_no_value() {
    let recovery = Identity::generate().unwrap().recipient();
    let rest = format!(
        "{SECRETS}backup: {{recipients: [{recovery}]}}\nnotify: {{sinks: {{chat: {{url: 'https://a.example.com', header: {{secret: smtp}}}}}}}}\n"
    );
    let host = DeclaredHost::new(&rest);
    let site = host.site();
    let list = list::listed(&site).unwrap();
    let smtp = &list.secrets[1];
    assert!(
        !smtp.encrypted && smtp.places[0].ends_with("cluster.yaml:9"),
        "{smtp:?}"
    );
    assert_eq!(smtp.used_by, ["notify.sinks.chat"]);
    let none = list::recipients_of(&site).unwrap();
    assert!(!none.exists && !none.outdated && none.recipients.is_empty());
    encrypt::encrypt(&site, false, &mut screen()).unwrap();
    let list = list::listed(&site).unwrap();
    assert!(list.secrets.iter().all(|secret| secret.encrypted));
    let text = list::secret_table(&list);
    assert!(
        text.contains("secrets.yaml.age") && !text.contains("canary"),
        "{text}"
    );
    let known = list::recipients_of(&site).unwrap();
    assert!(!known.outdated && known.missing.is_empty());
    let text = list::recipient_table(&known, &Paint { colour: false });
    assert!(
        text.contains("cp-1") && text.contains(&recovery.to_string()),
        "{text}"
    );
    // A key of backups that was added is a recipient after the next write.
    let other = Identity::generate().unwrap().recipient();
    let document = host
        .document()
        .replace(&recovery.to_string(), &other.to_string());
    fs::write(site.document(), document).unwrap();
    assert!(list::recipients_of(&site).unwrap().outdated);
    site.rotate().unwrap();
    let known = list::recipients_of(&site).unwrap();
    assert!(!known.outdated);
    assert!(
        known
            .recipients
            .iter()
            .any(|entry| entry.recipient == other.to_string())
    );
}

#[test]
fn an_identity_that_does_not_decrypt_the_values_is_reported_with_the_recipients() {
    let host = DeclaredHost::new(SECRETS);
    let site = host.site();
    assert_eq!(list::recipients(&site, &mut screen()).unwrap(), 0);
    encrypt::encrypt(&site, false, &mut screen()).unwrap();
    assert_eq!(list::recipients(&site, &mut screen()).unwrap(), 0);
    let identity = site.file().identity_path();
    let other = Identity::generate().unwrap().to_text();
    for (text, reason) in [
        (None, "is missing on this host"),
        (Some(other.as_bytes()), "is not encrypted to the identity"),
    ] {
        match text {
            Some(text) => fs::write(&identity, text).unwrap(),
            None => fs::remove_file(&identity).unwrap(),
        }
        assert_eq!(list::recipients(&site, &mut screen()).unwrap(), FAILED);
        let known = list::recipients_of(&site).unwrap();
        let shown = list::recipient_table(&known, &Paint { colour: false });
        assert!(
            shown.contains(reason) && shown.contains("ctl secrets recover --key FILE"),
            "{shown}"
        );
    }
}

#[test]
fn a_rotation_and_a_recovery_keep_the_values() {
    let key = Identity::generate().unwrap();
    let rest = format!("{SECRETS}backup: {{recipients: [{}]}}\n", key.recipient());
    let host = DeclaredHost::new(&rest);
    let site = host.site();
    encrypt::encrypt(&site, false, &mut screen()).unwrap();
    let before = host.values();
    let identity = || fs::read_to_string(site.file().identity_path()).unwrap();
    let old = identity();
    site.rotate().unwrap();
    assert!(identity() != old);
    assert_eq!(host.values(), before);
    fs::remove_file(site.file().identity_path()).unwrap();
    let error = site.open().err().unwrap().to_string();
    assert!(error.contains("ctl secrets recover --key FILE"), "{error}");
    assert!(site.rotate().is_err());
    let file = host.directory.path().join("key.txt");
    fs::write(&file, key.to_text().as_bytes()).unwrap();
    site.recover(&file).unwrap();
    assert_eq!(host.values(), before);
    assert!(load(&site.texts().unwrap(), &Context::default()).is_ok());
}

#[test]
fn the_editor_works_in_memory() {
    assert!(edit::is_in_memory(Path::new("/dev/shm")));
    assert!(!edit::is_in_memory(Path::new("/proc")));
    assert!(!edit::is_in_memory(Path::new("/no/such/place")));
}

#[tokio::test]
async fn the_editor_gets_a_private_file_in_memory_that_is_removed_whatever_happens() {
    let host = DeclaredHost::new("secrets:\n  smtp: {roles: [worker]}\n");
    let site = host.site();
    let below = |name: &str| host.directory.path().join(name);
    // First an invalid text, then a valid one; each time it records its file and the mode.
    let program = below("editor");
    let script = format!(
        "#!/bin/sh\nstat -c '%a %n' \"$1\" >> {}\nsed -i 's/\\[canary\\]/canary/; s/\"\"/[canary]/' \"$1\"\n",
        below("seen").display()
    );
    halite_testkit::process::make_program(&program, &script);
    let editor = program.display().to_string();
    let refused = edit::edit(&site, &editor, |_| Ok(false), &mut screen()).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("nothing was written") && !refused.contains("canary"),
        "{refused}"
    );
    assert!(!site.file().exists());
    let written = edit::edit(&site, &editor, |_| Ok(true), &mut screen()).await;
    assert!(written.unwrap());
    assert_eq!(
        host.values(),
        [("smtp".to_owned(), Some("canary".to_owned()))]
    );
    let unchanged = edit::edit(&site, "true", |_| Ok(true), &mut screen()).await;
    assert!(!unchanged.unwrap());
    let failed = edit::edit(&site, "false", |_| Ok(true), &mut screen()).await;
    assert!(
        failed
            .unwrap_err()
            .to_string()
            .contains("EDITOR names another")
    );
    let seen = fs::read_to_string(below("seen")).unwrap();
    assert_eq!(seen.lines().count(), 3);
    for line in seen.lines() {
        let path = Path::new(line.strip_prefix("600 ").unwrap());
        let directory = path.parent().unwrap();
        assert!(!directory.exists(), "{line}");
        assert!(edit::is_in_memory(directory.parent().unwrap()));
    }
    fs::remove_file(&program).unwrap();
    assert!(!is_plain(host.directory.path()));
}

#[tokio::test]
async fn a_valid_text_that_cannot_be_written_is_kept_and_written_by_the_next_attempt() {
    let host = DeclaredHost::new("secrets:\n  smtp: {roles: [worker]}\n");
    let site = host.site();
    // The first edit fills the value in, and blocks the list of recipients; the second unblocks it.
    let list = site.config.join("secrets.recipients");
    let program = host.directory.path().join("editor");
    let script = format!(
        "#!/bin/sh\nif grep -q '\"\"' \"$1\"; then sed -i 's/\"\"/canary/' \"$1\"; mkdir {0}; else rmdir {0}; fi\n",
        list.display()
    );
    halite_testkit::process::make_program(&program, &script);
    let editor = program.display().to_string();
    let refused = edit::edit(&site, &editor, |_| Ok(false), &mut screen()).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("could not be written"), "{refused}");
    assert!(!site.file().exists());
    fs::remove_dir(&list).unwrap();
    let written = edit::edit(&site, &editor, |_| Ok(true), &mut screen()).await;
    assert!(written.unwrap());
    assert_eq!(
        host.values(),
        [("smtp".to_owned(), Some("canary".to_owned()))]
    );
}
