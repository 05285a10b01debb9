//! The formats of logs: those that servers write by default, and others by what a user says of them.

use super::fields::{FIXED, Fields, MAX_HEADERS, Slot};
use super::json::{self, MAX_WANTED, Wanted};
use super::when::Clock;
use memchr::memmem;

/// The formats that are known by name, in the order in which they are tried: a format before one that accepts its lines, too.
const KNOWN: [(&str, &str); 7] = [
    (
        "istio",
        "time=$.start_time client=$.downstream_remote_address x_forwarded_for=$.x_forwarded_for method=$.method path=$.path \
         host=$.authority status=$.response_code duration=$.duration route=$.route_name http_user_agent=$.user_agent \
         http_x_request_id=$.request_id",
    ),
    (
        "caddy",
        "end_time=$.ts client=$.request.client_ip remote_ip=$.request.remote_ip method=$.request.method path=$.request.uri \
         host=$.request.host status=$.status request_time=$.duration http_user_agent=$.request.headers.User-Agent \
         headers=$.request.headers",
    ),
    (
        "envoy",
        r#"[$time] "$method $path $protocol" $status $flags $received $sent $duration $upstream_time "$x_forwarded_for" "$http_user_agent" "$http_x_request_id" "$host" "$upstream""#,
    ),
    (
        "istio-text",
        r#"[$time] "$method $path $protocol" $status $flags $details $termination "$failure" $received $sent $duration $upstream_time "$x_forwarded_for" "$http_user_agent" "$http_x_request_id" "$host" "$upstream" $cluster $upstream_local $local $client $sni $route"#,
    ),
    (
        "combined",
        r#"$client $ident $user [$time] "$request" $status $sent "$http_referer" "$http_user_agent""#,
    ),
    (
        "common",
        r#"$client $ident $user [$time] "$request" $status $sent"#,
    ),
    (
        "nginx-json",
        "end_time=$.time_iso8601 client=$.remote_addr request=$.request method=$.request_method path=$.request_uri \
      host=$.host status=$.status request_time=$.request_time http_user_agent=$.http_user_agent x_forwarded_for=$.http_x_forwarded_for",
    ),
];

/// How many of the first lines say which format it is.
pub(crate) const SAMPLE: usize = 20;

/// A format of lines.
#[derive(Clone, Debug)]
pub struct Format {
    name: String,
    kind: Kind,
    /// The headers of the slots behind [`FIXED`], in lower case.
    headers: Vec<String>,
    /// By slot: whether lines have it.
    has: u64,
}

#[derive(Clone, Debug)]
enum Kind {
    /// What stands before the first value; then the slot of each value, if it is wanted, and what stands behind it.
    Text(Vec<u8>, Vec<(Option<usize>, Vec<u8>)>),
    Json(Vec<Wanted>),
}

impl Format {
    /// The format of that name: `envoy`, `istio`, `istio-text`, `combined`, `common`, `caddy`, `nginx-json`.
    pub fn named(name: &str) -> Option<Format> {
        let (name, fields) = KNOWN.iter().find(|(known, _)| *known == name)?;
        let format = Format::of_fields(fields).ok()?;
        Some(Format {
            name: (*name).into(),
            ..format
        })
    }

