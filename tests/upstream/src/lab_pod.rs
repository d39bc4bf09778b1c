//! The program of the lab's test pods (`tests/upstream/lab-pod`).

use std::path::PathBuf;

use anyhow::Result;
use halite_lab::build::source_root;

use super::golang::Go;
use super::image::file_digest;
use super::store;
use super::store::Store;

/// Its name, and that of its Go module.
pub(crate) const NAME: &str = "lab-pod";

/// Builds the program unless it exists, and returns its path.
pub(crate) fn ensure(store: &Store, go: &Go, progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let folder = source_root().join("tests/upstream").join(NAME);
    let mut content = vec![go.version().to_owned()];
    for file in store::files(&folder)? {
        content.push(file_digest(&file)?);
    }
    let dir = store.get(NAME, &store::key(&content)?, |out| {
        let program = out.join(NAME);
        go.build_folder(&folder, &program, "building lab-pod", progress)?;
        store::set_mode(&program, 0o755)
    })?;
    Ok(dir.join(NAME))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpStream;
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn run(program: &PathBuf, words: &[&str]) -> (bool, String) {
        let output = Command::new(program).args(words).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    /// Starts a server; returns it and the port that it reports.
    fn serve(program: &PathBuf, answer: &str) -> (Child, u16) {
        let mut server = Command::new(program)
            .args(["serve", "--http-port=0"])
            .env("ANSWER", answer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let log = server.stderr.take().unwrap();
        BufReader::new(log).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("Started HTTP server on port ");
        let port = port.unwrap_or_else(|| panic!("it printed {line:?}"));
        (server, port.parse().unwrap())
    }

    #[test]
    fn the_client_reaches_the_server_which_answers_until_a_signal() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().to_owned()).unwrap();
        let program = ensure(&store, &Go::find().unwrap(), &mut |_| {}).unwrap();
        let (mut server, port) = serve(&program, "as declared");
        let address = format!("localhost:{port}");

        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(b"GET /any HTTP/1.0\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.ends_with("\r\n\r\nas declared\n"), "{response}");

        let connect = ["connect", "--timeout=2s", &address];
        assert_eq!(run(&program, &connect), (true, String::new()));
        let pid = server.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        assert!(server.wait().unwrap().success());
        let (connected, why) = run(&program, &connect);
        assert!(!connected && why.contains("connection refused"), "{why}");

        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(run(&program, &["hostname"]), (true, name));
        let (known, why) = run(&program, &["netexec"]);
        assert!(!known && why.contains("unknown command"), "{why}");
    }
}
