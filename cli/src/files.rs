//! Logs as bytes: files and standard input, packed by gzip or not, with what has been read of them for a progress bar.

use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Result, Stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// How many bytes are handed on at once, and how many such pieces are ahead of the reader.
const PIECE: usize = 1 << 18;
const AHEAD: usize = 4;

/// The bytes of a log, read and unpacked by a thread of their own.
pub(crate) struct Log {
    pieces: Receiver<Result<Vec<u8>>>,
    spent: SyncSender<Vec<u8>>,
}

enum Source {
    File(File),
    Stdin(Stdin),
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        match self {
            Source::File(file) => file.read(buffer),
            Source::Stdin(stdin) => stdin.lock().read(buffer),
        }
    }
}

/// Counts what is read.
struct Counted<R> {
    source: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let count = self.source.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl Log {
    /// The log of that path, or of standard input for `-`. `read` grows with the bytes that are read of it.
    pub(crate) fn open(path: &str, read: Arc<AtomicU64>) -> Result<Log> {
        let source = match path {
            "-" => Source::Stdin(std::io::stdin()),
            path => Source::File(File::open(path)?),
        };
        let mut source = BufReader::with_capacity(PIECE, Counted { source, read });
        // The magic number of gzip; what is shorter is no archive.
        let is_packed = source.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let (full, pieces) = sync_channel(AHEAD);
        let (spent, empty) = sync_channel(AHEAD + 2);
        std::thread::spawn(move || match is_packed {
            true => hand_on(&mut MultiGzDecoder::new(source), &full, &empty),
            false => hand_on(&mut source, &full, &empty),
        });
        Ok(Log { pieces, spent })
    }

    /// The next piece; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Result<Vec<u8>>> {
        self.pieces.recv().ok()
    }

    /// Gives a piece back, to be filled again.
    pub(crate) fn give_back(&mut self, piece: Vec<u8>) {
        let _ = self.spent.try_send(piece);
    }
}

/// Hands on what is read until its end, or until the reader has gone.
fn hand_on(source: &mut dyn Read, full: &SyncSender<Result<Vec<u8>>>, empty: &Receiver<Vec<u8>>) {
    loop {
        let mut piece = empty.try_recv().unwrap_or_default();
        piece.resize(PIECE, 0);
        let mut filled = 0;
        let mut failed = None;
        while let Some(rest) = piece.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match source.read(rest) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let is_end = filled < piece.len();
        piece.truncate(filled);
        // What came before a fault is read, too.
        if filled > 0 && full.send(Ok(piece)).is_err() {
            return;
        }
        if let Some(error) = failed {
            let _ = full.send(Err(error));
            return;
        }
        if is_end {
            return;
        }
    }
}
