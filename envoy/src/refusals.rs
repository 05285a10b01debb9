//! Refusals that hold for a while, kept to be repeated.
//!
//! What is refused until an instant is refused until then: the answer to a flood of the same request is in memory.
//!
//! ```text
//!   first refusal      noted: 4 bytes in the place that the request's hash says
//!   second refusal     kept in that place, unless another one is that still holds
//!   further ones       repeated, until it holds no longer
//! ```
//!
//! So a flood of requests that are never the same keeps nothing and drops nothing. Clients may choose requests that share a place:
//! then they are decided on each time, as if nothing were kept.

use leapgate::Timestamp;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};

/// How many refusals are kept at most.
const PLACES: usize = 1024;

/// How many bytes of all refusals are kept at most.
const MAX_BYTES: usize = 1 << 20;

/// A refusal with more bytes than this is not kept.
const MAX_SIZE: usize = MAX_BYTES / 64;

/// Refusals of requests for resources `R`, each with what it needs to be repeated.
pub(crate) struct KeptRefusals<R, T> {
    len: Cell<usize>,
    places: RefCell<Places<R, T>>,
}

struct Places<R, T> {
    /// By place; none before the first refusal.
    all: Vec<Place<R, T>>,
    bytes: usize,
}

struct Place<R, T> {
    /// The hash of the request that was refused last, and not repeated.
    noted: u32,
    kept: Option<Box<Kept<R, T>>>,
}

struct Kept<R, T> {
    /// While this stands here, no other resource is at its address.
    resource: Weak<R>,
    key: Box<[u8]>,
    /// When it holds. A clock that has stepped back, which none should, does not make it last longer.
    holds: Range<Timestamp>,
    refusal: Rc<T>,
    size: usize,
}

/// A request: its resource, and all else that the decision depends on, written so that no two requests have the same bytes.
pub(crate) struct Asked<'a, R> {
    pub(crate) resource: &'a Rc<R>,
    pub(crate) key: &'a [u8],
}

impl<R> Asked<'_, R> {
    /// FNV-1a. A client that makes requests with the same hash gains nothing by it: they are decided on.
    fn hash(&self) -> u32 {
        let address = (Rc::as_ptr(self.resource) as usize as u32).to_le_bytes();
        let bytes = address.iter().chain(self.key);
        let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        });
        hash ^ hash >> 16
    }
}

impl<R, T> Kept<R, T> {
    fn is_of(&self, asked: &Asked<'_, R>) -> bool {
        std::ptr::eq(self.resource.as_ptr(), Rc::as_ptr(asked.resource)) && *self.key == *asked.key
    }
}

impl<R, T> Default for KeptRefusals<R, T> {
    fn default() -> Self {
        KeptRefusals {
            len: Cell::new(0),
            places: RefCell::new(Places {
                all: Vec::new(),
                bytes: 0,
            }),
        }
    }
}

impl<R, T> KeptRefusals<R, T> {
    /// Whether none is kept.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    /// Whether a refusal of that request is kept, which may hold no longer.
    pub(crate) fn has(&self, asked: &Asked<'_, R>) -> bool {
        let places = &mut *self.places.borrow_mut();
        let place = places.place(asked.hash());
        let kept = place.and_then(|place| place.kept.as_deref());
        kept.is_some_and(|kept| kept.is_of(asked))
    }

    /// The refusal of that request which holds at `now`. One that holds no longer is dropped.
    pub(crate) fn get(&self, asked: &Asked<'_, R>, now: Timestamp) -> Option<Rc<T>> {
        let places = &mut *self.places.borrow_mut();
        let place = places.place(asked.hash())?;
        let kept = place.kept.as_deref().filter(|kept| kept.is_of(asked))?;
        if kept.holds.contains(&now) {
            return Some(Rc::clone(&kept.refusal));
        }
        self.put(asked.hash(), None, places);
        None
    }

    /// Notes that the request was refused. Whether the refusal is to be kept: the one before it in its place was of the same
    /// request.
    pub(crate) fn note(&self, asked: &Asked<'_, R>) -> bool {
        let places = &mut *self.places.borrow_mut();
        if places.all.is_empty() {
            let place = || Place {
                noted: 0,
                kept: None,
            };
            places.all.resize_with(PLACES, place);
        }
        let hash = asked.hash();
        let place = places.place(hash);
        place.is_some_and(|place| std::mem::replace(&mut place.noted, hash) == hash)
    }

