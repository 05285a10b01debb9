//! Requests that wait for the store: each is paused, and decided on again when the answer about its key has come, or when it has
//! waited for as long as it may.

use leapgate::Timestamp;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The requests that wait for the store in one virtual machine, under one configuration. `P` is what an admitted one keeps.
pub(crate) struct Asking<P> {
    /// In the order in which they came, and so in that of their deadlines. There are at most as many as may wait, so that they
    /// may be looked through.
    tickets: RefCell<Vec<Rc<Ticket<P>>>>,
}

/// A request that waits for the store.
pub(crate) struct Ticket<P> {
    /// Where it is paused.
    pub(crate) context: u32,
    /// Until when it waits.
    pub(crate) deadline: Timestamp,
    /// The message whose answer it waits for.
    pub(crate) token: Cell<u64>,
    /// What has been decided, until the request takes it over.
    pub(crate) decided: RefCell<Option<P>>,
}

/// A request's place among those that wait for the store.
pub(crate) struct Place<P> {
    asking: Rc<Asking<P>>,
    ticket: Rc<Ticket<P>>,
}

impl<P> Asking<P> {
    /// None waits.
    pub(crate) fn new() -> Rc<Asking<P>> {
        Rc::new(Asking {
            tickets: RefCell::default(),
        })
    }

    /// How many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.tickets.borrow().len()
    }

    /// When the first of them waits no longer.
    pub(crate) fn first_deadline(&self) -> Option<Timestamp> {
        let tickets = self.tickets.borrow();
        tickets.first().map(|ticket| ticket.deadline)
    }

    /// The request in this context waits from now on, for the answer to that message.
    pub(crate) fn pause(
        self: &Rc<Self>,
        context: u32,
        token: u64,
        deadline: Timestamp,
    ) -> Place<P> {
        let ticket = Rc::new(Ticket {
            context,
            deadline,
            token: Cell::new(token),
            decided: RefCell::new(None),
        });
        self.put_back(Rc::clone(&ticket));
        Place {
            asking: Rc::clone(self),
            ticket,
        }
    }

    /// A request that was taken out waits again.
    pub(crate) fn put_back(&self, ticket: Rc<Ticket<P>>) {
        let mut tickets = self.tickets.borrow_mut();
        let index = tickets.partition_point(|other| other.deadline <= ticket.deadline);
        tickets.insert(index, ticket);
    }

    /// Takes out the requests of which this is true, in the order in which they came.
    pub(crate) fn take(&self, is_meant: &dyn Fn(&Ticket<P>) -> bool) -> Vec<Rc<Ticket<P>>> {
        let mut taken = Vec::new();
        self.tickets.borrow_mut().retain(|ticket| {
            let is_meant = is_meant(ticket);
            if is_meant {
                taken.push(Rc::clone(ticket));
            }
            !is_meant
        });
        taken
    }
}

impl<P> Place<P> {
    /// What has been decided meanwhile.
    pub(crate) fn decided(&self) -> Option<P> {
        self.ticket.decided.take()
    }

    /// The request waits no longer.
    pub(crate) fn leave(&self) {
        self.asking
            .take(&|ticket| ticket.context == self.ticket.context);
    }
}
