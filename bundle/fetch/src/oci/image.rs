//! Pulling: from an image reference to blobs in the cache.

use std::collections::BTreeMap;

use halite_durable::Digest;
use halite_durable::digest::InvalidDigest;
use ureq::http::header;

use super::endpoint::Repository;
use super::manifest::{InvalidImage, Manifest, Platform};
use super::{ImageRequest, Registries, manifest};
use crate::error::Error;
use crate::fetcher::Fetcher;
use crate::image_ref::ImageRef;
use crate::oci_layout::Descriptor;
use crate::parallel;

/// An image with a known manifest.
pub struct ResolvedImage {
    wanted: ImageRequest,
    repository: Repository,
    /// The digest to which the tag resolved.
    pub tag: Digest,
    index: Option<Descriptor>,
    manifest: Descriptor,
    parts: Vec<Descriptor>,
}

/// An image in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// Its full name.
    pub reference: ImageRef,
    /// Its platform.
    pub platform: Platform,
    /// The index in which its manifest was found, unless the manifest was requested directly.
    pub index: Option<Descriptor>,
    /// Its manifest.
    pub manifest: Descriptor,
    /// Configuration and layers.
    pub parts: Vec<Descriptor>,
}

impl ResolvedImage {
    /// Finds the manifest for the platform: in the cache if its digest is known, otherwise in the
    /// registry.
    pub fn find(
        fetcher: &Fetcher,
        registries: &Registries,
        wanted: &ImageRequest,
    ) -> Result<Self, Error> {
        let reference = &wanted.reference;
        let wrong = |error: InvalidImage| Error::invalid(reference.to_string(), error);
        let repository = Repository::new(registries, reference)?;
        let (tag, mut bytes, mut kind) =
            get(fetcher, &repository, reference, wanted.digest.as_ref())?;
        let mut digest = tag.clone();
        let mut manifest = Manifest::parse(&bytes, kind.as_deref()).map_err(wrong)?;
        let mut index = None;
        if let Manifest::Index { media_type, listed } = &manifest {
            index = Some(descriptor(media_type, &digest, bytes.len()));
            let chosen = manifest::choose(listed, &wanted.platform).map_err(wrong)?;
            digest = chosen
                .digest
                .parse()
                .map_err(|error: InvalidDigest| wrong(error.into()))?;
            let size = chosen.size;
            (_, bytes, kind) = get(fetcher, &repository, reference, Some(&digest))?;
            if bytes.len() as u64 != size {
                return Err(wrong(InvalidImage::Size {
                    expected: size,
                    found: bytes.len() as u64,
                }));
            }
            manifest = Manifest::parse(&bytes, kind.as_deref()).map_err(wrong)?;
        }
        let Manifest::Image { media_type, parts } = manifest else {
            return Err(wrong(InvalidImage::NestedIndex));
        };
        let manifest = descriptor(&media_type, &digest, bytes.len());
        Ok(Self {
            wanted: wanted.clone(),
            repository,
            tag,
            index,
            manifest,
            parts,
        })
    }

    pub fn manifest_digest(&self) -> Result<Digest, Error> {
        digest(&self.wanted.reference, &self.manifest)
    }

    /// The licence from the manifest, or else from the configuration, which is then fetched.
    pub fn licence(&self, fetcher: &Fetcher) -> Result<Option<String>, Error> {
        let manifest = fetcher.cache().read(&self.manifest_digest()?)?;
        if let Some(licence) = manifest.and_then(|bytes| licence_of(&bytes)) {
            return Ok(Some(licence));
        }
        let (Some(config), Some(client)) = (self.parts.first(), fetcher.client()) else {
            return Ok(None);
        };
        let digest = digest(&self.wanted.reference, config)?;
        let name = format!("{} {}", self.wanted.reference, &digest.hex()[..12]);
        self.repository
            .blob(client, fetcher.cache(), None, (&name, &digest, config.size))?;
        Ok(fetcher
            .cache()
            .read(&digest)?
            .and_then(|bytes| licence_of(&bytes)))
    }

    /// The size of all blobs in bytes.
    pub fn size(&self) -> u64 {
        self.manifest.size + self.parts.iter().map(|part| part.size).sum::<u64>()
    }
}

fn descriptor(media_type: &str, digest: &Digest, size: usize) -> Descriptor {
    Descriptor {
        media_type: media_type.to_owned(),
        digest: digest.oci(),
        size: size as u64,
        annotations: BTreeMap::new(),
        platform: None,
    }
}

