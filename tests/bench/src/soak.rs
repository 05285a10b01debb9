//! The load of `./build.sh soak`: sources of requests on many connections to one server, until standard input ends. For
//! `tests/envoy/soak.py`, which starts it and judges what it prints.
//!
//! - `begin`: nanoseconds of all lines count from here.
//! - `a <source> <key> <sent> <arrived>`: a request that the server admitted. Keys are numbers, 0 if the source has none.
//! - `s <source> <count of each status of `STATUSES`> <others> <lost>`: all that the source has counted, each second and at the end. A
//!   request is lost if its connection ended before its answer.

use std::io::{BufWriter, Read as _, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::filter::read_response;
use crate::flood::{connect, thread};

const STATUSES: [u16; 4] = [200, 429, 500, 503];
/// What the filter refuses with.
const REFUSALS: [u16; 2] = [429, 503];
/// Between two attempts to connect to a server that does not listen, as while its listener is replaced.
const AGAIN: Duration = Duration::from_millis(10);

/// The key of a source's next request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keys {
    None,
    /// So many keys: those below 10 have as many requests together as those from 10 to 99, and those from 100 to 999.
    Of(u64),
    New,
}

/// Requests of one kind.
#[derive(Debug)]
struct Source {
    name: String,
    connections: usize,
    /// Between two requests of one connection; zero is as fast as they are answered.
    gap: Duration,
    keys: Keys,
    path: String,
    /// A header of each request, or nothing.
    header: String,
    counts: [AtomicU64; STATUSES.len() + 2],
}

impl Source {
    /// Reads `NAME CONNECTIONS RATE KEYS PATH [HEADER]`: the rate is in requests a second, of all connections together, and 0 stands
    /// for as fast as they are answered; keys are `-`, a number of them, or `new` for a new key with each request.
    fn read(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.splitn(6, ' ').collect();
        let [name, connections, rate, keys, path, header @ ..] = words.as_slice() else {
            bail!("`{text}` is not `NAME CONNECTIONS RATE KEYS PATH [HEADER]`");
        };
        let connections: usize = connections.parse().context("a number of connections")?;
        let rate: f64 = rate.parse().context("a rate")?;
        Ok(Self {
            name: (*name).to_owned(),
            connections,
            gap: if rate > 0.0 {
                Duration::try_from_secs_f64(connections as f64 / rate).context("a rate")?
            } else {
                Duration::ZERO
            },
            keys: match *keys {
                "-" => Keys::None,
                "new" => Keys::New,
                number => Keys::Of(number.parse().context("a number of keys")?),
            },
            path: (*path).to_owned(),
            header: header
                .first()
                .map(|header| format!("{header}\r\n"))
                .unwrap_or_default(),
            counts: Default::default(),
        })
    }

    fn count(&self, status: u16) {
        let place = STATUSES.iter().position(|known| *known == status);
        self.add(place.unwrap_or(STATUSES.len()));
    }

    fn lose(&self) {
        self.add(STATUSES.len() + 1);
    }

    fn add(&self, place: usize) {
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counted(&self) -> String {
        let counts: Vec<String> = self
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed).to_string())
            .collect();
        format!("s {} {}", self.name, counts.join(" "))
    }

    /// The next key, by the power of the number of keys that a random number in [0, 1) is.
    fn key(&self, random: f64, new: &AtomicU64) -> u64 {
        match self.keys {
            Keys::None => 0,
            Keys::Of(number) => (number as f64).powf(random) as u64,
            Keys::New => 1_000_000_000 + new.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// Asks until standard input ends.
pub(crate) fn run(port: &str, sources: &[&str]) -> Result<()> {
    let port: u16 = port
        .parse()
        .with_context(|| format!("`{port}` is not a port"))?;
    let sources: Vec<Source> = sources
        .iter()
        .map(|text| Source::read(text))
        .collect::<Result<_>>()?;
    let begin = Instant::now();
    let (stopping, new) = (AtomicBool::new(false), AtomicU64::new(0));
    // Bounded: a reader that is too slow slows down the load.
    let (admitted, lines) = sync_channel(10_000);
    std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for source in &sources {
            for _ in 0..source.connections {
                let client = Client {
                    source,
                    port,
                    begin,
                    stopping: &stopping,
                    new: &new,
                    admitted: admitted.clone(),
                    seed: clients.len() as u64 + 1,
                };
                clients.push(thread().spawn_scoped(scope, move || client.run())?);
            }
        }
        drop(admitted);
        let stop = &stopping;
        thread().spawn_scoped(scope, move || {
            // An error is an end, too.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            stop.store(true, Ordering::Relaxed);
        })?;
        let printed = print(&sources, &lines);
        stopping.store(true, Ordering::Relaxed);
        // Those that wait for room in the channel go on.
        drop(lines);
        for client in clients {
            client.join().map_err(|_| anyhow!("a client panicked"))?;
        }
        printed
    })
}

