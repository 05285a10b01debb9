//! A store in this program that speaks as webdis does.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use leapgate::lease::Store;

/// The body of webdis' answer to a request with this body.
pub(super) fn as_webdis(store: &mut Store, body: &[u8], now_ms: u64) -> Result<String> {
    let body = std::str::from_utf8(body).context("a call's body")?;
    let mut words = body.split('/');
    let command = words.next().unwrap_or_default();
    let (key, request) = words
        .nth(2)
        .zip(words.next())
        .with_context(|| format!("a call without a key and a request: {body}"))?;
    let text = store
        .lease(key, request, now_ms, u64::MAX)
        .map_err(|_| anyhow!("not a request: {request}"))?;
    Ok(format!(r#"{{"{command}":"{text}"}}"#))
}

/// Serves a store for as long as this program runs; the port.
pub(super) fn serve() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    let port = listener.local_addr().context("the port's number")?.port();
    let store = Arc::new(Mutex::new(Store::default()));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let store = Arc::clone(&store);
            std::thread::spawn(move || {
                // Envoy has closed its end, or sees that this one is.
                let _ = answer_all(stream, &store);
            });
        }
    });
    Ok(port)
}

fn answer_all(mut stream: TcpStream, store: &Mutex<Store>) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut read = Vec::new();
    loop {
        let (head, length) = loop {
            let end = read.windows(4).position(|four| four == b"\r\n\r\n");
            let length = end.map(|end| length(read.get(..end).unwrap_or_default()));
            if let Some((end, length)) = end.zip(length)
                && read.len() >= end + 4 + length
            {
                break (end + 4, length);
            }
            let mut chunk = [0; 4096];
            let size = stream.read(&mut chunk)?;
            if size == 0 {
                return Ok(());
            }
            read.extend_from_slice(chunk.get(..size).unwrap_or_default());
        };
        let rest = read.split_off(head + length);
        let body = read.get(head..).unwrap_or_default();
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
        let mut locked = store.lock().map_err(|_| anyhow!("a thread panicked"))?;
        let body = as_webdis(&mut locked, body, now_ms)?;
        drop(locked);
        let length = body.len();
        stream.write_all(
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}").as_bytes(),
        )?;
        read = rest;
    }
}

/// What the head of a request says of its body.
fn length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    length.and_then(|length| length.parse().ok()).unwrap_or(0)
}
