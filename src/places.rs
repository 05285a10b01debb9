//! Which of the names that no rule knows have windows of their own, where engines share their counts.
//!
//! A name with a window of its own in one engine but not in another would have twice its limit. So engines that share counts
//! share a list, too: a name has a place there, or it shares the windows of all further names. A name keeps its place until
//! none of its windows counts anything and a full list needs the place.
//!
//! A list changes while other workers decide by it, so a change has two steps, and a deciding worker reads it twice:
//!
//! ```text
//!   a name leaves      own -> leaving, announced;  nothing counts?  leaving -> free     else own again
//!   a name comes       free -> coming, announced;  takes along what the further names have used;  coming -> own
//!   a request          decides by what is known;   nothing announced since?   else looks, and keeps its name from leaving
//!                                                                             or coming, or decides again
//! ```
//!
//! A request is counted before it reads the list again, and a change is announced before the counts are read. So either the
//! change sees what the request has counted, or the request sees the change: no request counts in a window that its name has
//! left unseen.

use crate::map::HashMap;
use crate::time::Timestamp;
use std::cell::{Cell, Ref, RefCell};
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// A place in a list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NamePlace {
    /// Its number, from 0. The states of rules are named by it, so that there are no more states than places.
    pub index: u32,
    /// A hash of the name in it.
    pub tag: u64,
    /// Whether another name has had the place before.
    pub is_reused: bool,
}

/// What is known of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// It has this place.
    Own(NamePlace),
    /// It gets this place by [`Places::settle`]: requests for it may have been counted with the further names.
    Coming(NamePlace),
    /// All places are taken: it shares the windows of the further names.
    Full,
}

/// A list of names with a bounded number of places.
///
/// If it cannot be read or changed, every answer is that names share windows.
pub trait Places {
    /// The place of `name` among `bound` places, given to it if one is free. If requests for it may have been counted with the
    /// further names, only if it `may_come`.
    fn claim(&self, name: &str, bound: usize, may_come: &dyn Fn() -> bool) -> Claim;

    /// Ends the coming of a name: it has its place from now on if `own`, else none. Returns whether it has it.
    fn settle(&self, place: NamePlace, own: bool) -> bool;

    /// Announces that the name may lose its place. Returns whether that was done.
    fn leave(&self, place: NamePlace) -> bool;

    /// Frees the place of a name that is leaving, if `idle`; else the name keeps it. Returns whether the place is free.
    fn end_leaving(&self, place: NamePlace, idle: bool) -> bool;

    /// Whether the name has had its place all along. To be called after the decision by it has been counted.
    fn is_own(&self, place: NamePlace) -> bool;

    /// Whether `name` has had no place all along. To be called after the decision by it has been counted.
    fn is_further(&self, name: &str) -> bool;

    /// The place of that number, if a name had it when the list was last read.
    fn at(&self, index: usize) -> Option<NamePlace>;

    /// How many places there were when the list was last read.
    fn count(&self) -> usize;
}

/// What may have a place in a list: a resource, or an origin of one.
pub(crate) trait Placed {
    /// Its name.
    fn name(&self) -> &Rc<str>;

    /// Its place, if it has one in a list.
    fn place(&self) -> Option<NamePlace>;

    /// Brings its windows up to date before they are read, if they need it: observes the counts, then reads `clock`.
    fn keep_up(&self, clock: &dyn Fn() -> Option<Timestamp>);

    /// Whether none of its windows counts anything, so that it can be forgotten.
    fn is_idle(&self, now: Timestamp) -> bool;

    /// Whether a name can take along what the further names have used, if this stands for them; else the name stays with them.
    fn can_be_left(&self, now: Timestamp) -> bool;

    /// Charges it with all that the `further` names have used. Returns whether that was done.
    fn take_along(&self, further: &Self, now: Timestamp) -> bool;
}

