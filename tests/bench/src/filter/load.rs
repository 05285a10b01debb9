//! A load generator: connections that are kept open, one request at a time on each. No pipelining,
//! no threads.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

pub(super) const REQUEST: &[u8] =
    b"GET /bench HTTP/1.1\r\nhost: localhost\r\nuser-agent: leapgate-bench\r\nx-api-key: 9b2f0c61d4\r\n\r\n";

/// Answers by status.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    pub(super) passed: u64,
    pub(super) refused: u64,
}

impl Answers {
    pub(super) fn all(self) -> u64 {
        self.passed + self.refused
    }
}

/// Open connections to one listener.
pub(super) struct Load {
    connections: Vec<TcpStream>,
    buffer: Vec<u8>,
}

impl Load {
    pub(super) fn connect(port: u16, connections: usize) -> Result<Self> {
        let connect = |_| -> Result<TcpStream> {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("connecting")?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(20)))?;
            Ok(stream)
        };
        Ok(Self {
            connections: (0..connections).map(connect).collect::<Result<_>>()?,
            buffer: Vec::new(),
        })
    }

    /// Keeps a request on its way on each connection until the time is over.
    pub(super) fn run_for(&mut self, time: Duration) -> Result<Answers> {
        let begin = Instant::now();
        self.run_while(|_| begin.elapsed() < time)
    }

    /// As [`Load::run_for`], until so many requests have been sent.
    pub(super) fn run_times(&mut self, times: u64) -> Result<Answers> {
        let connections = self.connections.len() as u64;
        self.run_while(|sent| sent + connections <= times)
    }

    /// `go_on` is asked before each turn over all connections, with the number of requests sent so
    /// far.
    fn run_while(&mut self, go_on: impl Fn(u64) -> bool) -> Result<Answers> {
        let mut answers = Answers::default();
        let mut sent = 0;
        let mut waiting = false;
        loop {
            let more = go_on(sent);
            for connection in &mut self.connections {
                if waiting {
                    match read_response(connection, &mut self.buffer)? {
                        200 => answers.passed += 1,
                        429 => answers.refused += 1,
                        status => bail!("an answer with status {status}"),
                    }
                }
                if more {
                    connection.write_all(REQUEST).context("sending")?;
                    sent += 1;
                }
            }
            if !more {
                return Ok(answers);
            }
            waiting = true;
        }
    }
}

/// Reads one response to its end; the status.
pub(crate) fn read_response(connection: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<u16> {
    buffer.clear();
    let mut chunk = [0; 4096];
    loop {
        let size = connection.read(&mut chunk).context("receiving")?;
        if size == 0 {
            bail!("the connection was closed");
        }
        buffer.extend_from_slice(chunk.get(..size).unwrap_or_default());
        let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = std::str::from_utf8(buffer.get(..end).unwrap_or_default())
            .context("the response's head")?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(Ok(0), str::parse::<usize>);
        if buffer.len() >= end + 4 + length.context("the response's length")? {
            let status = head.get(9..12).unwrap_or_default();
            return status
                .parse()
                .with_context(|| format!("the response's status in `{head}`"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn answers_are_read_whole_however_they_arrive() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (pass, refuse) = (
                "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok\n",
                "HTTP/1.1 429 Too Many Requests\r\n\r\n",
            );
            for (answer, arriving_first) in [(pass, 15), (refuse, 31), (pass, 41)] {
                let mut request = vec![0; REQUEST.len()];
                stream.read_exact(&mut request).unwrap();
                assert_eq!(request, REQUEST);
                let (first, second) = answer.split_at(arriving_first);
                stream.write_all(first.as_bytes()).unwrap();
                stream.flush().unwrap();
                stream.write_all(second.as_bytes()).unwrap();
            }
        });
        let answers = Load::connect(port, 1).unwrap().run_times(3).unwrap();
        server.join().unwrap();
        assert_eq!((answers.passed, answers.refused, answers.all()), (2, 1, 3));
    }
}
