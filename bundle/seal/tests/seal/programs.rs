//! The real `minisign`, `openssl` and `sha256sum`: this crate accepts their output, and they accept
//! its output.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use halite_errors::chain;
use halite_seal::keys::{Password, PublicKey, SecretKey, Trust, generate};

use crate::image::{TestImage, check, complaints, key, load, part, trust};

/// Runs a program in a directory with an input.
fn run(dir: &Path, program: &str, args: &[&str], input: &str) -> Output {
    let started = Command::new(program)
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = started.unwrap_or_else(|error| {
        panic!("{program}: {error}: this test needs it, `apt-get install minisign openssl`")
    });
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

/// Runs a program that must succeed.
fn must(dir: &Path, program: &str, args: &[&str], input: &str) -> String {
    let output = run(dir, program, args, input);
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{program} {args:?}: {text}");
    text
}

fn script(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/seal", name]
        .iter()
        .collect();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_site_with_standard_tools_can_check_the_image() {
    let image = TestImage::small();
    let dir = image.dir.path();
    must(dir, "minisign", &["-v"], "");
    let (ours, other) = (key(dir, "ours"), key(dir, "other"));
    image.seal(std::slice::from_ref(&ours));
    let by_hand = script("by-hand.sh");
    let said = must(
        dir,
        "sh",
        &[&by_hand, "halite.iso", &ours.public().line()],
        "",
    );
    assert!(
        said.contains("Signature and comment signature verified"),
        "{said}"
    );
    assert!(
        said.contains("name:halite\tversion:1.36.3-1\tsize:"),
        "the trusted comment: {said}"
    );
    assert!(said.contains("the image is as it was signed"), "{said}");
    assert!(
        !run(
            dir,
            "sh",
            &[&by_hand, "halite.iso", &other.public().line()],
            ""
        )
        .status
        .success()
    );

    let whole = image.bytes();
    fs::write(dir.join("statement"), part(&whole, "statement")).unwrap();
    fs::write(dir.join("signature"), part(&whole, "signature")).unwrap();
    let openssl = script("by-hand-openssl.sh");
    let said = must(
        dir,
        "sh",
        &[&openssl, "statement", "signature", &ours.public().line()],
        "",
    );
    assert!(said.contains("Signature Verified Successfully"), "{said}");
    let strange = run(
        dir,
        "sh",
        &[&openssl, "statement", "signature", &other.public().line()],
        "",
    );
    assert!(!strange.status.success());

    for at in [
        0,
        5000,
        part(&whole, "map").as_ptr() as usize - whole.as_ptr() as usize - 1,
    ] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&image.iso, &bytes).unwrap();
        let output = run(
            dir,
            "sh",
            &[&by_hand, "halite.iso", &ours.public().line()],
            "",
        );
        assert!(!output.status.success(), "byte {at}");
    }
}

#[test]
fn keys_of_minisign_sign_and_are_trusted_here() {
    let image = TestImage::small();
    let dir = image.dir.path();
    must(
        dir,
        "minisign",
        &["-G", "-W", "-p", "open.pub", "-s", "open.key"],
        "",
    );
    image.seal(&[load(&dir.join("open.key"))]);
    let key = PublicKey::load(&dir.join("open.pub")).unwrap();
    assert_eq!(
        complaints(&image.iso, &Trust::new(vec![key.clone()])),
        [""; 0]
    );
    must(
        dir,
        "sh",
        &[&script("by-hand.sh"), "halite.iso", &key.line()],
        "",
    );

    // minisign reads a public key whose comment has an expiry, as this crate does.
    let text = format!(
        "untrusted comment: build not-after=2030-01-01\n{}\n",
        key.line()
    );
    fs::write(dir.join("ending.pub"), text).unwrap();
    fs::write(dir.join("message"), "message").unwrap();
    must(
        dir,
        "minisign",
        &["-S", "-W", "-s", "open.key", "-m", "message"],
        "",
    );
    must(
        dir,
        "minisign",
        &["-V", "-p", "ending.pub", "-m", "message"],
        "",
    );
    assert!(
        PublicKey::load(&dir.join("ending.pub"))
            .unwrap()
            .not_after()
            .is_some()
    );
}