/// Fetches a manifest into the cache; returns its bytes, its digest and the server's content type.
fn get(
    fetcher: &Fetcher,
    repository: &Repository,
    reference: &ImageRef,
    digest: Option<&Digest>,
) -> Result<(Digest, Vec<u8>, Option<String>), Error> {
    if let Some(digest) = digest
        && let Some(bytes) = fetcher.cache().read(digest)?
    {
        return Ok((digest.clone(), bytes, None));
    }
    let asked = digest.map_or_else(|| reference.tag.clone(), Digest::oci);
    let missing = match digest {
        Some(digest) => format!("image {reference} (manifest {})", digest.oci()),
        None => format!("image {reference} (digest unknown)"),
    };
    let reply = repository.manifest(fetcher.online(&missing)?, &asked)?;
    let found = Digest::of(&reply.body);
    let header = |name: &str| {
        reply
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    // A tag's manifest can only be compared with the digest that the registry announces.
    let announced = header("docker-content-digest").and_then(|text| text.parse::<Digest>().ok());
    if let Some(expected) = digest
        .cloned()
        .or(announced)
        .filter(|expected| *expected != found)
    {
        return Err(Error::Digest {
            url: format!("{reference} (manifest {asked})"),
            expected,
            found,
        });
    }
    let kind = header(header::CONTENT_TYPE.as_str()).map(str::to_owned);
    fetcher.cache().put(&reply.body)?;
    Ok((found, reply.body, kind))
}

/// The annotation or label of the licence in a manifest or a configuration
/// (<https://github.com/opencontainers/image-spec/blob/main/annotations.md>).
const LICENCES: &str = "org.opencontainers.image.licenses";

/// The licence in a manifest or in a configuration.
pub fn licence_of(bytes: &[u8]) -> Option<String> {
    let document: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let places = [
        document.pointer("/annotations"),
        document.pointer("/config/Labels"),
    ];
    let said = places
        .into_iter()
        .flatten()
        .find_map(|labels| labels.get(LICENCES)?.as_str());
    said.filter(|text| !text.is_empty()).map(str::to_owned)
}

fn digest(reference: &ImageRef, descriptor: &Descriptor) -> Result<Digest, Error> {
    descriptor
        .digest
        .parse()
        .map_err(|error: InvalidDigest| Error::invalid(reference.to_string(), error))
}

/// Pulls images; see [`super::Puller::pull`].
pub fn pull(
    fetcher: &Fetcher,
    registries: &Registries,
    wanted: &[ImageRequest],
) -> Result<Vec<Pulled>, Error> {
    let (mut images, mut errors) = (Vec::new(), Vec::new());
    let found = parallel::each(wanted, fetcher.threads(), |wanted| {
        Ok(ResolvedImage::find(fetcher, registries, wanted))
    });
    for image in found? {
        match image {
            Ok(image) => images.push(image),
            Err(error) => errors.push(error),
        }
    }
    // Shared blobs are fetched once.
    let mut blobs = BTreeMap::new();
    for image in &images {
        for part in &image.parts {
            match digest(&image.wanted.reference, part) {
                Ok(digest) => drop(blobs.entry(digest).or_insert((image, part))),
                Err(error) => errors.push(error),
            }
        }
    }
    let blobs: Vec<_> = blobs
        .into_iter()
        .map(|(digest, (image, part))| {
            let name = format!("{} {}", image.wanted.reference, &digest.hex()[..12]);
            (name, digest, image, part.size)
        })
        .collect();
    fetcher.expect(
        blobs
            .iter()
            .map(|(name, _, _, size)| (name.as_str(), Some(*size))),
    );
    let fetched = parallel::each(&blobs, fetcher.threads(), |(name, digest, image, size)| {
        // Each layer is compared with its digest when layers are gathered, so it is not read here.
        if fetcher.cache().find(digest, Some(*size)).is_some() {
            if let Some(meter) = fetcher.meter() {
                meter.at(name, *size, Some(*size), 0);
            }
            return Ok(());
        }
        let missing = || {
            Error::Missing(vec![format!(
                "image {} (blob {})",
                image.wanted.reference,
                digest.oci()
            )])
        };
        let client = fetcher.client().ok_or_else(missing)?;
        image
            .repository
            .blob(
                client,
                fetcher.cache(),
                fetcher.meter(),
                (name, digest, *size),
            )
            .map(drop)
    });
    errors.extend(fetched.err());
    errors.extend(
        images
            .iter()
            .filter_map(|image| check(fetcher, image).err()),
    );
    Error::all(errors)?;
    Ok(images.into_iter().map(ResolvedImage::done).collect())
}

/// Refuses an image whose configuration names another platform than the index.
fn check(fetcher: &Fetcher, image: &ResolvedImage) -> Result<(), Error> {
    let reference = &image.wanted.reference;
    let Some(config) = image.parts.first() else {
        return Ok(());
    };
    // A missing configuration has already been reported.
    let Some(bytes) = fetcher.cache().read(&digest(reference, config)?)? else {
        return Ok(());
    };
    image
        .wanted
        .platform
        .check(&bytes)
        .map_err(|error| Error::invalid(reference.to_string(), error))
}

impl ResolvedImage {
    fn done(self) -> Pulled {
        let ImageRequest {
            reference,
            platform,
            ..
        } = self.wanted;
        Pulled {
            reference,
            platform,
            index: self.index,
            manifest: self.manifest,
            parts: self.parts,
        }
    }
}
