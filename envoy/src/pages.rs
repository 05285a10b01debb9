//! Where the states of a rule's keys are kept, so that the limit of each holds for the process.
//!
//! They are in shared data, in pages of a few keys each ([`KeyedPages`]), and a page is changed by compare-and-swap. Shared
//! data cannot be deleted: so the number of pages is bounded, and their names come from the configuration, never from a client.
//! If the scope is the worker, or shared data does not work, each virtual machine has its own pages.

use crate::counters::{Counters, LazyCounter};
use crate::holds::Holder;
use crate::host::{Host, Level, Put};
use crate::peaks::Peaks;
use crate::reply;
use crate::vm::Vm;
use leapgate::Timestamp;
use leapgate::backend::{
    Key, KeyHandle, KeyStatus, KeyVerdict, KeyedController, KeyedPages, KeyedStates, KeyedTerms,
    PassesAhead, Reserved, StateKey,
};
use leapgate::rule::Counting;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How often a compare-and-swap is tried before the attempt at a decision fails; the engine makes a few attempts. A try fails
/// only if another worker changed the same page, which holds a few keys, between the read and the swap: 8 such changes in a row
/// are rare.
const MAX_SWAPS: u32 = 8;

/// The most ended requests that wait to be taken off; further ones count as in flight, or as held, for good. A bound of memory,
/// reached only while shared data cannot be written.
const MAX_OWED: usize = 1024;

/// The states of one rule's keys.
pub struct KeyStates<H: Host> {
    layout: KeyedPages,
    /// Under whose id this virtual machine holds; `None` if its pages are its own.
    holder: Option<Rc<Holder<H>>>,
    pages: Pages<H>,
    /// The page that was read last, and when: it may be good for the next step of the same decision.
    read: RefCell<Option<(Page, Timestamp)>>,
    /// Passes that hot keys have here.
    ahead: PassesAhead,
    /// Ended requests that could not be taken off yet: tried again with the next one, or at the next tick.
    owed: RefCell<Vec<Owed>>,
    counters: Counters<H>,
    /// How full the fullest limit of a key was.
    peaks: Peaks<H>,
    /// How many requests have been charged to shared entries, because their page was full.
    shared: Cell<u64>,
    exported_shared: LazyCounter,
    exported_defaulted: LazyCounter,
}

/// A request that has ended: its reservation is to be taken off.
#[derive(Clone, Copy)]
struct Owed {
    reserved: Reserved,
    /// Of a reservation; or what is held, and the actual cost, to be charged at this instant.
    cost: u64,
    actual: u64,
    at: Timestamp,
}

/// Where the pages are.
pub(crate) enum Pages<H> {
    /// In shared data.
    Shared { host: H, name: RefCell<PageName> },
    /// In this virtual machine.
    Local(RefCell<Vec<Vec<u8>>>),
}

/// The name of the page that was read or written last.
pub(crate) struct PageName {
    /// It ends with the page's number.
    text: String,
    /// The length of the part that all names have in common.
    common: usize,
    /// The number, if there is one.
    number: Option<usize>,
}

impl PageName {
    fn of(&mut self, number: usize) -> &str {
        if self.number != Some(number) {
            self.text.truncate(self.common);
            reply::push_number(&mut self.text, number as u64);
            self.number = Some(number);
        }
        &self.text
    }
}

/// A page as it was read.
struct Page {
    number: usize,
    bytes: Vec<u8>,
    /// How the page may be replaced.
    put: Put,
}

impl<H: Host> Pages<H> {
    /// In shared data, under names that begin with `name`.
    pub(crate) fn shared(host: H, name: String) -> Pages<H> {
        Pages::Shared {
            host,
            name: RefCell::new(PageName {
                common: name.len(),
                text: name,
                number: None,
            }),
        }
    }

    fn read(&self, number: usize) -> Page {
        let (bytes, put) = match self {
            Pages::Shared { host, name } => match host.shared(name.borrow_mut().of(number)) {
                Some(value) => (value.bytes, Put::IfVersion(value.cas)),
                None => (Vec::new(), Put::IfAbsent),
            },
            Pages::Local(pages) => {
                let page = pages.borrow().get(number).cloned();
                (page.unwrap_or_default(), Put::Always)
            }
        };
        Page { number, bytes, put }
    }