    /// Keeps a refusal of so many bytes until an instant, unless its place is taken at `now`.
    pub(crate) fn keep(
        &self,
        asked: &Asked<'_, R>,
        (refusal, bytes): (T, usize),
        until: Timestamp,
        now: Timestamp,
    ) {
        let size = bytes.saturating_add(asked.key.len());
        if size > MAX_SIZE {
            return;
        }
        let places = &mut *self.places.borrow_mut();
        let Some(place) = places.place(asked.hash()) else {
            return;
        };
        let is_taken = |kept: &Kept<R, T>| kept.holds.contains(&now) && !kept.is_of(asked);
        if place.kept.as_deref().is_some_and(is_taken) {
            return;
        }
        if places.bytes.saturating_add(size) > MAX_BYTES {
            self.drop_all(places);
        }
        let kept = Kept {
            resource: Rc::downgrade(asked.resource),
            key: asked.key.into(),
            holds: now..until,
            refusal: Rc::new(refusal),
            size,
        };
        self.put(asked.hash(), Some(Box::new(kept)), places);
    }

    /// Drops all.
    pub(crate) fn clear(&self) {
        self.drop_all(&mut self.places.borrow_mut());
    }

    fn drop_all(&self, places: &mut Places<R, T>) {
        places.all.iter_mut().for_each(|place| place.kept = None);
        places.bytes = 0;
        self.len.set(0);
    }

    /// Puts a refusal in its place, or nothing.
    fn put(&self, hash: u32, kept: Option<Box<Kept<R, T>>>, places: &mut Places<R, T>) {
        let added = kept.as_deref().map_or((0, 0), |kept| (1, kept.size));
        let Some(place) = places.place(hash) else {
            return;
        };
        let before = std::mem::replace(&mut place.kept, kept);
        let gone = before.as_deref().map_or((0, 0), |kept| (1, kept.size));
        self.len.set(self.len.get() + added.0 - gone.0);
        places.bytes = places.bytes + added.1 - gone.1;
    }
}

