//! A node's half of leases, beside a store in memory.

use leapgate::Timestamp;
use leapgate::lease::{
    Answer, Change, Message, Moment, Node, Request, Store, Taken, Terms, WhenDown, escape_part,
    window_name,
};
use leapgate::stats::Window;
use std::time::Duration;

const KEY: &[u8] = b":alice";

fn at(millis: u64) -> Moment {
    let now = Timestamp::from_millis(1_000_000 + millis);
    Moment {
        monotonic: now,
        wall: now,
    }
}

/// At most so many in a second, in 10 buckets; a lease lasts for 50 ms.
fn terms(limit: u64) -> Terms {
    Terms::new(limit, Window::new(1000, 10).unwrap())
}

fn node(limit: u64, when_down: WhenDown) -> Node {
    Node::new(7, "login", terms(limit), when_down, 100, [1, 2])
}

/// The store, which is old.
#[derive(Default)]
struct Central(Store);

impl Central {
    fn answer(&mut self, message: &Message, millis: u64) -> String {
        let key = std::str::from_utf8(&message.key).unwrap();
        let now = 5_000_000 + millis;
        self.0.lease(key, &message.text, now, u64::MAX).unwrap()
    }

    /// Takes a permit that the node may have to ask for.
    fn take(&mut self, node: &mut Node, cost: u64, millis: u64) -> Taken {
        loop {
            let (taken, message) = node.take(KEY, cost, at(millis));
            if let Some(message) = message {
                let answer = self.answer(&message, millis);
                node.answered(message.token, &answer, at(millis)).unwrap();
            }
            if taken != Taken::Wait {
                return taken;
            }
        }
    }

    fn passes(&mut self, node: &mut Node, millis: u64) -> bool {
        matches!(self.take(node, 1, millis), Taken::Pass { .. })
    }
}

/// Without a store: whatever is sent is lost.
fn passes(node: &mut Node, millis: u64) -> bool {
    let (taken, message) = node.take(KEY, 1, at(millis));
    if let Some(message) = message {
        node.lost(message.token, at(millis));
    }
    matches!(taken, Taken::Pass { .. })
}

fn refused_for(taken: Taken) -> u64 {
    match taken {
        Taken::Refuse {
            retry_after: Some(wait),
        } => wait.as_millis() as u64,
        other => panic!("{other:?}"),
    }
}

/// An answer to a message: what follows the version and the number of the request.
fn reply(message: &Message, rest: &str) -> String {
    format!("1-{}-{rest}", request(message).echo())
}

fn request(message: &Message) -> Request {
    Request::parse(&message.text).unwrap()
}

#[test]
fn the_first_request_of_a_key_waits_for_the_store_and_asks_for_itself_alone() {
    let mut node = node(100, WhenDown::Refuse);
    let (taken, message) = node.take(KEY, 3, at(0));
    assert_eq!(taken, Taken::Wait);
    let message = message.unwrap();
    assert_eq!(message.key, b"login:1000:10:alice");
    assert_eq!(message.text, "1-1-7-0-100-1000-10-50-3-3");
    // Another one does not ask again.
    assert_eq!(node.take(KEY, 1, at(0)), (Taken::Wait, None));
    node.answered(message.token, &reply(&message, "1-3-0-97-1"), at(1)).unwrap();
    assert_eq!(node.take(KEY, 3, at(1)).0, Taken::Pass { remaining: 97 });
}

#[test]
fn a_node_with_permits_does_not_ask() {
    let (mut node, mut store) = (node(1000, WhenDown::Refuse), Central::default());
    for i in 0..400 {
        assert!(store.passes(&mut node, 100 + i / 4));
    }
    let figures = node.figures();
    assert!(figures.asks < 60, "{figures:?}");
    assert!(figures.granted >= 400, "{figures:?}");
    assert_eq!(figures.granted - 400, figures.permits, "{figures:?}");
}

#[test]
fn a_known_refusal_never_reaches_the_store() {
    let (mut node, mut store) = (node(5, WhenDown::Refuse), Central::default());
    for _ in 0..5 {
        assert!(store.passes(&mut node, 0));
    }
    let wait = refused_for(store.take(&mut node, 1, 0));
    assert_eq!(wait, 1100, "the bucket of 0 leaves after a window and a bucket");
    for millis in 0..1100 {
        let (taken, message) = node.take(KEY, 1, at(millis));
        assert_eq!(refused_for(taken), 1100 - millis);
        assert_eq!(message, None);
    }
    assert!(store.passes(&mut node, 1100));
}

