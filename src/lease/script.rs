//! The store half as a script for Redis: `redis.lua` beside this
//! file, without its comments and indentation, which every worker of a proxy and every client would carry along.

const SOURCE: &[u8] = include_bytes!("redis.lua");

/// Writes `SOURCE` without indentation, blank lines and lines of comment into `to`, which is as long as `SOURCE`, and returns
/// how much that is. No text in the script has more than one line, and a comment has its line to itself.
const fn write(to: &mut [u8]) -> usize {
    let (mut from, mut at) = (0, 0);
    while from < SOURCE.len() {
        while from < SOURCE.len() && (SOURCE[from] == b' ' || SOURCE[from] == b'\n') {
            from += 1;
        }
        let is_comment =
            from + 1 < SOURCE.len() && SOURCE[from] == b'-' && SOURCE[from + 1] == b'-';
        while from < SOURCE.len() {
            let byte = SOURCE[from];
            from += 1;
            if !is_comment {
                to[at] = byte;
                at += 1;
            }
            if byte == b'\n' {
                break;
            }
        }
    }
    at
}

const LENGTH: usize = write(&mut [0; SOURCE.len()]);

const TEXT: &[u8; LENGTH] = &{
    let mut whole = [0; SOURCE.len()];
    let (mut text, mut at) = ([0; LENGTH], write(&mut whole));
    while at > 0 {
        at -= 1;
        text[at] = whole[at];
    }
    text
};

/// The store half as a script, for Redis 5 and newer and for what speaks as it does: `EVAL script 1 KEY REQUEST` answers what
/// [`Node::answered`](super::Node::answered) takes. A value of another program under the key, or a text that is not a request, is
/// answered by a sentence, and nothing is written.
pub const REDIS_SCRIPT: &str = match std::str::from_utf8(TEXT) {
    Ok(text) => text,
    Err(_) => panic!("the script is not UTF-8"),
};

/// The SHA-1 of [`REDIS_SCRIPT`], by which Redis knows it once it has run: `EVALSHA sha1 1 KEY REQUEST`. Where it is not known, the
/// error begins with `NOSCRIPT`.
pub const REDIS_SCRIPT_SHA1: &str = "21a563e6362b8737848d339024fe664dee1dc7ca";