impl<R, T> Places<R, T> {
    fn place(&mut self, hash: u32) -> Option<&mut Place<R, T>> {
        self.all.get_mut(hash as usize % PLACES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// Refusals by number, of requests for a resource.
    type Refusals = KeptRefusals<(), usize>;

    fn asked<'a>(resource: &'a Rc<()>, key: &'a [u8]) -> Asked<'a, ()> {
        Asked { resource, key }
    }

    /// Notes and keeps as a filter does whose every refusal holds until then.
    fn refuse(refusals: &Refusals, asked: &Asked<'_, ()>, number: usize, until: u64, now: u64) {
        if refusals.note(asked) {
            refusals.keep(asked, (number, 100), ms(until), ms(now));
        }
    }

    fn bytes(refusals: &Refusals) -> usize {
        refusals.places.borrow().bytes
    }

    /// As many keys as that, each in a place of its own.
    fn apart(resource: &Rc<()>, n: usize) -> Vec<Vec<u8>> {
        let mut taken = std::collections::HashSet::new();
        let keys = (0_u32..).map(|i| i.to_le_bytes().to_vec());
        let is_new = |key: &Vec<u8>| taken.insert(asked(resource, key).hash() as usize % PLACES);
        keys.filter(is_new).take(n).collect()
    }

    #[test]
    fn the_second_refusal_of_a_request_is_kept_and_repeated_until_its_instant() {
        let (refusals, resource) = (Refusals::default(), Rc::new(()));
        let request = asked(&resource, b"a");
        let at = |now| refusals.get(&request, ms(now)).map(|kept| *kept);
        refuse(&refusals, &request, 1, 100, 10);
        assert!(refusals.is_empty());
        refuse(&refusals, &request, 2, 100, 20);
        assert!(refusals.has(&request) && !refusals.is_empty());
        for (now, kept) in [(20, Some(2)), (99, Some(2)), (100, None), (99, None)] {
            assert_eq!(at(now), kept, "at {now}");
        }
        assert!(refusals.is_empty());
        assert_eq!(bytes(&refusals), 0);
        refuse(&refusals, &request, 3, 200, 100);
        assert_eq!(
            (at(199), at(99)),
            (Some(3), None),
            "a clock that steps back ends it"
        );
    }

    #[test]
    fn another_resource_or_another_key_is_another_request() {
        let (refusals, resources) = (Refusals::default(), [Rc::new(()), Rc::new(())]);
        let all: Vec<_> = resources
            .iter()
            .flat_map(|resource| [&b""[..], b"a", b"b"].map(|key| asked(resource, key)))
            .collect();
        for (number, request) in all.iter().enumerate() {
            let places: Vec<_> = all
                .iter()
                .map(|request| refusals.get(request, ms(0)).map(|kept| *kept))
                .collect();
            assert!(places.iter().skip(number).all(Option::is_none));
            refuse(&refusals, request, number, 100, 0);
            refuse(&refusals, request, number, 100, 0);
            assert_eq!(refusals.get(request, ms(0)).as_deref(), Some(&number));
        }
    }

    #[test]
    fn what_was_kept_for_a_resource_that_is_gone_is_of_no_other() {
        let refusals = Refusals::default();
        for number in 0..1000 {
            // The next one would get the address of the one before.
            let resource = Rc::new(());
            let request = asked(&resource, b"a");
            assert_eq!(refusals.get(&request, ms(0)), None);
            refusals.note(&request);
            refusals.keep(&request, (number, 100), ms(100), ms(0));
        }
    }

    #[test]
    fn one_that_holds_is_not_replaced_by_another_in_its_place() {
        let (refusals, resource) = (Refusals::default(), Rc::new(()));
        let first = asked(&resource, b"a");
        let place = first.hash() as usize % PLACES;
        let mut keys = (0_u32..).map(|i| i.to_le_bytes());
        let other = keys.find(|key| asked(&resource, key).hash() as usize % PLACES == place);
        let other = other.unwrap();
        let second = asked(&resource, &other);
        refuse(&refusals, &first, 1, 100, 0);
        refuse(&refusals, &first, 1, 100, 0);
        for now in [10, 20, 99] {
            refuse(&refusals, &second, 2, now + 100, now);
            assert_eq!(refusals.get(&second, ms(now)), None);
            assert_eq!(refusals.get(&first, ms(now)).as_deref(), Some(&1));
        }
        refuse(&refusals, &second, 3, 200, 100);
        assert_eq!(refusals.get(&second, ms(100)).as_deref(), Some(&3));
        assert_eq!(refusals.get(&first, ms(100)), None);
        assert_eq!(bytes(&refusals), 104);
    }

    #[test]
    fn requests_that_are_never_the_same_keep_and_drop_nothing() {
        let (refusals, resource) = (Refusals::default(), Rc::new(()));
        let hot = asked(&resource, b"hot");
        refuse(&refusals, &hot, 0, 1000, 0);
        refuse(&refusals, &hot, 0, 1000, 0);
        for number in 0_usize..100_000 {
            let key = number.to_le_bytes();
            refuse(&refusals, &asked(&resource, &key), number, 1000, 0);
        }
        assert_eq!(refusals.get(&hot, ms(0)).as_deref(), Some(&0));
        assert_eq!((refusals.len.get(), bytes(&refusals)), (1, 103));
    }

    #[test]
    fn bytes_and_refusals_have_a_bound() {
        let (refusals, resource, mut most) = (Refusals::default(), Rc::new(()), 0);
        refusals.note(&asked(&resource, b""));
        for now in 0..20 {
            for size in [1, 1000, MAX_SIZE / 2, MAX_SIZE, usize::MAX] {
                for key in apart(&resource, PLACES) {
                    refusals.keep(&asked(&resource, &key), (0, size), ms(now + 1), ms(now));
                    assert!(bytes(&refusals) <= MAX_BYTES && refusals.len.get() <= PLACES);
                    most = most.max(refusals.len.get());
                }
            }
        }
        assert_eq!(most, PLACES);
        let key = [0; 8];
        let request = asked(&resource, &key);
        refusals.clear();
        assert!(refusals.is_empty() && bytes(&refusals) == 0);
        refusals.keep(&request, (0, MAX_SIZE - 8), ms(1), ms(0));
        assert!(refusals.has(&request));
        refusals.clear();
        refusals.keep(&request, (0, MAX_SIZE - 7), ms(1), ms(0));
        assert!(!refusals.has(&request));
    }
}
