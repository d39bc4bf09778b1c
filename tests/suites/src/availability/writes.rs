//! A write loop: one write every 50 ms, each with a time limit, on a new connection after a
//! failure.
//!
//! It is a separate process in the network namespace of a host, which [`Loop`] starts and stops
//! there; it prints its [`Record`] at its end.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use halite_lab::host::Host;
use halite_lab::net::Router;

use super::record::{Write, WriteRecord};
use super::target::{Address, Connection, Target, WriteKind};

/// Time from the start of a write to that of the next, unless the write takes longer.
const INTERVAL: Duration = Duration::from_millis(50);

/// Name of the hidden command of `cargo lab` that runs the loop.
const COMMAND: &str = "write-loop";

/// The writer of a loop.
trait Writer {
    /// Makes one write; succeeds if it was acknowledged.
    fn write(&mut self, number: u64) -> Result<()>;
    /// Drops the connection; the next write makes another.
    fn reconnect(&mut self);
}

impl Writer for Connection {
    fn write(&mut self, number: u64) -> Result<()> {
        Connection::write(self, number)
    }

    fn reconnect(&mut self) {
        Connection::reconnect(self);
    }
}

/// The time since the start of the loop, and its end.
trait Clock {
    fn now(&mut self) -> Duration;
    /// Waits until that time; returns `false` if the loop must end.
    fn reaches(&mut self, time: Duration) -> bool;
}

/// The machine's clock; the loop ends when the other end of the channel is dropped.
struct Real {
    start: Instant,
    end: Receiver<()>,
}

impl Clock for Real {
    fn now(&mut self) -> Duration {
        self.start.elapsed()
    }

    fn reaches(&mut self, time: Duration) -> bool {
        let left = time.saturating_sub(self.start.elapsed());
        self.end.recv_timeout(left) == Err(RecvTimeoutError::Timeout)
    }
}

fn run(writer: &mut impl Writer, clock: &mut impl Clock) -> WriteRecord {
    let mut record = WriteRecord::default();
    let mut next = Duration::ZERO;
    for number in 0.. {
        if !clock.reaches(next) {
            break;
        }
        let began = clock.now();
        let answer = writer.write(number);
        if answer.is_err() {
            writer.reconnect();
        }
        record.writes.push(Write {
            number,
            began,
            ended: clock.now(),
            error: answer.err().map(|error| format!("{error:#}")),
        });
        next = began + INTERVAL;
    }
    record.end = clock.now();
    record
}

/// Writes until standard input ends, and prints the record: the body of the hidden command.
pub fn serve(target: Target) -> Result<()> {
    let mut connection = Connection::new(target)?;
    let (alive, end) = channel::<()>();
    thread::spawn(move || {
        // The content does not matter, nor whether it can be read: both end the loop.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(alive);
    });
    let mut clock = Real {
        start: Instant::now(),
        end,
    };
    let record = run(&mut connection, &mut clock);
    println!("{}", serde_json::to_string(&record)?);
    Ok(())
}

/// A running write loop.
#[derive(Debug)]
pub struct Loop {
    child: Child,
    started: Instant,
}

impl Loop {
    /// Starts a loop in the network namespace of a host. It survives the host's loss of power,
    /// without its network.
    pub fn start(host: &Host, target: &Target) -> Result<Self> {
        Self::start_in(&Path::new("/run/netns").join(host.namespace()), target)
    }

    /// Starts a loop in the network namespace of a lab's router, which outlives each host.
    pub fn start_at_router(router: &Router, target: &Target) -> Result<Self> {
        Self::start_in(&Path::new("/run/netns").join(&router.namespace), target)
    }

    /// Starts a loop in the network namespace of that file.
    pub fn start_in(namespace: &Path, target: &Target) -> Result<Self> {
        let started = Instant::now();
        let child = Command::new("nsenter")
            .arg(format!("--net={}", namespace.display()))
            .arg(halite_lab::command::this_program())
            .arg(COMMAND)
            .args(arguments(target))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start a write loop")?;
        Ok(Self { child, started })
    }

