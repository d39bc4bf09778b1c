//! `ctl bundle copy`: copies a bundle from another host that serves it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use halite_api::{CopiedBundle, to_value};
use halite_bundle::{Added, BundleStore, Origin};
use halite_fetch::Settings;
use halite_names::BundleVersion;

use crate::cli::Copy;
use crate::output::{Screen, megabytes, path_text};

/// Runs `ctl bundle copy`.
///
/// # Errors
/// With `--check`, the bundle is missing or incomplete; otherwise, it cannot be copied.
pub fn run(args: &Copy, screen: &mut Screen) -> anyhow::Result<u8> {
    let place = (
        args.to.parent(),
        args.to.file_name().and_then(|name| name.to_str()),
    );
    let (Some(root), Some(version)) = place else {
        bail!(
            "--to {}: name the bundle's directory; its last part is the version",
            args.to.display()
        );
    };
    let version: &BundleVersion = &version
        .parse()
        .with_context(|| format!("--to {}", args.to.display()))?;
    let bundles = BundleStore::new(if root == Path::new("") {
        Path::new(".")
    } else {
        root
    });
    if args.check {
        bundles.holds(version, &args.manifest_sha256)?;
        let document = CopiedBundle {
            version: version.clone(),
            path: path_text(&args.to),
            changed: false,
            fetched: None,
            reused: None,
        };
        screen.answer(&to_value(&document), |paint| {
            format!(
                "{} bundle {version} already exists and is complete\n",
                paint.good("✓")
            )
        })?;
        return Ok(0);
    }
    let origin = Origin {
        servers: args.from.clone(),
        settings: settings(args),
    };
    let copied = bundles
        .copy(version, &args.manifest_sha256, &origin, &mut |text| {
            screen.progress(text)
        })
        .with_context(|| {
            format!(
                "cannot copy the bundle {version}; the files that arrived are kept for the next try"
            )
        })?;
    let document = CopiedBundle {
        version: version.clone(),
        path: path_text(&args.to),
        changed: copied.added != Added::There,
        fetched: Some(copied.fetched),
        reused: Some(copied.reused),
    };
    screen.answer(&to_value(&document), |paint| {
        let there = if copied.added == Added::There {
            "already exists"
        } else {
            "is copied"
        };
        format!(
            "{} bundle {version} {there}: {} fetched, {} reused\n",
            paint.good("✓"),
            megabytes(copied.fetched),
            megabytes(copied.reused)
        )
    })?;
    Ok(0)
}

/// Settings for hosts of the same site: short timeouts and no proxy.
fn settings(args: &Copy) -> Settings {
    Settings {
        authorities: args.ca.iter().cloned().collect(),
        system_authorities: args.ca.is_none(),
        proxy: Some(String::new()),
        connect: Duration::from_secs(5),
        stall: Duration::from_secs(30),
        retries: 2,
        ..Settings::default()
    }
}
