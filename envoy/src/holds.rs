//! What each virtual machine holds, so that another one can give it back after its death.
//!
//! A call in flight, and a request whose cost is known only at its end, have reserved something of a rule's counts until they
//! end. A virtual machine that traps ends nothing any more. So each one keeps what it holds, rule by rule, in gauges of its own
//! (`held`), and shows a heartbeat once a second while it holds anything. If that is 10 s old, another virtual machine settles
//! what stands in these gauges: calls are no longer in flight, and what was held of a window is admitted.
//!
//! **Nothing is given back twice, whatever other virtual machines do between any two host calls.** The virtual machine that gives
//! back what one holds, itself or another, has an id of its own, which it writes to a further gauge, `held_by`, before it looks at any other.
//! To give back `n`, it lowers the gauge by `n`, and then reads `held_by`: if that is not its id any more, it raises the gauge
//! again and gives nothing back. So what it does give back was no longer in the gauge when the next one wrote its id. A gauge
//! is raised after a reservation and lowered before that ends: a death in between leaves too much reserved, never too little.
//!
//! A virtual machine that was only slow learns with its next heartbeat that it was taken for dead. Its calls go on, so they
//! are counted again. What it held of a window has been admitted, and stays so.
//!
//! | Shared data | Contents |
//! |---|---|
//! | `held_vms` | the last id that was given away; then an id (0: free) and the time of a heartbeat for each index, which is `vm` in the names of gauges. No id is given away twice |
//! | `held_rules` | for each number `n`, written once: the gauge in which the holds of the `n`-th rule count, `in_flight` or `admitted`, with its labels |

use crate::gauges::{count, gauge};
use crate::host::{Host, Level, MetricId, Put};
use crate::names::label;
use crate::shared::{SharedCell, Try, swap};
use crate::vm::Vm;
use leapgate::Rules;
use leapgate::rule::{Grade, SystemLimit};
use once_cell::unsync::OnceCell;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How often a virtual machine that holds anything shows a heartbeat.
pub(crate) const HEARTBEAT_MS: u32 = 1000;

/// After how long the next heartbeat is due: a tick may be a little early.
const DUE_MS: u64 = 900;

/// A virtual machine without a heartbeat for this long is dead, if a second look finds none either: the first one may be the
/// first thing that happens after the whole process was stopped.
const DEAD_MS: u64 = 10_000;

/// A virtual machine without a heartbeat for this long may be dead: the others do not sleep before they know.
const LATE_MS: u64 = 2500;

/// No more virtual machines than this hold anything at a time that others can give back.
const MAX_VMS: usize = 1024;

/// What holds if such gauges do not work.
const NOT_GIVEN_BACK: &str = "what a worker holds when its virtual machine dies stays reserved";

/// The counts of which something is held.
#[derive(Clone, Copy)]
pub(crate) enum Counts {
    /// The calls in flight of a rule.
    InFlight = b'f' as isize,
    /// All calls in flight.
    Inbound = b'i' as isize,
    /// What a rule has admitted.
    Admitted = b'a' as isize,
}

/// A gauge of each virtual machine, by its index.
type Gauges = RefCell<Vec<Option<MetricId>>>;

/// An entry of the list: a virtual machine, under one of its ids.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    index: usize,
    pub(crate) id: u64,
}

/// What this virtual machine holds, and its watch over others.
pub(crate) struct Holder<H> {
    vm: Rc<Vm<H>>,
    pub(crate) list: SharedCell<H>,
    /// Whether any rule lets requests hold.
    pub(crate) is_expected: Cell<bool>,
    /// Its entry, while it holds anything and until it sleeps.
    pub(crate) member: Cell<Option<Member>>,
    /// Whether that entry is known to be its own since it woke.
    is_sure: Cell<bool>,
    /// How often the entry may have changed.
    changes: Cell<u32>,
    /// The list when it was last looked at, and when that was.
    pub(crate) seen: Cell<Vec<u64>>,
    looked_at: Cell<u64>,
    /// Whether a heartbeat was late then.
    is_late: Cell<bool>,
    /// The rules of `held_rules` that have been read, in their order.
    rules: RefCell<Vec<Rc<Held>>>,
    /// The gauges of the ids of those that give back.
    held_by: Gauges,
    /// All that it holds and others can give back.
    pub(crate) total: Cell<u64>,
    has_warned: Cell<bool>,
}

