//! Whether a client looks like a person: by its user agent alone, which anybody can choose. A hint, and no more.

use super::counts::hash;
use memchr::memmem;

/// What a user agent looks like.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Agent {
    /// A browser.
    Browser,
    /// A library, a tool or a crawler, which says so.
    Tool,
    /// Neither, or there is none.
    #[default]
    Unknown,
}

/// In lower case, what tools and crawlers call themselves.
const TOOLS: [&str; 34] = [
    "bot",
    "crawl",
    "spider",
    "slurp",
    "headless",
    "curl/",
    "wget",
    "python",
    "go-http-client",
    "java/",
    "okhttp",
    "apache-httpclient",
    "axios",
    "node-fetch",
    "undici",
    "node",
    "ruby",
    "perl",
    "php",
    "guzzle",
    "libwww",
    "httpie",
    "postman",
    "insomnia",
    "scrapy",
    "k6/",
    "jmeter",
    "wrk",
    "hey/",
    "vegeta",
    "prometheus",
    "kube-probe",
    "healthcheck",
    "monitor",
];

/// What browsers have behind `Mozilla/5.0`.
const BROWSERS: [&str; 6] = ["firefox/", "chrome/", "safari/", "edg/", "opr/", "crios/"];

fn of(agent: &[u8]) -> Agent {
    let lower = agent.to_ascii_lowercase();
    let has = |words: &[&str]| {
        words
            .iter()
            .any(|word| memmem::find(&lower, word.as_bytes()).is_some())
    };
    match () {
        () if has(&TOOLS) => Agent::Tool,
        () if lower.starts_with(b"mozilla/") && has(&BROWSERS) => Agent::Browser,
        () => Agent::Unknown,
    }
}

/// How many user agents are remembered.
const REMEMBERED: usize = 4096;

/// Remembers what user agents look like: most lines have one of a few.
pub(crate) struct Agents(Vec<(u64, Agent)>);

impl Agents {
    pub(crate) fn new() -> Agents {
        Agents(vec![(0, Agent::Unknown); REMEMBERED])
    }

    pub(crate) fn of(&mut self, agent: &[u8]) -> Agent {
        let hash = hash(agent);
        let Some(known) = self.0.get_mut(hash as usize % REMEMBERED) else {
            return Agent::Unknown;
        };
        if known.0 != hash {
            *known = (hash, of(agent));
        }
        known.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_look_like_people_and_tools_say_what_they_are() {
        let cases = [
            (
                "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0",
                Agent::Browser,
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.0 Mobile/15E148 Safari/604.1",
                Agent::Browser,
            ),
            (
                "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
                Agent::Tool,
            ),
            ("curl/8.5.0", Agent::Tool),
            ("python-requests/2.32", Agent::Tool),
            ("Go-http-client/2.0", Agent::Tool),
            ("Mozilla/4.08 [en] (Win98; I ;Nav)", Agent::Unknown),
            ("my app", Agent::Unknown),
        ];
        let mut agents = Agents::new();
        for (text, expected) in cases {
            assert_eq!(agents.of(text.as_bytes()), expected, "{text}");
        }
    }
}
