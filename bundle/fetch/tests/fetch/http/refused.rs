//! Answers that cannot be used: missing files, endless redirects, wrong digests and sizes.

use halite_errors::chain;

use super::*;

#[test]
fn what_is_not_there_is_not_asked_for_again() {
    let fixture = Fixture::new();
    let server = Server::start(|seen| match seen.path.as_str() {
        "/secret" => CannedAnswer::new(403).body("<html>no</html>"),
        _ => CannedAnswer::new(404).body("no such\nfile\u{7}"),
    });
    let wanted = ["/a", "/secret"].map(|path| artifact(path, server.url(path), path.as_bytes()));
    let error = fixture
        .fetcher()
        .files(&wanted)
        .map_err(|error| chain(&error))
        .unwrap_err();
    let (a, secret) = (server.url("/a"), server.url("/secret"));
    assert!(
        error.contains(&format!(
            "{a}: the server answers 404 Not Found: no such file\n"
        )),
        "{error}"
    );
    assert!(
        error.contains(&format!(
            "{secret}: the server answers 403 Forbidden: a login for"
        )),
        "{error}"
    );
    assert_eq!((server.seen().len(), fixture.pauses().len()), (2, 0));
    assert_eq!(fixture.kept(), (vec![], vec![]));
}

#[test]
fn redirects_are_followed_and_end() {
    let (fixture, file) = (Fixture::new(), content(1_000, 9));
    let served = file.clone();
    let server = Server::start(move |seen| match seen.path.as_str() {
        "/circle" => CannedAnswer::new(302).header("Location", "/circle"),
        "/nowhere" => CannedAnswer::new(301),
        "/file" => CannedAnswer::file(seen, &served, "\"1\""),
        path if path.starts_with("/on") => {
            let (_, n) = path.split_once('=').unwrap();
            let n = n.parse::<u32>().unwrap();
            CannedAnswer::new(307).header(
                "Location",
                if n == 3 {
                    "/file".into()
                } else {
                    format!("on?n={}", n + 1)
                },
            )
        }
        _ => CannedAnswer::new(404),
    });
    let fetch = |path: &str| {
        fixture
            .fetcher()
            .files(&[artifact(path, server.url(path), &file)])
    };
    let error = fetch("/circle").map_err(|error| chain(&error)).unwrap_err();
    let circle = server.url("/circle");
    assert_eq!(
        error,
        format!("{circle}: redirected in a circle 11 times, at last by {circle}")
    );
    assert!(
        fetch("/on?n=4")
            .map_err(|error| chain(&error))
            .unwrap_err()
            .contains("/on: redirected in a circle 11 times")
    );
    assert!(
        fetch("/nowhere")
            .map_err(|error| chain(&error))
            .unwrap_err()
            .ends_with("it redirects without a target")
    );
    fetch("/on?n=0").unwrap();
    assert!(fixture.pauses().is_empty());
}

#[test]
fn what_has_another_digest_or_size_is_removed() {
    let (fixture, file) = (Fixture::new(), content(1_000, 10));
    let served = file.clone();
    let server = Server::start(move |seen| CannedAnswer::file(seen, &served, "\"1\""));
    let other = Digest::of(b"other");
    let url = server.url("/a");
    let wanted = |digest: &Digest, size| Artifact {
        name: "a".into(),
        url: url.clone(),
        digest: Some(digest.clone()),
        size,
        limit: None,
    };
    let found = Digest::of(&file);
    let error = fixture
        .fetcher()
        .files(&[wanted(&other, None)])
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert_eq!(
        error,
        format!("{url}: expected SHA-256 {other}, found {found}; the received data was removed")
    );
    let error = fixture
        .fetcher()
        .files(&[wanted(&found, Some(999))])
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert_eq!(
        error,
        format!("{url}: expected 999 bytes, found 1000; the received data was removed")
    );
    assert_eq!((server.seen().len(), fixture.kept()), (2, (vec![], vec![])));
}

