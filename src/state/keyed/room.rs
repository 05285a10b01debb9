//! The room behind the counters of a window's entry in a page: what its key holds, in a word for each holder.
//!
//! ```text
//!   a word    11 bits   the holder: a worker, or several of them; 0: a word of a later version, which is kept as it is
//!             53 bits   how much it holds
//! ```
//!
//! [`MOST_ROOM`] - 1 holders have words of their own, and all others share the last. A word is removed when nothing is held in it.
//! What a worker holds in the shared word is not told apart, and so is not given back for it if it dies.

/// The most words in the room of an entry.
pub(super) const MOST_ROOM: usize = 8;

pub(super) const WORD: usize = size_of::<u64>();

/// How far a holder is shifted in its word.
const HOLDER: u32 = 53;

/// The most that a word can say to be held.
const MOST: u64 = (1 << HOLDER) - 1;

/// The holder of a word of several workers.
pub(super) const SEVERAL: u16 = 2047;

/// The worker with this id as a holder. Ids that are a multiple of 2046 apart are the same one.
pub(super) fn holder_of(id: u64) -> u16 {
    1 + (id % u64::from(SEVERAL - 1)) as u16
}

/// The word at this byte.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}

/// The words of a room; before them lies their number.
fn words(room: &[u8]) -> impl Iterator<Item = u64> {
    let words = room.get(WORD..).unwrap_or_default().chunks_exact(WORD);
    words.filter_map(|bytes| word(bytes, 0))
}

/// Where the word of `holder` begins, and how much it holds.
fn find(room: &[u8], holder: u16) -> Option<(usize, u64)> {
    let place = words(room).position(|word| word >> HOLDER == u64::from(holder))?;
    let at = (1 + place) * WORD;
    Some((at, word(room, at)? & MOST))
}

fn put(room: &mut [u8], at: usize, word: u64) {
    if let Some(place) = room.get_mut(at..at + WORD) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

/// How much is held.
pub(super) fn held(room: &[u8]) -> u64 {
    let holds = words(room).filter(|word| word >> HOLDER > 0);
    holds.fold(0, |sum, word| sum.saturating_add(word & MOST))
}

/// Holds `cost`. Returns in whose word; `None` if no word has room for it.
pub(super) fn hold(room: &mut Vec<u8>, holder: u16, cost: u64) -> Option<u16> {
    let taken = words(room).count();
    for (holder, most) in [(holder, MOST_ROOM - 1), (SEVERAL, MOST_ROOM)] {
        let (at, before) = match find(room, holder) {
            Some(found) => found,
            None if taken < most => {
                let end = (1 + taken) * WORD;
                room.resize(end + WORD, 0);
                put(room, 0, 1 + taken as u64);
                (end, 0)
            }
            None => continue,
        };
        let amount = before.checked_add(cost).filter(|amount| *amount <= MOST)?;
        put(room, at, u64::from(holder) << HOLDER | amount);
        return Some(holder);
    }
    None
}

/// How much is held by holders that `is_dead` tells of.
pub(super) fn held_by_dead(room: &[u8], is_dead: &dyn Fn(u16) -> bool) -> u64 {
    let dead = words(room).filter(|word| is_known_dead(*word, is_dead));
    dead.fold(0, |sum, word| sum.saturating_add(word & MOST))
}

/// Takes that out.
pub(super) fn take_of_dead(room: &mut Vec<u8>, is_dead: &dyn Fn(u16) -> bool) {
    let mut at = WORD;
    while let Some(held) = word(room, at) {
        if is_known_dead(held, is_dead) {
            give_back(room, (held >> HOLDER) as u16, MOST);
        } else {
            at += WORD;
        }
    }
}

fn is_known_dead(word: u64, is_dead: &dyn Fn(u16) -> bool) -> bool {
    let holder = (word >> HOLDER) as u16;
    holder != 0 && holder != SEVERAL && is_dead(holder)
}

/// Gives back what was held in the word of `holder`.
pub(super) fn give_back(room: &mut Vec<u8>, holder: u16, cost: u64) {
    let Some((at, before)) = find(room, holder) else {
        return;
    };
    let amount = before.saturating_sub(cost);
    if amount > 0 {
        return put(room, at, u64::from(holder) << HOLDER | amount);
    }
    room.drain(at..at + WORD);
    match words(room).count() {
        0 => room.clear(),
        left => put(room, 0, left as u64),
    }
}
