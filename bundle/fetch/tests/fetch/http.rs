//! Files from servers that misbehave.

mod refused;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use halite_durable::Digest;
use halite_errors::chain;
use halite_fetch::http::{Credentials, Secret};
use halite_fetch::progress::Meter;
use halite_fetch::{Artifact, Client, Fetcher, Settings};
use halite_testkit::{Authority, CannedAnswer, Server, content};

use crate::fixture::{Fixture, artifact};

/// Answers the first requests with the given responses, and then with the file.
fn after(answers: Vec<CannedAnswer>, file: Vec<u8>) -> Server {
    let answers = Mutex::new(answers.into_iter());
    Server::start(move |seen| match answers.lock().unwrap().next() {
        Some(answer) => answer,
        None => CannedAnswer::file(seen, &file, "\"1\""),
    })
}

#[test]
fn a_file_is_fetched_once_and_progress_is_told() {
    let (fixture, file) = (Fixture::new(), content(300_000, 1));
    let served = file.clone();
    let server = Server::start(move |seen| CannedAnswer::file(seen, &served, "\"1\""));
    let told = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&told);
    let watcher = Box::new(move |status: &_| noted.lock().unwrap().push(Clone::clone(status)));
    let fetcher = fixture.fetcher().watched(Meter::new(watcher));
    let wanted = artifact("a file", server.url("/file"), &file);
    let entry = fetcher
        .files(std::slice::from_ref(&wanted))
        .unwrap()
        .remove(0);
    assert_eq!(std::fs::read(&entry.path).unwrap(), file);
    assert_eq!((entry.size, &entry.digest), (300_000, &Digest::of(&file)));
    let last: halite_fetch::progress::Status = told.lock().unwrap().last().cloned().unwrap();
    assert_eq!(
        (last.name.as_str(), last.done, last.total, last.all_total),
        ("a file", 300_000, Some(300_000), 300_000)
    );
    assert!(
        last.rate > 0.0 && last.left == Some(Duration::ZERO),
        "{last:?}"
    );
    fetcher.files(&[wanted]).unwrap();
    assert_eq!(server.seen().len(), 1);
    assert_eq!(fixture.kept(), (vec![entry.digest.to_string()], vec![]));
}

#[test]
fn a_cut_transfer_continues_where_it_stopped() {
    let (fixture, file) = (Fixture::new(), content(1_000_000, 2));
    let (served, count) = (file.clone(), AtomicUsize::new(0));
    let server = Server::start(move |seen| {
        let answer = CannedAnswer::file(seen, &served, "\"1\"");
        if count.fetch_add(1, Ordering::SeqCst) < 8 {
            answer.cut(100_000)
        } else {
            answer
        }
    });
    // More interruptions than retries, but each attempt made progress.
    let entry = fixture
        .fetcher()
        .files(&[artifact("a", server.url("/a"), &file)])
        .unwrap()
        .remove(0);
    assert_eq!(std::fs::read(entry.path).unwrap(), file);
    let seen = server.seen();
    assert_eq!(seen.len(), 9);
    assert_eq!(
        (seen[0].header("Range"), seen[0].header("If-Range")),
        (None, None)
    );
    assert_eq!(
        (seen[8].header("Range"), seen[8].header("If-Range")),
        (Some("bytes=800000-"), Some("\"1\""))
    );
    assert_eq!(fixture.pauses(), [1; 8]);
}

#[test]
fn a_later_run_resumes_a_partial_transfer() {
    let (fixture, file) = (Fixture::new(), content(200_000, 3));
    let (served, broken) = (file.clone(), Arc::new(AtomicUsize::new(1)));
    let switch = Arc::clone(&broken);
    let server = Server::start(move |seen| {
        let answer = CannedAnswer::file(seen, &served, "\"1\"");
        match (switch.load(Ordering::SeqCst), seen.header("Range")) {
            (1, None) => answer.cut(150_000),
            (1, Some(_)) => CannedAnswer::new(500),
            _ => answer,
        }
    });
    let wanted = [artifact("a", server.url("/a?token=secret"), &file)];
    let error = fixture
        .fetcher()
        .files(&wanted)
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("/a: the server answers 500") && error.contains("tried 6 times"),
        "{error}"
    );
    assert!(!error.contains("secret"), "{error}");
    let digest = Digest::of(&file);
    assert_eq!(
        fixture.kept(),
        (
            vec![],
            vec![format!("{digest}.part"), format!("{digest}.part.json")]
        )
    );
    broken.store(0, Ordering::SeqCst);
    fixture.fetcher().files(&wanted).unwrap();
    assert_eq!(
        server.seen().last().unwrap().header("Range"),
        Some("bytes=150000-")
    );
    assert_eq!(fixture.kept(), (vec![digest.to_string()], vec![]));
}

