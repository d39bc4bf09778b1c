//! Sets the clock of the first host from the declared time servers before its CAs are created:
//! certificates signed with a wrong clock are not valid on hosts with the right time. A restore
//! brings CAs, and derives its epoch from the time. Later, chrony keeps the clock.

use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use tokio::net::UdpSocket;
use tokio::process::Command;
use tokio::task::JoinSet;

use super::authority;
use super::declaration::Declared;
use crate::output::Screen;

/// The port of NTP (RFC 5905).
const PORT: u16 = 123;
/// Longest wait for the answer of a server.
const ANSWER: Duration = Duration::from_secs(1);
/// A smaller difference, in seconds, is left to chrony.
const SMALL: f64 = 1.0;
/// Seconds from 1900, the start of NTP's time, to 1970.
const ERA: f64 = 2_208_988_800.0;
/// 2^32: the fractions of a second in NTP's time, and the seconds after which it wraps (in 2036).
const ROUND: f64 = 4_294_967_296.0;

/// Sets the clock if the declaration has time servers and the host has no CAs yet, and returns the
/// time. If no server answers, leaves the clock unchanged and warns the operator.
///
/// # Errors
/// The clock cannot be set.
pub async fn set(declared: &Declared, screen: &mut Screen) -> anyhow::Result<Timestamp> {
    let servers = declared.time_servers();
    if !servers.is_empty() && !Path::new(authority::DIRECTORY).exists() {
        set_by(servers, screen).await?;
    }
    Ok(Timestamp::now())
}

async fn set_by(servers: &[String], screen: &mut Screen) -> anyhow::Result<()> {
    let mut questions = JoinSet::new();
    for server in servers {
        let server = server.clone();
        questions.spawn(async move {
            let offset = offset((server.as_str(), PORT), ANSWER).await;
            offset.map_err(|error| format!("{server}: {error}"))
        });
    }
    let (mut offsets, mut silent) = (Vec::new(), Vec::new());
    for answer in questions.join_all().await {
        match answer {
            Ok(offset) => offsets.push(offset),
            Err(reason) => silent.push(reason),
        }
    }
    let Some(offset) = median(offsets) else {
        silent.sort();
        screen.note(format!(
            "no time server answers ({}): the clock is left unchanged, and certificates are dated by it",
            silent.join("; ")
        ));
        return Ok(());
    };
    if offset.abs() < SMALL {
        return Ok(());
    }
    let time = now() + offset;
    let mut set = Command::new("date");
    set.args(["--set", &format!("@{time:.3}")]);
    let done = set_output(&mut set).await?;
    screen.line(format!("clock        set to {done}, {offset:+.0} s"));
    Ok(())
}

