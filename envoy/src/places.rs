//! Which names have windows of their own, decided once for the process.
//!
//! A list stands in shared data and changes by compare-and-swap. Each virtual machine keeps a copy; a gauge that only rises,
//! `changes`, says whether it is still good: so a request of a known name pays for one reading of a gauge. Where gauges do not
//! work, the list itself is read.
//!
//! A list has eight bytes for each place: what tells the name in it from others (a keyed hash), and its state. It is never
//! longer than its bound, and there is one for the resources and one for each resource whose origins have windows.

use crate::host::{Host, Kind, MetricId, Put};
use leapgate::{Claim, Key, NamePlace, Places};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// How often a compare-and-swap is tried. One that has failed so often is one that shares windows.
const MAX_SWAPS: u32 = 32;

/// Which part of a word is the state of its place; the rest tells the name.
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

/// The lists of one plugin.
pub(crate) struct ProcessPlaces<H> {
    host: H,
    /// What the names of lists in shared data begin with.
    prefix: String,
    /// What names are hashed with.
    seed: [u64; 2],
    /// How often lists have changed; `None` where gauges do not work.
    changes: Option<MetricId>,
    lists: RefCell<Vec<List>>,
    /// By name, which of them it is.
    numbers: RefCell<BTreeMap<String, usize>>,
}

/// A list, as it was read last.
struct List {
    name: String,
    /// How often lists had changed by then; `None` where that is not known.
    changes: Option<u64>,
    /// The head, then a word for each place.
    words: Vec<u64>,
}

impl<H: Host> ProcessPlaces<H> {
    /// The lists whose names begin with `prefix`, of names that are hashed with `seed`.
    pub(crate) fn new(host: H, prefix: String, seed: [u64; 2]) -> ProcessPlaces<H> {
        let gauge = host.define_metric(Kind::Gauge, &[&prefix, "changes"].concat());
        // It is raised by one that was silent, too: then it does not read so.
        let works = |gauge: &MetricId| {
            host.add(*gauge, 1) && host.read(*gauge).is_some_and(|changes| changes > 0)
        };
        ProcessPlaces {
            changes: gauge.filter(works),
            host,
            seed,
            lists: RefCell::new(vec![List::new(prefix.clone())]),
            numbers: RefCell::default(),
            prefix,
        }
    }

    /// Whether the place has been another name's before, in the list of resources or in one of origins.
    pub(crate) fn is_reused(&self, list: usize, place: NamePlace) -> bool {
        let lists = self.lists.borrow();
        let word = lists.get(list).and_then(|list| list.word(place));
        word.is_none_or(|word| word & REUSED != 0)
    }

    fn changes(&self) -> Option<u64> {
        self.host.read(self.changes?)
    }

    fn tag(&self, name: &str) -> u64 {
        let hash = Key::of_parts(self.seed, [Some(name.as_bytes())]).hash() & TAG;
        hash.max(REUSED << 1) // a place without a name has none
    }

    /// Whether the copy of the list is still good.
    fn is_good(&self, list: usize) -> bool {
        let known = self.lists.borrow().get(list).and_then(|list| list.changes);
        known.is_some() && known == self.changes()
    }

    /// Looks at the list as it stands, and changes it as `change` does, which says what it has found and whether it has
    /// changed anything. `None` where it could not be read or changed.
    fn look<R>(&self, list: usize, change: &dyn Fn(&mut Vec<u64>) -> (R, bool)) -> Option<R> {
        let name = self.lists.borrow().get(list)?.name.clone();
        for _ in 0..MAX_SWAPS {
            // Read before the list: what changes meanwhile makes the copy look older than it is.
            let changes = self.changes();
            let (mut words, put) = match self.host.shared(&name) {
                Some(value) => (decoded(&value.bytes), Put::IfVersion(value.cas)),
                None => (vec![0], Put::IfAbsent),
            };
            let (found, is_changed) = change(&mut words);
            if is_changed && !self.host.share(&name, &encoded(&words), put) {
                continue;
            }
            if let (true, Some(gauge)) = (is_changed, self.changes) {
                self.host.add(gauge, 1);
            }
            if let Some(known) = self.lists.borrow_mut().get_mut(list) {
                known.changes = changes;
                known.words = words;
            }
            return Some(found);
        }
        None
    }

    /// Puts another state in the place of `from`; whether it was that.
    fn swap(&self, list: usize, place: NamePlace, from: u64, to: u64) -> bool {
        let swapped = self.look(list, &|words| {
            let word = words.get_mut(place.index as usize + 1);
            let word = word.filter(|word| **word & !REUSED == place.tag | from);
            let is_from = word.is_some();
            if let Some(word) = word {
                *word = if to == FREE {
                    REUSED
                } else {
                    *word & !STATE | to
                };
            }
            (is_from, is_from)
        });
        swapped == Some(true)
    }
}

impl List {
    fn word(&self, place: NamePlace) -> Option<u64> {
        let word = *self.words.get(place.index as usize + 1)?;
        (word & TAG == place.tag).then_some(word)
    }
}

/// The place of the name with that tag, and its state.
fn find(words: &[u64], tag: u64) -> Option<(NamePlace, u64)> {
    let mut places = words.iter().skip(1);
    let index = places.position(|word| word & TAG == tag)?;
    let place = NamePlace {
        index: index as u32,
        tag,
    };
    Some((place, words.get(index + 1)? & STATE))
}