#[test]
fn a_file_that_changes_during_the_transfer_is_fetched_again() {
    for known in [false, true] {
        let (fixture, old, new) = (Fixture::new(), content(200_000, 4), content(210_000, 5));
        let (first, second, count) = (old.clone(), new.clone(), AtomicUsize::new(0));
        let server = Server::start(move |seen| match count.fetch_add(1, Ordering::SeqCst) {
            0 => CannedAnswer::file(seen, &first, "\"old\"").cut(100_000),
            _ => CannedAnswer::file(seen, &second, "\"new\""),
        });
        let digest = known.then(|| Digest::of(&new));
        let wanted = Artifact {
            name: "a".into(),
            url: server.url("/a"),
            digest,
            size: None,
            limit: None,
        };
        let entry = fixture.fetcher().files(&[wanted]).unwrap().remove(0);
        assert_eq!(entry.digest, Digest::of(&new));
        assert_eq!(server.seen()[1].header("If-Range"), Some("\"old\""));
    }
}

#[test]
fn a_rest_of_another_file_is_not_taken() {
    let old = content(200_000, 4);
    // A second version of the same length, of another length, and one that differs only in its tag.
    for (second, tag) in [
        (200_000, Some("\"new\"")),
        (210_000, Some("\"old\"")),
        (200_000, None),
    ] {
        let (fixture, new) = (Fixture::new(), content(second, 5));
        let (first, served, count) = (old.clone(), new.clone(), AtomicUsize::new(0));
        // This server ignores `If-Range`.
        let server = Server::start(move |seen| {
            let range = seen
                .header("Range")
                .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
            let answer = match (count.fetch_add(1, Ordering::SeqCst), range) {
                (0, _) => return CannedAnswer::file(seen, &first, "\"old\"").cut(100_000),
                (_, None) => CannedAnswer::new(200).body(served.clone()),
                (_, Some(start)) => CannedAnswer::new(206)
                    .header(
                        "Content-Range",
                        format!("bytes {start}-{}/{}", served.len() - 1, served.len()),
                    )
                    .body(&served[start.parse::<usize>().unwrap()..]),
            };
            match tag {
                Some(tag) => answer.header("ETag", tag),
                None => answer,
            }
        });
        let wanted = Artifact {
            name: "a".into(),
            url: server.url("/a"),
            digest: None,
            size: None,
            limit: None,
        };
        let entry = fixture.fetcher().files(&[wanted]).unwrap().remove(0);
        assert_eq!(std::fs::read(entry.path).unwrap(), new, "{second} {tag:?}");
        assert_eq!(server.seen().len(), 3);
    }
}

#[test]
fn a_proxy_that_has_trouble_is_asked_again() {
    for (status, asked) in [(502, 6), (503, 6), (407, 1), (403, 1)] {
        let fixture = Fixture::new();
        let proxy = Server::start(move |_| CannedAnswer::new(status));
        let settings = Settings {
            proxy: Some(proxy.url("")),
            ..fixture.settings()
        };
        let wanted = [artifact("a", "http://localhost:1/a".into(), b"a")];
        let error = fixture
            .fetcher_with(settings)
            .files(&wanted)
            .map_err(|error| chain(&error))
            .unwrap_err();
        assert_eq!(proxy.seen().len(), asked, "{error}");
        let said = match status {
            407 => "http://localhost:1/a: the proxy requires a login".to_owned(),
            403 => "http://localhost:1/a: the proxy does not allow it (403)".to_owned(),
            _ => format!("http://localhost:1/a: the proxy answers {status}"),
        };
        assert!(error.contains(&said), "{error}");
    }
}