/// What this virtual machine holds under one rule.
struct Held {
    /// [`Counts`] and their labels.
    name: Box<str>,
    /// The gauge of these counts.
    counts: Option<MetricId>,
    /// The gauges of what is held of them.
    gauges: Gauges,
    /// Its own of these, and the value of [`Holder::changes`] for which it is; `None` if it has none.
    own: Cell<(u32, Option<MetricId>)>,
    /// What is in that gauge.
    held: Cell<u64>,
    /// What has been admitted for this virtual machine because it seemed dead.
    settled: Cell<u64>,
}

/// Takes up to `n` out of `cell`, and returns how much that is.
pub(crate) fn draw(cell: &Cell<u64>, n: u64) -> u64 {
    let drawn = n.min(cell.get());
    cell.set(cell.get() - drawn);
    drawn
}

pub(crate) fn add(cell: &Cell<u64>, n: u64) {
    cell.set(cell.get().wrapping_add(n));
}

/// Ids and heartbeats by index.
pub(crate) fn entries(words: &mut [u64]) -> &mut [[u64; 2]] {
    words
        .get_mut(1..)
        .map_or(&mut [], |words| words.as_chunks_mut().0)
}

/// The entry of a member that is still in the list.
fn entry(words: &mut [u64], member: Member) -> Option<&mut [u64; 2]> {
    let entry = entries(words).get_mut(member.index)?;
    (entry[0] == member.id).then_some(entry)
}

impl Held {
    fn labels(&self) -> &str {
        labels_in(&self.name)
    }

    /// Whether it is held of a window, and not a call in flight.
    fn is_admitted(&self) -> bool {
        self.name.as_bytes().first() == Some(&(Counts::Admitted as u8))
    }
}

fn labels_in(name: &str) -> &str {
    name.get(1..).unwrap_or_default()
}

/// The labels and one with a number.
fn numbered(labels: &str, name: &str, n: usize) -> String {
    let mut labels = labels.to_owned();
    label(&mut labels, name, &(n as u32).to_string());
    labels
}

impl<H: Host> Holder<H> {
    /// Of a virtual machine that holds nothing.
    pub(crate) fn new(vm: &Rc<Vm<H>>) -> Holder<H> {
        Holder {
            list: SharedCell::new(vm.host(), vm.name("held_vms", "")),
            vm: Rc::clone(vm),
            is_expected: Cell::new(false),
            member: Cell::new(None),
            is_sure: Cell::new(false),
            changes: Cell::new(1),
            seen: Cell::default(),
            looked_at: Cell::new(0),
            is_late: Cell::new(false),
            rules: RefCell::default(),
            held_by: Gauges::default(),
            total: Cell::new(0),
            has_warned: Cell::new(false),
        }
    }

    /// These rules are in force. If any of them lets requests hold something, here or in other virtual machines, those are
    /// watched from now on.
    pub(crate) fn expect(&self, rules: &Rules) {
        let mut holds = rules
            .system
            .iter()
            .any(|rule| rule.limits(SystemLimit::Thread) || rule.limits(SystemLimit::Bbr));
        for rule in rules.flow.iter().chain(&rules.gateway_flow) {
            let counts = rule.grade() == Grade::Concurrency && rule.keyed_by().is_none();
            holds |= counts || rule.cost().is_some();
        }
        if holds {
            self.is_expected.set(self.vm.is_shared());
        }
    }

    /// Whether this virtual machine holds anything that others could give back.
    pub(crate) fn holds(&self) -> bool {
        self.total.get() > 0
    }

    /// This virtual machine wakes. Its entry may have become another's, if it had one and no more ticks.
    pub(crate) fn wake(&self) {
        self.is_sure.set(false);
        self.change_entry();
    }

    fn change_entry(&self) {
        self.changes.set(self.changes.get().wrapping_add(1));
    }

    /// To be called on ticks, and with `rests` when the worker falls asleep. Shows a heartbeat, and settles what the dead held.
    /// Returns the milliseconds to the next tick of a worker that sleeps; 0 if it needs none.
    #[inline(never)]
    pub(crate) fn watch(&self, rests: bool) -> u32 {
        if !self.is_expected.get() {
            return 0;
        }
        if rests && !self.holds() {
            self.leave();
        }
        let now = self.now().unwrap_or_default();
        if now.saturating_sub(self.looked_at.get()) >= DUE_MS {
            let found = self.show_heartbeat(now);
            self.is_late.set(found.is_none()); // then the next tick tries again
            found.into_iter().for_each(|found| self.look(found, now));
        }
        if self.holds() || self.is_late.get() {
            HEARTBEAT_MS
        } else {
            0
        }
    }