/// Writes the lines until all clients have ended.
fn print(sources: &[Source], lines: &Receiver<String>) -> Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    writeln!(out, "begin")?;
    let mut due = Instant::now();
    loop {
        let line = lines.recv_timeout(due.saturating_duration_since(Instant::now()));
        let ended = line == Err(RecvTimeoutError::Disconnected);
        if let Ok(line) = line {
            writeln!(out, "{line}")?;
        }
        if ended || due <= Instant::now() {
            for source in sources {
                writeln!(out, "{}", source.counted())?;
            }
            out.flush()?;
            due += Duration::from_secs(1);
        }
        if ended {
            return Ok(());
        }
    }
}

/// One connection of a source.
struct Client<'a> {
    source: &'a Source,
    port: u16,
    begin: Instant,
    stopping: &'a AtomicBool,
    new: &'a AtomicU64,
    admitted: SyncSender<String>,
    seed: u64,
}

impl Client<'_> {
    fn run(mut self) {
        let mut connection = None;
        let mut buffer = Vec::new();
        let mut due = Instant::now();
        while !self.stopping.load(Ordering::Relaxed) {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            // What could not be asked in time is not asked later.
            due = (due + self.source.gap).max(Instant::now());
            let Some(mut stream) = connection.take().or_else(|| connect(self.port).ok()) else {
                std::thread::sleep(AGAIN);
                continue;
            };
            match self.ask(&mut stream, &mut buffer) {
                Ok(()) if !closes(&buffer) => connection = Some(stream),
                Ok(()) => {}
                Err(_) => self.source.lose(),
            }
        }
    }

    fn ask(&mut self, stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<()> {
        let Source { path, header, .. } = self.source;
        let random = self.random();
        let key = self.source.key(random, self.new);
        let text =
            format!("GET {path} HTTP/1.1\r\nhost: shop\r\nx-key: client-{key}\r\n{header}\r\n");
        let sent = self.begin.elapsed().as_nanos();
        stream.write_all(text.as_bytes()).context("sending")?;
        let status = read_response(stream, buffer)?;
        let arrived = self.begin.elapsed().as_nanos();
        self.source.count(status);
        // A key that is asked for once is over no limit.
        if !REFUSALS.contains(&status) && self.source.keys != Keys::New {
            let line = format!("a {} {key} {sent} {arrived}", self.source.name);
            // Nothing is printed any more once the reader has gone.
            let _ = self.admitted.send(line);
        }
        Ok(())
    }

    /// Marsaglia's xorshift, in [0, 1).
    fn random(&mut self) -> f64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Whether the server closes the connection after this answer.
fn closes(answer: &[u8]) -> bool {
    let said: &[u8] = b"\r\nconnection: close\r\n";
    answer.windows(said.len()).any(|part| part == said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_read_from_its_words() {
        let source = Source::read("high 4 100 - /priority x-priority: high").unwrap();
        assert_eq!(source.gap, Duration::from_millis(40));
        assert_eq!(source.header, "x-priority: high\r\n");
        assert_eq!(source.counted(), "s high 0 0 0 0 0 0");
        let error = Source::read("high 4 100").unwrap_err().to_string();
        assert_eq!(
            error,
            "`high 4 100` is not `NAME CONNECTIONS RATE KEYS PATH [HEADER]`"
        );
    }

    #[test]
    fn each_status_has_its_count() {
        let source = Source::read("hot 1 0 - /hot").unwrap();
        for status in [200, 429, 429, 500, 503, 404] {
            source.count(status);
        }
        source.lose();
        assert_eq!(source.counted(), "s hot 1 2 1 1 1 1");
    }

    #[test]
    fn lower_keys_are_hotter_and_new_keys_are_never_asked_for_again() {
        let new = AtomicU64::new(0);
        let some = Source::read("some 1 0 10000 /some").unwrap();
        let keys = [0.0, 0.25, 0.5, 0.999_999].map(|random| some.key(random, &new));
        assert_eq!(keys, [1, 10, 100, 9999]);
        let fresh = Source::read("new 1 0 new /some").unwrap();
        assert_ne!(fresh.key(0.0, &new), fresh.key(0.0, &new));
    }

    #[test]
    fn an_answer_says_that_it_is_the_last() {
        assert!(closes(
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        ));
        assert!(!closes(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
    }
}
