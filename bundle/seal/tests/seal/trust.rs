//! Trust: accepted keys, their expiry, and the messages for all others.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use halite_errors::chain;
use halite_seal::keys::{Password, PublicKey, SecretKey, Trust, generate};
use jiff::Timestamp;

use crate::image::{TestImage, check, complaints, key, load, parts, trust};

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A trust directory with the `.pub` files of keys.
fn directory(at: &Path, keys: &[(&str, &str)]) -> std::path::PathBuf {
    let dir = at.join("trust");
    fs::create_dir_all(&dir).unwrap();
    for (name, text) in keys {
        fs::write(dir.join(name), text).unwrap();
    }
    dir
}

#[test]
fn a_signature_of_a_stranger_is_refused_with_what_to_do() {
    let image = TestImage::small();
    let dir = image.dir.path();
    let (ours, theirs) = (key(dir, "ours"), key(dir, "theirs"));
    image.seal(std::slice::from_ref(&theirs));
    let trusted = Trust::load(&directory(dir, &[("site.pub", &ours.public().to_text())])).unwrap();
    let found = complaints(&image.iso, &trusted).concat();
    assert!(
        found.contains(&format!("key {} is not trusted here", theirs.public().id())),
        "{found}"
    );
    assert!(
        found.contains(&format!("Trusted are: site ({})", ours.public().id())),
        "{found}"
    );
    assert!(found.contains("put it into the trust directory"), "{found}");

    let report = check(&image.iso, &trusted.allow_unsigned()).unwrap();
    assert!(
        report.is_sound() && report.signers.is_empty() && report.ignored.len() == 1,
        "{report:?}"
    );
    let report = check(&image.iso, &Trust::unsigned()).unwrap();
    assert!(
        report.is_sound() && report.signers.is_empty() && report.ignored.len() == 1,
        "{report:?}"
    );
}

#[test]
fn an_unsigned_image_needs_to_be_allowed() {
    let image = TestImage::small();
    let ours = key(image.dir.path(), "ours");
    image.seal(&[]);
    let found = complaints(&image.iso, &trust(&[&ours])).concat();
    assert!(found.contains("it is not signed"), "{found}");
    assert!(
        complaints(&image.iso, &Trust::new(Vec::new()))
            .concat()
            .contains("it is not signed")
    );
    let report = check(&image.iso, &Trust::unsigned()).unwrap();
    assert!(
        report.is_sound() && report.signers.is_empty() && report.ignored.is_empty(),
        "{report:?}"
    );
}

#[test]
fn another_key_with_the_same_id_is_not_trusted() {
    let image = TestImage::small();
    let dir = image.dir.path();
    let (ours, theirs) = (key(dir, "ours"), key(dir, "theirs"));
    image.seal(std::slice::from_ref(&theirs));
    // Our key under their id, as an attacker would make it to have it mistaken for ours.
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let (mut forged, other) = (
        STANDARD.decode(ours.public().line()).unwrap(),
        STANDARD.decode(theirs.public().line()).unwrap(),
    );
    forged[2..10].copy_from_slice(&other[2..10]);
    let forged = PublicKey::parse(&STANDARD.encode(forged)).unwrap();
    for trust in [
        Trust::new(vec![forged.clone()]),
        Trust::new(vec![forged]).allow_unsigned(),
    ] {
        assert!(
            complaints(&image.iso, &trust)
                .concat()
                .contains("does not match its statement")
        );
    }
}

#[test]
fn one_of_several_keys_is_enough_and_a_rotation_has_two() {
    let image = TestImage::small();
    let dir = image.dir.path();
    let (old, new, other) = (key(dir, "old"), key(dir, "new"), key(dir, "other"));
    image.seal(&[load(&dir.join("old.key")), load(&dir.join("new.key"))]);
    for (trusted, count) in [
        (&[&old][..], 1),
        (&[&new], 1),
        (&[&other, &new], 1),
        (&[&new, &old], 2),
    ] {
        let report = check(&image.iso, &trust(trusted)).unwrap();
        assert!(report.is_sound());
        assert_eq!(
            (report.signers.len(), report.ignored.len()),
            (count, 2 - count)
        );
    }
    assert!(
        complaints(&image.iso, &trust(&[&other]))
            .concat()
            .contains("no trusted key signed")
    );
}

