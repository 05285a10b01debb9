//! Which names have windows of their own, decided once for the process.
//!
//! A list stands in shared data and changes by compare-and-swap. Each virtual machine keeps a copy; a gauge that only rises,
//! `changes`, says whether the copy is still valid: so a request of a known name costs one reading of a gauge. If gauges do not
//! work, the list itself is read.
//!
//! A list has eight bytes for each place: a tag, which is a keyed hash of the name in it, and its state. It is never
//! longer than its bound, and there is one for the resources and one for each resource whose origins have windows.

use crate::host::{Host, MetricId};
use crate::shared::{SharedCell, Try, swap};
use leapgate::backend::{Claim, Key, NamePlace, Places};
use std::cell::{Cell, RefCell};

/// The bits of a word that are the state of its place; the others are the tag of its name.
const STATE: u64 = 0b11;
const FREE: u64 = 0;
const OWN: u64 = 1;
const LEAVING: u64 = 2;
const COMING: u64 = 3;

/// Whether another name has had the place before.
const REUSED: u64 = 0b100;

const TAG: u64 = !(STATE | REUSED);

/// In the first word: whether a request has ever been counted with those of the further names.
const IS_SHARED: u64 = 1;

/// A list.
pub(crate) struct ProcessPlaces<H> {
    host: H,
    cell: SharedCell<H>,
    /// The seed of the hash of names.
    seed: [u64; 2],
    /// How often lists have changed; `None` if gauges do not work.
    changes: Option<MetricId>,
    /// The list as read last: the head, then a word for each place.
    words: RefCell<Vec<u64>>,
    /// How often lists had changed by then; `None` if that is not known.
    read_at: Cell<Option<u64>>,
}

impl<H: Host> ProcessPlaces<H> {
    /// The list at `key`, of names hashed with `seed`.
    pub(crate) fn new(
        host: &H,
        key: String,
        seed: [u64; 2],
        changes: Option<MetricId>,
    ) -> ProcessPlaces<H> {
        ProcessPlaces {
            host: host.clone(),
            cell: SharedCell::new(host, key),
            seed,
            changes,
            words: RefCell::new(vec![0]),
            read_at: Cell::new(None),
        }
    }

    fn changes(&self) -> Option<u64> {
        self.host.read(self.changes?)
    }

    fn tag(&self, name: &str) -> u64 {
        let hash = Key::of_parts(self.seed, [Some(name.as_bytes())]).hash() & TAG;
        hash.max(REUSED << 1) // a place without a name has none
    }

    /// Whether the copy of the list is still valid.
    fn is_good(&self) -> bool {
        let read_at = self.read_at.get();
        read_at.is_some() && read_at == self.changes()
    }

    /// Reads the list and lets `change` change it, which returns whether it has. Returns `false` if the list could not be read
    /// or changed.
    #[inline(never)]
    fn look(&self, change: &mut dyn FnMut(&mut Vec<u64>) -> bool) -> bool {
        let done = swap(|| {
            // Read before the list: a change in between makes the copy look older than it is.
            let changes = self.changes();
            let (words, put) = self.cell.read_all();
            // A list always has its head.
            let mut words = words.filter(|words| !words.is_empty()).unwrap_or(vec![0]);
            let is_changed = change(&mut words);
            if is_changed && !self.cell.put_all(&words, put) {
                return Try::Overtaken;
            }
            if let (true, Some(gauge)) = (is_changed, self.changes) {
                self.host.add(gauge, 1);
            }
            self.read_at.set(changes);
            self.words.replace(words);
            Try::Done(())
        });
        done.is_some()
    }

    /// Replaces the state `from` by `to`. Returns whether it was `from`.
    fn swap(&self, place: NamePlace, from: u64, to: u64) -> bool {
        let mut is_from = false;
        let is_done = self.look(&mut |words| {
            is_from = state(words, place) == Some(from);
            if is_from {
                set_state(words, place, to);
            }
            is_from
        });
        is_done && is_from
    }
}

/// The state of the place, if it still belongs to that name.
fn state(words: &[u64], place: NamePlace) -> Option<u64> {
    let word = words.get(place.index as usize + 1)?;
    (word & TAG == place.tag).then_some(word & STATE)
}

fn set_state(words: &mut [u64], place: NamePlace, to: u64) {
    if let Some(word) = words.get_mut(place.index as usize + 1) {
        *word = if to == FREE {
            REUSED
        } else {
            *word & !STATE | to
        };
    }
}

fn place(word: u64, index: usize) -> NamePlace {
    NamePlace {
        index: index as u32,
        tag: word & TAG,
        is_reused: word & REUSED != 0,
    }
}

