//! `ctl bundle key` and `ctl bundle pack`, and whom an image is believed.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use halite_seal::Signer;
use halite_seal::detached::VerifiedManifest;
use halite_seal::keys::{Password, PublicKey, SecretKey, Trust, generate, load_all};
use serde_json::json;

use crate::FAILED;
use crate::cli::{Signing, TrustArgs};
use crate::output::{Screen, count};
use crate::site::Site;

/// Where a person keeps the keys that he trusts, below his home: `ctl bundle key` puts those there
/// that he made.
const OWN: &str = ".config/halite/trust";

fn own() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("HOME").filter(|home| !home.is_empty())?).join(OWN))
}

/// Whom the user trusts: what the options say, or the site's keys, or his own; never whom the site
/// revoked.
///
/// # Errors
/// No key is there, or one cannot be read.
pub fn trust(site: &Site, args: &TrustArgs) -> anyhow::Result<Trust> {
    let Some(trust) = known(site, args)? else {
        bail!(
            "no key is trusted here yet: name the .pub file of who builds your bundles with --trust, which must come by \
             another way than the bundle; --allow-unsigned only looks for damage"
        )
    };
    Ok(trust)
}

/// The same; nothing where no key is named or kept, and nothing said of what nobody signed.
fn known(site: &Site, args: &TrustArgs) -> anyhow::Result<Option<Trust>> {
    let kept = [Some(site.trusted()), own()]
        .into_iter()
        .flatten()
        .find(|dir| dir.is_dir());
    let trust = match args.trust.as_ref().or(kept.as_ref()) {
        Some(path) if path.is_dir() => Trust::load(path)?,
        Some(path) => Trust::new(vec![PublicKey::load(path)?]),
        None if args.allow_unsigned => Trust::unsigned(),
        None => return Ok(None),
    };
    // Whom the site trusts no more is not trusted for being named again.
    let trust = trust.no_more_than(&site.trusted())?;
    Ok(Some(if args.allow_unsigned {
        trust.allow_unsigned()
    } else {
        trust
    }))
}

/// Who vouches for the bundle in a directory; nothing where no key is there to look at its
/// signature with.
///
/// # Errors
/// As [`trust()`], and when no trusted key vouches for it.
pub fn vouched(
    site: &Site,
    dir: &Path,
    args: &TrustArgs,
) -> anyhow::Result<Option<VerifiedManifest>> {
    known(site, args)?
        .map(|trust| of_directory(dir, &trust))
        .transpose()
}

fn of_directory(dir: &Path, trust: &Trust) -> anyhow::Result<VerifiedManifest> {
    halite_bundle::signed_manifest::verified(dir, trust).context(
        "nobody who is trusted vouches for this directory (--allow-unsigned only looks for damage)",
    )
}

/// Who signed, in words.
pub fn by(signers: &[Signer]) -> String {
    let signers: Vec<_> = signers.iter().map(ToString::to_string).collect();
    if signers.is_empty() {
        "nobody".to_owned()
    } else {
        signers.join(", ")
    }
}

/// The keys that are to sign.
///
/// # Errors
/// A key cannot be read, or none is named although that was not asked for.
pub fn signers(signing: &Signing) -> anyhow::Result<Vec<SecretKey>> {
    if signing.key.is_empty() && !signing.unsigned {
        bail!(
            "name the key that signs the image with --key (`ctl bundle key` makes one), or leave it --unsigned"
        );
    }
    Ok(load_all(&signing.key, signing.password_file.as_deref())?)
}

/// `ctl bundle key`.
///
/// # Errors
/// A file is there already, or cannot be written.
pub fn key(
    file: &Path,
    password_file: Option<&Path>,
    unencrypted: bool,
    not_after: Option<jiff::civil::Date>,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let password = match password_file {
        _ if unencrypted => None,
        Some(file) => Some(Password::from_file(file)?),
        None => Some(Password::ask_twice("Password of the new key: ")?),
    };
    let end = not_after
        .map(|date| {
            date.tomorrow()?
                .to_zoned(jiff::tz::TimeZone::UTC)
                .map(|next| next.timestamp())
        })
        .transpose()
        .context("the key's end is no date")?;
    let key = generate(file, password.as_ref(), end)?;
    let public = file.with_extension("pub");
    let kept = match own() {
        Some(dir) => {
            let kept = PublicKey::load(&public)?.keep(&dir)?;
            format!("  {} lets you check what you sign\n", kept.display())
        }
        None => String::new(),
    };
    let document = json!({"secret": file, "public": public, "id": key.id(), "line": key.line()});
    screen.answer(&document, |_| {
        format!(
            "key {}\n  {} signs; keep it where only builders of bundles are\n  {} is for the sites, by another way than \
             the bundles:\n    {}\n{kept}",
            key.id(),
            file.display(),
            public.display(),
            key.line()
        )
    })?;
    Ok(0)
}

