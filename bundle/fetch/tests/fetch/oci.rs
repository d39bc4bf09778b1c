//! Images from a registry that requires logins, redirects, breaks connections and lies.

mod reports;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use halite_durable::Digest;
use halite_errors::chain;
use halite_fetch::http::{Credentials, Secret};
use halite_fetch::oci::{Endpoint, ImageRequest, Platform, Puller, Registries};
use halite_fetch::{Fetcher, ImageRef, Settings, oci_layout};
use halite_testkit::registry::{Content, OCI_INDEX};
use halite_testkit::{Authority, CannedAnswer, Server, content};
use serde_json::Value;

use crate::fixture::Fixture;
use crate::registry::{Access, DOCKER_LIST, start};

const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

struct World {
    fixture: Fixture,
    authority: Authority,
    /// A layer that is not an archive: the code must not read its content.
    layer: Vec<u8>,
    content: Content,
}

/// `app/web:1` for two platforms; `app/one:1` in Docker's format and for arm64 only.
fn world() -> World {
    let fixture = Fixture::new();
    let authority = Authority::new(&fixture.path(""));
    let (mut all, layer, shared) = (
        Content::default(),
        content(500_000, 40),
        content(70_000, 41),
    );
    let amd64 = all.image(
        "app/web",
        false,
        "linux/amd64",
        &[(GZIP, &shared), (ZSTD, &layer)],
    );
    let arm64 = all.image("app/web", false, "linux/arm64", &[(GZIP, &shared)]);
    let index = all.index("app/web", OCI_INDEX, &[arm64, amd64]);
    all.tag("app/web", "1", &index);
    let one = all.image("app/one", true, "linux/arm64", &[(GZIP, &shared)]);
    all.tag("app/one", "1", &one);
    World {
        fixture,
        authority,
        layer,
        content: all,
    }
}

impl World {
    fn fetcher(&self) -> Fetcher {
        let settings = Settings {
            authorities: vec![self.authority.path.clone()],
            ..self.fixture.settings()
        };
        self.fixture.fetcher_with(settings)
    }

    fn logins(&self) -> Registries {
        Registries::new(Credentials::default().with(
            "localhost",
            Secret {
                user: "me".into(),
                password: "secret".into(),
            },
        ))
    }
}

