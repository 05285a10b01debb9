//! Writes an access log that is the same each time: `make_log istio 1000000`, or `combined`, to standard output.
//!
//! Requests of 60,000 clients, of whom few send most: about 500 in a second, lines in the order in which the requests ended.

use std::io::{BufWriter, Write};

const AGENTS: [&str; 8] = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/129.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_6) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.6 Safari/605.1.15",
    "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.6 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/129.0.6668.70 Mobile Safari/537.36",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "python-requests/2.32.3",
    "okhttp/4.12.0",
];

const PATHS: [(&str, &str); 6] = [
    ("login", "/login?u="),
    ("api", "/api/v2/items/"),
    ("api", "/api/v2/search?q="),
    ("assets", "/assets/app."),
    ("shop", "/product/"),
    ("shop", "/cart?session="),
];

/// 2026-10-01T00:00:00Z.
const START_MS: u64 = 1_790_812_800_000;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let format = arguments.next().unwrap_or_else(|| "istio".into());
    let lines: u64 = arguments
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1_000_000);
    let mut random = fastrand::Rng::with_seed(11);
    let mut out = BufWriter::with_capacity(1 << 20, std::io::stdout().lock());
    let mut now_us = START_MS * 1000;
    for _ in 0..lines {
        now_us += random.u64(0..4000);
        // Few clients send most: the square of a fair number.
        let share = random.f64() * random.f64();
        let client = (share * share * 60_000.0) as u32;
        let ip = std::net::Ipv4Addr::from(0x0a00_0000 + client * 97);
        let agent = AGENTS.get(client as usize % AGENTS.len()).unwrap_or(&"-");
        let (route, path) = random.choice(PATHS).unwrap_or(("-", "/"));
        let (item, duration) = (random.u32(..), random.u64(1..400));
        let (status, method) = match random.u8(0..20) {
            0 => (404, "GET"),
            1 => (500, "POST"),
            2..5 => (201, "POST"),
            _ => (200, "GET"),
        };
        let start_ms = now_us / 1000 - duration;
        let bytes = random.u32(200..40_000);
        match &*format {
            "combined" => writeln!(
                out,
                r#"{ip} - - [{}] "{method} {path}{item:x} HTTP/1.1" {status} {bytes} "https://shop.example.com/" "{agent}""#,
                clf(now_us / 1_000_000)
            )?,
            _ => writeln!(
                out,
                r#"{{"start_time":"{}","route_name":"{route}","method":"{method}","path":"{path}{item:x}","protocol":"HTTP/1.1","response_code":{status},"response_flags":"-","response_code_details":"via_upstream","connection_termination_details":null,"upstream_transport_failure_reason":null,"bytes_received":0,"bytes_sent":{bytes},"duration":{duration},"upstream_service_time":"{duration}","x_forwarded_for":"{ip}","user_agent":"{agent}","request_id":"{:016x}{:016x}","authority":"shop.example.com","upstream_host":"10.4.0.{}:8080","upstream_cluster":"outbound|80||shop.default.svc.cluster.local","upstream_local_address":"10.4.1.9:{}","downstream_local_address":"10.4.1.9:8443","downstream_remote_address":"{ip}:{}","requested_server_name":"shop.example.com"}}"#,
                iso(start_ms),
                random.u64(..),
                random.u64(..),
                random.u8(..),
                random.u16(..),
                random.u16(..),
            )?,
        }
    }
    out.flush()
}

/// The day of October and the time, of a log of less than a month.
fn parts(second: u64) -> (u64, u64, u64, u64) {
    let of_month = second - START_MS / 1000;
    (
        of_month / 86_400 + 1,
        of_month / 3600 % 24,
        of_month / 60 % 60,
        of_month % 60,
    )
}

fn iso(ms: u64) -> String {
    let (day, hour, minute, second) = parts((ms / 1000).max(START_MS / 1000));
    format!(
        "2026-10-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        ms % 1000
    )
}

fn clf(second: u64) -> String {
    let (day, hour, minute, second) = parts(second);
    format!("{day:02}/Oct/2026:{hour:02}:{minute:02}:{second:02} +0000")
}
