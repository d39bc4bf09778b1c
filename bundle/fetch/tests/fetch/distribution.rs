//! Images from a real registry, with TLS and logins.

use halite_durable::Digest;
use halite_errors::chain;
use halite_fetch::http::{Credentials, Secret};
use halite_fetch::oci::{ImageRequest, Platform, Puller, Registries};
use halite_fetch::{Fetcher, ImageRef, Settings};
use halite_testkit::distribution::Registry;
use halite_testkit::registry::{Content, OCI_INDEX};
use halite_testkit::{Authority, content};

use crate::fixture::Fixture;

#[test]
fn images_are_pulled_with_a_login() {
    let fixture = Fixture::new();
    let authority = Authority::new(&fixture.path(""));
    let registry = Registry::start(&fixture.path(""), &authority);
    let (gzip, zstd) = (content(700_000, 50), content(300_000, 51));
    let mut all = Content::default();
    let layers: [(&str, &[u8]); 2] = [
        ("application/vnd.oci.image.layer.v1.tar+gzip", &gzip),
        ("application/vnd.oci.image.layer.v1.tar+zstd", &zstd),
    ];
    let amd64 = all.image("app/web", false, "linux/amd64", &layers);
    let arm64 = all.image("app/web", false, "linux/arm64", &layers[..1]);
    let index = all.index("app/web", OCI_INDEX, &[arm64, amd64.clone()]);
    all.tag("app/web", "1", &index);
    registry.push("app/web", &all);
    let blob = format!("app/web/blobs/{}", Digest::of(&gzip).oci());
    assert_eq!(registry.get(&blob, "*/*").as_ref(), Some(&gzip));

    let reference = ImageRef::parse(&format!("{}/app/web:1", registry.host())).unwrap();
    let wanted = ImageRequest {
        reference,
        platform: Platform::default(),
        digest: None,
    };
    let settings = Settings {
        authorities: vec![authority.path.clone()],
        ..fixture.settings()
    };
    let fetcher: Fetcher = fixture.fetcher_with(settings);
    let error = Puller::new(&fetcher, &Registries::default())
        .resolve(&wanted)
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("401") && error.contains("a login for localhost:"),
        "{error}"
    );
    let secret = Secret {
        user: "me".into(),
        password: "secret".into(),
    };
    let registries = Registries::new(Credentials::default().with("localhost", secret));
    let puller = Puller::new(&fetcher, &registries);
    assert_eq!(
        puller.resolve(&wanted).unwrap().manifest.oci(),
        amd64["digest"].as_str().unwrap()
    );
    // The beginning of a layer already exists; the registry sends the rest.
    let part = fixture.path(&format!("cache/partial/{}.part", Digest::of(&gzip)));
    std::fs::write(part, &gzip[..400_000]).unwrap();
    let layout = fixture.path("layout");
    let pulled = puller.layout(&wanted, &layout).unwrap();
    for (part, layer) in pulled.parts[1..].iter().zip([&gzip, &zstd]) {
        assert_eq!(
            &std::fs::read(layout.join("blobs/sha256").join(part.hex().unwrap())).unwrap(),
            layer
        );
    }
    let other = ImageRequest {
        platform: "linux/s390x".parse().unwrap(),
        ..wanted.clone()
    };
    let error = puller
        .resolve(&other)
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("it does not exist for linux/s390x; available: linux/amd64, linux/arm64"),
        "{error}"
    );
    let locked = ImageRequest {
        digest: Some(amd64["digest"].as_str().unwrap().parse().unwrap()),
        ..wanted
    };
    let offline = Fetcher::offline(fixture.cache());
    Puller::new(&offline, &registries).pull(&[locked]).unwrap();
}