fn is_shared(words: &[u64]) -> bool {
    words.first().is_some_and(|head| head & IS_SHARED != 0)
}

/// Records that names without a place have been counted together, so that a name that gets a place later may be among them.
/// Returns whether that changed the list.
fn share(words: &mut [u64]) -> bool {
    let was_shared = is_shared(words);
    words.iter_mut().take(1).for_each(|head| *head |= IS_SHARED);
    !was_shared
}

/// The place of the name with that tag.
fn find(words: &[u64], tag: u64) -> Option<NamePlace> {
    let mut places = words.iter().skip(1).enumerate();
    let (index, word) = places.find(|(_, word)| **word & TAG == tag)?;
    Some(place(*word, index))
}

/// The first free place of `bound`.
fn free(words: &[u64], bound: usize) -> Option<usize> {
    let is_free = |index: &usize| words.get(index + 1).is_none_or(|word| word & STATE == FREE);
    (0..bound.min(words.len())).find(is_free)
}

impl<H: Host> Places for ProcessPlaces<H> {
    fn claim(&self, name: &str, bound: usize, may_come: &dyn Fn() -> bool) -> Claim {
        let tag = self.tag(name);
        // The copy is valid until `is_own` or `is_further` says otherwise.
        let known = {
            let words = self.words.borrow();
            let own = find(&words, tag).filter(|own| state(&words, *own) == Some(OWN));
            let is_full = is_shared(&words) && free(&words, bound).is_none();
            own.map(Claim::Own).or(is_full.then_some(Claim::Full))
        };
        if let Some(known) = known {
            return known;
        }
        let mut claim = Claim::Full;
        let is_done = self.look(&mut |words| {
            claim = Claim::Full;
            if let Some(own) = find(words, tag) {
                if state(words, own) != Some(COMING) {
                    claim = Claim::Own(own);
                    return false;
                }
                // Another worker is about to give the name its place: that is undone, and the name stays with the further ones.
                set_state(words, own, FREE);
                return true;
            }
            let Some(index) = free(words, bound) else {
                return share(words);
            };
            let comes = is_shared(words);
            if comes && !may_come() {
                return false;
            }
            if index + 1 == words.len() {
                words.push(0);
            }
            if let Some(word) = words.get_mut(index + 1) {
                *word = *word & REUSED | tag | if comes { COMING } else { OWN };
                let place = place(*word, index);
                claim = match comes {
                    true => Claim::Coming(place),
                    false => Claim::Own(place),
                };
            }
            true
        });
        if is_done { claim } else { Claim::Full }
    }

    fn settle(&self, place: NamePlace, own: bool) -> bool {
        self.swap(place, COMING, if own { OWN } else { FREE }) && own
    }

    fn leave(&self, place: NamePlace) -> bool {
        // A name that began to leave by a worker that no longer exists is still leaving.
        self.swap(place, OWN, LEAVING) || self.swap(place, LEAVING, LEAVING)
    }

    fn end_leaving(&self, place: NamePlace, idle: bool) -> bool {
        self.swap(place, LEAVING, if idle { FREE } else { OWN }) && idle
    }

    fn is_own(&self, place: NamePlace) -> bool {
        let is_known_own = state(&self.words.borrow(), place) == Some(OWN);
        if is_known_own && self.is_good() {
            return true;
        }
        let mut found = None;
        let is_done = self.look(&mut |words| {
            found = state(words, place);
            let is_leaving = found == Some(LEAVING);
            if is_leaving {
                set_state(words, place, OWN);
            }
            is_leaving
        });
        is_done && matches!(found, Some(OWN | LEAVING))
    }

    fn is_further(&self, name: &str) -> bool {
        let tag = self.tag(name);
        let is_absent = find(&self.words.borrow(), tag).is_none();
        if is_absent && self.is_good() {
            return true;
        }
        let mut is_further = false;
        let is_done = self.look(&mut |words| {
            let found = find(words, tag);
            let comes = found.filter(|place| state(words, *place) == Some(COMING));
            is_further = found.is_none() || comes.is_some();
            match comes {
                Some(place) => {
                    set_state(words, place, FREE);
                    true
                }
                None => is_further && share(words),
            }
        });
        is_done && is_further
    }

    fn at(&self, index: usize) -> Option<NamePlace> {
        let word = *self.words.borrow().get(index + 1)?;
        (word & TAG != 0).then(|| place(word, index))
    }

    fn count(&self) -> usize {
        self.words.borrow().len() - 1
    }
}
