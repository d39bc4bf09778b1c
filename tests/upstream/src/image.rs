//! One image as an OCI layout: a root directory becomes one layer. The same root gives the same
//! digest each time.

use std::fs;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::store::hex;

/// Increased on every change to the writing of images.
pub const REVISION: u32 = 1;

/// The creation time of everything in an image.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// Command and environment of an image.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Run {
    /// The program and its first arguments.
    pub entrypoint: &'static [&'static str],
    /// Arguments if none are given.
    pub arguments: &'static [&'static str],
    /// The user, as `uid:gid`; root if empty.
    pub user: &'static str,
}

/// Writes the layout of one image into an empty directory.
pub fn write(root: &Path, reference: &str, run: &Run, out: &Path) -> Result<()> {
    let blobs = out.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let layer = layer(root, &blobs)?;
    let mut settings = json!({
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        "Entrypoint": run.entrypoint,
        "WorkingDir": "/",
    });
    if !run.arguments.is_empty() {
        settings["Cmd"] = json!(run.arguments);
    }
    if !run.user.is_empty() {
        settings["User"] = json!(run.user);
    }
    let config = json!({
        "created": CREATED,
        "architecture": "amd64",
        "os": "linux",
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id]},
        "history": [{"created": CREATED, "created_by": reference}],
    });
    let config = blob(&blobs, &config, "application/vnd.oci.image.config.v1+json")?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer.descriptor],
    });
    let mut manifest = blob(
        &blobs,
        &manifest,
        "application/vnd.oci.image.manifest.v1+json",
    )?;
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": reference});
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    fs::write(out.join("index.json"), serde_json::to_vec(&index)?)?;
    fs::write(out.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    Ok(())
}

struct Layer {
    diff_id: String,
    descriptor: Value,
}

/// Packs a root: sorted, without times and owners, so that only names, modes and contents count.
fn layer(root: &Path, blobs: &Path) -> Result<Layer> {
    let packed = blobs.join("layer");
    let mut tar = Command::new("tar")
        .args([
            "-c",
            "--sort=name",
            "--format=gnu",
            "--mtime=@0",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
        ])
        .arg("-C")
        .arg(root)
        .arg(".")
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start tar")?;
    let mut zstd = Command::new("zstd")
        .args(["-q", "-3", "-T2", "-c"])
        .stdin(Stdio::piped())
        .stdout(File::create(&packed)?)
        .spawn()
        .context("cannot start zstd: install the package of that name")?;
    let (Some(mut from), Some(mut to)) = (tar.stdout.take(), zstd.stdin.take()) else {
        bail!("cannot connect tar and zstd");
    };
    let mut plain = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        plain.update(&buffer[..count]);
        to.write_all(&buffer[..count])?;
    }
    drop(to);
    if !tar.wait()?.success() || !zstd.wait()?.success() {
        bail!("tar or zstd failed");
    }
    let digest = file_digest(&packed)?;
    let size = fs::metadata(&packed)?.len();
    fs::rename(&packed, blobs.join(&digest))?;
    Ok(Layer {
        diff_id: format!("sha256:{}", hex(&plain.finalize())),
        descriptor: json!({
            "mediaType": "application/vnd.oci.image.layer.v1.tar+zstd",
            "digest": format!("sha256:{digest}"),
            "size": size,
        }),
    })
}

fn blob(blobs: &Path, content: &Value, media_type: &str) -> Result<Value> {
    let bytes = serde_json::to_vec(content)?;
    let digest = hex(&Sha256::digest(&bytes));
    fs::write(blobs.join(&digest), &bytes)?;
    Ok(json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len()}))
}

/// The SHA-256 of a file, in hexadecimal.
pub fn file_digest(file: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    let mut from = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&buffer[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_root_gives_the_same_image() {
        let dir = tempfile::tempdir().unwrap();
        let mut indexes = Vec::new();
        for name in ["one", "two"] {
            let root = dir.path().join(name);
            fs::create_dir_all(root.join("usr/bin")).unwrap();
            fs::write(root.join("usr/bin/program"), "program").unwrap();
            let out = dir.path().join(format!("{name}.out"));
            fs::create_dir(&out).unwrap();
            let run = Run {
                entrypoint: &["/usr/bin/program"],
                arguments: &[],
                user: "",
            };
            write(&root, "example.org/program:1", &run, &out).unwrap();
            indexes.push(fs::read_to_string(out.join("index.json")).unwrap());
        }
        assert_eq!(indexes[0], indexes[1]);
        assert!(indexes[0].contains("example.org/program:1"));
    }
}
