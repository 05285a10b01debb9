//! The nodes behind the numbers: each is the half of a shared limiter that spends permits.

use crate::buffer::{Buffer, KEYS};
use crate::layout::*;
use crate::slab::Slab;
use crate::time::{ceiled, instant};
use crate::tree;
use leapgate::lease::{
    Change, Figures, Message, Moment, Node, Taken, Terms, WhenDown, escape_part,
};
use leapgate::rule::RuleGeometry;

/// In the order of `WHEN_DOWN`.
const WAYS: [WhenDown; WHEN_DOWN.len()] = [WhenDown::Local, WhenDown::Refuse, WhenDown::Pass];

/// The nodes, by number, and the keys that have a number.
pub(crate) struct Nodes {
    slots: Slab<Node>,
    /// The parts of each key, as stores name them.
    keys: Vec<Vec<u8>>,
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes {
            slots: Slab::default(),
            keys: vec![Vec::new(); KEYS],
        }
    }
}

/// What a node is made of. Its id is in the buffer.
pub(crate) struct Options {
    pub(crate) bytes: usize,
    pub(crate) limit: f64,
    pub(crate) window_ms: f64,
    pub(crate) buckets: u32,
    /// A position in `WHEN_DOWN`.
    pub(crate) when_down: u32,
    pub(crate) max_keys: u32,
    /// A random number below 2^53.
    pub(crate) random: f64,
}

/// A request for permits of a key.
pub(crate) struct Take {
    pub(crate) node: u32,
    pub(crate) slot: u32,
    pub(crate) cost: f64,
    pub(crate) now: Moment,
    /// Whether it may wait for the store.
    pub(crate) waits: bool,
}

/// Now, by both clocks, in milliseconds.
pub(crate) fn moment(monotonic: f64, wall: f64) -> Moment {
    Moment {
        monotonic: instant(monotonic),
        wall: instant(wall),
    }
}

impl Nodes {
    /// The number of a new node; `None` if there is no such window.
    pub(crate) fn add(&mut self, of: &Options, buffer: &Buffer, seed: [u64; 2]) -> Option<u32> {
        let window = RuleGeometry::new(of.window_ms as u64, Some(of.buckets)).ok()?;
        let terms = Terms::new(of.limit as u64, window.window());
        let when_down = *WAYS.get(of.when_down as usize)?;
        let id = &ascii(buffer.bytes(of.bytes));
        let most = of.max_keys as usize;
        let node = Node::new(of.random as u64, id, terms, when_down, most, seed);
        Some(self.slots.add(node))
    }

    pub(crate) fn free(&mut self, node: u32) {
        drop(self.slots.take(node));
    }

    pub(crate) fn get_mut(&mut self, node: u32) -> Option<&mut Node> {
        self.slots.get_mut(node)
    }

    pub(crate) fn name_key(&mut self, slot: u32, text: &[u8], parts: bool) {
        let Some(key) = self.keys.get_mut(slot as usize) else {
            return;
        };
        key.clear();
        if parts {
            tree::parts(text).for_each(|part| escape_part(key, Some(part)));
        } else {
            escape_part(key, Some(text));
        }
    }

    /// Takes permits; for the answer see `layout`.
    #[inline]
    pub(crate) fn take(&mut self, take: &Take, buffer: &mut Buffer) -> u32 {
        let key = self.keys.get(take.slot as usize);
        let (Some(key), Some(node)) = (key, self.slots.get_mut(take.node)) else {
            return TAKEN_REFUSE;
        };
        let (cost, now) = (take.cost as u64, take.now);
        let (taken, message) = if take.waits {
            node.take(key, cost, now)
        } else {
            node.give_up(key, cost, now)
        };
        let (code, value) = match taken {
            Taken::Pass { remaining } => (TAKEN_PASS, remaining as f64),
            Taken::Refuse { retry_after } => (TAKEN_REFUSE, retry_after.map_or(NONE, ceiled)),
            Taken::Wait => (TAKEN_WAIT, NONE),
        };
        buffer.results[TAKEN_VALUE] = value;
        match message {
            None => code,
            Some(message) => {
                write_message(&message, buffer);
                code + TAKEN_MESSAGE
            }
        }
    }

    /// Gives back permits of a request that turns out not to count.
    pub(crate) fn give_back(&mut self, node: u32, slot: u32, cost: f64) {
        let key = self.keys.get(slot as usize);
        if let (Some(key), Some(node)) = (key, self.slots.get_mut(node)) {
            node.give_back(key, cost as u64);
        }
    }

    /// The answer to a message is in the buffer. Returns what it changes, and whether it is not an answer; then an error message is in
    /// the buffer, and its length in the results.
    pub(crate) fn answered(
        &mut self,
        node: u32,
        token: f64,
        bytes: usize,
        now: Moment,
        buffer: &mut Buffer,
    ) -> u32 {
        let Some(node) = self.slots.get_mut(node) else {
            return CHANGE_NONE;
        };
        let answer = &ascii(buffer.bytes(bytes));
        match node.answered(token as u64, answer, now) {
            Ok(change) => number_of(change),
            Err((error, change)) => {
                let length = buffer.write_text(&error.message());
                let [to, ..] = &mut buffer.results;
                *to = length;
                number_of(change) + CHANGE_ERROR
            }
        }
    }

    /// There is no answer to a message.
    pub(crate) fn lost(&mut self, node: u32, token: f64, now: Moment) -> u32 {
        let node = self.slots.get_mut(node);
        number_of(node.map_or(Change::None, |node| node.lost(token as u64, now)))
    }

    /// What a node has done, and whether its store does not answer.
    pub(crate) fn figures(&self, node: u32, results: &mut [f64]) {
        let Some(node) = self.slots.get(node) else {
            return;
        };
        let Figures {
            permits,
            asks,
            granted,
            lost,
            down_ms,
        } = node.figures();
        let down = u64::from(node.is_down());
        let row: [u64; FIGURES.len()] = [permits, asks, granted, lost, down_ms, down];
        for (to, figure) in results.iter_mut().zip(row) {
            *to = figure as f64;
        }
    }

    /// Gives back what a node has leased.
    pub(crate) fn close(&mut self, node: u32) {
        if let Some(node) = self.slots.get_mut(node) {
            node.close();
        }
    }

    /// Writes the next message that is due. Returns whether there is one.
    pub(crate) fn due(&mut self, node: u32, now: Moment, buffer: &mut Buffer) -> bool {
        let message = self.slots.get_mut(node).and_then(|node| node.due(now));
        message
            .as_ref()
            .inspect(|message| write_message(message, buffer))
            .is_some()
    }
}

/// A text that should be ASCII, with question marks for the rest. Ids and answers are; reading UTF-8 would take half a kilobyte.
fn ascii(bytes: &[u8]) -> String {
    let sign = |byte: &u8| {
        if byte.is_ascii() {
            char::from(*byte)
        } else {
            '?'
        }
    };
    bytes.iter().map(sign).collect()
}

fn write_message(message: &Message, buffer: &mut Buffer) {
    let Message { token, key, text } = message;
    buffer.results[MESSAGE_TOKEN] = *token as f64;
    buffer.results[MESSAGE_KEY] = key.len() as f64;
    buffer.results[MESSAGE_TEXT] = text.len() as f64;
    buffer.write(&[key, text.as_bytes()].concat());
}

fn number_of(change: Change) -> u32 {
    match change {
        Change::None => CHANGE_NONE,
        Change::Down => CHANGE_DOWN,
        Change::Up => CHANGE_UP,
    }
}