    /// Looks at the heartbeats of others.
    fn look(&self, mut found: Vec<u64>, now: u64) {
        let (mut seen, last) = (self.seen.take(), self.looked_at.replace(now));
        let own = self.member.get().map(|own| own.index);
        for (index, entry) in entries(&mut found).iter().enumerate() {
            let [id, beat] = *entry;
            if id == 0 || own == Some(index) {
                continue;
            }
            if now.saturating_sub(beat) >= LATE_MS {
                self.is_late.set(true);
            }
            let was_old = last.saturating_sub(beat) >= DEAD_MS;
            if was_old && entries(&mut seen).get(index) == Some(entry) {
                self.settle_dead(index, *entry, now);
            }
        }
        self.seen.set(found);
    }

    fn now(&self) -> Option<u64> {
        Some(self.vm.host().now()?.as_millis())
    }

    /// Lets `change` change the list, which returns whether it has. Returns the list; `None` if it could not be changed.
    #[inline(never)]
    fn change(&self, change: &mut dyn FnMut(&mut Vec<u64>) -> bool) -> Option<Vec<u64>> {
        swap(|| {
            let (words, put) = self.list.read_all();
            let mut words = words.unwrap_or_default();
            if words.is_empty() {
                words.push(0);
            }
            if change(&mut words) && !self.list.put_all(&words, put) {
                return Try::Overtaken;
            }
            Try::Done(words)
        })
    }

    /// Changes the entry of a member that is still in the list.
    fn change_member(&self, member: Member, entry: [u64; 2]) -> Option<Vec<u64>> {
        self.change(&mut |words| {
            let found = self::entry(words, member);
            found.map(|found| *found = entry).is_some()
        })
    }

    /// Shows a heartbeat, if this virtual machine is in the list. Returns the list.
    fn show_heartbeat(&self, now: u64) -> Option<Vec<u64>> {
        // No entry has that index.
        let nowhere = Member {
            index: MAX_VMS,
            id: 0,
        };
        let member = self.member.get().unwrap_or(nowhere);
        let mut words = self.change_member(member, [member.id, now])?;
        if member.id != 0 && (entry(&mut words, member).is_none() || !self.owns(member)) {
            self.was_taken_for_dead(member.index);
        }
        self.is_sure.set(true);
        Some(words)
    }

    /// This virtual machine has lost its entry at that index. What it held has been given back, or will be by the one that has
    /// the entry now. If none has, it gets the entry anew, and itself gives back what it has held since.
    #[cold]
    fn was_taken_for_dead(&self, index: usize) {
        self.member.set(None);
        self.change_entry();
        if let Some(member) = self.join(index) {
            self.give_back(member, true);
        }
        for rule in self.rules.borrow().iter() {
            let held = rule.held.take();
            draw(&self.total, held);
            if rule.is_admitted() {
                add(&rule.settled, held);
            } else if held > 0 {
                self.count(rule, held as i64);
                self.hold(rule, held);
            }
        }
    }

    /// Gives the entry at an index to a new member: if it is still `found`, or else, if it is free; then it may be another free
    /// one.
    fn enter(&self, index: usize, found: Option<[u64; 2]>, now: u64) -> Option<Member> {
        let mut member = None;
        self.change(&mut |words| {
            let entries = entries(words);
            let is_meant = |entry: &[u64; 2]| found.map_or(entry[0] == 0, |found| found == *entry);
            let index = match entries.get(index).is_some_and(is_meant) {
                true => index,
                false => entries.iter().position(is_meant).unwrap_or(entries.len()),
            };
            if index == entries.len() {
                if found.is_some() || index == MAX_VMS {
                    return false;
                }
                words.extend_from_slice(&[0; 2]);
            }
            let id = words.first().map_or(0, |last| last.wrapping_add(1));
            words.iter_mut().take(1).for_each(|last| *last = id);
            let entry = self::entries(words).get_mut(index);
            entry.into_iter().for_each(|entry| *entry = [id, now]);
            member = Some(Member { index, id });
            true
        })?;
        member
    }