fn wanted(server: &Server, name: &str) -> ImageRequest {
    let reference = ImageRef::parse(&format!("{}/{name}", server.host())).unwrap();
    ImageRequest {
        reference,
        platform: Platform::default(),
        digest: None,
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn an_image_becomes_a_layout() {
    let world = world();
    let server = start(
        &world.authority,
        world.content.clone(),
        Access::Open,
        |_, answer| answer,
    );
    let (fetcher, registries) = (world.fetcher(), Registries::default());
    let puller = Puller::new(&fetcher, &registries);
    let image = wanted(&server, "app/web:1");
    let resolved = puller.resolve(&image).unwrap();
    let dir = world.fixture.path("layout");
    let pulled = puller.layout(&image, &dir).unwrap();
    assert_eq!(pulled.manifest.digest, resolved.manifest.oci());
    assert_ne!(resolved.tag, resolved.manifest);
    let sizes = pulled.parts.iter().map(|part| part.size).sum::<u64>();
    assert_eq!(resolved.size, pulled.manifest.size + sizes);
    let index = json(&dir.join("index.json"));
    assert_eq!(
        index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"],
        image.reference.to_string()
    );
    assert_eq!(index["manifests"][0]["digest"], pulled.manifest.digest);
    assert_eq!(json(&dir.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
    // Each blob is unchanged under its digest.
    for part in std::iter::once(&pulled.manifest).chain(&pulled.parts) {
        let bytes = std::fs::read(dir.join("blobs/sha256").join(part.hex().unwrap())).unwrap();
        assert_eq!(
            (Digest::of(&bytes).oci(), bytes.len() as u64),
            (part.digest.clone(), part.size)
        );
    }
    assert_eq!(pulled.parts[2].digest, Digest::of(&world.layer).oci());
    assert_eq!(
        (pulled.parts[2].media_type.as_str(), pulled.parts.len()),
        (ZSTD, 3)
    );

    // Again by digest: everything exists and nothing is requested. The same offline, into the same
    // directory.
    let before = server.seen().len();
    let locked = ImageRequest {
        digest: Some(resolved.tag.clone()),
        ..image
    };
    assert_eq!(
        puller.pull(std::slice::from_ref(&locked)).unwrap(),
        std::slice::from_ref(&pulled)
    );
    // The index, whose digest others use to name the image, is part of the layout.
    let read = oci_layout::find(&dir, &locked.reference.to_string()).unwrap();
    assert_eq!(read.index, pulled.index);
    assert!(read.has_digest(&resolved.tag.oci()) && read.has_digest(&resolved.manifest.oci()));
    let index = dir.join("blobs/sha256").join(resolved.tag.hex());
    assert_eq!(Digest::of(&std::fs::read(index).unwrap()), resolved.tag);
    assert_eq!(pulled.index.as_ref().unwrap().media_type, OCI_INDEX);
    // By the digest of its manifest, the image is the same, but no index is known.
    let direct = ImageRequest {
        digest: Some(resolved.manifest),
        ..locked.clone()
    };
    let direct = puller.pull(&[direct]).unwrap().remove(0);
    assert_eq!((direct.manifest, direct.index), (pulled.manifest, None));
    let offline = Fetcher::offline(world.fixture.cache());
    Puller::new(&offline, &registries)
        .layout(&locked, &dir)
        .unwrap();
    assert_eq!(server.seen().len(), before);
}

#[test]
fn an_image_for_another_platform_is_refused_with_what_there_is() {
    let world = world();
    let mut content = world.content.clone();
    // An index that declares amd64 for an image for s390x.
    let mut liar = content.image("app/liar", false, "linux/s390x", &[]);
    liar["platform"]["architecture"] = "amd64".into();
    let index = content.index("app/liar", DOCKER_LIST, &[liar]);
    content.tag("app/liar", "1", &index);
    let server = start(&world.authority, content, Access::Open, |_, answer| answer);
    let (fetcher, registries) = (world.fetcher(), Registries::default());
    let puller = Puller::new(&fetcher, &registries);
    let riscv = ImageRequest {
        platform: "linux/riscv64".parse().unwrap(),
        ..wanted(&server, "app/web:1")
    };
    let error = puller
        .pull(&[riscv, wanted(&server, "app/one:1")])
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains(
            "app/web:1: it does not exist for linux/riscv64; available: linux/amd64, linux/arm64"
        ),
        "{error}"
    );
    // The other image has no index, only a configuration that declares its platform.
    assert!(
        error.contains("app/one:1: it exists only for linux/arm64, not for linux/amd64"),
        "{error}"
    );
    let error = puller
        .pull(&[wanted(&server, "app/liar:1")])
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.ends_with("app/liar:1: it exists only for linux/s390x, not for linux/amd64"),
        "{error}"
    );
    let error = puller
        .resolve(&wanted(&server, "app/none:1"))
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("/v2/app/none/manifests/1: the server answers 404")
            && error.contains("MANIFEST_UNKNOWN"),
        "{error}"
    );
}

#[test]
fn logins_are_made_as_the_registry_wants_them() {
    let world = world();
    let docker = r#"{"auths": {"localhost": {"auth": "bWU6c2VjcmV0"}}}"#;
    let docker = Credentials::docker(&world.fixture.private("config.json", docker)).unwrap();
    // A token for two requests must be renewed in the middle of an image.
    for access in [Access::Basic, Access::Token(2), Access::Token(1000)] {
        let server = start(
            &world.authority,
            world.content.clone(),
            access,
            |_, answer| answer,
        );
        let image = wanted(&server, "app/web:1");
        let settings = Settings {
            authorities: vec![world.authority.path.clone()],
            threads: 1,
            ..world.fixture.settings()
        };
        let fixture = Fixture::new();
        let fetcher = fixture.fetcher_with(settings);
        let error =
            Puller::new(&fetcher, &Registries::default()).pull(std::slice::from_ref(&image));
        let error = error.map_err(|error| chain(&error)).unwrap_err();
        assert!(
            error.contains("401") && error.contains("a login for localhost:"),
            "{error}"
        );
        for registries in [world.logins(), Registries::new(docker.clone())] {
            Puller::new(&fetcher, &registries)
                .pull(std::slice::from_ref(&image))
                .unwrap();
        }
        let wrong = Credentials::default().with(
            "localhost",
            Secret {
                user: "me".into(),
                password: "hunter2".into(),
            },
        );
        let error = Puller::new(&fetcher, &Registries::new(wrong))
            .resolve(&image)
            .map_err(|error| chain(&error))
            .unwrap_err();
        assert!(
            error.contains("401") && !error.contains("hunter2") && !error.contains("token-"),
            "{error}"
        );
        assert!(world.fixture.pauses().is_empty());
    }
}

#[test]
fn layers_that_are_elsewhere_are_fetched_there_without_the_login() {
    let world = world();
    let layer = world.layer.clone();
    let storage = Server::tls(&world.authority, move |seen| {
        CannedAnswer::file(seen, &layer, "\"x\"")
    });
    let digest = Digest::of(&world.layer).oci();
    let elsewhere = storage.url("/storage?signature=opens-doors");
    let server = start(
        &world.authority,
        world.content.clone(),
        Access::Token(1000),
        move |seen, answer| match seen.path.ends_with(&digest) {
            true => CannedAnswer::new(307).header("Location", elsewhere.as_str()),
            false => answer,
        },
    );
    let (fetcher, registries) = (world.fetcher(), world.logins());
    Puller::new(&fetcher, &registries)
        .pull(&[wanted(&server, "app/web:1")])
        .unwrap();
    let seen = storage.seen();
    assert_eq!((seen.len(), seen[0].header("Authorization")), (1, None));
}

#[test]
fn layers_are_taken_up_where_they_were_cut_and_wrong_ones_are_refused() {
    let world = world();
    let (digest, count) = (Digest::of(&world.layer).oci(), AtomicUsize::new(0));
    let layer = digest.clone();
    let server = start(
        &world.authority,
        world.content.clone(),
        Access::Open,
        move |seen, answer| match seen.path.ends_with(&layer) {
            true => match count.fetch_add(1, Ordering::SeqCst) {
                0 => CannedAnswer::new(429).header("Retry-After", "2"),
                1 => answer.cut(200_000),
                _ => answer,
            },
            false => answer,
        },
    );
    let (fetcher, registries) = (world.fetcher(), Registries::default());
    Puller::new(&fetcher, &registries)
        .pull(&[wanted(&server, "app/web:1")])
        .unwrap();
    let seen = server.seen();
    let ranges: Vec<_> = seen
        .iter()
        .filter(|seen| seen.path.ends_with(&digest))
        .map(|seen| seen.header("Range"))
        .collect();
    assert_eq!(
        (ranges, world.fixture.pauses()),
        (vec![None, None, Some("bytes=200000-")], vec![2, 1])
    );

    let (fixture, wrong) = (Fixture::new(), digest.clone());
    let liar = start(
        &world.authority,
        world.content.clone(),
        Access::Open,
        move |seen, answer| match seen.path.ends_with(&wrong) || seen.path.ends_with("/manifests/2")
        {
            true => CannedAnswer::new(200)
                .header("Docker-Content-Digest", wrong.as_str())
                .body(content(500_000, 42)),
            false => answer,
        },
    );
    let settings = Settings {
        authorities: vec![world.authority.path.clone()],
        ..fixture.settings()
    };
    let fetcher = fixture.fetcher_with(settings);
    let error = Puller::new(&fetcher, &registries)
        .pull(&[wanted(&liar, "app/web:1"), wanted(&liar, "app/web:2")]);
    let error = error.map_err(|error| chain(&error)).unwrap_err();
    let (expected, found) = (Digest::of(&world.layer), Digest::of(&content(500_000, 42)));
    let blob = liar.url(&format!("/v2/app/web/blobs/{digest}"));
    assert!(
        error.contains(&format!(
            "{blob}: expected SHA-256 {expected}, found {found}"
        )),
        "{error}"
    );
    assert!(
        error.contains(&format!(
            "app/web:2 (manifest 2): expected SHA-256 {expected}, found {found}"
        )),
        "{error}"
    );
    assert!(!fixture.kept().0.contains(&found.to_string()) && fixture.kept().1.is_empty());
}

#[test]
fn mirrors_are_asked_first_and_the_registry_when_they_do_not_help() {
    let world = world();
    let mirror = start(
        &world.authority,
        world.content.clone(),
        Access::Open,
        |seen, answer| {
            if seen.path.contains("/blobs/") {
                CannedAnswer::new(404)
            } else {
                answer
            }
        },
    );
    let server = start(
        &world.authority,
        world.content.clone(),
        Access::Open,
        |_, answer| answer,
    );
    let (fetcher, host) = (world.fetcher(), server.host());
    let gone = Endpoint {
        address: "localhost:1".into(),
        plain: false,
    };
    let here = Endpoint {
        address: mirror.host(),
        plain: false,
    };
    let registries = Registries::default()
        .mirror(&host, gone)
        .mirror(&host, here);
    Puller::new(&fetcher, &registries)
        .pull(&[wanted(&server, "app/web:1")])
        .unwrap();
    let blobs = |server: &Server| {
        server
            .seen()
            .iter()
            .filter(|seen| seen.path.contains("/blobs/"))
            .count()
    };
    assert_eq!(
        (blobs(&mirror), blobs(&server), server.seen().len()),
        (3, 3, 3)
    );
    // The unreachable server was retried to the limit, once.
    assert_eq!(world.fixture.pauses(), [1, 2, 4, 8, 16]);
}

#[test]
fn plain_http_is_spoken_only_where_it_is_configured() {
    let world = world();
    let content = world.content.clone();
    let manifest = content.manifests["app/one/1"].clone();
    let blobs = content.blobs.clone();
    let server = Server::start(move |seen| match seen.path.rsplit_once('/') {
        Some((_, digest)) if blobs.contains_key(digest) => {
            CannedAnswer::new(200).body(blobs[digest].as_slice())
        }
        _ => CannedAnswer::new(200)
            .header("Content-Type", &*manifest.0)
            .body(manifest.1.as_slice()),
    });
    let image = ImageRequest {
        platform: "linux/arm64".parse().unwrap(),
        ..wanted(&server, "app/one:1")
    };
    let fetcher = world.fetcher();
    assert!(
        Puller::new(&fetcher, &Registries::default())
            .pull(std::slice::from_ref(&image))
            .is_err()
    );
    let registries = Registries::default().plain(&server.host());
    assert_eq!(
        Puller::new(&fetcher, &registries)
            .pull(&[image])
            .unwrap()
            .len(),
        1
    );
}