#[test]
fn a_beginning_that_belongs_to_something_else_is_thrown_away() {
    let (fixture, file) = (Fixture::new(), content(100_000, 6));
    let digest = Digest::of(&file);
    for beginning in [content(50_000, 7), content(100_000, 7), content(150_000, 7)] {
        fixture.cache();
        let part = fixture.path(&format!("cache/partial/{digest}.part"));
        std::fs::write(part, &beginning).unwrap();
        let served = file.clone();
        let server = Server::start(move |seen| CannedAnswer::file(seen, &served, "\"1\""));
        let entry = fixture
            .fetcher()
            .files(&[artifact("a", server.url("/a"), &file)])
            .unwrap()
            .remove(0);
        assert_eq!(std::fs::read(&entry.path).unwrap(), file);
        assert!(fixture.pauses().is_empty());
        std::fs::remove_file(entry.path).unwrap();
    }
}

#[test]
fn servers_that_want_time_get_it() {
    let (fixture, file) = (Fixture::new(), content(1_000, 8));
    let answers = vec![
        CannedAnswer::new(429).header("Retry-After", "7"),
        CannedAnswer::new(503).header("Retry-After", "3"),
        CannedAnswer::new(503),
        CannedAnswer::new(500).body("boom"),
    ];
    let server = after(answers, file.clone());
    fixture
        .fetcher()
        .files(&[artifact("a", server.url("/a"), &file)])
        .unwrap();
    assert_eq!(fixture.pauses(), [7, 3, 4, 8]);

    let server = after(
        vec![CannedAnswer::new(429).header("Retry-After", "86400")],
        file.clone(),
    );
    let other = content(999, 8);
    let error = fixture
        .fetcher()
        .files(&[artifact("a", server.url("/b"), &other)])
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("a retry in 86400 seconds") && error.contains("/b: the server answers 429"),
        "{error}"
    );
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn a_stalled_transfer_is_given_up_and_taken_up() {
    let (fixture, file) = (Fixture::new(), content(200_000, 12));
    let served = file.clone();
    // It stalls at one place of the file. On a busy machine, the transfer may also stall elsewhere.
    let server = Server::start(move |seen| {
        let answer = CannedAnswer::file(seen, &served, "\"1\"");
        let start = seen.header("Range").map_or(0, |range| {
            range["bytes=".len()..range.len() - 1].parse().unwrap()
        });
        match 100_000_usize.checked_sub(start) {
            Some(left @ 1..) => answer.stall(left),
            _ => answer,
        }
    });
    let settings = Settings {
        stall: Duration::from_secs(5),
        ..fixture.settings()
    };
    fixture
        .fetcher_with(settings)
        .files(&[artifact("a", server.url("/a"), &file)])
        .unwrap();
    let seen = server.seen();
    let mut ranges = seen.iter().filter_map(|seen| seen.header("Range"));
    assert!(ranges.any(|range| range == "bytes=100000-"), "{seen:?}");

    let silent = Server::start(|_| CannedAnswer::new(200).body("never comes").stall(0));
    let settings = Settings {
        stall: Duration::from_millis(100),
        retries: 1,
        ..fixture.settings()
    };
    let error =
        fixture
            .fetcher_with(settings)
            .files(&[artifact("b", silent.url("/b"), b"never comes")]);
    let error = error.map_err(|error| chain(&error)).unwrap_err();
    assert!(
        error.contains("nothing was received for 0.1 seconds (tried 2 times)"),
        "{error}"
    );
}

#[test]
fn a_refused_connection_is_the_cause_and_named_once() {
    let fixture = Fixture::new();
    let wanted = [artifact("a", "http://127.0.0.1:1/a".into(), b"x")];
    let error = fixture.fetcher().files(&wanted).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("refused"), "{cause}");
    assert!(!error.to_string().contains("refused"), "{error}");
    assert_eq!(chain(&error).matches("refused").count(), 1, "{error:?}");
}