/// What a name that has no place yet finds in a list of `bound` places, and whether that changes the list.
fn join(
    words: &mut Vec<u64>,
    tag: u64,
    bound: usize,
    may_come: &dyn Fn() -> bool,
) -> (Claim, bool) {
    let is_shared = words.first().is_some_and(|head| head & IS_SHARED != 0);
    let free = words
        .iter()
        .skip(1)
        .take(bound)
        .position(|word| word & STATE == FREE);
    let end = words.len() - 1;
    let Some(index) = free.or_else(|| (end < bound).then_some(end)) else {
        if let Some(head) = words.first_mut() {
            *head |= IS_SHARED;
        }
        return (Claim::Full, !is_shared);
    };
    if is_shared && !may_come() {
        return (Claim::Full, false);
    }
    if index == end {
        words.push(0);
    }
    let place = NamePlace {
        index: index as u32,
        tag,
    };
    let (state, claim) = match is_shared {
        true => (COMING, Claim::Coming(place)),
        false => (OWN, Claim::Own(place)),
    };
    if let Some(word) = words.get_mut(index + 1) {
        *word = *word & REUSED | tag | state;
    }
    (claim, true)
}

impl<H: Host> Places for ProcessPlaces<H> {
    fn list(&self, of: Option<(&str, Option<NamePlace>)>) -> usize {
        let Some((resource, place)) = of else {
            return 0;
        };
        let mut name = self.prefix.clone();
        match place {
            Some(place) => crate::reply::push_number(&mut name, place.index.into()),
            None => {
                name.push(':');
                name.push_str(resource);
            }
        }
        let mut lists = self.lists.borrow_mut();
        let mut numbers = self.numbers.borrow_mut();
        *numbers.entry(name).or_insert_with_key(|name| {
            lists.push(List::new(name.clone()));
            lists.len() - 1
        })
    }

    fn claim(&self, list: usize, name: &str, bound: usize, may_come: &dyn Fn() -> bool) -> Claim {
        let tag = self.tag(name);
        let known = self.lists.borrow().get(list).map(|list| {
            let is_full = list.words.len() > bound
                && list.words.first().is_some_and(|head| head & IS_SHARED != 0)
                && list.words.iter().skip(1).all(|word| word & STATE != FREE);
            (find(&list.words, tag), is_full)
        });
        match known {
            Some((Some((place, OWN)), _)) => return Claim::Own(place),
            Some((None, true)) => return Claim::Full,
            _ => {}
        }
        let claimed = self.look(list, &|words| match find(words, tag) {
            Some((place, OWN | LEAVING)) => (Claim::Own(place), false),
            // Another worker is about to give it its place: it is taken back, and the name stays with the further ones.
            Some((place, _)) => {
                if let Some(word) = words.get_mut(place.index as usize + 1) {
                    *word = REUSED;
                }
                (Claim::Full, true)
            }
            None => join(words, tag, bound, may_come),
        });
        claimed.unwrap_or(Claim::Full)
    }

    fn settle(&self, list: usize, place: NamePlace, own: bool) -> bool {
        let to = if own { OWN } else { FREE };
        self.swap(list, place, COMING, to) && own
    }

    fn leave(&self, list: usize, place: NamePlace) -> bool {
        // One that began to leave under the eyes of a worker that is gone still does.
        self.swap(list, place, OWN, LEAVING) || self.swap(list, place, LEAVING, LEAVING)
    }

    fn end_leaving(&self, list: usize, place: NamePlace, idle: bool) -> bool {
        let to = if idle { FREE } else { OWN };
        self.swap(list, place, LEAVING, to) && idle
    }

    fn is_own(&self, list: usize, place: NamePlace) -> bool {
        let is_known_own = |list: &List| list.word(place).is_some_and(|word| word & STATE == OWN);
        if self.is_good(list) && self.lists.borrow().get(list).is_some_and(is_known_own) {
            return true;
        }
        let is_own = self.look(list, &|words| {
            let word = words.get_mut(place.index as usize + 1);
            match word.filter(|word| **word & TAG == place.tag) {
                Some(word) if *word & STATE == OWN => (true, false),
                Some(word) if *word & STATE == LEAVING => {
                    *word = *word & !STATE | OWN;
                    (true, true)
                }
                _ => (false, false),
            }
        });
        is_own == Some(true)
    }

    fn is_further(&self, list: usize, name: &str) -> bool {
        let tag = self.tag(name);
        let lists = self.lists.borrow();
        let is_absent = lists
            .get(list)
            .is_some_and(|list| find(&list.words, tag).is_none());
        drop(lists);
        if is_absent && self.is_good(list) {
            return true;
        }
        let is_further = self.look(list, &|words| match find(words, tag) {
            // From now on a name that gets a place may have been counted with the further ones.
            None => {
                let head = words.first().copied().unwrap_or_default();
                words.iter_mut().take(1).for_each(|head| *head |= IS_SHARED);
                (true, head & IS_SHARED == 0)
            }
            Some((place, COMING)) => {
                if let Some(word) = words.get_mut(place.index as usize + 1) {
                    *word = REUSED;
                }
                (true, true)
            }
            Some(_) => (false, false),
        });
        is_further == Some(true)
    }

    fn was_own(&self, list: usize, place: NamePlace) -> bool {
        let lists = self.lists.borrow();
        lists
            .get(list)
            .is_some_and(|list| list.word(place).is_some_and(|word| word & STATE != FREE))
    }
}

impl List {
    fn new(name: String) -> List {
        List {
            name,
            changes: None,
            words: vec![0],
        }
    }
}

fn encoded(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The words, of which there is always the first.
fn decoded(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.as_chunks::<8>().0.iter();
    let mut words: Vec<u64> = words.map(|word| u64::from_le_bytes(*word)).collect();
    if words.is_empty() {
        words.push(0);
    }
    words
}