    /// Whether this is the first call for these pages in the process.
    fn is_first_in_process(&self) -> bool {
        match self {
            Pages::Shared { host, name } => {
                let name = name.borrow();
                let common = name.text.get(..name.common).unwrap_or_default();
                host.share(&[common, "shared"].concat(), &[], Put::IfAbsent)
            }
            Pages::Local(_) => true,
        }
    }

    /// Replaces a page that was read. Returns whether that was done.
    fn swap(&self, page: Page) -> bool {
        match self {
            Pages::Shared { host, name } => {
                let name = &mut *name.borrow_mut();
                host.share(name.of(page.number), &page.bytes, page.put)
            }
            Pages::Local(pages) => {
                let mut pages = pages.borrow_mut();
                if pages.len() <= page.number {
                    pages.resize(page.number + 1, Vec::new());
                }
                if let Some(place) = pages.get_mut(page.number) {
                    *place = page.bytes;
                }
                true
            }
        }
    }
}

impl<H: Host> KeyStates<H> {
    pub(crate) fn new(
        layout: KeyedPages,
        pages: Pages<H>,
        (vm, labels): (&Vm<H>, &str),
        holder: &Rc<Holder<H>>,
    ) -> KeyStates<H> {
        let is_shared = matches!(pages, Pages::Shared { .. });
        KeyStates {
            layout,
            holder: is_shared.then(|| Rc::clone(holder)),
            pages,
            read: RefCell::default(),
            ahead: PassesAhead::default(),
            owed: RefCell::default(),
            counters: Counters::new(vm, labels),
            peaks: Peaks::new(vm, labels),
            shared: Cell::new(0),
            exported_shared: LazyCounter::default(),
            exported_defaulted: LazyCounter::default(),
        }
    }

    /// Adds to the host's counters what has happened since the last call, and takes off ended calls. Returns whether nothing is
    /// left to do.
    pub fn export(
        &self,
        vm: &Vm<H>,
        key: &StateKey,
        state: &KeyedController<KeyStates<H>>,
        now: Timestamp,
        at_once: bool,
    ) -> bool {
        while let Some((reserved, unspent)) = self.ahead.take_over(at_once, now) {
            self.give_back(reserved, unspent, now);
        }
        self.take_off_owed();
        let decided = [state.passed(), state.blocked(), state.shadow_blocked()];
        let refused = f64::from(self.counters.has_refused(decided));
        self.look(vm, refused, now, at_once);
        self.counters.export(decided);
        self.counters
            .export_lazy(&self.exported_defaulted, "defaulted", state.defaulted());
        let is_first =
            self.counters
                .export_lazy(&self.exported_shared, "shared", self.shared.get());
        if is_first && self.pages.is_first_in_process() {
            let rule = key.rule.as_str();
            let line = format!(
                "leapgate: rule `{rule}`: more keys count than it keeps apart; some share a window, which is stricter for them: \
                 raise `maxKeys`"
            );
            vm.host().log(Level::Warn, &line);
        }
        self.owed.borrow().is_empty() && !self.ahead.are_left()
    }

    /// Records how full the limit is of the key that is closest to it, or `part`, if that is more.
    pub fn look(&self, vm: &Vm<H>, part: f64, now: Timestamp, sleeps: bool) {
        let part = part.max(self.layout.take_utilization());
        self.peaks.keep(vm, part, now.as_millis(), sleeps);
    }

    /// The page of `key` as read last, if that was at `now`.
    fn kept(&self, key: Key, now: Timestamp) -> Option<Page> {
        let (page, at) = self.read.take()?;
        (page.number == self.layout.page(key) && at == now).then_some(page)
    }

    /// The page of a key as read by an earlier step of the same decision; `None` at the first step, which always reads it anew.
    fn kept_for(&self, key: KeyHandle, now: Timestamp) -> Option<Page> {
        if key.is_new() {
            return None;
        }
        self.kept(key.key(), now)
    }

