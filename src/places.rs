//! Which of the names that no rule knows have windows of their own, where engines share their counts.
//!
//! A name that one engine keeps apart and another one does not would have two windows, and twice its limit. So engines that
//! share counts share a list, too: a name has a place there, or it shares the windows of all further names. A name keeps its
//! place until none of its windows counts anything and a full list wants it.
//!
//! A list changes under the eyes of others, so a change has two steps, and a worker that decides looks twice:
//!
//! ```text
//!   a name leaves      own -> leaving, announced;  nothing counts?  leaving -> free     else own again
//!   a name comes       free -> coming, announced;  takes along what the further names have used;  coming -> own
//!   a request          decides by what is known;   nothing announced since?   else looks, and keeps its name from leaving
//!                                                                             or coming, or decides again
//! ```
//!
//! A request counts before it looks, and a change is announced before the counts are read. So either the change sees what the
//! request has counted, or the request sees the change: no request counts in a window that its name has left unseen.

use crate::time::Timestamp;
use hashbrown::HashMap;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A place in a list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NamePlace {
    /// Its number, from 0. The states of rules are named by it: so there are no more of them than places.
    pub index: u32,
    /// What tells the name in it from others.
    pub tag: u64,
    /// Whether another name has had it before.
    pub is_reused: bool,
}

/// What is known of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// It has this place.
    Own(NamePlace),
    /// It has this place when [`Places::settle`] has said so: requests for it may have been counted with those of the further
    /// names.
    Coming(NamePlace),
    /// All places are taken: it shares the windows of the further names.
    Full,
}

/// A list of names with a bounded number of places.
///
/// Where it cannot be read or changed, every answer is the one that shares windows.
pub trait Places {
    /// The place of `name` among `bound` places, given to it if one is free; where requests for it may have been counted with
    /// those of the further names, if it `may_come`.
    fn claim(&self, name: &str, bound: usize, may_come: &dyn Fn() -> bool) -> Claim;

    /// Ends the coming of a name: it has its place from now on if `own`, else it stays without. Whether it has it.
    fn settle(&self, place: NamePlace, own: bool) -> bool;

    /// Announces that the name may lose its place.
    fn leave(&self, place: NamePlace) -> bool;

    /// Frees the place of a name that is leaving, if `idle`; else the name keeps it. Whether the place is free.
    fn end_leaving(&self, place: NamePlace, idle: bool) -> bool;

    /// Whether the name has had its place all along. To be asked after what it decides has been counted.
    fn is_own(&self, place: NamePlace) -> bool;

    /// Whether `name` has had no place all along. To be asked after what it decides has been counted.
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

    /// Brings its windows up to date, where that is what comes before they are asked; `clock` is read in between.
    fn keep_up(&self, clock: &dyn Fn() -> Option<Timestamp>);

    /// Whether none of its windows counts anything, so that nothing is forgotten with it.
    fn is_idle(&self, now: Timestamp) -> bool;

    /// Whether a name can take along what has been used here, where it stands for the further names: where it cannot, a name
    /// stays with them.
    fn can_be_left(&self, now: Timestamp) -> bool;

    /// Charges it with all that the `further` names have used. Whether that was done.
    fn take_along(&self, further: &Self, now: Timestamp) -> bool;
}

/// How many names are looked at, in turn, for one that can lose its place: a request that finds a full list pays for so many.
const LOOK: usize = 4;

/// Names that are kept apart, in bounds; what the bound leaves no room for is found under no name.
pub(crate) struct Apart<R> {
    known: RefCell<HashMap<Rc<str>, Rc<R>>>,
    /// Those that have a place in a list.
    placed: RefCell<Vec<Rc<R>>>,
    /// Which of them is the next to be looked at, and which place whose name has not been met here.
    next: Cell<(usize, usize)>,
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
    /// What is known under that name.
    #[inline]
    pub(crate) fn get(&self, name: &str) -> Option<Rc<R>> {
        self.known.borrow().get(name).cloned()
    }

    /// How many are known.
    pub(crate) fn len(&self) -> usize {
        self.known.borrow().len()
    }

    /// All that are known.
    pub(crate) fn all(&self) -> Vec<Rc<R>> {
        self.known.borrow().values().cloned().collect()
    }

    /// Keeps `one` under its name.
    #[inline(never)]
    pub(crate) fn keep(&self, one: R) -> Rc<R> {
        let one = Rc::new(one);
        let mut known = self.known.borrow_mut();
        known.insert(Rc::clone(one.name()), Rc::clone(&one));
        if one.place().is_some() {
            self.placed.borrow_mut().push(Rc::clone(&one));
        }
        one
    }

    /// What stands for the further names.
    #[inline(never)]
    pub(crate) fn further(&self, make: &dyn Fn(&Rc<str>, Option<NamePlace>) -> R) -> Rc<R> {
        // No resource and no origin has an empty name.
        let further = self.get("");
        further.unwrap_or_else(|| self.keep(make(&"".into(), None)))
    }

    /// What stands for `name`, which is not known yet, by its place among `bound` ones, at the time of the `clock`.
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

    /// Frees the place of a name whose windows count nothing. Whether one of those looked at was such.
    fn make_room(
        &self,
        places: &dyn Places,
        now: Timestamp,
        clock: &dyn Fn() -> Option<Timestamp>,
        make: &dyn Fn(&Rc<str>, Option<NamePlace>) -> R,
    ) -> bool {
        let (mut next, unmet) = self.next.get();
        if self.placed.borrow().len() < places.count() {
            // After a restart of this virtual machine, say. Whatever it is called, its windows can be looked at.
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

    /// Forgets those whose places are not to be kept.
    #[inline(never)]
    fn retain(&self, keep: &dyn Fn(Option<NamePlace>) -> bool) {
        self.known.borrow_mut().retain(|_, one| keep(one.place()));
        self.placed.borrow_mut().retain(|one| keep(one.place()));
    }

    /// Whether `one`, by which the request of that name was decided, has stood for it all along. To be asked after what was
    /// decided has been counted. If not, it is forgotten.
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