    /// Gets an entry in the list, if this virtual machine has none: the one at that index, if it is free.
    pub(crate) fn join(&self, wanted: usize) -> Option<Member> {
        let now = self.now()?;
        if !self.is_sure.get() && self.member.get().is_some() {
            self.show_heartbeat(now)?;
        }
        if self.member.get().is_none() {
            let member = self.enter(wanted, None, now)?;
            self.member.set(Some(member));
            self.is_sure.set(true);
            self.own(member);
        }
        self.member.get()
    }

    /// Gives up the entry: nothing is held here any more.
    fn leave(&self) {
        if let Some(member) = self.member.take() {
            self.change_entry();
            self.give_back(member, true);
            self.change_member(member, [0; 2]);
        }
    }

    /// Takes over the entry that was found at that index, and settles what it holds.
    #[cold]
    fn settle_dead(&self, index: usize, found: [u64; 2], now: u64) {
        // If this one dies meanwhile, its entry gets old in turn.
        if let Some(member) = self.enter(index, Some(found), now)
            && self.own(member)
        {
            self.read_rules(None);
            if self.give_back(member, false) {
                let line = "leapgate: a virtual machine has died: what it held is given back";
                self.vm.host().log(Level::Warn, line);
            }
            self.change_member(member, [0; 2]);
        }
    }

    /// Gives back what is in the gauges of a member; if it `is_own`, of the rules only that it has held anything of. Returns
    /// whether there was anything.
    fn give_back(&self, member: Member, is_own: bool) -> bool {
        let host = self.vm.host();
        let mut is_given = false;
        for rule in self.rules.borrow().iter() {
            if is_own && rule.own.get().1.is_none() {
                continue;
            }
            let Some(gauge) = self.gauge(rule, member.index) else {
                continue;
            };
            // Without the bits by which gauges are tested.
            let left = host
                .read(gauge)
                .map_or(0, |left| ((left << 16) as i64) >> 16);
            if left > 0 && self.takes(member, gauge, left) {
                self.count(rule, if rule.is_admitted() { left } else { -left });
                is_given = true;
            }
        }
        is_given
    }

    /// Writes the id of a member, which is to give back what is in the gauges of its index. Returns whether that was done.
    fn own(&self, member: Member) -> bool {
        let held_by = self.held_by(member);
        held_by.map(|held_by| self.vm.host().record(held_by, member.id));
        self.owns(member)
    }

    fn held_by(&self, member: Member) -> Option<MetricId> {
        self.gauge_of(&self.held_by, ["held_by", ""], member.index)
    }

    /// Whether it is still this member that gives back what is in the gauges of its index.
    fn owns(&self, member: Member) -> bool {
        let held_by = self.held_by(member);
        held_by.is_some_and(|held_by| count(self.vm.host(), held_by) == Some(member.id))
    }

    /// Takes `n` out of a gauge, so that this member, and no other, gives it back. Returns whether it may.
    fn takes(&self, member: Member, gauge: MetricId, n: i64) -> bool {
        let host = self.vm.host();
        host.add(gauge, -n);
        let may = self.owns(member);
        if !may {
            host.add(gauge, n);
        }
        may
    }

    /// The gauge of what the virtual machine with this index holds.
    fn gauge(&self, rule: &Held, index: usize) -> Option<MetricId> {
        self.gauge_of(&rule.gauges, ["held", rule.labels()], index)
    }

    /// The gauge of that index; they are made in their order. `None` if it does not work.
    fn gauge_of(
        &self,
        gauges: &Gauges,
        [what, labels]: [&str; 2],
        index: usize,
    ) -> Option<MetricId> {
        let mut gauges = gauges.borrow_mut();
        while gauges.len() <= index {
            let found = gauge(&self.vm, &numbered(labels, "vm", gauges.len()), what);
            if let Err(silent) = &found
                && !self.has_warned.replace(true)
            {
                silent.warn(&self.vm, NOT_GIVEN_BACK);
            }
            gauges.push(found.ok());
        }
        *gauges.get(index)?
    }

    /// Adds to the counts of the rule.
    fn count(&self, rule: &Held, n: i64) {
        if let Some(counts) = rule.counts {
            self.vm.host().add(counts, n);
        }
    }