#[test]
fn a_refusal_of_a_dear_request_says_nothing_of_a_cheap_one() {
    let (mut node, mut store) = (node(5, WhenDown::Refuse), Central::default());
    assert!(matches!(store.take(&mut node, 3, 0), Taken::Pass { .. }));
    assert_eq!(refused_for(store.take(&mut node, 3, 0)), 1100);
    assert!(store.passes(&mut node, 0));
}

#[test]
fn a_cost_above_the_limit_is_refused_for_ever_without_the_store() {
    let never = Taken::Refuse { retry_after: None };
    assert_eq!(node(5, WhenDown::Pass).take(KEY, 6, at(0)), (never, None));
}

#[test]
fn permits_are_spent_until_just_before_the_store_counts_them_as_used() {
    let leased = || {
        let mut node = node(100, WhenDown::Refuse);
        let message = node.take(KEY, 2, at(0)).1.unwrap();
        node.answered(message.token, &reply(&message, "1-2-0-98-1"), at(20)).unwrap();
        node
    };
    // A lease lasts for 50 ms from sending, less 0.1 % and what rounding hides.
    for (millis, spends) in [(20, true), (46, true), (47, false), (60, false)] {
        assert_eq!(passes(&mut leased(), millis), spends, "{millis}");
    }
    // The wall clock knows of a suspended machine, the monotonic one of a wall clock that was set back.
    let mut suspended = at(21);
    suspended.wall = at(2000).wall;
    let mut set_back = at(2000);
    set_back.wall = at(0).wall;
    for now in [suspended, set_back] {
        assert_eq!(leased().take(KEY, 1, now).0, Taken::Wait, "{now:?}");
    }
}

#[test]
fn permits_of_an_answer_that_took_too_long_are_not_spent_and_the_next_lease_is_longer() {
    let mut node = node(100, WhenDown::Refuse);
    let message = node.take(KEY, 1, at(0)).1.unwrap();
    node.answered(message.token, &reply(&message, "1-1-0-99-1"), at(60)).unwrap();
    let (taken, message) = node.take(KEY, 1, at(60));
    assert_eq!(taken, Taken::Wait);
    let request = request(&message.unwrap());
    assert_eq!(request.ttl_ms, 200, "at most four times the default");
}

#[test]
fn permits_whose_time_is_over_are_not_shown() {
    // They are to be given back at 30; an overloaded machine may be late.
    for (millis, gives_back, shown) in
        [(29, false, 10), (30, true, 0), (46, true, 0), (47, false, 0), (500, false, 0)]
    {
        let mut node = node(100, WhenDown::Refuse);
        let message = node.take(KEY, 10, at(0)).1.unwrap();
        node.answered(message.token, &reply(&message, "9-10-0-90-1"), at(0)).unwrap();
        assert_eq!(node.due(at(millis)).is_some(), gives_back, "{millis}");
        assert_eq!(node.figures().permits, shown, "{millis}");
    }
    // A further key takes a place among keys whose time is over.
    let mut node = Node::new(7, "login", terms(100), WhenDown::Refuse, 2, [1, 2]);
    for key in [":a", ":b"] {
        let message = node.take(key.as_bytes(), 10, at(0)).1.unwrap();
        node.answered(message.token, &reply(&message, "9-10-0-90-1"), at(0)).unwrap();
    }
    assert_eq!(node.figures().permits, 20);
    assert_eq!(node.take(b":c", 1, at(60)).0, Taken::Wait);
    assert_eq!(node.figures().permits, 0);
}

