// Fleet: ten nodes that share one limit, by permits that they lease from a store.
import { SharedLimiter } from 'leapgate/shared';
import { MemoryStore } from 'leapgate/shared/memory';
import { counted, element, isCalm, say } from '../dom.js';
import { Fleet, MOST_ACTS, NODES, SPREADS, readActs, writeActs } from '../fleet.js';
import { choiceInput, numberInput } from '../inputs.js';
import { changed, oneOf, readFields, sentenceOf, textUpTo, whole } from '../link.js';
import { Pace } from '../pace.js';
import { Live, tellNotice, tellState } from '../telling.js';
import { FleetMap } from './fleet-map.js';

const WINDOWS = [10_000, 60_000];
const LOADS = [50, 90, 120, 200, 1000];
const LATENCIES = [2, 20, 100];
const LOSSES = [0, 1, 10];
const DOWN = ['refuse', 'local'];

const FIELDS = {
  limit: [whole(10, 3000), 3000],
  window: [oneOf(WINDOWS), 60_000],
  load: [oneOf(LOADS), 120],
  spread: [oneOf(SPREADS), 'even'],
  latency: [oneOf(LATENCIES), 20],
  loss: [oneOf(LOSSES), 0],
  down: [oneOf(DOWN), 'refuse'],
  acts: [textUpTo(2000), ''],
  seed: [whole(0, 999_999_999), 1],
  speed: [whole(1, 100), 5],
};

// Ready runs, with what is to be seen.
const READY = [
  { title: 'All is well', acts: '', said: 'Permits flow from the store to the nodes, which spend them without asking again.' },
  { title: 'A node dies', acts: '30:off:3 110:on:3', said: 'What it held counts as used: less passes for a while, and never more.' },
  { title: 'The store is gone', acts: '40:off:store 80:on:store', said: 'Nodes spend what they hold, and then refuse, until it is back.' },
  { title: 'Gone, and local', acts: '65:off:store 125:on:store', down: 'local', spread: 'one', load: 1000, said: 'Each node takes its part of the limit, whatever another one has used: an interval may have up to twice the limit.' },
  { title: 'All at once', acts: '20:off:2 25:off:7 40:off:store 70:on:store 80:on:2 90:off:5 100:on:7 120:on:5', said: 'Nodes and the store come and go.' },
].map((ready) => ({ down: 'refuse', spread: 'even', load: 120, ...ready }));

// The share of the limit that fills the bar of a node.
const BARS = { even: 0.25, one: 0.6 };

export function mount(place, clock, state) {
  return new Figure(place, clock, state).handle();
}

class Figure {
  #place;
  #clock;
  #values;
  #acts = [];
  #fleet;
  #pace;
  #nodes;
  #inputs;
  #isDirty = true;
  #live = new Live();
  #unfollow;

