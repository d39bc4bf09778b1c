//! Trust in the ISO's signatures: keys that are missing, expired, revoked or of the wrong kind, and
//! two keys at once.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use halite_lab::command::run;

use super::{Work, verdict};
use crate::test::Counts;

/// The lab's own secret key.
pub(crate) fn builder() -> Result<PathBuf> {
    Ok(std::path::absolute(halite_lab::cache())?.join("bundle/builder.key"))
}

pub(super) fn everyone((): &()) -> Result<Counts> {
    let work = Work::new()?;
    let passed = trusted(&work)? + wrong_kinds(&work)? + signing(&work)? + rotation(&work)?;
    Ok(Counts { passed, failed: 0 })
}

/// A trust store with these files.
fn directory(work: &Work, name: &str, files: &[(&str, &str)]) -> Result<PathBuf> {
    let dir = work.dir.join(name);
    fs::create_dir_all(&dir)?;
    for (file, content) in files {
        fs::write(dir.join(file), content)?;
    }
    Ok(dir)
}

/// Makes a key pair of a name; returns the secret key's path.
fn key(work: &Work, name: &str, more: &[&str]) -> Result<PathBuf> {
    let file = work.dir.join(format!("{name}.key"));
    let mut make = work.ctl(&["bundle", "key"]);
    make.args(if more.is_empty() {
        &["--unencrypted"]
    } else {
        more
    })
    .arg(&file);
    verdict(&mut make)?.accepts("making a key")?;
    Ok(file)
}

fn id(public: &str) -> &str {
    public
        .lines()
        .next()
        .and_then(|line| line.split(' ').find(|word| word.len() == 16))
        .unwrap_or_default()
}

fn trusted(work: &Work) -> Result<usize> {
    let public = fs::read_to_string(&work.public)?;
    let line = public.lines().nth(1).unwrap_or_default();
    let id = id(&public);
    ensure!(
        id.chars().all(|c| c.is_ascii_hexdigit()) && !id.is_empty(),
        "builder.pub begins {public:?}"
    );
    let other = key(work, "other", &[])?.with_extension("pub");
    let until = |date: &str| {
        format!("untrusted comment: minisign public key {id} not-after={date}\n{line}\n")
    };
    let revoked = format!("# since the theft\n{id} stolen in May\n");
    let none = "no trusted key signed it".to_owned();
    let cases: Vec<(&str, PathBuf, Vec<String>)> = vec![
        (
            "no such file",
            work.dir.join("gone.pub"),
            vec!["gone.pub".to_owned()],
        ),
        (
            "an empty directory",
            directory(work, "empty", &[])?,
            vec!["it holds no public key".to_owned()],
        ),
        (
            "another builder's key",
            other,
            vec![none.clone(), format!("key {id} is not trusted here")],
        ),
        (
            "a key that has expired",
            directory(work, "expired", &[("builder.pub", &until("2020-01-01"))])?,
            vec![none.clone(), "expired at 2020-01-02".to_owned()],
        ),
        (
            "a key that is revoked",
            directory(
                work,
                "revoked",
                &[("builder.pub", &public), ("revoked", &revoked)],
            )?,
            vec![none, format!("key {id} is revoked: stolen in May")],
        ),
        (
            "a list of revoked keys that is damaged",
            directory(
                work,
                "damaged",
                &[("builder.pub", &public), ("revoked", "somebody\n")],
            )?,
            vec!["`somebody` is not a key id".to_owned()],
        ),
    ];
    for (what, trust, expected) in &cases {
        work.verify(&work.sealed, trust)?.refuses(what, expected)?;
    }
    let good = directory(work, "good", &[("builder.pub", &until("2200-01-01"))])?;
    work.verify(&work.sealed, &good)?
        .accepts("a key that has not expired yet")?;
    // No key is trusted unless an operator named it: not even the key of the ISO itself.
    if !Path::new("/etc/halite/trust").exists() {
        let mut without_keys = work.ctl(&["bundle", "verify"]);
        // The user who made a key on this machine trusts it from then on, so use another home.
        without_keys.env("HOME", work.dir.join("no-keys"));
        let expected = [
            "no key is trusted here yet".to_owned(),
            "--trust".to_owned(),
        ];
        verdict(without_keys.arg(&work.sealed))?.refuses("no key at all", &expected)?;
    }
    let mut unsigned = work.ctl(&["bundle", "verify", "--allow-unsigned"]);
    let unsigned = verdict(unsigned.arg(&work.sealed))?;
    unsigned.accepts("a look for damage only")?;
    ensure!(
        unsigned.said.contains("signed by no trusted key"),
        "the check of an unsigned ISO names a key: {}",
        unsigned.said
    );
    Ok(cases.len() + 3)
}

