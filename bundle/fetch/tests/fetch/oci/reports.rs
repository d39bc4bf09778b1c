//! Failures of several images in one report.

use halite_errors::chain;

use super::*;

#[test]
fn what_is_missing_offline_is_named_for_all_images() {
    let world = world();
    let server = start(
        &world.authority,
        world.content.clone(),
        Access::Open,
        |_, answer| answer,
    );
    let (fetcher, registries) = (world.fetcher(), Registries::default());
    let image = wanted(&server, "app/web:1");
    let resolved = Puller::new(&fetcher, &registries).resolve(&image).unwrap();
    let host = server.host();
    let offline = Fetcher::offline(world.fixture.cache());
    let locked = ImageRequest {
        digest: Some(resolved.manifest),
        ..image
    };
    let other = Digest::of(b"other");
    let unknown = ImageRequest {
        digest: Some(other.clone()),
        ..wanted(&server, "app/one:1")
    };
    let error = Puller::new(&offline, &registries)
        .pull(&[locked, unknown, wanted(&server, "app/x:2")])
        .unwrap_err();
    let error = chain(&error);
    // The configuration of the first image exists, because it was fetched for the licence.
    assert!(
        error.starts_with("offline, and these 4 are not in the cache:"),
        "{error}"
    );
    assert!(
        error.contains(&format!(
            "image {host}/app/web:1 (blob {})",
            Digest::of(&world.layer).oci()
        )),
        "{error}"
    );
    assert!(
        error.contains(&format!(
            "image {host}/app/one:1 (manifest {})",
            other.oci()
        )),
        "{error}"
    );
    assert!(
        error.contains(&format!("image {host}/app/x:2 (digest unknown)")),
        "{error}"
    );
}

/// A permanent error, a busy server and a circle of redirects: one report names each with its
/// image.
#[test]
fn a_registry_that_stays_broken_is_told_for_every_image() {
    let world = world();
    let server = start(
        &world.authority,
        world.content.clone(),
        Access::Open,
        |seen, answer| match seen.path.rsplit_once('/').map(|(_, tag)| tag) {
            Some("broken") => CannedAnswer::new(500).body("boom"),
            Some("busy") => CannedAnswer::new(429),
            Some("circle") => CannedAnswer::new(307).header("Location", seen.path.as_str()),
            _ => answer,
        },
    );
    let (fetcher, registries) = (world.fetcher(), Registries::default());
    let names = [
        "app/web:broken",
        "app/web:busy",
        "app/web:circle",
        "app/web:1",
    ];
    let error = Puller::new(&fetcher, &registries)
        .pull(&names.map(|name| wanted(&server, name)))
        .map_err(|error| chain(&error))
        .unwrap_err();
    for expected in [
        "manifests/broken: the server answers 500",
        "manifests/busy: the server answers 429",
        "manifests/circle: redirected in a circle",
    ] {
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert!(!error.contains("app/web:1 "), "{error}");
}