#[test]
fn what_has_no_known_size_has_a_bound() {
    let fixture = Fixture::new();
    let server = Server::start(|seen| match seen.path.as_str() {
        "/said" => CannedAnswer::new(200).body("begins").saying(2_000),
        "/right" => CannedAnswer::new(200).body(content(1_999, 15)),
        _ => CannedAnswer::new(200).body(content(2_000, 15)).endless(),
    });
    let wanted = |path: &str, limit| Artifact {
        name: "a".into(),
        url: server.url(path),
        digest: None,
        size: None,
        limit: Some(limit),
    };
    for path in ["/said", "/unsaid"] {
        let error = fixture
            .fetcher()
            .files(&[wanted(path, 1_999)])
            .map_err(|error| chain(&error))
            .unwrap_err();
        let url = server.url(path);
        let said =
            "it is larger than 1999 bytes, which cannot be right; the received data was removed";
        assert_eq!(error, format!("{url}: {said}"));
        assert_eq!(fixture.kept(), (vec![], vec![]));
    }
    assert_eq!((server.seen().len(), fixture.pauses().len()), (2, 0));
    assert_eq!(
        fixture.fetcher().files(&[wanted("/right", 1_999)]).unwrap()[0].size,
        1_999
    );
}

#[test]
fn a_file_announced_as_too_large_is_refused_at_once() {
    let fixture = Fixture::new();
    // The client receives no more data.
    let server = Server::start(|_| CannedAnswer::new(200).body(content(2_000, 16)).stall(9));
    let settings = Settings {
        largest: Some(1_999),
        retries: 0,
        // If the client waited for it, this would be the cause.
        stall: Duration::from_secs(30),
        ..fixture.settings()
    };
    let url = server.url("/a");
    let wanted = Artifact {
        name: "a".into(),
        url: url.clone(),
        digest: None,
        size: None,
        limit: Some(5_000),
    };
    let said = format!("{url}: it is larger than 1999 bytes, which cannot be right");
    let error = fixture
        .fetcher_with(settings.clone())
        .files(&[wanted])
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert_eq!(error, format!("{said}; the received data was removed"));
    let error = Client::new(settings)
        .unwrap()
        .bytes(&url, 1_999)
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert_eq!(error, said);
    assert_eq!((server.seen().len(), fixture.kept()), (2, (vec![], vec![])));
}

#[test]
fn all_problems_come_in_one_report_and_what_is_right_is_kept() {
    let (fixture, file) = (Fixture::new(), content(1_000, 11));
    let served = file.clone();
    let server = Server::start(move |seen| match seen.path.as_str() {
        "/gone" => CannedAnswer::new(404),
        _ => CannedAnswer::file(seen, &served, "\"1\""),
    });
    let wanted = [
        artifact("gone", server.url("/gone"), b"gone"),
        artifact("good", server.url("/good"), &file),
        artifact("wrong", server.url("/wrong"), b"wrong"),
        artifact(
            "login",
            server.url("/x").replace("://", "://me:secret@"),
            b"login",
        ),
    ];
    let error = fixture
        .fetcher()
        .files(&wanted)
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(error.contains("/gone: the server answers 404"), "{error}");
    assert!(
        error.contains("/wrong: expected 5 bytes, found 1000"),
        "{error}"
    );
    assert!(
        error.contains("must not contain a login") && !error.contains("secret"),
        "{error}"
    );
    assert_eq!(
        fixture.kept(),
        (vec![Digest::of(&file).to_string()], vec![])
    );

    // Offline, too, all missing files are reported at once; the others are found.
    let offline = Fetcher::offline(fixture.cache());
    assert_eq!(offline.files(&wanted[1..2]).unwrap()[0].size, 1_000);
    let error = offline
        .files(&wanted[..3])
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert_eq!(
        error,
        format!(
            "offline, and these 2 are not in the cache:\n  gone ({})\n  wrong ({})\nfetch once without \
             `--offline` to have them",
            Digest::of(b"gone").oci(),
            Digest::of(b"wrong").oci()
        )
    );
}
