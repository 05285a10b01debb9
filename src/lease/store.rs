//! The store of all keys of a process.

use super::answer::{Answer, AnswerError};
use super::request::Request;
use super::state::KeyState;
use hashbrown::HashMap;
use std::fmt;

/// Below this many keys none is looked for that is over.
const FEW: usize = 1024;

/// In how many milliseconds a key that finds no room may be asked about again.
const FULL_FOR_MS: u64 = 1000;

/// The store half: the keys that nodes lease from, in memory. Times are in milliseconds of one wall clock.
#[derive(Default)]
pub struct Store {
    keys: HashMap<Box<str>, (KeyState, u64)>,
    /// With so many keys those that are over are removed.
    sweeps_at: usize,
    swept_at: u64,
}

impl Store {
    /// The most keys. Of further ones nothing is granted until others are over.
    pub const MAX_KEYS: usize = 1 << 18;

    /// Answers the request of a node about a key. `uptime_ms` is for how long the store has known all that it leased: a key that is
    /// missing in a younger store than a window and a lease counts as full until then.
    ///
    /// # Errors
    ///
    /// If the text is not a request.
    pub fn lease(
        &mut self,
        key: &str,
        request: &str,
        now_ms: u64,
        uptime_ms: u64,
    ) -> Result<String, AnswerError> {
        let request = Request::parse(request).ok_or_else(|| AnswerError::new(request))?;
        let terms = &request.terms;
        let is_full = self.keys.len() >= Store::MAX_KEYS;
        // Not for each of a flood of keys.
        let may_sweep = now_ms.abs_diff(self.swept_at) >= FULL_FOR_MS;
        if self.keys.len() >= self.sweeps_at.max(FEW) || is_full && may_sweep {
            self.keys.retain(|_, (_, over_at)| *over_at > now_ms);
            self.sweeps_at = self.keys.len() * 2;
            self.swept_at = now_ms;
        }
        if self.keys.len() >= Store::MAX_KEYS && !self.keys.contains_key(key) {
            let retry_ms = if request.want > 0 { FULL_FOR_MS } else { 0 };
            let full = Answer {
                echo: request.echo(),
                retry_ms,
                ..Answer::default()
            };
            return Ok(full.to_text());
        }
        let missing = || (KeyState::missing(terms, now_ms, uptime_ms), u64::MAX);
        let (state, over_at) = self.keys.entry_ref(key).or_insert_with(missing);
        if *over_at <= now_ms {
            *state = missing().0;
        }
        let answer = state.lease(&request, now_ms);
        *over_at = state.over_at(terms);
        Ok(answer.to_text())
    }

    /// How many keys are known.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is known.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// All that is known of a key, as text, and when nothing of it counts any more; `None` if nothing is known.
    pub fn snapshot(&self, key: &str) -> Option<(String, u64)> {
        let (state, over_at) = self.keys.get(key)?;
        Some((state.to_text(), *over_at))
    }

    /// Knows of a key what [`Store::snapshot`] has told. Returns `false`, and changes nothing, if the text is not of a key.
    pub fn restore(&mut self, key: &str, text: &str, over_at_ms: u64) -> bool {
        let state = KeyState::parse(text);
        let is_state = state.is_some();
        if let Some(state) = state {
            self.keys.insert(key.into(), (state, over_at_ms));
        }
        is_state
    }

    /// Forgets a key.
    pub fn forget(&mut self, key: &str) {
        self.keys.remove(key);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("keys", &self.len()).finish()
    }
}