    /// The rule of that name in `held_rules`, where it is written if need be; `None` if it cannot be. All rules before it are
    /// read; without a name, all there are.
    #[cold]
    fn read_rules(&self, name: Option<&str>) -> Option<Rc<Held>> {
        let mut rules = self.rules.borrow_mut();
        for n in 0.. {
            if n == rules.len() {
                rules.push(Rc::new(self.read_rule(n, name)?));
            }
            let rule = rules.get(n)?;
            if name == Some(&*rule.name) {
                return Some(Rc::clone(rule));
            }
        }
        None
    }

    /// The rule with that number, which is that of this name if there is none yet.
    fn read_rule(&self, n: usize, name: Option<&str>) -> Option<Held> {
        let (vm, host) = (&*self.vm, self.vm.host());
        let key = vm.name("held_rules", &numbered("", "n", n));
        if let Some(name) = name {
            host.share(&key, name.as_bytes(), Put::IfAbsent);
        }
        let name = String::from_utf8_lossy(&host.shared(&key)?.bytes).into_owned();
        let counts = match name.as_bytes().first() {
            Some(b'a') => "admitted",
            Some(b'i') => "inbound_in_flight",
            _ => "in_flight",
        };
        Some(Held {
            counts: gauge(vm, labels_in(&name), counts).ok(),
            name: name.into(),
            gauges: Gauges::default(),
            own: Cell::new((0, None)),
            held: Cell::new(0),
            settled: Cell::new(0),
        })
    }

    /// The gauge of what this virtual machine holds under the rule; `None` if there is none.
    #[cold]
    fn open(&self, rule: &Held) -> Option<MetricId> {
        self.is_expected.set(true);
        let own = self.join(0).filter(|own| self.owns(*own));
        let opened = own.and_then(|own| self.gauge(rule, own.index));
        rule.own.set((self.changes.get(), opened));
        opened
    }

    #[inline(never)]
    fn hold(&self, rule: &Held, n: u64) {
        let gauge = match rule.own.get() {
            (changes, gauge) if changes == self.changes.get() => gauge,
            _ => self.open(rule),
        };
        // What is in no gauge is not recorded: its end finds nothing held.
        if gauge.is_some_and(|gauge| self.vm.host().add(gauge, n as i64)) {
            add(&rule.held, n);
            add(&self.total, n);
        }
    }

    /// Whether it is this virtual machine that gives `n` back.
    #[inline(never)]
    fn unhold(&self, rule: &Held, n: u64) -> bool {
        let settled = draw(&rule.settled, n);
        let n = draw(&rule.held, n - settled);
        draw(&self.total, n);
        // If a part of it has been settled, the rest stays in the gauge, and is settled when this worker sleeps or dies.
        if settled > 0 {
            return false;
        }
        let own = rule.own.get().1.zip(self.member.get());
        n == 0 || own.is_none_or(|(gauge, member)| self.takes(member, gauge, n as i64))
    }
}

/// What this virtual machine holds of a rule's counts.
pub(crate) struct Holds<H> {
    holder: Rc<Holder<H>>,
    name: Box<str>,
    /// `None` if it cannot be written in shared data: then it is not kept.
    rule: OnceCell<Option<Rc<Held>>>,
}

impl<H: Host> Holds<H> {
    /// Of the counts with these labels.
    pub(crate) fn new(holder: &Rc<Holder<H>>, counts: Counts, labels: &str) -> Holds<H> {
        let mut name = String::from(counts as u8 as char);
        name.push_str(labels);
        Holds {
            holder: Rc::clone(holder),
            name: name.into(),
            rule: OnceCell::new(),
        }
    }

    /// See [`Counter::hold`](leapgate::backend::Counter::hold).
    #[inline(never)]
    pub(crate) fn hold(&self, n: u64) {
        let open = || self.holder.read_rules(Some(&self.name));
        if let Some(rule) = self.rule.get_or_init(open) {
            self.holder.hold(rule, n);
        }
    }

    /// See [`Counter::unhold`](leapgate::backend::Counter::unhold).
    #[inline(never)]
    pub(crate) fn unhold(&self, n: u64) -> bool {
        let rule = self.rule.get().and_then(Option::as_deref);
        rule.is_none_or(|rule| self.holder.unhold(rule, n))
    }
}
