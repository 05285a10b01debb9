//! The store half as a script for Redis: `redis.lua` beside this
//! file, without its comments and indentation, which every worker of a proxy and every client would carry along.

const SOURCE: &[u8] = include_bytes!("redis.lua");

/// Splits the first line off `text`, without its indentation.
const fn line(text: &[u8]) -> (&[u8], &[u8]) {
    let mut start = text;
    while let [b' ', rest @ ..] = start {
        start = rest;
    }
    let mut end = start;
    while let [byte, rest @ ..] = end {
        end = rest;
        if *byte == b'\n' {
            break;
        }
    }
    (start.split_at(start.len() - end.len()).0, end)
}

/// Writes `SOURCE` without indentation, blank lines and lines of comment into `to`, and returns how much that is. No text in the
/// script has more than one line, and a comment has its line to itself.
const fn write(to: &mut [u8]) -> usize {
    let (mut from, mut to, mut length) = (SOURCE, to, 0);
    while !from.is_empty() {
        let (mut text, rest) = line(from);
        from = rest;
        if let [b'-', b'-', ..] | [b'\n'] = text {
            continue;
        }
        while let [byte, others @ ..] = text {
            let whole = to;
            let Some((first, room)) = whole.split_first_mut() else {
                return length;
            };
            *first = *byte;
            (text, to) = (others, room);
            length += 1;
        }
    }
    length
}

const LENGTH: usize = write(&mut [0; SOURCE.len()]);

const TEXT: &[u8; LENGTH] = &{
    let mut text = [0; LENGTH];
    write(&mut text);
    text
};

/// The store half as a script, for Redis 5 and newer and for what speaks as it does: `EVAL script 1 KEY REQUEST` answers what
/// [`Node::answered`](super::Node::answered) takes. A value of another program under the key, or a text that is not a request, is
/// answered by a sentence, and nothing is written.
pub const REDIS_SCRIPT: &str = match std::str::from_utf8(TEXT) {
    Ok(text) => text,
    Err(_) => "",
};

/// The SHA-1 of [`REDIS_SCRIPT`], by which Redis knows it once it has run: `EVALSHA sha1 1 KEY REQUEST`. Where it is not known, the
/// error begins with `NOSCRIPT`.
pub const REDIS_SCRIPT_SHA1: &str = "21a563e6362b8737848d339024fe664dee1dc7ca";