    fn keep(&self, page: Page, at: Timestamp) {
        self.read.replace(Some((page, at)));
    }

    fn page_of(&self, key: Key) -> Page {
        self.pages.read(self.layout.page(key))
    }

    /// Changes the page of `key`, if `change` does; else `change` returns the page.
    fn swap<R>(
        &self,
        key: Key,
        mut kept: Option<Page>,
        change: impl Fn(&mut Vec<u8>) -> Option<R>,
    ) -> Result<R, Option<Page>> {
        for _ in 0..MAX_SWAPS {
            let was_kept = kept.is_some();
            let mut page = kept.take().unwrap_or_else(|| self.page_of(key));
            let Some(changed) = change(&mut page.bytes) else {
                if was_kept {
                    continue; // it may be out of date
                }
                return Err(Some(page));
            };
            if self.pages.swap(page) {
                return Ok(changed);
            }
        }
        Err(None)
    }

    /// Settles in a page what dead virtual machines hold there. Returns whether the page has changed.
    #[cold]
    fn settle_dead(&self, page: &mut Vec<u8>, now: Timestamp) -> bool {
        let Some(holder) = &self.holder else {
            return false;
        };
        let is_dead = |of: u16| holder.is_dead(&|id| KeyedPages::holder_of(id) == of);
        self.layout.settle_dead(page, &is_dead, now)
    }

    fn take_off(&self, owed: Owed) -> bool {
        let Owed {
            reserved,
            cost,
            actual,
            at,
        } = owed;
        let change = |page: &mut Vec<u8>| {
            let changed = match reserved.is_held {
                true => self.layout.settle(page, reserved, cost, actual, at),
                false => self.layout.release(page, reserved, cost),
            };
            changed.then_some(())
        };
        // The page that was read last may be this one, which is now stale.
        self.read.take();
        let is_done = !matches!(self.swap(reserved.handle.key(), None, change), Err(None));
        if is_done && reserved.is_held {
            self.holder.iter().for_each(|holder| holder.unhold_key());
        }
        is_done
    }

    /// Takes off what is owed, and an ended request besides: later, if that fails now.
    fn owe(&self, ended: Owed) {
        if self.owed.borrow().len() < MAX_OWED {
            self.owed.borrow_mut().push(ended);
        }
        self.take_off_owed();
    }

    /// Gives back passes that were taken ahead, at the next tick if that fails now.
    fn give_back(&self, reserved: Reserved, unspent: u64, now: Timestamp) {
        self.owe(Owed {
            reserved,
            cost: unspent,
            actual: 0,
            at: now,
        });
    }

    /// Reserves for a request at the first step of its decision: a pass that was taken ahead, or one in the key's page, and then
    /// perhaps some ahead of the next requests.
    fn reserve_at_once(
        &self,
        handle: &mut KeyHandle,
        terms: &KeyedTerms,
        cost: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        let key = handle.key();
        if let Some(reserved) = self.ahead.spend(key, terms, cost, now) {
            return Some(reserved);
        }
        let (unspent, ahead) = self.ahead.for_swap(key, now);
        let reserve = |page: &mut Vec<u8>| {
            if let Some((reserved, unspent)) = unspent {
                self.layout.release(page, reserved, unspent);
            }
            self.layout
                .reserve_ahead(page, key, terms, (cost, ahead), now)
        };
        match self.swap(key, None, reserve) {
            Ok((reserved, taken)) => {
                if let Some((of_other, unspent)) = self.ahead.swapped(key, taken, terms) {
                    self.give_back(of_other, unspent, now);
                }
                Some(reserved)
            }
            Err(page) => {
                // What was given back in it has not been written.
                if let Some(page) = page.filter(|_| unspent.is_none()) {
                    *handle = handle.found_at(page.number as u32);
                    self.keep(page, now);
                }
                None
            }
        }
    }

    fn take_off_owed(&self) {
        let mut owed = self.owed.borrow_mut();
        while let Some(ended) = owed.last() {
            if !self.take_off(*ended) {
                return;
            }
            owed.pop();
        }
    }
}