/// `minisign`'s own keys take 1 GiB of memory to open.
#[test]
fn encrypted_keys_go_both_ways() {
    let image = TestImage::small();
    let dir = image.dir.path();
    must(
        dir,
        "minisign",
        &["-G", "-p", "theirs.pub", "-s", "theirs.key"],
        "pass word\npass word\n",
    );
    let theirs = SecretKey::load(&dir.join("theirs.key"), &mut |_| {
        Ok(Password::new("pass word".to_owned()))
    })
    .unwrap();
    assert_eq!(
        theirs.public().line(),
        PublicKey::load(&dir.join("theirs.pub")).unwrap().line()
    );
    image.seal(std::slice::from_ref(&theirs));
    assert_eq!(complaints(&image.iso, &trust(&[&theirs])), [""; 0]);

    let ours = generate(
        &dir.join("ours.key"),
        Some(&Password::new("other".to_owned())),
        None,
    )
    .unwrap();
    fs::write(dir.join("message"), "message").unwrap();
    must(
        dir,
        "minisign",
        &["-S", "-s", "ours.key", "-m", "message"],
        "other\n",
    );
    must(
        dir,
        "minisign",
        &["-V", "-P", &ours.line(), "-m", "message"],
        "",
    );
    assert!(
        !run(
            dir,
            "minisign",
            &["-S", "-s", "ours.key", "-m", "message"],
            "wrong\n"
        )
        .status
        .success()
    );
    must(
        dir,
        "minisign",
        &["-R", "-s", "ours.key", "-p", "again.pub"],
        "other\n",
    );
    assert_eq!(
        PublicKey::load(&dir.join("again.pub")).unwrap().line(),
        ours.line()
    );
}

#[test]
fn keys_made_here_are_keys_of_minisign() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let end = "2030-01-01T00:00:00Z".parse().unwrap();
    generate(&dir.join("build.key"), None, Some(end)).unwrap();
    fs::write(dir.join("message"), "message").unwrap();
    must(
        dir,
        "minisign",
        &["-S", "-W", "-s", "build.key", "-m", "message"],
        "",
    );
    must(
        dir,
        "minisign",
        &["-V", "-p", "build.pub", "-m", "message"],
        "",
    );
    must(
        dir,
        "minisign",
        &["-R", "-W", "-s", "build.key", "-p", "again.pub"],
        "",
    );
    let again = PublicKey::load(&dir.join("again.pub")).unwrap();
    assert_eq!(
        again.line(),
        PublicKey::load(&dir.join("build.pub")).unwrap().line()
    );
}

/// The signing key is on a machine without a network: only the statement is carried there, only a
/// signature comes back.
#[test]
fn a_signature_made_elsewhere_is_added() {
    let image = TestImage::small();
    let dir = image.dir.path();
    let build = key(dir, "build");
    image.seal(std::slice::from_ref(&build));
    let before = image.bytes();
    must(
        dir,
        "minisign",
        &["-G", "-W", "-p", "offline.pub", "-s", "offline.key"],
        "",
    );
    let offline = PublicKey::load(&dir.join("offline.pub")).unwrap();
    fs::write(
        dir.join("statement"),
        halite_seal::statement(&image.iso).unwrap(),
    )
    .unwrap();
    must(
        dir,
        "minisign",
        &[
            "-S",
            "-W",
            "-s",
            "offline.key",
            "-m",
            "statement",
            "-t",
            "checked by hand",
        ],
        "",
    );
    let signature = fs::read_to_string(dir.join("statement.minisig")).unwrap();

    let refused = |signature: &str, key: &PublicKey| {
        let error = halite_seal::add(&image.iso, signature, key)
            .map_err(|error| chain(&error))
            .unwrap_err();
        assert!(image.bytes() == before, "{error}");
        error
    };
    assert!(
        refused(&signature, build.public()).contains("did not make it for this image's statement")
    );
    assert!(
        refused("nonsense", &offline).contains("the signature cannot be added: it has no line")
    );
    must(
        dir,
        "minisign",
        &[
            "-S",
            "-l",
            "-W",
            "-s",
            "offline.key",
            "-m",
            "statement",
            "-x",
            "old",
        ],
        "",
    );
    let old = fs::read_to_string(dir.join("old")).unwrap();
    assert!(refused(&old, &offline).contains("sign again without `-l`"));

    halite_seal::add(&image.iso, &signature, &offline).unwrap();
    let report = check(&image.iso, &Trust::new(vec![offline.clone()])).unwrap();
    assert!(report.is_sound());
    assert_eq!(
        (report.signers[0].name.as_deref(), report.ignored.len()),
        (Some("offline"), 1)
    );
    assert_eq!(
        complaints(&image.iso, &trust(&[&build])),
        [""; 0],
        "the first signature is still there"
    );
    let error = halite_seal::add(&image.iso, &signature, &offline)
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("it already has a signature by key"),
        "{error}"
    );

    // Interrupted between its two writes: the file is refused, and the next attempt restores it.
    let after = image.bytes();
    fs::write(&image.iso, [&before, &after[after.len() - 2048..]].concat()).unwrap();
    assert!(
        complaints(&image.iso, &trust(&[&build]))
            .concat()
            .contains("signature")
    );
    halite_seal::add(&image.iso, &signature, &offline).unwrap();
    assert!(image.bytes() == after);
    // Interrupted during the first of them.
    fs::write(
        &image.iso,
        [&before, &after[after.len() - 2048..][..700]].concat(),
    )
    .unwrap();
    let found = complaints(&image.iso, &trust(&[&build])).concat();
    assert!(found.contains("cut off in its seal"), "{found}");
    halite_seal::add(&image.iso, &signature, &offline).unwrap();
    assert!(image.bytes() == after);
}