/// How many names a request that finds a full list examines, in turn, for one that can lose its place. Each costs a look at all
/// its windows; a request pays for a few, and the next ones go on from there.
const LOOK: usize = 4;

/// A name that is known: hashed and compared in place, since most are short.
#[derive(PartialEq, Eq)]
struct Name(Rc<str>);

/// A name that is looked up.
struct Asked<'a>(&'a str);

impl Hash for Name {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        Asked(&self.0).hash(state);
    }
}

impl Hash for Asked<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.0.as_bytes());
    }
}

impl hashbrown::Equivalent<Name> for Asked<'_> {
    #[inline]
    fn equivalent(&self, known: &Name) -> bool {
        let (asked, known) = (self.0.as_bytes(), known.0.as_bytes());
        // Two words, which may overlap, hold a name of up to twice their length.
        match asked.len() {
            n if n != known.len() => false,
            4..8 => ends::<4>(asked) == ends(known),
            8..=16 => ends::<8>(asked) == ends(known),
            _ => asked == known,
        }
    }
}

#[inline]
fn ends<const N: usize>(name: &[u8]) -> (Option<&[u8; N]>, Option<&[u8; N]>) {
    (name.first_chunk(), name.last_chunk())
}

/// Names that are kept apart, up to a bound; all further names share the entry under the empty name.
pub(crate) struct Apart<R> {
    known: RefCell<HashMap<Name, Rc<R>>>,
    /// The entries with a place in a list.
    placed: RefCell<Vec<Rc<R>>>,
    /// The next of them to be examined, and the next place whose name this engine has not met.
    next: Cell<(usize, usize)>,
}

/// [`Apart`], while it is looked at.
pub(crate) struct LookedAt<'a, R>(Ref<'a, HashMap<Name, Rc<R>>>);

impl<R> LookedAt<'_, R> {
    /// The entry of that name.
    #[inline]
    pub(crate) fn get(&self, name: &str) -> Option<&Rc<R>> {
        self.0.get(&Asked(name))
    }
}

impl<R> Default for Apart<R> {
    fn default() -> Apart<R> {
        Apart {
            known: RefCell::default(),
            placed: RefCell::default(),
            next: Cell::default(),
        }
    }
}

impl<R: Placed> Apart<R> {
    /// The entry of that name.
    #[inline]
    pub(crate) fn get(&self, name: &str) -> Option<Rc<R>> {
        self.known.borrow().get(&Asked(name)).cloned()
    }

