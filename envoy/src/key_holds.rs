//! What a virtual machine holds of keys: it is in their pages, under the machine's id, and others settle it there once that id has
//! gone from the list ([`Holder`]).

use crate::holds::{Holder, add, draw, entries};
use crate::host::Host;

impl<H: Host> Holder<H> {
    /// The id under which this virtual machine holds something of keys, in their pages; `None` if it cannot show a heartbeat.
    pub(crate) fn id_for_keys(&self) -> Option<u64> {
        self.is_expected.set(true);
        self.join(0).map(|member| member.id)
    }

    /// It holds something of one key more.
    pub(crate) fn hold_key(&self) {
        add(&self.total, 1);
    }

    /// It holds something of one key less.
    pub(crate) fn unhold_key(&self) {
        draw(&self.total, 1);
    }

    /// Whether no virtual machine has an id that `is` the one that is meant: it has died, or was taken for dead.
    pub(crate) fn is_dead(&self, is: &dyn Fn(u64) -> bool) -> bool {
        let has = |words: &mut Vec<u64>| entries(words).iter().any(|[id, _]| *id != 0 && is(*id));
        let mut seen = self.seen.take();
        let is_own = self.member.get().is_some_and(|own| is(own.id));
        let is_alive = is_own || has(&mut seen);
        self.seen.set(seen);
        // It may have come since the list was looked at.
        !is_alive
            && !self
                .list
                .read_all()
                .0
                .is_some_and(|mut words| has(&mut words))
    }
}