#[test]
fn what_was_used_is_settled_at_its_age_and_closed_with_what_is_left() {
    let mut node = node(100, WhenDown::Refuse);
    let message = node.take(KEY, 10, at(0)).1.unwrap();
    node.answered(message.token, &reply(&message, "9-10-0-90-1"), at(0)).unwrap();
    for millis in [0, 0, 5, 25] {
        assert!(passes(&mut node, millis));
    }
    assert_eq!(node.next_due(), Some(1_000_030), "three fifths of its time");
    assert_eq!(node.due(at(29)), None);
    let message = node.due(at(31)).unwrap();
    let settlement = &request(&message).settlements[0];
    assert_eq!((settlement.id, settlement.seq, settlement.closes), (9, 1, true));
    // In one bucket, from the latest on; an age is never too long.
    let used: Vec<_> = settlement.used.iter().map(|used| (used.age_ms, used.n)).collect();
    assert_eq!(used, [(4, 4)]);
    // What was given back is spent no more.
    assert_eq!(node.take(KEY, 1, at(31)).0, Taken::Wait);
    assert_eq!(node.due(at(40)), None);
}

#[test]
fn an_answer_that_is_late_or_comes_twice_changes_nothing() {
    let mut node = node(100, WhenDown::Refuse);
    let message = node.take(KEY, 1, at(0)).1.unwrap();
    assert_eq!(node.lost(message.token, at(20)), Change::Down);
    assert_eq!(node.lost(message.token, at(20)), Change::None);
    let late = reply(&message, "1-1-0-99-1");
    assert_eq!(node.answered(message.token, &late, at(21)), Ok(Change::None));
    assert_eq!(node.figures().permits, 0);
    let message = node.take(KEY, 1, at(22)).1.unwrap();
    let own = reply(&message, "2-1-0-99-1");
    assert_eq!(node.answered(message.token, &own, at(23)), Ok(Change::Up));
    assert_eq!(node.answered(message.token, &own, at(23)), Ok(Change::None));
    assert_eq!(node.figures().permits, 1);
}

#[test]
fn an_answer_to_another_request_grants_nothing() {
    let asked = || {
        let mut node = node(100, WhenDown::Refuse);
        let first = node.take(KEY, 1, at(0)).1.unwrap();
        node.lost(first.token, at(20));
        let second = node.take(KEY, 1, at(21)).1.unwrap();
        (node, first, second)
    };
    let mut of_another = Node::new(1 << 40, "login", terms(100), WhenDown::Refuse, 100, [1, 2]);
    let (_, first, second) = asked();
    let own = reply(&second, "1-1-0-99-1");
    let others = [
        first,
        of_another.take(KEY, 1, at(0)).1.unwrap(),
        node(100, WhenDown::Refuse).take(b":bob", 5, at(0)).1.unwrap(),
    ];
    for other in others {
        let (mut node, _, second) = asked();
        let foreign = reply(&other, "1-1-0-99-1");
        let (error, _) = node.answered(second.token, &foreign, at(22)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("`{foreign}` answers another request; look at what is between here and the store")
        );
        assert_eq!(node.figures().permits, 0);
    }
    let (mut node, _, second) = asked();
    assert_eq!(node.answered(second.token, &own, at(22)), Ok(Change::Up));
    assert_eq!(node.figures().permits, 1);
}

#[test]
fn a_lease_whose_settlement_was_lost_is_never_closed() {
    let mut node = node(100, WhenDown::Refuse);
    let message = node.take(KEY, 10, at(0)).1.unwrap();
    node.answered(message.token, &reply(&message, "9-10-0-90-1"), at(0)).unwrap();
    for _ in 0..8 {
        // Below a quarter, so it asks for more, and settles.
        if let Some(message) = node.take(KEY, 1, at(1)).1 {
            assert_eq!(request(&message).settlements[0].id, 9);
            node.lost(message.token, at(2));
        }
    }
    // Whether the store has charged the uses is not known: what is left can be spent, and nothing is told again.
    let message = node.due(at(60));
    let told = message.map(|message| request(&message).settlements);
    assert!(told.is_none_or(|told| told.is_empty()));
}

