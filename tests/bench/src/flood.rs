//! Many connections that send as fast as they are answered, one request at a time on each, to one or more servers. For
//! `tests/envoy/bench_fleet.py`, which starts the servers.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};

use crate::filter::read_response;
use crate::statistics::quantile;

const REQUEST: &[u8] = b"GET /hot HTTP/1.1\r\nhost: shop\r\n\r\n";
const PATIENCE: Duration = Duration::from_secs(20);

/// One answer: when its request was sent and it arrived, in nanoseconds since the flood began.
struct Answer {
    sent: u64,
    arrived: u64,
    status: u16,
}

/// Floods these ports, in turns, and prints a line of JSON, and for each request that passed a line with when it was sent and
/// answered.
pub(crate) fn run(ports: &str, connections: usize, seconds: u64) -> Result<()> {
    let ports: Vec<u16> = ports
        .split(',')
        .map(|port| {
            port.parse()
                .with_context(|| format!("`{port}` is not a port"))
        })
        .collect::<Result<_>>()?;
    let streams: Vec<TcpStream> = ports
        .iter()
        .cycle()
        .take(connections)
        .map(|port| connect(*port))
        .collect::<Result<_>>()?;
    let begin = Instant::now();
    let end = Duration::from_secs(seconds);
    let answers = std::thread::scope(|scope| {
        let clients: Vec<_> = streams
            .into_iter()
            .map(|stream| thread().spawn_scoped(scope, move || client(stream, begin, end)))
            .collect::<std::io::Result<_>>()?;
        let mut answers = Vec::new();
        for client in clients {
            answers.extend(client.join().map_err(|_| anyhow!("a client panicked"))??);
        }
        anyhow::Ok(answers)
    })?;

    let waits: Vec<f64> = answers
        .iter()
        .map(|answer| (answer.arrived - answer.sent) as f64 / 1e6)
        .collect();
    let others = answers
        .iter()
        .filter(|answer| !matches!(answer.status, 200 | 429))
        .count();
    println!(
        r#"{{"requests": {}, "others": {others}, "p50_ms": {}, "p99_ms": {}}}"#,
        answers.len(),
        quantile(&waits, 0.5),
        quantile(&waits, 0.99)
    );
    for answer in answers.iter().filter(|answer| answer.status == 200) {
        println!("{} {}", answer.sent, answer.arrived);
    }
    Ok(())
}

/// Of hundreds, so that the stack of each is small.
pub(crate) fn thread() -> std::thread::Builder {
    std::thread::Builder::new().stack_size(128 * 1024)
}

pub(crate) fn connect(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("connecting")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn client(mut stream: TcpStream, begin: Instant, end: Duration) -> Result<Vec<Answer>> {
    let mut answers = Vec::new();
    let mut buffer = Vec::new();
    while begin.elapsed() < end {
        let sent = begin.elapsed().as_nanos() as u64;
        stream.write_all(REQUEST).context("sending")?;
        let status = read_response(&mut stream, &mut buffer)?;
        answers.push(Answer {
            sent,
            arrived: begin.elapsed().as_nanos() as u64,
            status,
        });
    }
    Ok(answers)
}