    /// The names of the formats that are known.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|(name, _)| *name)
    }

    /// The format that a user describes. Of JSON lines, where each value stands: `time=$.ts path=$.req.uri client=$.ip`. Of other
    /// lines a pattern with `$names`, as nginx writes its `log_format`: `$remote_addr [$time_local] "$request" $status`.
    ///
    /// # Errors
    ///
    /// A sentence with the cure.
    pub fn of_fields(fields: &str) -> Result<Format, String> {
        let fields = fields.trim();
        let mut format = Format {
            name: "fields".into(),
            kind: Kind::Json(Vec::new()),
            headers: Vec::new(),
            has: 0,
        };
        format.kind = match fields.contains("=$.") {
            true => format.json(fields)?,
            false => format.text(fields)?,
        };
        if !format.has_slot(Slot::Time) && !format.has_slot(Slot::End) {
            return Err(format!(
                "`{fields}` says nothing of the time of a line; name it, as in `time=$.ts` or `[$time_local]`"
            ));
        }
        Ok(format)
    }

    fn json(&mut self, fields: &str) -> Result<Kind, String> {
        let mut wanted = Vec::new();
        for field in fields.split_whitespace() {
            let Some((name, path)) = field.split_once("=$.") else {
                return Err(format!(
                    "`{field}` does not say where a value stands; use `name=$.key.key`"
                ));
            };
            if path.is_empty() || path.split('.').any(str::is_empty) {
                return Err(format!(
                    "`{field}` does not say where a value stands; use `name=$.key.key`"
                ));
            }
            let Some(slot) = self.slot(name)? else {
                return Err(format!(
                    "`{name}` is not a known value; use time, end_time, client, x_forwarded_for, method, path, request, host, status, \
                     duration (ms), request_time (s), duration_us, route, http_NAME of a header, or headers of an object of them"
                ));
            };
            if wanted.len() == MAX_WANTED {
                return Err(format!(
                    "`{field}` is one value too many; use at most {MAX_WANTED}"
                ));
            }
            wanted.push((
                path.split('.').map(|step| step.as_bytes().into()).collect(),
                slot,
            ));
        }
        Ok(Kind::Json(wanted))
    }

    fn text(&mut self, pattern: &str) -> Result<Kind, String> {
        let mut parts = pattern.split('$');
        let prefix = parts.next().unwrap_or_default().as_bytes().to_vec();
        let mut values: Vec<(Option<usize>, Vec<u8>)> = Vec::new();
        for part in parts {
            let (name, literal) = match part.strip_prefix('{').and_then(|part| part.split_once('}'))
            {
                Some(named) => named,
                None => {
                    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                    part.split_at(part.find(|c| !is_name(c)).unwrap_or(part.len()))
                }
            };
            if name.is_empty() {
                return Err(format!("`${part}` has no name; use one such as `$status`"));
            }
            if values.last().is_some_and(|(_, literal)| literal.is_empty()) {
                return Err(format!(
                    "`${name}` follows another value at once; put a character between the two"
                ));
            }
            values.push((self.slot(name)?, literal.as_bytes().to_vec()));
        }
        if values.is_empty() {
            return Err(format!(
                "`{pattern}` names no value; use `time=$.ts path=$.uri` for JSON, or a pattern such as `$remote_addr [$time_local] \"$request\"`"
            ));
        }
        Ok(Kind::Text(prefix, values))
    }

    /// The slot of a value, which lines have from now on; `None` if it is not wanted.
    fn slot(&mut self, name: &str) -> Result<Option<usize>, String> {
        let slot = match name {
            "time" | "start_time" => Slot::Time,
            "end_time" | "time_local" | "time_iso8601" | "msec" => Slot::End,
            "client" | "remote_addr" | "client_ip" => Slot::Client,
            "x_forwarded_for" | "http_x_forwarded_for" | "remote_ip" => Slot::Forwarded,
            "method" | "request_method" => Slot::Method,
            "path" | "request_uri" | "uri" => Slot::Path,
            "request" => Slot::Request,
            "host" | "http_host" | "authority" => Slot::Host,
            "status" | "response_code" => Slot::Status,
            "duration" => Slot::Millis,
            "request_time" => Slot::Seconds,
            "duration_us" => Slot::Micros,
            "route" | "route_name" => Slot::Route,
            "user_agent" | "http_user_agent" => Slot::Agent,
            "headers" => Slot::Headers,
            name => {
                let Some(header) = name.strip_prefix("http_") else {
                    return Ok(None);
                };
                let header = header.to_ascii_lowercase().replace('_', "-");
                let known = self.headers.iter().position(|known| *known == header);
                let place = known.unwrap_or(self.headers.len());
                if place == MAX_HEADERS {
                    return Err(format!(
                        "`{name}` is one header too many; use at most {MAX_HEADERS}"
                    ));
                }
                if known.is_none() {
                    self.headers.push(header);
                }
                self.has |= 1 << (FIXED + place);
                return Ok(Some(FIXED + place));
            }
        };
        self.has |= 1 << slot as usize;
        if slot == Slot::Request {
            self.has |= 1 << Slot::Method as usize | 1 << Slot::Path as usize;
        }
        Ok(Some(slot as usize))
    }

    /// The format that most of these lines have, if it is that of half of them.
    pub(crate) fn of_lines(lines: &[&[u8]]) -> Option<Format> {
        let (mut fields, mut clock) = (Fields::new(), Clock::default());
        let mut best: Option<(usize, Format)> = None;
        for name in Format::names() {
            let Some(format) = Format::named(name) else {
                continue;
            };
            let mut is_read = |line: &&&[u8]| {
                let times = [Slot::Time, Slot::End].map(|slot| slot as usize);
                format.read(line, &mut fields).is_ok()
                    && times.iter().any(|slot| {
                        fields
                            .get(line, *slot)
                            .is_some_and(|time| clock.read(time).is_some())
                    })
            };
            let count = lines.iter().filter(|line| is_read(line)).count();
            if count * 2 >= lines.len().max(1)
                && best.as_ref().is_none_or(|(most, _)| count > *most)
            {
                best = Some((count, format));
            }
        }
        best.map(|(_, format)| format)
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn has_slot(&self, slot: Slot) -> bool {
        self.has & 1 << slot as usize != 0
    }

    /// The slot of a header in lower case, if lines have it.
    pub(crate) fn header(&self, name: &str) -> Option<usize> {
        let fixed = match name {
            "user-agent" => Slot::Agent,
            "x-forwarded-for" => Slot::Forwarded,
            "host" | ":authority" => Slot::Host,
            ":method" => Slot::Method,
            ":path" => Slot::Path,
            name => {
                let place = self.headers.iter().position(|known| known == name)?;
                return Some(FIXED + place);
            }
        };
        self.has_slot(fixed).then_some(fixed as usize)
    }

    /// Reads a line.
    ///
    /// # Errors
    ///
    /// Why it is not one of the format.
    pub(crate) fn read(&self, line: &[u8], fields: &mut Fields) -> Result<(), &'static str> {
        fields.clear();
        match &self.kind {
            Kind::Json(wanted) => json::read(line, wanted, fields)?,
            Kind::Text(prefix, values) => {
                read_text(line, prefix, values, fields).ok_or("it has another format")?;
            }
        }
        if self.has_slot(Slot::Request) {
            fields.split_request(line);
        }
        Ok(())
    }
}