impl<H: Host> KeyedStates for KeyStates<H> {
    fn key(&self, parts: &mut dyn Iterator<Item = Option<&[u8]>>) -> Key {
        self.layout.key(parts)
    }

    fn ask(
        &self,
        key: &mut KeyHandle,
        terms: &KeyedTerms,
        cost: u64,
        now: Timestamp,
    ) -> KeyVerdict {
        let page = self.kept_for(*key, now);
        let mut page = page.unwrap_or_else(|| self.page_of(key.key()));
        *key = key.found_at(page.number as u32);
        let ask = |page: &Page| self.layout.ask(&page.bytes, key.key(), terms, cost, now);
        let mut asked = ask(&page);
        if terms.holds && asked != KeyVerdict::Pass && self.settle_dead(&mut page.bytes, now) {
            self.pages.swap(page); // else another worker has changed it, which may have settled it
            page = self.page_of(key.key());
            asked = ask(&page);
        }
        self.keep(page, now);
        asked
    }

    fn reserve(
        &self,
        key: &mut KeyHandle,
        terms: &KeyedTerms,
        cost: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        self.reserve_later(key, terms, cost, 0, now)
    }

    fn reserve_later(
        &self,
        handle: &mut KeyHandle,
        terms: &KeyedTerms,
        cost: u64,
        wait: u64,
        now: Timestamp,
    ) -> Option<Reserved> {
        if handle.is_new() && wait == 0 && !terms.holds && self.holder.is_some() {
            return self.reserve_at_once(handle, terms, cost, now);
        }
        let (key, kept) = (handle.key(), self.kept_for(*handle, now));
        if terms.holds
            && let Some(holder) = &self.holder
        {
            self.layout.hold_as(holder.id_for_keys());
        }
        let reserve = |page: &mut Vec<u8>| {
            let reserved = self.layout.reserve(page, key, terms, cost, wait, now);
            // A full page makes room as soon as what the dead held has left it.
            let is_full =
                reserved.filter(|reserved| reserved.is_held && reserved.handle.is_shared());
            is_full.map(|_| self.settle_dead(page, now));
            reserved
        };
        match self.swap(key, kept, reserve) {
            Ok(reserved) => {
                if reserved.is_held {
                    self.holder.iter().for_each(|holder| holder.hold_key());
                }
                Some(reserved)
            }
            Err(page) => {
                if let Some(page) = page {
                    *handle = handle.found_at(page.number as u32);
                    self.keep(page, now);
                }
                None
            }
        }
    }

    fn release(&self, reserved: Reserved, cost: u64, now: Timestamp) {
        if self.layout.counts_calls() {
            return self.leave(reserved, cost);
        }
        if reserved.is_held {
            return self.settle(reserved, cost, 0, now);
        }
        // A reservation that cannot be released counts until it has left the window: too strict, never too lenient.
        self.take_off(Owed {
            reserved,
            cost,
            actual: 0,
            at: now,
        });
    }

    fn admit(&self, reserved: Reserved, _: u64) -> bool {
        if reserved.handle.is_shared() {
            self.shared.set(self.shared.get().wrapping_add(1));
        }
        // It was charged when it was reserved, or is held since.
        reserved.is_held || self.layout.counts_calls()
    }

    fn leave(&self, reserved: Reserved, cost: u64) {
        self.owe(Owed {
            reserved,
            cost,
            actual: 0,
            at: Timestamp::ZERO,
        });
    }

    fn settle(&self, reserved: Reserved, cost: u64, actual: u64, at: Timestamp) {
        self.owe(Owed {
            reserved,
            cost,
            actual,
            at,
        });
    }

    fn count_as(&self, counting: Counting) {
        self.layout.count_as(counting);
    }

    fn status(&self, key: Key, terms: &KeyedTerms, now: Timestamp) -> KeyStatus {
        let page = self.kept(key, now);
        let page = page.unwrap_or_else(|| self.page_of(key));
        let mut status = self.layout.status(&page.bytes, key, terms, now);
        // To its own requests, what this machine has not spent is left.
        status.remaining += self.ahead.left(key, now);
        status
    }
}
