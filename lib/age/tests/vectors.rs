//! The encryption against the test vectors of its specification (C2SP's CCTV, module
//! `c2sp.org/CCTV/age`), and against Debian's `age`. `HALITE_AGE_VECTORS` names the directory of
//! the vectors and `HALITE_AGE` the program.

#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

use std::ffi::OsString;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::read::ZlibDecoder;
use halite_age::{AgeError, Decryptor, Encryptor, Identity};
use halite_durable::digest::sha256;

fn named(variable: &str) -> OsString {
    std::env::var_os(variable).unwrap_or_else(|| {
        panic!("{variable} has to be set; `cargo lab test --full source:` does that")
    })
}

/// One vector: lines about what has to happen, and a file.
struct Vector {
    name: String,
    facts: Vec<(String, String)>,
    file: Vec<u8>,
}

impl Vector {
    fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let end = bytes.windows(2).position(|two| two == b"\n\n").unwrap();
        let facts = std::str::from_utf8(&bytes[..end]).unwrap().lines();
        let facts = facts.map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_owned(), value.to_owned())
        });
        let mut vector = Self {
            name: path.file_name().unwrap().to_string_lossy().into_owned(),
            facts: facts.collect(),
            file: bytes[end + 2..].to_vec(),
        };
        if vector.all("compressed").contains(&"zlib") {
            let mut plain = Vec::new();
            let mut packed = ZlibDecoder::new(vector.file.as_slice());
            packed.read_to_end(&mut plain).unwrap();
            vector.file = plain;
        }
        vector
    }

    fn all(&self, fact: &str) -> Vec<&str> {
        let of_fact = self.facts.iter().filter(|(name, _)| name == fact);
        of_fact.map(|(_, value)| value.as_str()).collect()
    }

    /// The result in the words of the vectors, and the digest of the content decrypted until then.
    fn decrypt(&self, identities: &[Identity]) -> (&'static str, Option<String>) {
        let mut decryptor = match Decryptor::new(self.file.as_slice(), identities) {
            Ok(decryptor) => decryptor,
            Err(AgeError::NoMatch) => return ("no match", None),
            Err(AgeError::Header) => return ("HMAC failure", None),
            Err(AgeError::Format(_)) => return ("header failure", None),
            Err(error) => panic!("{}: {error}", self.name),
        };
        let mut plain = Vec::new();
        let result = match decryptor.read_to_end(&mut plain) {
            Ok(_) => "success",
            Err(_) => "payload failure",
        };
        if result != "success" {
            // After an error, the end of the stream does not count as the end of the content.
            assert!(decryptor.read(&mut [0]).is_err(), "{}", self.name);
        }
        (result, Some(sha256(&plain)))
    }
}

#[test]
#[ignore = "needs the vectors of C2SP: cargo lab test --full source:"]
fn each_vector_of_the_specification_has_its_result() {
    let directory = PathBuf::from(named("HALITE_AGE_VECTORS"));
    let entries = fs::read_dir(directory).unwrap();
    let (mut own, mut others, mut wrong) = (0, 0, Vec::new());
    for entry in entries {
        let vector = Vector::read(&entry.unwrap().path());
        let keys = vector.all("identity").join("\n");
        let is_armored = vector.all("armored").contains(&"yes");
        let identities = Identity::parse_file(&keys);
        let found = match &identities {
            Ok(identities) if !is_armored => {
                own += 1;
                let (result, plain) = vector.decrypt(identities);
                let payload = vector.all("payload").first().map(|text| (*text).to_owned());
                (vector.all("expect") != [result] || payload != plain).then_some(result)
            }
            // Unsupported forms (passphrases, hybrid recipients, armor) are refused.
            _ => {
                others += 1;
                let stranger = [Identity::generate().unwrap()];
                let (result, _) = vector.decrypt(identities.as_deref().unwrap_or(&stranger));
                ["success", "payload failure"]
                    .contains(&result)
                    .then_some(result)
            }
        };
        if let Some(found) = found {
            wrong.push(format!("{}: {found}", vector.name));
        }
    }
    println!("{own} vectors with X25519, {others} others");
    assert!(own >= 60, "{own} vectors only");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Runs Debian's program with this input.
fn age(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new(named("HALITE_AGE"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut to = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || to.write_all(input).unwrap());
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "{}", output.status);
    output.stdout
}

#[test]
#[ignore = "needs Debian's age: cargo lab test --full source:"]
fn what_is_written_here_is_read_by_age_and_the_other_way_round() {
    let dir = tempfile::tempdir().unwrap();
    let (key, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let file = dir.path().join("key.txt");
    fs::write(&file, key.to_text().as_bytes()).unwrap();
    for length in [0, 1, 65_535, 65_536, 65_537, 131_072, 1_000_000] {
        let plain: Vec<u8> = (0..length)
            .map(|place: usize| u8::try_from(place % 251).unwrap())
            .collect();
        let recipients = [other.recipient(), key.recipient()];
        let mut encryptor = Encryptor::new(Vec::new(), &recipients).unwrap();
        encryptor.write_all(&plain).unwrap();
        let sealed = encryptor.finish().unwrap();
        let read = age(&["-d", "-i", file.to_str().unwrap()], &sealed);
        assert!(read == plain, "{length}");

        let sealed = age(&["-r", &key.recipient().to_string()], &plain);
        let mut read = Vec::new();
        let mut decryptor = Decryptor::new(sealed.as_slice(), std::slice::from_ref(&key)).unwrap();
        decryptor.read_to_end(&mut read).unwrap();
        assert!(read == plain, "{length}");
    }
}
