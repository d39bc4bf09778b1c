//! Checking a sealed image: first the signatures, then every byte.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use halite_durable::{digest, files};

use super::damage::SealDamage;
use super::keys::Trust;
use super::keys::signature::Signature;
use super::report::SealReport;
use super::statement::Statement;
use super::trailer::Footer;
use super::{map, pass};
use crate::error::Error;

/// An opened sealed file. Nothing in it is trusted yet.
pub struct Sealed {
    pub file: File,
    /// The size with the trailer.
    pub size: u64,
    pub footer: Footer,
}

impl Sealed {
    pub fn open(iso: &Path) -> Result<Self, Error> {
        let (file, size) = files::open_sized(iso)?;
        let footer = Footer::read(&file, size).map_err(|damage| Error::invalid(iso, damage))?;
        Ok(Self { file, size, footer })
    }

    /// The statement's bytes, compared only with the digest in the footer.
    pub fn statement(&self) -> Result<Vec<u8>, SealDamage> {
        self.footer.statement.read(&self.file, "statement")
    }

    /// The signatures, compared only with the digests in the footer.
    pub fn signatures(&self) -> Result<Vec<Signature>, SealDamage> {
        let read = |part: &super::trailer::TrailerPart| {
            let bytes = part.read(&self.file, "signature")?;
            let text = std::str::from_utf8(&bytes).map_err(SealDamage::SignatureText)?;
            Signature::parse(text).map_err(SealDamage::Signature)
        };
        self.footer.signatures.iter().map(read).collect()
    }
}

/// The statement of a sealed image in its signed form, for signing with a key on another machine.
/// It is not verified here: check the image before you sign its statement, with [`Trust::unsigned`]
/// if it has no signature yet.
///
/// # Errors
/// The file cannot be read or its seal is incomplete.
pub fn statement(iso: &Path) -> Result<Vec<u8>, Error> {
    Sealed::open(iso)?
        .statement()
        .map_err(|damage| Error::invalid(iso, damage))
}

/// Checks a sealed image: first that a trusted key signed its statement, then every byte against
/// the statement. Nothing in the image is trusted before that; use nothing of it until the report
/// says that it is sound.
///
/// # Errors
/// The file cannot be read, its trailer is damaged, or no trusted key signed it. Bytes that
/// differ from the sealed ones are in the report.
pub fn check(
    iso: &Path,
    trust: &Trust,
    progress: &mut dyn FnMut(&str),
) -> Result<SealReport, Error> {
    let refused = |damage: SealDamage| Error::invalid(iso, damage);
    let sealed = Sealed::open(iso)?;
    let bytes = sealed.statement().map_err(refused)?;
    let signatures = sealed.signatures().map_err(refused)?;
    let verdict = trust
        .judge(&bytes, &signatures)
        .map_err(|untrusted| Error::invalid(iso, untrusted))?;
    let statement = Statement::parse(&bytes).map_err(refused)?;
    let Footer { image, map, .. } = &sealed.footer;
    if statement.size != *image {
        return Err(refused(SealDamage::OtherSize {
            stated: statement.size,
            found: *image,
        }));
    }
    let map = map.read(&sealed.file, "map").map_err(refused)?;
    let sha256 = digest::sha256(&map);
    if sha256 != statement.map_sha256 {
        return Err(refused(SealDamage::OtherMap {
            stated: statement.map_sha256,
            found: sha256,
        }));
    }
    let segments = map::parse(&map, statement.size).map_err(refused)?;
    drop(map);
    let problems = pass::compare(iso, &segments, progress)?;
    let files = segments
        .iter()
        .filter_map(|segment| segment.path.as_ref())
        .collect::<BTreeSet<_>>()
        .len();
    Ok(SealReport {
        statement,
        signers: verdict.signers,
        ignored: verdict.ignored,
        files,
        problems,
    })
}
