//! Things that JavaScript knows by a number.

/// Things by number.
pub(crate) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub(crate) fn add(&mut self, thing: T) -> u32 {
        if let Some(free) = self.free.pop()
            && let Some(place) = self.slots.get_mut(free as usize)
        {
            *place = Some(thing);
            return free;
        }
        self.slots.push(Some(thing));
        (self.slots.len() - 1) as u32
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(number as usize)?.as_ref()
    }

    #[cfg(any(
        feature = "engine",
        feature = "flow",
        feature = "shared",
        feature = "memory"
    ))]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slots.get_mut(number as usize)?.as_mut()
    }

    pub(crate) fn take(&mut self, number: u32) -> Option<T> {
        let taken = self.slots.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(taken)
    }
}