/// `ctl bundle pack`.
///
/// # Errors
/// The bundle cannot be read, or the image not be written.
pub fn pack(
    directory: &Path,
    out: &Path,
    signing: &Signing,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let keys = signers(signing)?;
    let people = screen.is_for_people();
    let mut told = |text: &str| {
        if people {
            screen.line(text)
        } else {
            screen.progress(text)
        }
    };
    let manifest = halite_bundle::pack(directory, out, &keys, &mut told)?;
    let size = std::fs::metadata(out)
        .map(|status| status.len())
        .unwrap_or_default();
    let signers: Vec<_> = keys.iter().map(|key| key.public().id()).collect();
    let document = json!({"image": out.display().to_string(), "version": manifest.version, "size": size, "signers": signers});
    screen.document(&document)?;
    Ok(0)
}

/// `ctl bundle export` between two bundles to a file.
///
/// # Errors
/// One of the bundles cannot be read, nobody vouches for the new one, or the delta cannot be
/// written.
pub fn export(
    site: &Site,
    [since, new, out]: [&Path; 3],
    signing: &Signing,
    trusted: &TrustArgs,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let keys = signers(signing)?;
    // Whoever signs the delta vouches for what is in it.
    let trust = trust(site, trusted)?;
    let sha256 = if new.is_dir() {
        of_directory(new, &trust)?.sha256
    } else {
        let report = halite_seal::check(new, &trust, &mut |text| screen.progress(text))?;
        if !report.is_sound() {
            let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
            bail!(
                "{} is damaged, nothing was written:\n  {}",
                new.display(),
                problems.join("\n  ")
            );
        }
        report.statement.manifest_sha256
    };
    let people = screen.is_for_people();
    let mut told = |text: &str| {
        if people {
            screen.line(text)
        } else {
            screen.progress(text)
        }
    };
    let delta = halite_bundle::export_delta(since, (new, &sha256), out, &keys, &mut told)?;
    let size = std::fs::metadata(out)
        .map(|status| status.len())
        .unwrap_or_default();
    let signers: Vec<_> = keys.iter().map(|key| key.public().id()).collect();
    let document = json!({"delta": out.display().to_string(), "old": delta.old, "new": delta.new, "size": size,
        "signers": signers});
    screen.document(&document)?;
    Ok(0)
}

/// `ctl bundle verify` of an image.
///
/// # Errors
/// The file cannot be read, or no trusted key vouches for it.
pub fn verify(
    site: &Site,
    file: &Path,
    trusted: &TrustArgs,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let report = halite_seal::check(file, &trust(site, trusted)?, &mut |text| {
        screen.progress(text)
    })?;
    // Nothing of a damaged one is believed, not even what it is.
    let delta = if report.is_sound() {
        halite_bundle::delta::look(file)?
    } else {
        None
    };
    let mut document = serde_json::to_value(&report)?;
    document["sound"] = json!(report.is_sound());
    document["delta"] = json!(delta);
    screen.answer(&document, |paint| {
        let mut text: String =
            report.problems.iter().map(|problem| format!("{} {problem}\n", paint.bad("✗"))).collect();
        if report.is_sound() {
            let by = by(&report.signers);
            text = format!(
                "{} {} {}, {}: all as they were sealed; signed by {by}\n",
                paint.good("✓"),
                report.statement.name,
                report.statement.version,
                count(report.files, "file")
            );
            text.extend(delta.iter().map(|delta| {
                format!(
                    "  it is a delta: only a site that has the bundle {} (built {}) can add it, and has the bundle {} then\n",
                    delta.old.version, delta.old.built, delta.new.version
                )
            }));
        }
        text
    })?;
    Ok(if report.is_sound() { 0 } else { FAILED })
}