/// The expiry is compared with the time of the check. A signature cannot prove when it was made:
/// the owner of the key can backdate it.
#[test]
fn an_expired_key_is_believed_no_more() {
    let image = TestImage::small();
    let dir = image.dir.path();
    let path = dir.join("build.key");
    let end = time("2027-06-30T12:00:00Z");
    let made = generate(&path, None, Some(end)).unwrap();
    assert_eq!(made.not_after(), Some(end));
    let key = load(&path);
    image.seal(std::slice::from_ref(&key));
    let trust = Trust::new(vec![PublicKey::load(&dir.join("build.pub")).unwrap()]);
    assert_eq!(trust.keys()[0].not_after(), Some(end), "read from the file");
    assert_eq!(
        complaints(&image.iso, &trust.clone().at(time("2027-06-30T11:59:59Z"))),
        [""; 0]
    );
    let found = complaints(&image.iso, &trust.clone().at(end)).concat();
    assert!(
        found.contains(&format!(
            "key build ({}) expired at 2027-06-30T12:00:00Z",
            made.id()
        )),
        "{found}"
    );
    // Another key that has not expired is enough.
    let (_, second) = (
        generate(&dir.join("second.key"), None, None).unwrap(),
        load(&dir.join("second.key")),
    );
    let statement = halite_seal::statement(&image.iso).unwrap();
    assert!(!statement.is_empty());
    let twice = TestImage::small();
    twice.seal(&[key, second]);
    let keys = ["build.pub", "second.pub"].map(|name| PublicKey::load(&dir.join(name)).unwrap());
    let report = check(&twice.iso, &Trust::new(keys.to_vec()).at(end)).unwrap();
    assert_eq!(
        (report.signers[0].name.as_deref(), report.ignored.len()),
        (Some("second"), 1)
    );
}

#[test]
fn an_end_is_read_from_the_comment_and_never_overlooked() {
    let dir = tempfile::tempdir().unwrap();
    let line = key(dir.path(), "a").public().line();
    let end = |comment: &str| {
        PublicKey::parse(&format!("untrusted comment: {comment}\n{line}\n"))
            .map(|key| key.not_after())
    };
    assert_eq!(end("minisign public key 0123").unwrap(), None);
    assert_eq!(
        end("build not-after=2027-12-31T10:00:00+01:00").unwrap(),
        Some(time("2027-12-31T09:00:00Z"))
    );
    assert_eq!(
        end("not-after=2027-12-31 of the builder").unwrap(),
        Some(time("2028-01-01T00:00:00Z"))
    );
    for comment in [
        "not-after",
        "not-after=",
        "not-after=soon",
        "not-after=2027-13-01",
        "not-after: 2027-12-31",
        "Not-After=2027-12-31",
        "not_after=2027-12-31",
        "notafter=2027-12-31",
        "expires=2027-12-31",
        "not-after=2027-12-31 not-after=2028-12-31",
    ] {
        let error = chain(&end(comment).unwrap_err());
        assert!(
            error.contains("write `not-after=2027-12-31`, once"),
            "{comment}: {error}"
        );
    }
}

