//! A small server whose answers a test provides, with or without TLS.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::thread::JoinHandle;

use crate::tls::Authority;

/// A received request.
#[derive(Debug, Clone)]
pub struct SeenRequest {
    /// Path and query.
    pub path: String,
    /// The body.
    pub body: Vec<u8>,
    headers: Vec<(String, String)>,
}

impl SeenRequest {
    /// A header of the request, by its case-insensitive name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// An answer.
pub struct CannedAnswer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    cut: Option<(usize, bool)>,
    said: Option<u64>,
}

impl CannedAnswer {
    /// An empty answer.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            cut: None,
            said: Some(0),
        }
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.said = Some(self.body.len() as u64);
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Breaks the connection after this many bytes of the body.
    #[must_use]
    pub fn cut(mut self, after: usize) -> Self {
        self.cut = Some((after, false));
        self
    }

    /// Sends nothing more after this many bytes of the body, and keeps the connection open.
    #[must_use]
    pub fn stall(mut self, after: usize) -> Self {
        self.cut = Some((after, true));
        self
    }

    /// Announces another length than the body has.
    #[must_use]
    pub fn saying(mut self, length: u64) -> Self {
        self.said = Some(length);
        self
    }

    /// Announces no length: the body ends with the connection.
    #[must_use]
    pub fn endless(mut self) -> Self {
        self.said = None;
        self
    }

    /// A file, or the requested part of it. `tag` is its ETag, with the quotes.
    #[must_use]
    pub fn file(seen: &SeenRequest, content: &[u8], tag: &str) -> Self {
        let whole = || Self::new(200).header("ETag", tag).body(content);
        let range = seen
            .header("Range")
            .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
        let Some(start) = range.and_then(|start| start.parse::<usize>().ok()) else {
            return whole();
        };
        if seen.header("If-Range").is_some_and(|wanted| wanted != tag) {
            return whole();
        }
        if start >= content.len() {
            return Self::new(416);
        }
        let range = format!("bytes {start}-{}/{}", content.len() - 1, content.len());
        Self::new(206)
            .header("ETag", tag)
            .header("Content-Range", range)
            .body(&content[start..])
    }
}

/// A server on its own port; stopped when dropped.
pub struct Server {
    address: SocketAddr,
    scheme: &'static str,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

type Handler = dyn Fn(&SeenRequest) -> CannedAnswer + Send + Sync;

impl Server {
    /// Starts a server that answers with the function's result for a request.
    pub fn start(handler: impl Fn(&SeenRequest) -> CannedAnswer + Send + Sync + 'static) -> Self {
        Self::with(None, Arc::new(handler))
    }

    /// The same over TLS, as `localhost`.
    pub fn tls(
        authority: &Authority,
        handler: impl Fn(&SeenRequest) -> CannedAnswer + Send + Sync + 'static,
    ) -> Self {
        Self::with(Some(authority.server()), Arc::new(handler))
    }

    /// Serves the files of a directory.
    #[must_use]
    pub fn directory(root: PathBuf) -> Self {
        Self::start(move |seen| {
            match std::fs::read(root.join(decoded(seen.path.trim_start_matches('/')))) {
                Ok(bytes) => CannedAnswer::file(seen, &bytes, "\"x\""),
                Err(_) => CannedAnswer::new(404),
            }
        })
    }

    fn with(tls: Option<Arc<rustls::ServerConfig>>, handler: Arc<Handler>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (seen, ended) = (
            Arc::new(Mutex::new(Vec::new())),
            Arc::new(AtomicBool::new(false)),
        );
        let (noted, end) = (Arc::clone(&seen), Arc::clone(&ended));
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let (stream, tls, handler, noted) = (
                    stream.unwrap(),
                    tls.clone(),
                    Arc::clone(&handler),
                    Arc::clone(&noted),
                );
                // A client that disconnects is not an error of the server.
                thread::spawn(move || {
                    let _ = match tls {
                        None => serve(stream, &*handler, &noted),
                        Some(config) => {
                            let connection = rustls::ServerConnection::new(config).unwrap();
                            serve(
                                rustls::StreamOwned::new(connection, stream),
                                &*handler,
                                &noted,
                            )
                        }
                    };
                });
            }
        });
        Self {
            address,
            scheme,
            seen,
            ended,
            thread: Some(thread),
        }
    }

    /// The address of a path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("{}://localhost:{}{path}", self.scheme, self.address.port())
    }

    /// `localhost:PORT`.
    #[must_use]
    pub fn host(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    /// Requests so far.
    #[must_use]
    pub fn seen(&self) -> Vec<SeenRequest> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // It waits for a connection.
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().unwrap().join();
    }
}

/// The character that an address encodes as `%25`.
fn decoded(path: &str) -> String {
    let mut parts = path.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |path, part| {
        let code = u8::from_str_radix(&part[..2], 16).unwrap();
        format!("{path}{}{}", char::from(code), &part[2..])
    })
}

fn serve(
    stream: impl Read + Write,
    handler: &Handler,
    noted: &Mutex<Vec<SeenRequest>>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(());
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let path = lines[0].split(' ').nth(1).unwrap_or_default().to_owned();
    let headers = lines[1..].iter().filter_map(|line| line.split_once(": "));
    let headers = headers
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let mut seen = SeenRequest {
        path,
        body: Vec::new(),
        headers,
    };
    let length = seen.header("Content-Length");
    let length = length.and_then(|length| length.parse().ok());
    seen.body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut seen.body)?;
    noted.lock().unwrap().push(seen.clone());
    let answer = handler(&seen);
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", answer.status);
    if let Some(length) = answer.said {
        head.push_str(&format!("Content-Length: {length}\r\n"));
    }
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let stream = stream.get_mut();
    stream.write_all(head.as_bytes())?;
    stream.write_all(b"\r\n")?;
    let end = answer
        .cut
        .map_or(answer.body.len(), |(after, _)| after.min(answer.body.len()));
    stream.write_all(&answer.body[..end])?;
    stream.flush()?;
    if let Some((_, true)) = answer.cut {
        // Until the client stops waiting.
        let _ = stream.read(&mut [0; 1]);
    }
    Ok(())
}