#[test]
fn without_a_store_nothing_passes_or_everything_or_the_nodes_part() {
    let down = |when_down, nodes: u64| {
        let mut node = node(10, when_down);
        let message = node.take(KEY, 1, at(0)).1.unwrap();
        let answer = reply(&message, &format!("1-1-0-9-{nodes}"));
        node.answered(message.token, &answer, at(1)).unwrap();
        assert!(passes(&mut node, 1));
        let (taken, message) = node.take(KEY, 1, at(2));
        assert_eq!(taken, Taken::Wait);
        assert_eq!(node.lost(message.unwrap().token, at(20)), Change::Down);
        (0..20).filter(|_| passes(&mut node, 21)).count()
    };
    assert_eq!(down(WhenDown::Refuse, 2), 0);
    assert_eq!(down(WhenDown::Pass, 2), 20);
    // The one that was leased counts.
    assert_eq!(down(WhenDown::Local, 2), 4);
    assert_eq!(down(WhenDown::Local, 3), 2);
    assert_eq!(down(WhenDown::Local, 0), 0);
}

#[test]
fn a_node_that_has_never_met_the_store_has_the_whole_limit_where_it_decides_alone() {
    let mut node = node(10, WhenDown::Local);
    let message = node.take(KEY, 1, at(0)).1.unwrap();
    node.lost(message.token, at(20));
    assert_eq!((0..20).filter(|_| passes(&mut node, 21)).count(), 10);
    assert_eq!(refused_for(node.take(KEY, 1, at(22)).0), 1078);
}

#[test]
fn what_passes_without_the_store_is_told_it_once_when_it_is_back() {
    let (mut node, mut store) = (node(10, WhenDown::Local), Central::default());
    let message = node.take(KEY, 1, at(0)).1.unwrap();
    node.lost(message.token, at(20));
    assert_eq!((0..4).filter(|_| passes(&mut node, 21)).count(), 4);
    // The store gets a report, and the answer is lost: it is told again, by the same number. Then it is told the rest.
    let first = node.due(at(300)).unwrap();
    store.answer(&first, 300);
    node.lost(first.token, at(320));
    let mut millis = 600;
    while let Some(message) = node.due(at(millis)) {
        let answer = store.answer(&message, millis);
        node.answered(message.token, &answer, at(millis)).unwrap();
        let report = request(&message).settlements[0].seq;
        assert_eq!(report, if millis == 600 { request(&first).settlements[0].seq } else { 2 });
        millis += 1;
    }
    assert_eq!((millis, node.next_due(), node.is_down()), (602, None, false));
    let message = Message { text: "1-3-8-0-10-1000-10-50-0-0".into(), ..first };
    let answer = store.answer(&message, millis);
    assert_eq!(Answer::parse(&answer).unwrap().remaining, 6);
}

#[test]
fn a_store_that_does_not_answer_is_asked_five_times_a_second_at_most() {
    let mut node = node(1000, WhenDown::Refuse);
    let mut asks = 0;
    for millis in 0..2000 {
        let key = format!(":{}", millis % 50);
        let (_, message) = node.take(key.as_bytes(), 1, at(millis));
        if let Some(message) = message {
            asks += 1;
            node.lost(message.token, at(millis));
        }
        assert!(node.due(at(millis)).is_none());
    }
    assert_eq!(asks, 11);
}

#[test]
fn a_request_that_gives_up_is_decided_without_the_store() {
    let mut node = node(10, WhenDown::Local);
    let message = node.take(KEY, 1, at(0)).1.unwrap();
    let (taken, more) = node.give_up(KEY, 1, at(20));
    assert_eq!((taken, more), (Taken::Pass { remaining: 9 }, None));
    assert!(!node.is_down(), "its answer may still come");
    node.answered(message.token, &reply(&message, "1-1-0-9-1"), at(21)).unwrap();
    assert!(passes(&mut node, 22));
}

#[test]
fn a_charge_that_was_given_back_is_spent_again_and_not_settled() {
    let mut node = node(10, WhenDown::Local);
    let message = node.take(KEY, 8, at(0)).1.unwrap();
    node.answered(message.token, &reply(&message, "1-8-0-2-1"), at(0)).unwrap();
    for _ in 0..3 {
        assert!(passes(&mut node, 1));
        node.give_back(KEY, 1);
    }
    let message = node.due(at(40)).unwrap();
    assert_eq!(request(&message).settlements[0].used, []);
    node.lost(message.token, at(60));
    assert_eq!((0..20).filter(|_| passes(&mut node, 61)).count(), 10);
}