async fn set_output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().await.context("cannot run date")?;
    if !output.status.success() {
        bail!(
            "cannot set the clock: {}; set it, for example with timedatectl set-time, then run the same command again",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The median offset: a single wrong server does not decide.
fn median(mut offsets: Vec<f64>) -> Option<f64> {
    offsets.sort_by(f64::total_cmp);
    offsets.get(offsets.len() / 2).copied()
}

/// The seconds since 1970 by this host's clock.
fn now() -> f64 {
    Timestamp::now().as_duration().as_secs_f64()
}

/// The seconds by which this host's clock is behind a server's. The limit is the time to answer.
async fn offset(server: impl tokio::net::ToSocketAddrs, limit: Duration) -> io::Result<f64> {
    let asked = async {
        let mut last = io::Error::other("the name has no address");
        for address in tokio::net::lookup_host(server).await? {
            let any = if address.is_ipv4() {
                "0.0.0.0:0"
            } else {
                "[::]:0"
            };
            let socket = UdpSocket::bind(any).await?;
            match socket.connect(address).await {
                Ok(()) => return ask(&socket).await,
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer");
    tokio::time::timeout(limit, asked)
        .await
        .unwrap_or_else(|_| Err(late()))
}

/// Sends one request and reads its answer (RFC 5905, sections 7.3 and 8).
async fn ask(socket: &UdpSocket) -> io::Result<f64> {
    let sent = now();
    let mut question = [0; 48];
    // No leap second announced, version 4, a client.
    question[0] = 0b00_100_011;
    question[40..].copy_from_slice(&timestamp(sent));
    socket.send(&question).await?;
    let mut answer = [0; 48];
    let length = socket.recv(&mut answer).await?;
    let received = now();
    let refused = |why: &str| Err(io::Error::other(why.to_owned()));
    let (leap, mode, stratum) = (answer[0] >> 6, answer[0] & 7, answer[1]);
    if length < answer.len() || mode != 4 || answer[24..32] != question[40..] {
        return refused("it does not answer the question");
    }
    if leap == 3 || !(1..16).contains(&stratum) {
        return refused("the server does not know the time itself");
    }
    let (came, left) = (seconds(&answer[32..40]), seconds(&answer[40..48]));
    Ok((between(sent, came) + between(received, left)) / 2.0)
}

/// The seconds between two times that are less than half an NTP era apart.
fn between(from: f64, to: f64) -> f64 {
    (to - from + ROUND / 2.0).rem_euclid(ROUND) - ROUND / 2.0
}

/// NTP's form of a time: seconds and fractions since 1900.
fn timestamp(unix: f64) -> [u8; 8] {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "NTP's seconds are those of an era of 2^32"
    )]
    let fixed = ((unix + ERA).rem_euclid(ROUND) * ROUND) as u64;
    fixed.to_be_bytes()
}

fn seconds(bytes: &[u8]) -> f64 {
    let fixed = bytes
        .iter()
        .fold(0_u64, |all, byte| all << 8 | u64::from(*byte));
    #[expect(clippy::cast_precision_loss, reason = "microseconds are enough")]
    let seconds = fixed as f64 / ROUND;
    seconds - ERA
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a failure waits so long.
    const PATIENCE: Duration = Duration::from_secs(30);

    type Change = fn(&mut [u8; 48]);

    /// A server whose clock is this many seconds ahead; `change` damages its answers.
    async fn server(ahead: f64, change: Change) -> std::net::SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut question = [0; 48];
            let (_, from) = socket.recv_from(&mut question).await.unwrap();
            let mut answer = [0; 48];
            answer[0] = 0b00_100_100;
            answer[1] = 2;
            answer[24..32].copy_from_slice(&question[40..]);
            answer[32..40].copy_from_slice(&timestamp(now() + ahead));
            answer[40..].copy_from_slice(&timestamp(now() + ahead));
            change(&mut answer);
            socket.send_to(&answer, from).await.unwrap();
        });
        address
    }

    #[tokio::test]
    async fn the_difference_to_a_server_is_found() {
        for ahead in [3.0 * 3600.0, -86400.0] {
            let (server, asked) = (server(ahead, |_| ()).await, std::time::Instant::now());
            let found = offset(server, PATIENCE).await.unwrap();
            // The error is at most the duration of the exchange.
            let time = asked.elapsed().as_secs_f64() + 0.001;
            assert!((found - ahead).abs() <= time, "{found} after {time} s");
        }
    }

    #[tokio::test]
    async fn an_answer_that_does_not_count_is_refused() {
        let changes: [(Change, &str); 4] = [
            (|answer| answer[0] = 0b11_100_100, "does not know the time"),
            (|answer| answer[1] = 0, "does not know the time"),
            (
                |answer| answer[0] = 0b00_100_011,
                "it does not answer the question",
            ),
            (|answer| answer[24] ^= 1, "does not answer the question"),
        ];
        for (change, reason) in changes {
            let error = offset(server(1.0, change).await, PATIENCE)
                .await
                .unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn one_server_that_is_wrong_does_not_decide() {
        assert_eq!(median(vec![90_000.0, 0.1, 0.2]), Some(0.2));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn times_survive_their_form_on_the_wire() {
        // The second time is after the NTP era that ends in 2036.
        for time in [1_800_000_000.25, 2_100_000_000.25] {
            assert!(between(time, seconds(&timestamp(time))).abs() < 0.001);
        }
    }
}
