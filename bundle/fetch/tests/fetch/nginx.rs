//! Files from a real nginx, through proxies that cut connections.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use halite_durable::Digest;
use halite_fetch::Settings;
use halite_testkit::{Nginx, content};

use crate::fixture::{Fixture, artifact};

/// Accepts connections until the test ends, each on its own thread.
fn listen(serve: impl Fn(TcpStream) -> std::io::Result<()> + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, serve) = (stream.unwrap(), Arc::clone(&serve));
            // The order in which the two sides close does not matter.
            thread::spawn(move || drop(serve(stream)));
        }
    });
    port
}

/// Forwards data from a server to a client, and closes both connections after this many bytes.
fn relay(client: TcpStream, server: TcpStream, bytes: u64) -> std::io::Result<()> {
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let up = thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
    let mut to_client = &client;
    std::io::copy(&mut (&server).take(bytes), &mut to_client)?;
    client.shutdown(std::net::Shutdown::Both)?;
    server.shutdown(std::net::Shutdown::Both)?;
    drop(up.join());
    Ok(())
}

fn site(fixture: &Fixture, files: &[(&str, &[u8])]) -> Nginx {
    let (dir, root) = (fixture.path("nginx"), fixture.path("www"));
    std::fs::create_dir_all(&root).unwrap();
    for (name, content) in files {
        std::fs::write(root.join(name), content).unwrap();
    }
    Nginx::directory(&dir, &root)
}

#[test]
fn connections_that_are_cut_in_mid_file_cost_no_byte_twice() {
    let (fixture, file) = (Fixture::new(), content(5_000_000, 20));
    let nginx = site(&fixture, &[("file", &file)]);
    let port = nginx.port;
    let passed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&passed);
    let cutting = listen(move |client| {
        count.fetch_add(1, Ordering::SeqCst);
        relay(client, TcpStream::connect(("127.0.0.1", port))?, 700_000)
    });
    let url = format!("http://127.0.0.1:{cutting}/file");
    let entry = fixture
        .fetcher()
        .files(&[artifact("file", url, &file)])
        .unwrap()
        .remove(0);
    assert_eq!(std::fs::read(entry.path).unwrap(), file);
    // 700 000 bytes with their headers each time, so eight connections.
    assert_eq!(passed.load(Ordering::SeqCst), 8);
    assert_eq!(nginx.answered(8), [&["200"][..], &["206"; 7]].concat());
}

#[test]
fn a_file_that_is_replaced_between_two_cuts_is_fetched_again() {
    let (fixture, old, new) = (Fixture::new(), content(900_000, 21), content(900_001, 22));
    let nginx = site(&fixture, &[("file", &old)]);
    let (port, turn, path, next) = (
        nginx.port,
        AtomicUsize::new(0),
        fixture.path("www/file"),
        new.clone(),
    );
    let cutting = listen(move |client| {
        let bytes = match turn.fetch_add(1, Ordering::SeqCst) {
            0 => 300_000,
            turn => {
                if turn == 1 {
                    std::fs::write(path.with_extension("new"), &next)?;
                    std::fs::rename(path.with_extension("new"), &path)?;
                }
                u64::MAX
            }
        };
        relay(client, TcpStream::connect(("127.0.0.1", port))?, bytes)
    });
    let mut wanted = artifact("file", format!("http://127.0.0.1:{cutting}/file"), &new);
    (wanted.digest, wanted.size) = (None, None);
    let entry = fixture.fetcher().files(&[wanted]).unwrap().remove(0);
    assert_eq!(
        (entry.digest, nginx.answered(2)),
        (Digest::of(&new), vec!["200".to_owned(), "200".to_owned()])
    );
}

#[test]
fn a_proxy_is_gone_through_unless_it_is_not_to_be() {
    let (fixture, file) = (Fixture::new(), content(10_000, 23));
    let nginx = site(&fixture, &[("a", &file), ("b", &file[1..])]);
    let port = nginx.port;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let proxy = listen(move |client| {
        let mut reader = BufReader::new(client.try_clone()?);
        let mut head = Vec::new();
        while !head.last().is_some_and(String::is_empty) {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            head.push(line.trim_end().to_owned());
        }
        noted.lock().unwrap().push(head);
        (&client).write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        relay(client, TcpStream::connect(("127.0.0.1", port))?, u64::MAX)
    });
    let address = format!("http://me:pass@127.0.0.1:{proxy}");
    let settings = Settings {
        proxy: Some(address),
        no_proxy: Some("127.0.0.0/8".into()),
        ..fixture.settings()
    };
    let fetcher = fixture.fetcher_with(settings);
    // No resolver knows this name: only the proxy must know it.
    fetcher
        .files(&[artifact("a", "http://files.halite.invalid/a".into(), &file)])
        .unwrap();
    fetcher
        .files(&[artifact(
            "b",
            format!("http://127.0.0.1:{port}/b"),
            &file[1..],
        )])
        .unwrap();
    let asked = asked.lock().unwrap();
    assert_eq!(
        (asked.len(), asked[0][0].as_str()),
        (1, "CONNECT files.halite.invalid:80 HTTP/1.1")
    );
    let login = asked[0]
        .iter()
        .any(|line| line.eq_ignore_ascii_case("proxy-authorization: Basic bWU6cGFzcw=="));
    assert!(login, "{asked:?}");
}