#[test]
fn a_revoked_key_is_believed_no_more() {
    let image = TestImage::small();
    let dir = image.dir.path();
    let (lost, kept) = (key(dir, "lost"), key(dir, "kept"));
    image.seal(std::slice::from_ref(&lost));
    let texts = [
        ("lost.pub", lost.public().to_text()),
        ("kept.pub", kept.public().to_text()),
    ];
    let trusted = directory(
        dir,
        &texts.each_ref().map(|(name, text)| (*name, text.as_str())),
    );
    assert_eq!(
        complaints(&image.iso, &Trust::load(&trusted).unwrap()),
        [""; 0]
    );
    let id = lost.public().id();
    fs::write(
        trusted.join("revoked"),
        format!("# since the audit\n\n{id} its laptop was stolen\n"),
    )
    .unwrap();
    let found = complaints(&image.iso, &Trust::load(&trusted).unwrap()).concat();
    assert!(
        found.contains(&format!("key {id} is revoked: its laptop was stolen")),
        "{found}"
    );
    // minisign omits leading zeros of an id, and writes it in either case.
    fs::write(
        trusted.join("revoked"),
        id.to_string().trim_start_matches('0').to_lowercase(),
    )
    .unwrap();
    assert!(
        complaints(&image.iso, &Trust::load(&trusted).unwrap())
            .concat()
            .contains("is revoked")
    );

    fs::write(trusted.join("revoked"), "kept\n+1\n0123456789ABCDEF0\n").unwrap();
    let error = chain(&Trust::load(&trusted).unwrap_err());
    for line in [
        "line 1: `kept`",
        "line 2: `+1`",
        "line 3: `0123456789ABCDEF0`",
    ] {
        assert!(error.contains(line), "{error}");
    }
}

#[test]
fn a_trust_directory_names_everything_that_does_not_belong() {
    let dir = tempfile::tempdir().unwrap();
    let good = key(dir.path(), "good");
    let secret = fs::read_to_string(dir.path().join("good.key")).unwrap();
    let public = good.public().to_text();
    let image = TestImage::small();
    image.seal(std::slice::from_ref(&good));
    let bytes = image.bytes();
    let signature = String::from_utf8(crate::image::part(&bytes, "signature").to_vec()).unwrap();
    assert_eq!(parts(&bytes).len(), 5);
    let wrong = [
        (
            "secret.pub",
            secret.as_str(),
            "is a secret key of minisign: it must not be here",
        ),
        ("signature.pub", &signature, "is a signature of minisign"),
        (
            "ssh.pub",
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA8 me@here\n",
            "is a public key of SSH",
        ),
        (
            "ssh-secret.pub",
            "-----BEGIN OPENSSH PRIVATE KEY-----\nb3\n",
            "is a private key of SSH",
        ),
        (
            "openpgp.pub",
            "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmD\n",
            "is a public key of OpenPGP",
        ),
        (
            "pem.pub",
            "-----BEGIN PUBLIC KEY-----\nMCo\n-----END PUBLIC KEY-----\n",
            "is a public key in PEM",
        ),
        (
            "certificate.pub",
            "-----BEGIN CERTIFICATE-----\n",
            "is a certificate",
        ),
        ("empty.pub", "\n", "is an empty file"),
        ("garbage.pub", "garbage\n", "is something else"),
        (
            "damaged.pub",
            &public[..public.len() - 9],
            "is a damaged file of minisign",
        ),
        (
            "long.pub",
            &format!("{public}{public}"),
            "it should be a public key of minisign",
        ),
        (
            "soon.pub",
            "untrusted comment: not-after=soon\nRWQ=\n",
            "soon.pub",
        ),
    ];
    let trusted = directory(dir.path(), &wrong.map(|(name, text, _)| (name, text)));
    fs::write(trusted.join("binary.pub"), [0xff, 0xfe, 0]).unwrap();
    for name in ["good.pub", "again.pub"] {
        fs::write(trusted.join(name), &public).unwrap();
    }
    fs::write(trusted.join("README"), "not looked at").unwrap();
    let error = chain(&Trust::load(&trusted).unwrap_err());
    for (name, _, why) in &wrong {
        let line = error
            .lines()
            .find(|line| line.contains(&format!("/{name}: ")))
            .expect(name);
        assert!(line.contains(why), "{line}");
    }
    assert!(
        error.contains("binary.pub") && !error.contains("again.pub"),
        "{error}"
    );
    assert_eq!(error.lines().count(), wrong.len() + 2, "{error}");
    assert!(
        !error.contains(secret.lines().nth(1).unwrap()),
        "a secret is never shown"
    );

    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert!(
        Trust::load(&empty)
            .map_err(|error| chain(&error))
            .unwrap_err()
            .contains("it holds no public key")
    );
    assert!(
        Trust::load(&dir.path().join("none"))
            .map_err(|error| chain(&error))
            .unwrap_err()
            .contains("cannot list")
    );
}

