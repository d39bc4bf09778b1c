use std::io::Read as _;
use std::net::TcpListener;

use halite_errors::chain;
use halite_pillar::notify::NoticeSeverity;
use halite_secrets::SecretText;
use halite_testkit::{Authority, CannedAnswer, Server};

use super::*;

const SHORT: Duration = Duration::from_millis(300);

fn target(url: &str, ca: Option<&Authority>) -> SinkTarget {
    SinkTarget {
        name: "ops".to_owned(),
        form: SinkForm::Plain,
        url: SecretText::new(url),
        ca: ca.map(|authority| std::fs::read_to_string(&authority.path).unwrap()),
        header: Some((
            "Authorization".to_owned(),
            SecretText::new("Bearer hunter2"),
        )),
        repeat: 1,
        severity: NoticeSeverity::Warning,
    }
}

fn sent(target: &SinkTarget, limit: Duration) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let posted = runtime.block_on(post(target, "{}".to_owned(), limit));
    posted.map_err(|error| {
        let text = chain(&error);
        assert!(!text.contains("hunter2"), "{text}");
        text
    })
}

#[test]
fn a_request_has_its_path_type_and_header() {
    let server = Server::start(|_| CannedAnswer::new(204));
    sent(&target(&server.url("/hook/hunter2?a=b"), None), LIMIT).unwrap();
    let seen = &server.seen()[0];
    assert_eq!(seen.path, "/hook/hunter2?a=b");
    assert_eq!(seen.header("authorization"), Some("Bearer hunter2"));
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert_eq!(seen.header("host"), Some(server.host().as_str()));
    assert_eq!(seen.header("content-length"), Some("2"));
}

#[test]
fn the_api_of_an_alertmanager_is_below_its_address() {
    let server = Server::start(|_| CannedAnswer::new(200));
    for (path, wanted) in [
        ("", "/api/v2/alerts"),
        ("/am/", "/am/api/v2/alerts"),
        ("/api/v2/alerts", "/api/v2/alerts"),
    ] {
        let mut target = target(&server.url(path), None);
        target.form = SinkForm::Alertmanager;
        sent(&target, LIMIT).unwrap();
        assert_eq!(server.seen().last().unwrap().path, wanted);
    }
}

#[test]
fn a_certificate_of_the_declared_authority_is_accepted_and_of_another_one_not() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (ours, theirs) = (Authority::new(ours.path()), Authority::new(theirs.path()));
    let _ = &theirs;
    let server = Server::tls(&ours, |_| CannedAnswer::new(200));
    sent(&target(&server.url("/"), Some(&ours)), LIMIT).unwrap();
    let refused = sent(&target(&server.url("/"), Some(&theirs)), LIMIT).unwrap_err();
    assert!(
        refused.contains("cannot speak TLS with localhost:"),
        "{refused}"
    );
    assert!(refused.contains("declare that one as `ca`"), "{refused}");
    assert_eq!(server.seen().len(), 1, "the other one has got nothing");
    // The host does not trust the authority of a test.
    sent(&target(&server.url("/"), None), LIMIT).unwrap_err();
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn an_answer_without_success_says_what_to_check() {
    for (status, wanted) in [
        (
            500,
            "it answers 500 Internal Server Error; its log says why",
        ),
        (
            401,
            "it answers 401 Unauthorized; check the secret of its `header`",
        ),
        (
            404,
            "it answers 404 Not Found; check the path of its address, and its `form`",
        ),
        (400, "it answers 400 Bad Request; check its `form`"),
        (
            302,
            "it answers 302 Found and redirects to https://b.corp; declare the address to which it redirects",
        ),
    ] {
        let server = Server::start(move |_| {
            CannedAnswer::new(status)
                .header("Location", "https://b.corp/hunter2")
                .body("Bearer hunter2")
        });
        let refused = sent(&target(&server.url("/"), None), LIMIT).unwrap_err();
        assert_eq!(refused, wanted);
        assert_eq!(server.seen().len(), 1, "a redirect is not followed");
    }
}

#[test]
fn a_server_that_does_not_answer_is_left_after_the_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    // It accepts, and reads, and says nothing.
    let hangs = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        stream.read_to_end(&mut request).unwrap();
    });
    let late = sent(&target(&url, None), SHORT).unwrap_err();
    assert!(late.contains("did not answer within"), "{late}");
    // The connection is closed.
    hangs.join().unwrap();
}

#[test]
fn a_server_that_hangs_in_the_handshake_is_left_after_the_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path());
    let late = sent(&target(&url, Some(&authority)), SHORT).unwrap_err();
    assert!(late.contains("did not answer within"), "{late}");
}

#[test]
fn a_server_that_is_down_or_breaks_off_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let broken = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let url = format!("http://{address}/hunter2");
    let refused = sent(&target(&url, None), LIMIT).unwrap_err();
    assert!(
        refused.contains(&format!("the connection to {address} broke")),
        "{refused}"
    );
    broken.join().unwrap();
    let refused = sent(&target(&url, None), LIMIT).unwrap_err();
    assert!(
        refused.starts_with(&format!("cannot connect to {address}: ")),
        "{refused}"
    );
}

#[test]
fn an_unusable_sink_is_an_error_and_not_a_panic() {
    for url in ["", "key", "http://", "https://exa mple/"] {
        assert!(sent(&target(url, None), SHORT).is_err(), "{url}");
    }
    for url in ["https:a.corp", "localhost:1", "ftp://localhost:1/"] {
        let refused = sent(&target(url, None), SHORT).unwrap_err();
        assert!(refused.contains("its address cannot be used"), "{refused}");
    }
    let server = Server::start(|_| CannedAnswer::new(200));
    let mut target = target(&server.url("/"), None);
    target.header = Some(("X".to_owned(), SecretText::new("a\nb")));
    assert!(sent(&target, LIMIT).unwrap_err().contains("header"));
    assert!(server.seen().is_empty());
}