    /// Stops the loop and returns its record.
    pub fn end(mut self) -> Result<WriteRecord> {
        drop(self.child.stdin.take());
        let output = self.child.wait_with_output()?;
        ensure!(
            output.status.success(),
            "the write loop ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        let record: WriteRecord =
            serde_json::from_slice(&output.stdout).context("the write loop printed no record")?;
        Ok(WriteRecord {
            started: Some(self.started),
            ..record
        })
    }
}

/// The arguments of the hidden command.
fn arguments(target: &Target) -> Vec<String> {
    let mut all = vec![target.url.clone(), target.prefix.clone()];
    let mut option = |name: &str, value: String| all.extend([name.to_owned(), value]);
    if let WriteKind::Kubernetes { namespace } = &target.kind {
        option("--namespace", namespace.clone());
    }
    match &target.address {
        Some(Address::Fixed(address)) => option("--address", address.to_string()),
        Some(Address::Hosts(file)) => option("--hosts", file.to_string_lossy().into_owned()),
        None => {}
    }
    if let Some(identity) = &target.identity {
        for (name, file) in [
            ("--authority", &identity.authority),
            ("--certificate", &identity.certificate),
            ("--key", &identity.key),
        ] {
            option(name, file.to_string_lossy().into_owned());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::rc::Rc;

    use anyhow::bail;

    use super::*;

    type Time = Rc<Cell<Duration>>;

    /// A writer whose writes take as long as listed; those that take a whole second fail.
    struct Scripted {
        time: Time,
        takes: Vec<u64>,
        connections: usize,
    }

    impl Writer for Scripted {
        fn write(&mut self, number: u64) -> Result<()> {
            let takes = Duration::from_millis(self.takes[usize::try_from(number).unwrap()]);
            self.time.set(self.time.get() + takes);
            if takes >= Duration::from_secs(1) {
                bail!("timeout");
            }
            Ok(())
        }

        fn reconnect(&mut self) {
            self.connections += 1;
        }
    }

    /// A clock that advances only while a test waits; it ends at a given time.
    struct Scheduled {
        time: Time,
        end: Duration,
    }

    impl Clock for Scheduled {
        fn now(&mut self) -> Duration {
            self.time.get()
        }

        fn reaches(&mut self, time: Duration) -> bool {
            self.time.set(self.time.get().max(time.min(self.end)));
            self.time.get() < self.end
        }
    }

    #[test]
    fn a_write_begins_every_interval_and_at_once_after_a_slow_one() {
        let time = Time::default();
        let mut writer = Scripted {
            time: Rc::clone(&time),
            takes: vec![5, 5, 1000, 80, 5],
            connections: 1,
        };
        let end = Duration::from_millis(1200);
        let record = run(&mut writer, &mut Scheduled { time, end });
        let began: Vec<_> = record.writes.iter().map(|w| w.began.as_millis()).collect();
        assert_eq!(began, [0, 50, 100, 1100, 1180]);
        assert_eq!(record.writes[2].error.as_deref(), Some("timeout"));
        assert_eq!(record.end, end);
        assert_eq!(writer.connections, 2, "one failure, one new connection");
        let gap = record.longest_gap();
        assert_eq!(gap.length, Duration::from_millis(1180 - 55));
    }

    /// A server that answers this many times on each connection, and then no more. It passes on the
    /// requests.
    fn server(answers: usize) -> (String, Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (hand_on, served) = channel();
        // It ends with the test, which does not wait for connections that never come.
        thread::spawn(move || {
            let (mut bodies, mut silent) = (0, Vec::new());
            loop {
                let mut stream = BufReader::new(listener.accept().unwrap().0);
                for _ in 0..answers {
                    let mut length = 0;
                    let mut line = String::new();
                    while stream.read_line(&mut line).unwrap() > 2 {
                        let lower = line.to_ascii_lowercase();
                        if let Some(value) = lower.strip_prefix("content-length:") {
                            length = value.trim().parse().unwrap();
                        }
                        line.clear();
                    }
                    let mut body = vec![0; length];
                    stream.read_exact(&mut body).unwrap();
                    hand_on.send(String::from_utf8(body).unwrap()).unwrap();
                    bodies += 1;
                    let status = if bodies == 3 {
                        "503 Service Unavailable"
                    } else {
                        "200 OK"
                    };
                    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}");
                    stream.get_mut().write_all(answer.as_bytes()).unwrap();
                }
                silent.push(stream);
            }
        });
        (url, served)
    }

    #[test]
    fn writes_share_a_connection_until_one_fails() {
        let (url, served) = server(3);
        let address = url.strip_prefix("http://").unwrap().parse().unwrap();
        let mut connection = Connection::new(Target {
            kind: WriteKind::Etcd,
            url: "http://api.demo.internal".to_owned(),
            address: Some(Address::Fixed(address)),
            prefix: "a".to_owned(),
            identity: None,
        })
        .unwrap();
        let time = Time::default();
        let end = Duration::from_millis(6 * 50);
        let record = run(&mut connection, &mut Scheduled { time, end });
        // If the third, which failed, had not made a new connection, the fourth would have no
        // answer.
        assert_eq!(record.acknowledged(), [0, 1, 3, 4, 5].into());
        let error = record.writes[2].error.clone().unwrap();
        assert!(error.starts_with("503 Service Unavailable"), "{error}");
        assert_eq!(served.try_iter().count(), 6);
    }

    #[test]
    fn a_target_becomes_arguments() {
        let mut target = Target {
            kind: WriteKind::Kubernetes {
                namespace: "x".to_owned(),
            },
            url: "https://10.10.0.100:6443".to_owned(),
            address: Some(Address::Fixed(([10, 10, 0, 100], 6443).into())),
            prefix: "vip".to_owned(),
            identity: None,
        };
        assert_eq!(
            arguments(&target).join(" "),
            "https://10.10.0.100:6443 vip --namespace x --address 10.10.0.100:6443"
        );
        target.address = Some(Address::Hosts("/root/hosts".into()));
        assert!(
            arguments(&target)
                .join(" ")
                .ends_with("x --hosts /root/hosts")
        );
    }
}