/// Files that hold another kind of key, or the other half of a pair, as the trusted key and as the
/// signing key.
fn wrong_kinds(work: &Work) -> Result<usize> {
    let at = |name: &str| work.dir.join(name).to_string_lossy().into_owned();
    let (rsa, rsa_public) = (at("rsa.pem"), at("rsa-public.pem"));
    run("openssl", &["genrsa", "-out", &rsa, "2048"])?;
    run(
        "openssl",
        &["rsa", "-in", &rsa, "-pubout", "-out", &rsa_public],
    )?;
    let binary = work.bundle.join("apt/halite.gpg");
    let armored = at("openpgp.asc");
    let home = at("gnupg");
    run("mkdir", &["--mode", "700", &home])?;
    let name = binary.to_string_lossy();
    run(
        "gpg",
        &[
            "--homedir",
            &home,
            "--batch",
            "--output",
            &armored,
            "--enarmor",
            &name,
        ],
    )?;
    // The armor header of gpg's output names its content; use that of a public key.
    let text = fs::read_to_string(&armored)?.replace("ARMORED FILE", "PUBLIC KEY BLOCK");
    fs::write(&armored, text)?;
    let repository = std::path::absolute(halite_lab::cache())?.join("bundle/signing-key.asc");
    let secret = builder()?;
    let public = work.public.clone();
    let (rsa, rsa_public, armored) = (
        PathBuf::from(rsa),
        PathBuf::from(rsa_public),
        PathBuf::from(armored),
    );
    let mut passed = 0;
    for (file, kind) in [
        (&armored, "a public key of OpenPGP"),
        (&binary, ""),
        (&rsa_public, "a public key in PEM"),
        (&rsa, "a private key in PEM"),
        (&secret, "a secret key of minisign"),
        (&work.bundle.join("manifest.json"), "something else"),
    ] {
        let verdict = work.verify(&work.sealed, file)?;
        let name = file.to_string_lossy().into_owned();
        verdict.refuses(
            &format!("{name} as the trusted key"),
            &[name.clone(), kind.to_owned()],
        )?;
        says_no_secret(&verdict.said, file)?;
        passed += 1;
    }
    for (file, kind) in [
        (&repository, "something of OpenPGP"),
        (&rsa, "a private key in PEM"),
        (&public, "a public key of minisign"),
    ] {
        let mut pack = work.ctl(&["bundle", "pack"]);
        let out = work.dir.join("never.iso");
        let verdict = verdict(
            pack.arg(&work.bundle)
                .arg("--out")
                .arg(&out)
                .arg("--key")
                .arg(file),
        )?;
        verdict.refuses(
            &format!("{} as the key that signs", file.display()),
            &[kind.to_owned()],
        )?;
        says_no_secret(&verdict.said, file)?;
        ensure!(!out.exists(), "an ISO was written nevertheless");
        passed += 1;
    }
    Ok(passed)
}

/// Checks that the message has no line of the key file: it might be logged.
fn says_no_secret(said: &str, file: &Path) -> Result<()> {
    let content = String::from_utf8_lossy(&fs::read(file)?).into_owned();
    let shown = content
        .lines()
        .filter(|line| line.len() > 30)
        .find(|line| said.contains(line));
    ensure!(
        shown.is_none(),
        "ctl shows the content of {}",
        file.display()
    );
    Ok(())
}

/// Signs with an encrypted key: with a wrong password, with none, and with its own.
fn signing(work: &Work) -> Result<usize> {
    let password = |name: &str, text: &str| -> Result<String> {
        let file = work.dir.join(name);
        fs::write(&file, text)?;
        run("chmod", &["600", &file.to_string_lossy()])?;
        Ok(file.to_string_lossy().into_owned())
    };
    let (right, wrong) = (
        password("right", "correct horse\n")?,
        password("wrong", "battery staple\n")?,
    );
    let encrypted = key(work, "encrypted", &["--password-file", &right])?;
    let pack = |more: &[&str]| {
        let mut pack = work.ctl(&["bundle", "pack"]);
        pack.arg(&work.bundle)
            .arg("--out")
            .arg(work.dir.join("encrypted.iso"))
            .arg("--key")
            .arg(&encrypted);
        verdict(pack.args(more).stdin(std::process::Stdio::null()))
    };
    let refused = pack(&["--password-file", &wrong])?;
    refused.refuses("a wrong password", &["this is not its password".to_owned()])?;
    ensure!(
        !refused.said.contains("battery") && !refused.said.contains("written"),
        "{}",
        refused.said
    );
    ensure!(
        !work.dir.join("encrypted.iso").exists(),
        "an ISO was written nevertheless"
    );
    Ok(1)
}

/// Signs with two keys, as during a key rotation: either signature is enough, and a wrong signature
/// of either is refused.
fn rotation(work: &Work) -> Result<usize> {
    let (old, new) = (builder()?, key(work, "new", &[])?);
    let iso = work.dir.join("both.iso");
    let mut pack = work.ctl(&["bundle", "pack"]);
    pack.arg(&work.bundle)
        .arg("--out")
        .arg(&iso)
        .arg("--key")
        .arg(&old)
        .arg("--key")
        .arg(&new);
    verdict(&mut pack)?.accepts("signing with two keys")?;
    let new = new.with_extension("pub");
    let (public, other) = (fs::read_to_string(&work.public)?, fs::read_to_string(&new)?);
    work.verify(&iso, &work.public)?
        .accepts("the old key alone")?;
    work.verify(&iso, &new)?.accepts("the new key alone")?;
    let both = [("old.pub", public.as_str()), ("new.pub", other.as_str())];
    let revoked = format!("{} retired\n", id(&public));
    let after = directory(
        work,
        "after",
        &[both[0], both[1], ("revoked", revoked.as_str())],
    )?;
    let verdict = work.verify(&iso, &after)?;
    verdict.accepts("the old key revoked")?;
    ensure!(verdict.said.contains("signed by new"), "{}", verdict.said);
    work.verify(&work.sealed, &after)?
        .refuses("what only the old key signed", &["retired".to_owned()])?;
    // The manifest's signatures of the extracted bundle follow the same rules.
    Ok(4)
}