  constructor(place, clock, state) {
    this.#place = place;
    this.#clock = clock;
    const { values, wrong } = readFields(state, FIELDS);
    this.#values = values;
    try {
      this.#acts = readActs(values.acts);
    } catch {
      wrong.push('acts');
      values.acts = '';
    }
    this.#pace = new Pace(clock);
    this.#build();
    if (wrong.length > 0) tellNotice(this.#place, sentenceOf(wrong));
    this.#run();
    this.#unfollow = clock.follow(() => this.#advance());
    clock.speed = values.speed;
    if (!isCalm()) clock.play();
    else clock.step(values.window);
  }

  handle() {
    return {
      state: () => changed({ ...this.#values, speed: this.#clock.speed }, FIELDS),
      unmount: () => this.#unmount(),
      frame: (time) => this.#frame(time),
      // For tests.
      numbers: () => this.#fleet.numbers(),
      values: () => ({ ...this.#values }),
    };
  }

  // ---- the run

  #run() {
    const { limit, window: windowMs, load, spread, latency, loss, down, seed } = this.#values;
    this.#fleet?.free();
    const settings = { limit, windowMs, load, spread, latencyMs: latency, lossPercent: loss, whenDown: down, acts: this.#acts, seed };
    this.#fleet = new Fleet({ SharedLimiter, MemoryStore }, settings);
    this.#nodes.map.begin();
    this.#clock.stepMs = windowMs / 20;
    this.#clock.reset();
    this.#update();
  }

  #advance() {
    this.#pace.during(this.#fleet.until(Math.floor(this.#clock.now)));
    this.#isDirty = true;
  }

  // The visitor plugs something in or out. What was to come by the link does not: it is the visitor's turn.
  #toggle(what) {
    const isOn = what === 'store' ? this.#fleet.isStoreOn : this.#fleet.nodes[what].limiter !== undefined;
    const { now } = this.#clock;
    const past = this.#acts.filter(({ at }) => at <= now);
    if (past.length >= MOST_ACTS) return tellNotice(this.#place, `This run has ${MOST_ACTS} acts, as many as a link can have: begin another one.`);
    if (past.length < this.#acts.length) this.#fleet.forget();
    this.#acts = [...past, this.#fleet.act(!isOn, what)];
    this.#values.acts = writeActs(this.#acts);
    this.#changed();
  }

  #choose({ title, said, ...values }) {
    Object.assign(this.#values, values);
    tellNotice(this.#place, '');
    this.#acts = readActs(values.acts);
    for (const name of ['down', 'spread', 'load']) this.#inputs[name].show(values[name]);
    this.#run();
    this.#clock.play();
    this.#changed();
  }

  #set(name, value) {
    this.#values[name] = value;
    tellNotice(this.#place, '');
    this.#run();
    this.#changed();
  }

  #changed() {
    this.#update();
    tellState(this.#place);
  }

  // ---- the page

  #build() {
    const values = this.#values;
    const heading = element('h1');
    const said = element('p', { class: 'said brief' });
    const buttons = READY.map((ready) => element('button', { type: 'button', 'aria-pressed': 'false', onclick: () => this.#choose(ready) }, ready.title));
    const map = new FleetMap(NODES, (what) => this.#toggle(what));

    const plug = (what) => element('button', { type: 'button', onclick: () => this.#toggle(what) });
    const rows = Array.from({ length: NODES }, (_, i) => {
      const [spent, held] = [element('div', { class: 'fill' }), element('div', { class: 'fill held' })];
      const [state, button] = [element('td', { class: 'state' }), plug(i)];
      const bar = element('div', { class: 'track', 'aria-hidden': 'true' }, spent, held);
      const row = element('tr', {}, element('th', { scope: 'row' }, `Node ${i + 1}`), element('td', { class: 'worst' }, bar), state, element('td', {}, button));
      return { row, spent, held, state, button };
    });
    const [store, storeState] = [plug('store'), element('td', { class: 'state' })];
    const storeRow = element('tr', { class: 'store' }, element('th', { scope: 'row' }, 'Store'), element('td', { class: 'worst' }), storeState, element('td', {}, store));
    const table = element(
      'table',
      { class: 'bars fleet-nodes' },
      element('caption', {}, element('span', { class: 'key spent' }), ' passed in the last window, ', element('span', { class: 'key held' }), ' held'),
      element('colgroup', {}, ...['name', 'permits', 'says', 'plug'].map((name) => element('col', { class: name }))),
      element('thead', {}, element('tr', {}, ...['Node', 'Permits', 'Passed and held', 'Plug'].map((name) => element('th', { scope: 'col' }, name)))),
      element('tbody', {}, ...rows.map(({ row }) => row), storeRow),
    );

    const fill = element('div', { class: 'fill' });
    const [most, verdict] = [element('span', { class: 'most' }), element('span', { class: 'verdict' })];
    const caption = element('caption');
    const worstRow = element('tr', {}, element('td', { class: 'worst' }, element('div', { class: 'track', 'aria-hidden': 'true' }, fill, element('div', { class: 'mark' }))), element('td', { class: 'number' }, most, ' ', verdict));
    const worst = element('table', { class: 'bars fleet-worst' }, caption, element('tbody', {}, worstRow));

    const counts = Object.fromEntries(['passed', 'refused', 'permits', 'calls'].map((name) => [name, element('dd')]));
    const titles = { passed: 'passed', refused: 'refused', permits: 'permits out', calls: 'calls a request' };
    const list = element('dl', { class: 'counts' }, ...Object.entries(counts).map(([name, node]) => element('div', { 'data-count': name }, node, element('dt', {}, titles[name]))));

    const set = (name) => (value) => this.#set(name, value);
    const tell = (sentence) => tellNotice(this.#place, sentence);
    const choice = (title, name, list, nameOf) => choiceInput(title, { value: values[name], choices: list.map((one) => [one, nameOf(one)]), set: set(name) });
    this.#inputs = {
      down: choice('Without the store, nodes', 'down', DOWN, (one) => ({ refuse: 'refuse', local: 'take their part of the limit' })[one]),
      load: choice('Requests', 'load', LOADS, (one) => `${one} % of the limit`),
      spread: choice('They come', 'spread', SPREADS, (one) => ({ even: 'to all nodes', one: 'half to one node' })[one]),
      latency: choice('To the store and back', 'latency', LATENCIES, (ms) => `${ms} ms`),
      loss: choice('Messages lost', 'loss', LOSSES, (one) => `${one} %`),
      limit: numberInput('Limit', { value: values.limit, from: 10, to: 3000, set: set('limit'), tell }),
      window: choice('Window', 'window', WINDOWS, (ms) => `${ms / 1000} s`),
      seed: numberInput('Seed', { value: values.seed, from: 0, to: 999_999_999, set: set('seed'), tell }),
    };

    this.#place.append(
      heading,
      element('div', { class: 'plays first', role: 'group', 'aria-label': 'Ready runs' }, ...buttons),
      said,
      element('div', { class: 'fleet' }, element('div', {}, list, map.node, worst), table),
      this.#live.node,
      element('div', { class: 'controls traffic', role: 'group', 'aria-label': 'Settings' }, ...Object.values(this.#inputs).map(({ node }) => node)),
      element(
        'div',
        { class: 'text' },
        element('p', {}, element('b', {}, 'Unplug something:'), ' a node, or the store, here or in the picture.'),
        element('p', {}, 'A node leases a few permits from the store, and spends them without asking again. What it does not need, it gives back.'),
        element('p', {}, 'A node that dies takes its permits with it. They count as used: the limit holds, and less passes for a while.'),
        element('p', {}, 'Without the store a lease soon ends. Then a node refuses; or it takes its part of the limit, and an interval may have up to twice the limit. A node that has never met the store has no part yet: it takes all of it.'),
        element('p', {}, 'The bar is the most that all nodes together have let through in any interval as long as the window. Beyond its mark, the limit was broken.'),
        element('p', {}, 'The nodes and the store are those of the npm package, all of them in this page. Only the ways between them are made up, and what is lost on them.'),
      ),
    );
    this.#nodes = { heading, said, buttons, map, rows, store, storeState, storeRow, fill, most, verdict, caption, worstRow, counts };
  }

  // What changes with the settings, and not with time.
  #update() {
    const { limit, window: windowMs, acts } = this.#values;
    const { heading, said, buttons, caption } = this.#nodes;
    say(heading, `${counted(limit)} requests in ${windowMs / 1000} s, over ten nodes together`);
    say(caption, `Worst interval of ${windowMs / 1000} s so far; the limit is ${counted(limit)}`);
    const shown = READY.findIndex((ready) => ['acts', 'down', 'spread', 'load'].every((name) => ready[name] === this.#values[name]));
    buttons.forEach((button, i) => button.setAttribute('aria-pressed', i === shown));
    say(said, READY[shown]?.said ?? (acts === '' ? '' : 'You pull the plugs. The link to this page has what you did, and when.'));
    this.#isDirty = true;
  }

  #frame(time) {
    if (this.#isDirty || this.#nodes.map.isFlying) this.#draw(time);
    this.#live.tell(time, () => this.#sentence());
  }

  #draw(time) {
    this.#isDirty = false;
    const { limit, down, spread } = this.#values;
    const { now } = this.#clock;
    const { nodes, isStoreOn, worst, sent, passed, refused } = this.#fleet;
    const known = nodes.map(({ limiter, recent, refused }) => ({ isOn: limiter !== undefined, spent: recent.count(now), refused, ...limiter?.stats() }));
    const out = known.reduce((sum, { permits = 0 }) => sum + permits, 0);
    this.#nodes.map.draw({ nodes: known, isStoreOn, out, recent: worst.count(now), limit, time, isCalm: isCalm() });

    known.forEach(({ isOn, spent, permits = 0, isDown }, i) => {
      const row = this.#nodes.rows[i];
      const scale = 100 / (limit * BARS[spread]);
      row.spent.style.inlineSize = `${Math.min(100, spent * scale)}%`;
      row.held.style.inlineSize = `${Math.min(100 - Math.min(100, spent * scale), permits * scale)}%`;
      const alone = { refuse: 'refuses', local: 'takes its part' }[down];
      say(row.state, isOn ? (isDown && permits === 0 ? alone : `${spent} + ${permits}`) : 'unplugged');
      row.row.classList.toggle('off', !isOn);
      plugged(row.button, isOn, `node ${i + 1}`);
    });
    const { store, storeState, storeRow } = this.#nodes;
    say(storeState, isStoreOn ? 'answers' : 'unplugged');
    storeRow.classList.toggle('off', !isStoreOn);
    plugged(store, isStoreOn, 'the store');

    const isOver = worst.most > limit;
    this.#nodes.worstRow.classList.toggle('over', isOver);
    this.#nodes.fill.style.inlineSize = `${Math.min(100, (50 * worst.most) / limit)}%`;
    say(this.#nodes.most, counted(worst.most));
    say(this.#nodes.verdict, isOver ? `▲ ${counted(worst.most - limit)} over` : '');
    const { asks } = this.#fleet.totals();
    const counts = { passed: counted(passed), refused: counted(refused), permits: out, calls: (asks / Math.max(1, sent)).toFixed(2) };
    for (const [name, count] of Object.entries(counts)) say(this.#nodes.counts[name], String(count));
  }

  // What a screen reader is told.
  #sentence() {
    const { nodes, isStoreOn, worst, passed, refused } = this.#fleet;
    const on = nodes.filter(({ limiter }) => limiter !== undefined).length;
    const state = `${on} nodes, ${isStoreOn ? 'the store answers' : 'without the store'}`;
    return `${Math.floor(this.#clock.now / 1000)} s, ${state}: ${passed} passed, ${refused} refused; worst interval ${worst.most} of ${this.#values.limit}.`;
  }

  #unmount() {
    this.#unfollow();
    this.#fleet.free();
  }
}

function plugged(button, isOn, name) {
  say(button, isOn ? 'Unplug' : 'Plug in');
  const label = `${isOn ? 'Unplug' : 'Plug in'} ${name}`;
  if (button.getAttribute('aria-label') !== label) button.setAttribute('aria-label', label);
}