fn read_text(
    line: &[u8],
    prefix: &[u8],
    values: &[(Option<usize>, Vec<u8>)],
    fields: &mut Fields,
) -> Option<()> {
    if !line.starts_with(prefix) {
        return None;
    }
    let mut at = prefix.len();
    for (slot, literal) in values {
        let rest = line.get(at..)?;
        let length = match literal.split_first() {
            None => rest.len(),
            Some((b'"', further)) => quoted(rest, further)?,
            Some((first, [])) => memchr::memchr(*first, rest)?,
            // A value that is not in quotes has no spaces.
            Some((b' ', b"\"")) => {
                let length = memchr::memchr(b' ', rest)?;
                rest.get(length..)?.starts_with(literal).then_some(length)?
            }
            Some(_) => memmem::find(rest, literal)?,
        };
        if let Some(slot) = slot {
            fields.set(*slot, at, at + length);
        }
        at += length + literal.len();
    }
    Some(())
}

/// How long a value in quotes is, behind whose last quote there is `further`. A quote behind a backslash belongs to the value.
fn quoted(rest: &[u8], further: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr(b'"', rest.get(at..)?)?;
        let is_escaped = at > 0 && rest.get(at - 1) == Some(&b'\\');
        if !is_escaped && rest.get(at + 1..)?.starts_with(further) {
            return Some(at);
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: [(&str, &str); 7] = [
        (
            "envoy",
            r#"[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80""#,
        ),
        (
            "istio-text",
            r#"[2020-11-25T21:26:18.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 3 1 "-" "curl/7.73.0-DEV" "84961386-6d84-929d-98bd-c5aee93b5c88" "httpbin:8000" "127.0.0.1:80" inbound|8000|| 127.0.0.1:41854 10.44.1.27:80 10.44.1.23:37652 outbound_.8000_._.httpbin.foo.svc.cluster.local default"#,
        ),
        (
            "istio",
            r#"{"start_time":"2020-11-25T21:26:18.409Z","route_name":"default","method":"GET","path":"/status/418","protocol":"HTTP/1.1","response_code":418,"response_flags":"-","duration":3,"x_forwarded_for":null,"user_agent":"curl/7.73.0-DEV","authority":"httpbin:8000","downstream_remote_address":"10.44.1.23:37652"}"#,
        ),
        (
            "combined",
            r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)""#,
        ),
        (
            "common",
            r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326"#,
        ),
        (
            "caddy",
            r#"{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"127.0.0.1","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/","headers":{"User-Agent":["curl/7.82.0"],"Accept":["*/*"]}},"bytes_read":0,"user_id":"","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"]}}"#,
        ),
        (
            "nginx-json",
            r#"{"time_iso8601":"2026-11-23T00:18:51+00:00","remote_addr":"10.0.0.1","request":"GET / HTTP/1.1","status":"200","request_time":"0.004"}"#,
        ),
    ];

    #[test]
    fn a_format_is_known_by_its_lines() {
        for (name, line) in LINES {
            let found = Format::of_lines(&[line.as_bytes()]).map(|format| format.name().to_owned());
            assert_eq!(found.as_deref(), Some(name), "{line}");
        }
        for line in ["", "hello", "{}", r#"{"time":1}"#, "{", "\u{0}\u{1}"] {
            assert!(Format::of_lines(&[line.as_bytes()]).is_none(), "{line}");
        }
    }

    #[track_caller]
    fn read(format: &Format, line: &str, slot: Slot) -> Option<String> {
        let mut fields = Fields::new();
        format.read(line.as_bytes(), &mut fields).unwrap();
        let value = fields.get(line.as_bytes(), slot as usize);
        value.map(|value| String::from_utf8_lossy(value).into_owned())
    }

    #[test]
    fn values_are_found_in_each_format() {
        let find = |name: &str, slot| {
            let (_, line) = LINES.iter().find(|(known, _)| *known == name).unwrap();
            read(&Format::named(name).unwrap(), line, slot)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(find("envoy", Slot::Path), some("/api/v1/locations"));
        assert_eq!(find("envoy", Slot::Forwarded), some("10.0.35.28"));
        assert_eq!(find("envoy", Slot::Host), some("locations"));
        assert_eq!(find("envoy", Slot::Millis), some("226"));
        assert_eq!(find("istio-text", Slot::Client), some("10.44.1.23:37652"));
        assert_eq!(find("istio-text", Slot::Route), some("default"));
        assert_eq!(find("istio", Slot::Route), some("default"));
        assert_eq!(find("istio", Slot::Forwarded), None);
        assert_eq!(find("combined", Slot::Method), some("GET"));
        assert_eq!(find("combined", Slot::Path), some("/apache_pb.gif"));
        assert_eq!(
            find("combined", Slot::Agent),
            some("Mozilla/4.08 [en] (Win98; I ;Nav)")
        );
        assert_eq!(find("caddy", Slot::Agent), some("curl/7.82.0"));
        assert_eq!(find("caddy", Slot::Seconds), some("0.000929675"));
        assert_eq!(find("nginx-json", Slot::Path), some("/"));
    }

    #[test]
    fn a_quote_in_a_value_is_escaped_or_stands_before_something_else() {
        let format = Format::named("combined").unwrap();
        let line = |agent: &str| {
            format!(
                r#"1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 5 "-" "{agent}""#
            )
        };
        assert_eq!(
            read(&format, &line(r#"a \" b"#), Slot::Agent).as_deref(),
            Some(r#"a \" b"#)
        );
        let envoy = Format::named("envoy").unwrap();
        let line = r#"[2016-04-15T20:17:00.310Z] "GET /a"b HTTP/2" 204 - 154 0 226 100 "-" "x" "y" "z" "-""#;
        assert_eq!(read(&envoy, line, Slot::Path).as_deref(), Some(r#"/a"b"#));
    }

    #[test]
    fn what_a_user_says_of_a_format_is_refused_with_a_cure() {
        let cases = [
            (
                "",
                "`` names no value; use `time=$.ts path=$.uri` for JSON, or a pattern such as `$remote_addr [$time_local] \"$request\"`",
            ),
            (
                "$time_local$status",
                "`$status` follows another value at once; put a character between the two",
            ),
            ("$ $time", "`$ ` has no name; use one such as `$status`"),
            (
                "$remote_addr $status",
                "`$remote_addr $status` says nothing of the time of a line; name it, as in `time=$.ts` or `[$time_local]`",
            ),
            (
                "time=$.ts ip",
                "`ip` does not say where a value stands; use `name=$.key.key`",
            ),
            (
                "time=$.",
                "`time=$.` does not say where a value stands; use `name=$.key.key`",
            ),
            (
                "time=$.ts agent=$.a",
                "`agent` is not a known value; use time, end_time, client, x_forwarded_for, method, path, request, host, status, duration (ms), request_time (s), duration_us, route, http_NAME of a header, or headers of an object of them",
            ),
        ];
        for (fields, expected) in cases {
            assert_eq!(Format::of_fields(fields).unwrap_err(), expected);
        }
        let format = Format::of_fields(
            "$http_x_api_key ${remote_addr} [$time_local] \"$request\" $request_time",
        )
        .unwrap();
        let line = "k1 1.2.3.4 [10/Oct/2000:13:55:36 -0700] \"GET /x?y=1 HTTP/1.1\" 0.25";
        assert_eq!(read(&format, line, Slot::Seconds).as_deref(), Some("0.25"));
        assert_eq!(format.header("x-api-key"), Some(FIXED));
    }
}