#[test]
fn servers_prove_who_they_are() {
    let (fixture, file) = (Fixture::new(), content(1_000, 13));
    let authority = Authority::new(fixture.path("").as_path());
    let served = file.clone();
    let server = Server::tls(&authority, move |seen| match seen.path.as_str() {
        "/down" => CannedAnswer::new(302).header("Location", "http://localhost:1/x"),
        _ => CannedAnswer::file(seen, &served, "\"1\""),
    });
    let wanted = [artifact("a", server.url("/a"), &file)];
    let error = fixture
        .fetcher()
        .files(&wanted)
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("UnknownIssuer") && error.contains("is the authority"),
        "{error}"
    );
    assert!(server.seen().is_empty() && fixture.pauses().is_empty());
    let settings = Settings {
        authorities: vec![authority.path.clone()],
        ..fixture.settings()
    };
    let fetcher = fixture.fetcher_with(settings);
    fetcher.files(&wanted).unwrap();
    let error = fetcher
        .files(&[artifact("b", server.url("/down"), b"b")])
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.ends_with("it redirects to http://localhost:1/x, which is not protected by TLS"),
        "{error}"
    );
}

#[test]
fn logins_go_where_they_belong_and_nowhere_else() {
    let (fixture, file) = (Fixture::new(), content(1_000, 14));
    let authority = Authority::new(fixture.path("").as_path());
    let served = file.clone();
    let storage = Server::tls(&authority, move |seen| {
        CannedAnswer::file(seen, &served, "\"1\"")
    });
    let elsewhere = storage.url("/blob");
    let server = Server::tls(&authority, move |seen| match seen.header("Authorization") {
        Some("Basic bWU6c2VjcmV0") => CannedAnswer::new(302).header("Location", elsewhere.as_str()),
        _ => CannedAnswer::new(401),
    });
    let netrc = fixture.private(
        "netrc",
        &format!("machine {} login me password secret\n", server.host()),
    );
    let credentials = Credentials::netrc(&netrc).unwrap();
    let authorities = vec![authority.path.clone()];
    let settings = Settings {
        credentials,
        authorities,
        ..fixture.settings()
    };
    let wanted = [artifact("a", server.url("/a"), &file)];
    fixture
        .fetcher_with(Settings {
            credentials: Credentials::default(),
            ..settings.clone()
        })
        .files(&wanted)
        .unwrap_err();
    fixture
        .fetcher_with(settings.clone())
        .files(&wanted)
        .unwrap();
    assert_eq!(storage.seen()[0].header("Authorization"), None);

    // Without TLS the login is not sent at all.
    let open = Server::start(|seen| CannedAnswer::file(seen, b"open", "\"1\""));
    let secret = Secret {
        user: "me".into(),
        password: "secret".into(),
    };
    let credentials = Credentials::default().with("localhost", secret);
    let wanted = [artifact("b", open.url("/b"), b"open")];
    fixture
        .fetcher_with(Settings {
            credentials,
            ..settings
        })
        .files(&wanted)
        .unwrap();
    assert_eq!(open.seen()[0].header("Authorization"), None);

    // The login is not in the error of a proxy either.
    let (refusing, gone) = (
        Server::start(|_| CannedAnswer::new(407)),
        Server::start(|_| CannedAnswer::new(200)),
    );
    let dead = gone.url("");
    drop(gone);
    for proxy in [
        refusing.url(""),
        dead,
        "http://localhost:x".into(),
        "socks5://localhost:1".into(),
    ] {
        let proxy = Some(proxy.replace("://", "://me:hunter2@"));
        let settings = Settings {
            proxy,
            retries: 0,
            ..fixture.settings()
        };
        let error = match halite_fetch::Client::new(settings) {
            Ok(client) => {
                assert!(!format!("{client:?}").contains("hunter2"));
                Fetcher::new(fixture.cache(), client).files(&[artifact(
                    "c",
                    "http://localhost:1/c".into(),
                    b"c",
                )])
            }
            Err(error) => Err(error),
        };
        let error = error.map_err(|error| chain(&error)).unwrap_err();
        assert!(
            !error.contains("hunter2") && !error.contains("bWU6aHVudGVyMg"),
            "{error}"
        );
    }
    assert_eq!(
        refusing.seen()[0].header("Proxy-Authorization"),
        Some("Basic bWU6aHVudGVyMg==")
    );

    std::fs::set_permissions(&netrc, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let error = Credentials::netrc(&netrc)
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.ends_with("others can read it: chmod 600 it"),
        "{error}"
    );
}
