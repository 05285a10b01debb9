//! Requests in the order of their times: lines may be out of order by a minute.

/// How far behind the newest line a line may be.
pub(crate) const HORIZON_MS: u64 = 60_000;

/// A place for each millisecond of the horizon, and more.
const PLACES: usize = 1 << 16;

/// How many requests are held at most. Where more come in a minute, the oldest go on early.
pub(crate) const MAX_HELD: usize = 250_000;

const NONE: u32 = u32::MAX;

/// A queue by time. Those of one millisecond come out as they went in.
pub(crate) struct Queue<T> {
    heads: Vec<u32>,
    tails: Vec<u32>,
    /// A bit for each place that holds any.
    used: Vec<u64>,
    slots: Vec<(u32, T)>,
    free: u32,
    len: usize,
    /// All before it has come out.
    floor: u64,
}

impl<T: Default> Queue<T> {
    pub(crate) fn new() -> Queue<T> {
        Queue {
            heads: vec![NONE; PLACES],
            tails: vec![NONE; PLACES],
            used: vec![0; PLACES / 64],
            slots: Vec::new(),
            free: NONE,
            len: 0,
            floor: 0,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len >= MAX_HELD
    }

    /// From when on requests can still be put in order.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// Puts one in, at or after the floor and less than [`PLACES`] behind it. Returns a place to write to, where an earlier one stood.
    pub(crate) fn insert(&mut self, at: u64) -> Option<&mut T> {
        let number = match self.slots.get(self.free as usize) {
            Some((next, _)) => std::mem::replace(&mut self.free, *next),
            None => {
                self.slots.push((NONE, T::default()));
                self.slots.len() as u32 - 1
            }
        };
        let place = at as usize % PLACES;
        let tail = self.tails.get_mut(place)?;
        let last = std::mem::replace(tail, number);
        match self.slots.get_mut(last as usize) {
            Some((next, _)) if last != NONE => *next = number,
            _ => *self.heads.get_mut(place)? = number,
        }
        *self.used.get_mut(place / 64)? |= 1 << (place % 64);
        self.len += 1;
        let (next, one) = self.slots.get_mut(number as usize)?;
        *next = NONE;
        Some(one)
    }

    /// Takes out the first one before `end`, with its time; if there is none, the floor is `end` from now on. It is to be given
    /// back ([`Queue::give_back`]).
    pub(crate) fn take_before(&mut self, end: u64) -> Option<(u64, u32, T)> {
        let found = match self.len {
            0 => None,
            _ => self.first().filter(|at| *at < end),
        };
        let Some(at) = found else {
            self.floor = self.floor.max(end);
            return None;
        };
        self.floor = at;
        let place = at as usize % PLACES;
        let head = self.heads.get_mut(place)?;
        let number = *head;
        let (next, one) = self.slots.get_mut(number as usize)?;
        *head = *next;
        let one = std::mem::take(one);
        if *head == NONE {
            *self.tails.get_mut(place)? = NONE;
            *self.used.get_mut(place / 64)? &= !(1 << (place % 64));
        }
        self.len -= 1;
        Some((at, number, one))
    }

    /// The time of the first one.
    fn first(&self) -> Option<u64> {
        let start = self.floor as usize % PLACES;
        let words = self.used.len();
        for i in 0..=words {
            let word = (start / 64 + i) % words;
            let mut bits = *self.used.get(word)?;
            if i == 0 {
                bits &= u64::MAX << (start % 64);
            } else if i == words {
                bits &= !(u64::MAX << (start % 64));
            }
            if bits != 0 {
                let place = word * 64 + bits.trailing_zeros() as usize;
                return Some(self.floor + ((place + PLACES - start) % PLACES) as u64);
            }
        }
        None
    }

    /// Gives back what was taken out, to be written to again.
    pub(crate) fn give_back(&mut self, number: u32, one: T) {
        if let Some(slot) = self.slots.get_mut(number as usize) {
            *slot = (self.free, one);
            self.free = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_in_any_order_comes_out_in_order_and_in_a_millisecond_as_it_came() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut queue = Queue::<(u64, u32)>::new();
        let (mut out, mut expected, mut newest) = (Vec::new(), Vec::new(), 1_000_000_u64);
        let mut drain = |queue: &mut Queue<(u64, u32)>, end| {
            while let Some((at, number, one)) = queue.take_before(end) {
                assert_eq!(at, one.0);
                out.push(one);
                queue.give_back(number, one);
            }
        };
        for i in 0..50_000_u32 {
            newest += random.u64(0..if i % 1000 == 0 { 200_000 } else { 20 });
            drain(&mut queue, newest - HORIZON_MS);
            let at = newest - random.u64(0..HORIZON_MS);
            let at = at.max(queue.floor());
            *queue.insert(at).unwrap() = (at, i);
            expected.push((at, i));
        }
        drain(&mut queue, u64::MAX);
        expected.sort();
        assert_eq!(out, expected);
    }
}