#[test]
fn a_secret_key_is_kept_from_others_and_never_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys/build.key");
    generate(&path, None, None).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&path), mode(&path.with_extension("pub"))),
        (0o600, 0o644)
    );
    let before = fs::read(&path).unwrap();
    assert!(
        generate(&path, None, None)
            .map_err(|error| chain(&error))
            .unwrap_err()
            .contains("a key is never replaced")
    );
    fs::remove_file(&path).unwrap();
    let error = chain(&generate(&path, None, None).unwrap_err());
    assert!(error.contains("build.pub: it already exists"), "{error}");
    assert!(!path.exists());
    assert!(
        generate(&dir.path().join("a.pub"), None, None)
            .map_err(|error| chain(&error))
            .unwrap_err()
            .contains("cannot be named .pub")
    );
    let mut ask =
        |_: &Path| -> Result<Password, halite_seal::Error> { panic!("it is not encrypted") };
    fs::write(&path, &before).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let error = chain(&SecretKey::load(&path, &mut ask).unwrap_err());
    assert!(
        error.contains("every user of this host may read it (mode 644): `chmod 600` it"),
        "{error}"
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let shown = format!("{:?}", SecretKey::load(&path, &mut ask).unwrap());
    assert!(
        shown.starts_with("SecretKey(") && shown.len() == 27,
        "{shown}"
    );

    for (text, why) in [
        (
            fs::read_to_string(path.with_extension("pub")).unwrap(),
            "is a public key of minisign",
        ),
        ("ssh-ed25519 AAAA me\n".to_owned(), "is a public key of SSH"),
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----\nb3\n".to_owned(),
            "is a private key of SSH",
        ),
        (
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\n".to_owned(),
            "is something of OpenPGP",
        ),
        (String::new(), "is an empty file"),
        ("\u{7f}".to_owned(), "is something else"),
    ] {
        fs::write(&path, text).unwrap();
        let error = chain(&SecretKey::load(&path, &mut ask).unwrap_err());
        assert!(error.contains(why), "{error}");
    }
    let error = SecretKey::load(&dir.path().join("none.key"), &mut ask)
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("cannot read") && error.contains("none.key"),
        "{error}"
    );
}

#[test]
fn a_damaged_secret_key_signs_nothing() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.key");
    generate(&path, None, None).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let (comment, line) = text.trim_end().split_once('\n').unwrap();
    let whole = STANDARD.decode(line).unwrap();
    // Salt and limits have no meaning without a password.
    for at in (0..6).chain(54..whole.len()) {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        fs::write(&path, format!("{comment}\n{}\n", STANDARD.encode(bytes))).unwrap();
        let mut ask = |_: &Path| Ok(Password::new("x".to_owned()));
        let error = SecretKey::load(&path, &mut ask)
            .map(|_| ())
            .map_err(|error| chain(&error))
            .unwrap_err();
        assert!(
            error.contains("damaged") || error.contains("secret key") || error.contains("scrypt"),
            "{at}: {error}"
        );
    }
}

#[test]
fn an_encrypted_key_opens_with_its_password_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (path, file) = (dir.path().join("a.key"), dir.path().join("password"));
    fs::write(&file, "correct horse\nnot this\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let made = generate(&path, Some(&Password::from_file(&file).unwrap()), None).unwrap();
    let opened = SecretKey::load(&path, &mut |_| Password::from_file(&file)).unwrap();
    assert_eq!(opened.public().line(), made.line());
    let error = SecretKey::load(&path, &mut |_| {
        Ok(Password::new("battery staple".to_owned()))
    })
    .unwrap_err();
    assert!(
        chain(&error).contains("this is not its password"),
        "{error}"
    );

    fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
    assert!(
        Password::from_file(&file)
            .map_err(|error| chain(&error))
            .unwrap_err()
            .contains("`chmod 600` it")
    );
    fs::write(&file, "\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(
        Password::from_file(&file)
            .map_err(|error| chain(&error))
            .unwrap_err()
            .contains("its first line should be a password")
    );
    assert_eq!(
        format!("{:?}", Password::new("secret".to_owned())),
        "Password"
    );
}
