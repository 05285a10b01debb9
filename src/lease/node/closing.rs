//! How a node ends.

use super::Node;

impl Node {
    /// Gives back all that is leased, and leases no more: call [`Node::due`] until it returns `None`. An answer that arrives later may
    /// bring a lease: then close again.
    pub fn close(&mut self) {
        self.is_closing = true;
        self.due.clear();
        for (known, place) in self.known.iter_mut().zip(0..) {
            known.leases.close();
            known.is_due = known.leases.next_close().is_some() || known.leases.owes_a_report();
            if known.is_due {
                self.due.push_back((0, place));
            }
        }
    }
}
