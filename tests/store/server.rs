//! A Redis of a test's own, and a connection to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A server, until it is dropped.
pub(crate) struct Server {
    process: Child,
    folder: PathBuf,
    connection: BufReader<UnixStream>,
}

impl Server {
    /// One that keeps nothing on disk and is reached by a socket in a folder of its own.
    pub(crate) fn start(options: &[&str]) -> Server {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/redis/redis-server");
        assert!(
            program.exists(),
            "there is no {}: run `./build.sh test core`, which installs it",
            program.display()
        );
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("leapgate-store-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("socket");
        let mut process = Command::new(program)
            .args(["--save", "", "--appendonly", "no", "--port", "0"])
            .args(["--bind", "127.0.0.1", "--unixsocket"])
            .arg(&socket)
            .args(options)
            .current_dir(&folder)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let since = Instant::now();
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(_) if since.elapsed() < Duration::from_secs(20) => std::thread::yield_now(),
                Err(error) => panic!("redis-server does not listen: {error}"),
            }
            assert_eq!(process.try_wait().unwrap(), None, "redis-server has ended");
        };
        Server {
            process,
            folder,
            connection: BufReader::new(stream),
        }
    }

    /// Sends it a signal, such as `-STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let status = Command::new("kill").args([name, &id]).status();
        assert!(status.unwrap().success());
    }

    /// Sends a command, and leaves its reply for later.
    pub(crate) fn send(&mut self, command: &[&[u8]]) {
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for part in command {
            bytes.extend(format!("${}\r\n", part.len()).bytes());
            bytes.extend(*part);
            bytes.extend(b"\r\n");
        }
        self.connection.get_mut().write_all(&bytes).unwrap();
    }

    /// The next reply, if it is not a list: an error, or what it says as text.
    pub(crate) fn reply(&mut self) -> Result<Vec<u8>, String> {
        let mut line = String::new();
        self.connection.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            "-" => Err(rest.into()),
            "$" if rest != "-1" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.connection.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Ok(bytes)
            }
            "+" | ":" => Ok(rest.into()),
            _ => Ok(Vec::new()),
        }
    }

    /// The reply to a command.
    pub(crate) fn call(&mut self, command: &[&[u8]]) -> Result<Vec<u8>, String> {
        self.send(command);
        self.reply()
    }

    /// The reply to a command of words, as text.
    pub(crate) fn say(&mut self, command: &str) -> Result<String, String> {
        let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
        self.call(&words)
            .map(|bytes| String::from_utf8(bytes).unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