#[test]
fn an_answer_that_is_not_one_is_lost_and_shown() {
    let mut node = node(10, WhenDown::Refuse);
    let message = node.take(KEY, 1, at(0)).1.unwrap();
    let (error, change) = node.answered(message.token, "ERR unknown\ncommand", at(1)).unwrap_err();
    assert_eq!(change, Change::Down);
    assert_eq!(
        error.to_string(),
        "`ERR unknown command` is not an answer of leapgate's store; check which store it is, and its script"
    );
    for text in ["", "1", "2-3-1-1-0-9-1", "1-3-1-1-0-9", "1-3-1-1-0-9-1-1", "1-3-1-x-0-9-1", "1-3--1-0-9-1"] {
        assert!(Answer::parse(text).is_err(), "{text}");
    }
}

#[test]
fn a_lower_limit_refuses_what_is_too_dear_for_it_and_asks_by_it() {
    let (mut node, mut store) = (node(20, WhenDown::Refuse), Central::default());
    let mut used = 0;
    while used < 6 || node.figures().permits > 0 {
        assert!(store.passes(&mut node, 0));
        used += 1;
    }
    node.set_limit(used);
    assert_eq!(refused_for(store.take(&mut node, 1, 1)), 1099);
    node.set_limit(used + 1);
    assert!(store.passes(&mut node, 1));
    assert!(!store.passes(&mut node, 1));
}

#[test]
fn further_keys_take_the_places_of_others_and_never_more_permits() {
    let terms = terms(1);
    let mut node = Node::new(7, "login", terms, WhenDown::Refuse, 8, [1, 2]);
    let mut store = Central::default();
    let mut passed = 0;
    for round in 0..3 {
        for i in 0..100 {
            let key = format!(":{i}");
            let (taken, message) = node.take(key.as_bytes(), 1, at(round));
            // One of the few that are known is known to be refused.
            let Some(message) = message else {
                assert_ne!(taken, Taken::Wait);
                continue;
            };
            let answer = store.answer(&message, round);
            node.answered(message.token, &answer, at(round)).unwrap();
            passed += u64::from(matches!(node.take(key.as_bytes(), 1, at(round)).0, Taken::Pass { .. }));
        }
    }
    assert_eq!(passed, 100);
    // While each of them waits for an answer, a further key has no place.
    let mut full = Node::new(7, "login", terms, WhenDown::Pass, 2, [1, 2]);
    for key in [":a", ":b"] {
        assert_eq!(full.take(key.as_bytes(), 1, at(0)).0, Taken::Wait);
    }
    let retry_after = Some(Duration::from_millis(50));
    assert_eq!(full.take(b":c", 1, at(0)), (Taken::Refuse { retry_after }, None));
}

#[test]
fn a_key_is_called_alike_by_all_nodes() {
    let name = |parts: &[Option<&[u8]>]| {
        let mut name = window_name("login", &terms(5)).into_bytes();
        parts.iter().for_each(|part| escape_part(&mut name, *part));
        String::from_utf8(name).unwrap()
    };
    assert_eq!(name(&[]), "login:1000:10");
    assert_eq!(name(&[Some(b"a:b%c")]), "login:1000:10:a%3Ab%25c");
    assert_eq!(name(&[Some(b""), None]), "login:1000:10::%");
    assert_ne!(name(&[Some(b"%")]), name(&[None]));
    assert_eq!(window_name("a:b", &terms(5)), "a%3Ab:1000:10");
}

#[test]
fn a_store_in_memory_is_full_at_some_number_of_keys_and_has_room_for_new_ones_once_those_are_over() {
    let mut store = Store::default();
    let ask = |store: &mut Store, key: &str, now| {
        let answer = store.lease(key, "1-3-7-0-5-1000-10-50-1-1", now, u64::MAX).unwrap();
        let answer = Answer::parse(&answer).unwrap();
        (answer.granted, answer.retry_ms)
    };
    for i in 0..Store::MAX_KEYS {
        assert_eq!(ask(&mut store, &i.to_string(), 10), (1, 0));
    }
    assert_eq!(ask(&mut store, "new", 20), (0, 1000));
    assert_eq!(ask(&mut store, "7", 20), (1, 0));
    // A window, a bucket and the longest lease later.
    assert_eq!(ask(&mut store, "new", 1309), (0, 1000));
    assert_eq!(ask(&mut store, "new", 2400), (1, 0));
    assert_eq!(store.len(), 1);
}
