//! A real nginx.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::tls::Authority;

const NEEDED: &str = "this test needs nginx: install the Debian package nginx-light";
/// Limit of a wait for its files: it ends a test that would hang, on the slowest machine.
const SOON: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(5);

/// An nginx on a port of 127.0.0.1; stopped through its own pid file when dropped.
pub struct Nginx {
    conf: PathBuf,
    /// Address on which it listens.
    pub port: u16,
}

impl Nginx {
    /// Starts an nginx that keeps its files in `dir`. `servers` returns the content of the `http`
    /// block for the given port.
    pub fn start(dir: &Path, servers: impl Fn(u16) -> String) -> Self {
        fs::create_dir_all(dir).unwrap();
        // Another test may take the port between the two moments.
        for _ in 0..4 {
            let (conf, port) = configured(dir, &servers);
            let output = command(&conf, &[]).expect(NEEDED);
            if output.status.success() {
                wait_for_pid(dir);
                return Self { conf, port };
            }
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("Address already in use"), "nginx: {said}");
        }
        panic!("nginx found no free port");
    }

    /// Starts an nginx that serves the files below `root`.
    #[must_use]
    pub fn directory(dir: &Path, root: &Path) -> Self {
        let root = root.display();
        Self::start(dir, |port| {
            format!("server {{ listen 127.0.0.1:{port}; root {root}; }}")
        })
    }

    /// The same over TLS, as `localhost` with a certificate of that authority.
    #[must_use]
    pub fn tls(dir: &Path, root: &Path, authority: &Authority) -> Self {
        fs::create_dir_all(dir).unwrap();
        let (certificate, key) = authority.files(dir);
        let (certificate, key, root) = (certificate.display(), key.display(), root.display());
        Self::start(dir, |port| {
            format!(
                "server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {certificate}; ssl_certificate_key {key}; \
                 root {root}; }}"
            )
        })
    }

    fn nginx(&self, args: &[&str]) {
        let output = command(&self.conf, args);
        let output = output.expect(NEEDED);
        assert!(
            output.status.success(),
            "nginx {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// The statuses of its answers, in order; waits for those of this many requests.
    #[must_use]
    pub fn answered(&self, requests: usize) -> Vec<String> {
        // It writes the line after the client has its answer.
        let since = Instant::now();
        let log = loop {
            let log = fs::read_to_string(self.conf.with_file_name("access.log")).unwrap();
            if log.matches('\n').count() >= requests || since.elapsed() > SOON {
                break log;
            }
            thread::sleep(PAUSE);
        };
        log.lines()
            .map(|line| {
                line.split('"')
                    .nth(2)
                    .unwrap()
                    .split_whitespace()
                    .next()
                    .unwrap()
                    .to_owned()
            })
            .collect()
    }
}

/// Writes a configuration with a port that is free now.
fn configured(dir: &Path, servers: &impl Fn(u16) -> String) -> (PathBuf, u16) {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let conf = dir.join("nginx.conf");
    // One process, of the test's own user, which can read the files.
    let text = format!(
        "pid {dir}/pid; error_log {dir}/error.log; master_process off; events {{}}\n\
         http {{ access_log {dir}/access.log; client_body_temp_path {dir}/body; proxy_temp_path \
         {dir}/proxy;\nfastcgi_temp_path {dir}/fastcgi; uwsgi_temp_path {dir}/uwsgi; scgi_temp_path \
         {dir}/scgi;\n{servers}\n}}\n",
        dir = dir.display(),
        servers = servers(port),
    );
    fs::write(&conf, text).unwrap();
    (conf, port)
}

/// It goes to the background once it listens, and only then writes the pid by which it is stopped.
fn wait_for_pid(dir: &Path) {
    let since = Instant::now();
    while !fs::read_to_string(dir.join("pid")).is_ok_and(|pid| pid.ends_with('\n')) {
        assert!(since.elapsed() < SOON, "nginx wrote no pid");
        thread::sleep(PAUSE);
    }
}

/// Its last act is to remove the file with its pid; a new one in the same directory would lose its
/// own.
fn wait_for_end(pid: &Path) {
    let since = Instant::now();
    while pid.exists() {
        assert!(since.elapsed() < SOON, "nginx does not end");
        thread::sleep(PAUSE);
    }
}

fn command(conf: &Path, args: &[&str]) -> std::io::Result<Output> {
    let nginx = if Path::new("/usr/sbin/nginx").exists() {
        "/usr/sbin/nginx"
    } else {
        "nginx"
    };
    Command::new(nginx).arg("-c").arg(conf).args(args).output()
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // A second panic would hide the first.
        if thread::panicking() {
            let _ = command(&self.conf, &["-s", "stop"]);
        } else {
            self.nginx(&["-s", "stop"]);
            wait_for_end(&self.conf.with_file_name("pid"));
        }
    }
}