    /// The entries, to be looked at: none may be met meanwhile.
    #[inline]
    pub(crate) fn looked_at(&self) -> LookedAt<'_, R> {
        LookedAt(self.known.borrow())
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.known.borrow().len()
    }

    /// All entries.
    pub(crate) fn all(&self) -> Vec<Rc<R>> {
        self.known.borrow().values().cloned().collect()
    }

    /// Keeps `one` under its name.
    #[inline(never)]
    pub(crate) fn keep(&self, one: R) -> Rc<R> {
        let one = Rc::new(one);
        let mut known = self.known.borrow_mut();
        known.insert(Name(Rc::clone(one.name())), Rc::clone(&one));
        if one.place().is_some() {
            self.placed.borrow_mut().push(Rc::clone(&one));
        }
        one
    }

    /// The entry that stands for the further names.
    #[inline(never)]
    pub(crate) fn further(&self, make: &dyn Fn(&Rc<str>, Option<NamePlace>) -> R) -> Rc<R> {
        // No resource and no origin has an empty name.
        let further = self.get("");
        further.unwrap_or_else(|| self.keep(make(&"".into(), None)))
    }

    /// The entry for `name`, which is new, by its place among `bound` ones, at the time of the `clock`.
    #[inline(never)]
    pub(crate) fn meet(
        &self,
        places: &dyn Places,
        bound: usize,
        name: &str,
        clock: &dyn Fn() -> Option<Timestamp>,
        make: &dyn Fn(&Rc<str>, Option<NamePlace>) -> R,
    ) -> Rc<R> {
        let further = self.further(make);
        if name.is_empty() {
            return further;
        }
        let may_come = || clock().is_some_and(|now| further.can_be_left(now));
        let mut claimed = places.claim(name, bound, &may_come);
        if claimed == Claim::Full
            && let Some(now) = clock()
            && self.make_room(places, now, clock, make)
        {
            claimed = places.claim(name, bound, &may_come);
        }
        let (Claim::Own(place) | Claim::Coming(place)) = claimed else {
            return further;
        };
        let one = make(&name.into(), Some(place));
        if claimed == Claim::Coming(place) {
            let taken_along = clock().is_some_and(|now| one.take_along(&further, now));
            if !places.settle(place, taken_along) {
                return further;
            }
        }
        if self.placed.borrow().len() >= bound {
            let has_place = |place: NamePlace| places.at(place.index as usize) == Some(place);
            self.retain(&|place| place.is_none_or(has_place));
        }
        self.keep(one)
    }

    /// Frees the place of a name whose windows count nothing. Returns whether there was one among the names examined.
    fn make_room(
        &self,
        places: &dyn Places,
        now: Timestamp,
        clock: &dyn Fn() -> Option<Timestamp>,
        make: &dyn Fn(&Rc<str>, Option<NamePlace>) -> R,
    ) -> bool {
        let (mut next, unmet) = self.next.get();
        if self.placed.borrow().len() < places.count() {
            // A name that this engine has not met, for example after a restart: its windows can be examined without it.
            self.next.set((next, (unmet + 1) % places.count()));
            let place = places.at(unmet);
            let is_met = self.placed.borrow().iter().any(|one| one.place() == place);
            if place.is_some() && !is_met {
                let nameless = Rc::new(make(&"".into(), place));
                self.placed.borrow_mut().push(nameless);
            }
        }
        for _ in 0..LOOK {
            next += 1;
            let one = {
                let placed = self.placed.borrow();
                next = if next < placed.len() { next } else { 0 };
                placed.get(next).map(Rc::clone)
            };
            self.next.set((next, self.next.get().1));
            let Some(one) = one else { continue };
            one.keep_up(clock);
            if let Some(place) = one.place()
                && one.is_idle(now)
                && places.leave(place)
                && places.end_leaving(place, one.is_idle(now))
            {
                self.retain(&|other| other != Some(place));
                return true;
            }
        }
        false
    }

    /// Forgets the entries whose places are not to be kept.
    #[inline(never)]
    fn retain(&self, keep: &dyn Fn(Option<NamePlace>) -> bool) {
        self.known.borrow_mut().retain(|_, one| keep(one.place()));
        self.placed.borrow_mut().retain(|one| keep(one.place()));
    }

    /// Whether the entry `one`, by which a request was decided, has been that of the name all along. To be called after the
    /// decision has been counted. If not, it is forgotten.
    pub(crate) fn is_current(&self, places: &dyn Places, one: &R, name: &str) -> bool {
        let Some(place) = one.place() else {
            return !one.name().is_empty() || name.is_empty() || places.is_further(name);
        };
        let is_own = places.is_own(place);
        if !is_own {
            self.retain(&|other| other != Some(place));
        }
        is_own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashbrown::Equivalent;

    #[test]
    fn names_of_all_lengths_are_the_same_only_if_all_their_bytes_are() {
        for length in 0..40 {
            let name = "a".repeat(length);
            assert!(Asked(&name).equivalent(&Name((&*name).into())));
            assert!(!Asked(&name).equivalent(&Name((name.clone() + "a").into())));
            for i in 0..length {
                let other = "a".repeat(i) + "b" + &"a".repeat(length - i - 1);
                assert!(
                    !Asked(&name).equivalent(&Name(other.into())),
                    "{length}, {i}"
                );
            }
        }
    }
}
