//! Writing an image as an OCI layout, in the form that [`crate::oci_layout`] reads.

use std::fs::File;
use std::path::Path;

use halite_durable::{Digest, files};
use serde_json::json;

use super::Pulled;
use crate::cache::Cache;
use crate::error::Error;
use crate::oci_layout::{LayoutImage, REF_NAME};

impl Pulled {
    /// Writes an OCI layout with only this image, and replaces an existing one atomically. Blobs
    /// are hard links into the cache where the file system allows that.
    ///
    /// # Errors
    /// It cannot be written, or a blob is no longer in the cache.
    pub fn write(&self, cache: &Cache, dir: &Path) -> Result<(), Error> {
        let new = files::sibling(dir, "new");
        let failed = |error: halite_durable::Error| Error::content(dir.to_string_lossy(), error);
        files::remove_dir(&new).map_err(failed)?;
        let image = LayoutImage {
            index: self.index.clone(),
            manifest: self.manifest.clone(),
            parts: self.parts.clone(),
        };
        for part in image.blobs() {
            let digest: Digest = part
                .digest
                .parse()
                .map_err(|error| Error::content(dir.to_string_lossy(), error))?;
            let to = new.join("blobs/sha256").join(digest.hex());
            // An image may list the same layer twice.
            if !to.exists() {
                let entry = cache.sound(&digest, Some(part.size))?;
                let missing = || {
                    Error::Missing(vec![format!(
                        "image {} (blob {})",
                        self.reference, part.digest
                    )])
                };
                files::link(&entry.ok_or_else(missing)?.path, &to).map_err(failed)?;
            }
        }
        let platform = crate::oci_layout::Platform {
            architecture: self.platform.architecture.clone(),
            os: self.platform.os.clone(),
        };
        let mut entry = image.entry();
        entry.platform = Some(platform);
        let name = self.reference.to_string();
        entry.annotations.insert(REF_NAME.to_owned(), name);
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [entry],
        });
        files::write(&new.join("index.json"), 0o644, index.to_string().as_bytes())
            .map_err(failed)?;
        let version = br#"{"imageLayoutVersion":"1.0.0"}"#;
        files::write(&new.join("oci-layout"), 0o644, version).map_err(failed)?;
        for name in ["index.json", "oci-layout", "blobs/sha256", "."] {
            let path = new.join(name);
            File::open(&path)
                .and_then(|file| file.sync_all())
                .map_err(Error::file("write", path))?;
        }
        // Not every file system can exchange two directories atomically; the old one stays complete
        // until the new one is.
        let old = files::sibling(dir, "old");
        files::remove_dir(&old).map_err(failed)?;
        if dir.exists() {
            std::fs::rename(dir, &old).map_err(Error::file("replace", dir))?;
        }
        std::fs::rename(&new, dir).map_err(Error::file("make", dir))?;
        files::remove_dir(&old).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::image_ref::ImageRef;
    use crate::oci_layout::Descriptor;

    #[test]
    fn a_layout_is_read_as_any_other() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(&dir.path().join("cache")).unwrap();
        let put = |kind: &str, bytes: &[u8]| {
            let entry = cache.put(bytes).unwrap();
            let (media_type, digest) = (kind.to_owned(), entry.digest.oci());
            Descriptor {
                media_type,
                digest,
                size: entry.size,
                annotations: BTreeMap::new(),
                platform: None,
            }
        };
        let parts = vec![
            put("config", b"{}"),
            put("layer", b"one"),
            put("layer", b"one"),
        ];
        let manifest =
            json!({"schemaVersion": 2, "config": parts[0], "layers": [parts[1], parts[2]]});
        let manifest = put(
            crate::oci_layout::MANIFESTS[1],
            manifest.to_string().as_bytes(),
        );
        let reference = ImageRef::parse("registry.k8s.io/pause:3.10").unwrap();
        let platform = "linux/arm64".parse().unwrap();
        let mut pulled = Pulled {
            reference,
            platform,
            index: None,
            manifest,
            parts,
        };
        let layout = dir.path().join("layout");
        // The second layout replaces the first one.
        for _ in 0..2 {
            pulled.write(&cache, &layout).unwrap();
            let image = crate::oci_layout::find(&layout, "registry.k8s.io/pause:3.10").unwrap();
            assert_eq!(
                (&image.manifest.digest, &image.parts),
                (&pulled.manifest.digest, &pulled.parts)
            );
        }
        // A failed write keeps the existing layout.
        let lost = Digest::of(b"lost").oci();
        pulled.parts[1].digest.clone_from(&lost);
        let error = pulled.write(&cache, &layout).unwrap_err().to_string();
        assert!(
            error.contains(&format!("image registry.k8s.io/pause:3.10 (blob {lost})")),
            "{error}"
        );
        assert!(crate::oci_layout::find(&layout, "registry.k8s.io/pause:3.10").is_ok());
    }
}
