// Rules: a document, traffic, and what the engine makes of it.
import { readDocument, lineOf, placeOf } from '../document.js';
import { counted, element, isCalm, say } from '../dom.js';
import { Engine } from '../engine.js';
import { choiceInput, numberInput } from '../inputs.js';
import { changed, oneOf, readFields, sentenceOf, textUpTo, whole } from '../link.js';
import { Pace } from '../pace.js';
import { plot } from '../plot.js';
import { READY } from '../ready.js';
import { Live, tellNotice, tellState } from '../telling.js';
import { BIN_MS, FAILURES, SHAPES, Workload, resourcesOf } from '../workload.js';
import { Lanes } from './lanes.js';

const WAITS = [0, 500, 2000, 10_000];
const LATENCIES = [10, 50, 200, 500, 2000];
const SPEED = 2;

// The longest document that a link takes.
const LONGEST = 6000;

// Documents are read so long after a key was pressed.
const TYPING_MS = 400;

// How much time the plots show, in seconds; more while time flies.
const spanOf = (speed) => (speed > 10 ? 300 : 60);

const SHAPE_NAMES = { random: 'at random', steady: 'evenly', bursts: 'in bursts', ramp: 'up and down' };
const FAILURE_NAMES = { always: 'always', outages: 'for 10 s of every 30 s' };
const STATE_NAMES = { closed: 'closed', open: 'open', halfOpen: 'half-open' };

const secondsOf = (ms) => (ms < 1000 ? `${ms} ms` : `${ms / 1000} s`);

// A ready document has traffic of its own.
const fieldsOf = ({ traffic }) => ({
  ready: [oneOf(Object.keys(READY)), 'limit'],
  rules: [textUpTo(LONGEST), ''],
  resource: [textUpTo(200), ''],
  rate: [whole(1, 300), traffic.rate],
  shape: [oneOf(SHAPES), traffic.shape],
  clients: [whole(1, 50), traffic.clients],
  wait: [oneOf(WAITS), traffic.wait],
  latency: [oneOf(LATENCIES), traffic.latency],
  fail: [whole(0, 100), traffic.fail],
  failures: [oneOf(FAILURES), traffic.failures],
  seed: [whole(0, 999_999_999), 1],
  speed: [whole(1, 100), SPEED],
});

export function mount(place, clock, state) {
  return new Rules(place, clock, state).handle();
}

class Rules {
  #place;
  #clock;
  #values;
  #document;
  #workload;
  #pace;
  #inputs;
  #nodes;
  #plots;
  #range = [0, 1];
  #tops = [1, 1];
  #lanes;
  #typing;
  #isDirty = true;
  #live = new Live();
  #unfollow;
  #onTheme = () => this.#repaint();

  constructor(place, clock, state) {
    this.#place = place;
    this.#clock = clock;
    const ready = Object.hasOwn(READY, state.ready) ? state.ready : 'limit';
    const { values, wrong } = readFields(state, fieldsOf(READY[ready]));
    this.#values = values;
    this.#pace = new Pace(clock);
    this.#build();
    addEventListener('theme', this.#onTheme);
    this.#nodes.text.value = values.rules || READY[ready].document;
    // Before the document is tried, so that there are rules to see in any case.
    this.#document = readDocument(READY[ready].document).value;
    this.#read();
    if (wrong.length > 0) tellNotice(this.#place, sentenceOf(wrong));
    this.#unfollow = clock.follow(() => this.#advance());
    clock.speed = values.speed;
    if (!isCalm()) clock.play();
    else clock.step(20_000);
  }

  handle() {
    return {
      state: () => changed({ ...this.#values, speed: this.#clock.speed }, fieldsOf(READY[this.#values.ready])),
      unmount: () => this.#unmount(),
      frame: (time) => this.#frame(time),
      // For tests.
      numbers: () => this.#workload.numbers(),
      values: () => ({ ...this.#values }),
    };
  }

  // ---- the run

  // Begins a new one. Throws what the engine throws for rules that are wrong.
  #run(rules = this.#document) {
    const { rate, shape, clients, wait, latency, fail, failures, seed } = this.#values;
    const resources = resourcesOf(rules);
    const resource = resources.includes(this.#values.resource) ? this.#values.resource : (resources[0] ?? 'api');
    const settings = { resource, rate, shape, clients, waitMs: wait, latencyMs: latency, failPercent: fail, failures, seed };
    // The new one first: while the rules are wrong, the old ones go on.
    const workload = new Workload(Engine, rules, settings);
    this.#workload?.free();
    [this.#workload, this.#document] = [workload, rules];
    this.#inputs.resource.offer(resources.map((name) => [name, name]), resource);
    this.#inputs.resource.node.hidden = resources.length < 2;
    this.#clock.stepMs = BIN_MS;
    this.#clock.reset();
    this.#lanes.begin([]);
    say(this.#nodes.warnings, workload.warnings.join(' '));
    this.#isDirty = true;
  }

  #advance() {
    this.#pace.during(this.#workload.until(Math.floor(this.#clock.now)));
    this.#isDirty = true;
  }

  // Reads the document, and runs it, or says in its place what is wrong with it.
  #read() {
    const text = this.#nodes.text.value;
    const { document } = READY[this.#values.ready];
    tellNotice(this.#place, '');
    this.#values.rules = text === document ? '' : text;
    let read;
    try {
      read = readDocument(text);
      this.#run(read.value);
      this.#wrong('');
    } catch (error) {
      if (read !== undefined && error.code === undefined) throw error;
      const at = read === undefined ? [error.from, error.to] : placeOf(error.message, read);
      this.#wrong(error.message, at);
      // Nothing runs yet: the ready document's rules do.
      if (this.#workload === undefined) this.#run();
    }
    if (this.#values.rules.length > LONGEST) {
      this.#values.rules = '';
      tellNotice(this.#place, `This document has more than ${LONGEST} characters: the link to this page does not have it.`);
    }
    this.#update();
  }

  // A sentence below the document, and a mark in it.
  #wrong(sentence, at) {
    const { text, under, wrong, go } = this.#nodes;
    const { value } = text;
    const [from, to] = at ?? [0, 0];
    under.replaceChildren(value.slice(0, from), element('mark', {}, value.slice(from, to)), `${value.slice(to)}\n`);
    text.setAttribute('aria-invalid', sentence !== '');
    say(wrong, sentence === '' ? '' : `${sentence}. The rules ${this.#workload === undefined ? `of “${READY[this.#values.ready].title}” run` : 'before it go on'}.`);
    go.hidden = at === undefined;
    if (at === undefined) return;
    say(go, `Go to line ${lineOf(value, from)}`);
    go.onclick = () => {
      text.focus();
      text.setSelectionRange(from, to);
    };
  }

  #choose(ready) {
    const { document, traffic } = READY[ready];
    Object.assign(this.#values, traffic, { ready, resource: '', rules: '' });
    this.#nodes.text.value = document;
    for (const [name, value] of Object.entries(traffic)) this.#inputs[name].show(value);
    this.#read();
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
    const buttons = Object.entries(READY).map(([id, { title }]) =>
      element('button', { type: 'button', 'data-ready': id, 'aria-pressed': 'false', onclick: () => this.#choose(id) }, title),
    );
    const heading = element('h1');
    const said = element('p', { class: 'said brief' });

    const under = element('pre', { 'aria-hidden': 'true' });
    const text = element('textarea', { spellcheck: 'false', autocapitalize: 'off', autocomplete: 'off', wrap: 'soft', 'aria-label': 'Rules document', 'aria-describedby': 'rules-wrong' });
    text.addEventListener('input', () => {
      // The mark goes, and the place keeps the text's height.
      under.replaceChildren(`${text.value}\n`);
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => {
        this.#read();
        this.#changed();
      }, TYPING_MS);
    });
    const wrong = element('p', { class: 'wrong', id: 'rules-wrong', role: 'status' });
    const go = element('button', { type: 'button', hidden: true });
    const warnings = element('p', { class: 'said brief' });

    const counts = Object.fromEntries(['passed', 'waiting', 'refused', 'inFlight'].map((name) => [name, element('dd')]));
    const titles = { passed: 'passed', waiting: 'wait now', refused: 'refused', inFlight: 'in flight' };
    const list = element('dl', { class: 'counts' }, ...Object.entries(counts).map(([name, node]) => element('div', { 'data-count': name }, node, element('dt', {}, titles[name]))));

    const rates = element('div', { class: 'plot', 'aria-hidden': 'true' });
    const queues = element('div', { class: 'plot', 'aria-hidden': 'true' });
    const legend = (title, ...items) => element('p', { class: 'legend' }, title, ...items.map(([kind, name]) => element('span', {}, element('span', { class: `key ${kind}` }), name)));
    const lanes = element('div', { class: 'lanes' });
    const byRule = element('tbody');
    const byClient = element('tbody');
    const tally = (title, column, body) =>
      element('table', { class: 'tally' }, element('caption', {}, title), element('thead', {}, element('tr', {}, ...column.map((name) => element('th', { scope: 'col' }, name)))), body);

    const set = (name) => (value) => this.#set(name, value);
    const tell = (sentence) => tellNotice(this.#place, sentence);
    const number = (title, name, from, to, unit) => numberInput(title, { value: values[name], from, to, unit, set: set(name), tell });
    const choice = (title, name, list, nameOf) => choiceInput(title, { value: values[name], choices: list.map((one) => [one, nameOf(one)]), set: set(name) });
    this.#inputs = {
      resource: choiceInput('Resource', { value: '', choices: [], set: set('resource') }),
      rate: number('Requests a second', 'rate', 1, 300),
      shape: choice('They come', 'shape', SHAPES, (one) => SHAPE_NAMES[one]),
      clients: number('Clients', 'clients', 1, 50),
      wait: choice('They wait', 'wait', WAITS, (ms) => (ms === 0 ? 'not at all' : `up to ${secondsOf(ms)}`)),
      latency: choice('A call takes', 'latency', LATENCIES, (ms) => `about ${secondsOf(ms)}`),
      fail: number('Calls that fail', 'fail', 0, 100, '%'),
      failures: choice('They fail', 'failures', FAILURES, (one) => FAILURE_NAMES[one]),
      seed: number('Seed', 'seed', 0, 999_999_999),
    };

    this.#place.append(
      heading,
      element('div', { class: 'plays first', role: 'group', 'aria-label': 'Ready rules' }, ...buttons),
      said,
      element(
        'div',
        { class: 'rules' },
        element('div', { class: 'shown' }, list, legend('requests a second:', ['passed', 'passed'], ['refused', 'refused'], ['sent', 'sent']), rates, legend('requests that', ['waiting', 'wait'], ['flight', 'are in flight']), queues, lanes),
        element('div', { class: 'editor' }, element('div', { class: 'document' }, under, text), wrong, go, warnings),
      ),
      this.#live.node,
      element('div', { class: 'controls traffic', role: 'group', 'aria-label': 'Traffic' }, ...Object.values(this.#inputs).map(({ node }) => node)),
      element('div', { class: 'tallies' }, tally('Refused, by rule', ['Rule', 'Refused'], byRule), tally('Busiest clients', ['Client', 'Passed', 'Refused'], byClient)),
      element(
        'div',
        { class: 'text' },
        element('p', {}, element('b', {}, 'Write your own rules.'), ' They take effect as you type, in a new run. What is wrong is told in a sentence, and marked.'),
        element('p', {}, 'The engine is that of the npm package. Requests wait in its own queue, in the time of this page.'),
        element('p', {}, 'A request is from one of the clients; the first of them send the most. Its address stands for each part of a key.'),
        element('p', {}, 'A breaker that is open lets no call pass. After its time one call is a probe, and decides whether it closes.'),
        element('p', {}, 'The same link gives the same numbers, on any machine.'),
      ),
    );
    this.#nodes = { heading, said, buttons, text, under, wrong, go, warnings, counts, byRule, byClient };
    const x = () => this.#range;
    const line = (label, colour, more) => ({ label, colour, width: 1.5, isStepped: true, ...more });
    const passedLine = line('passed', 'pass', { fill: 'pass-soft' });
    this.#plots = [
      plot(rates, { series: [line('sent', 'soft', { dash: [2, 3] }), passedLine, line('refused', 'over', { dash: [6, 3] })], height: 150, x, y: () => [0, this.#tops[0]] }),
      plot(queues, { series: [line('wait', 'ink', { dash: [6, 3] }), line('in flight', 'pass')], height: 110, x, y: () => [0, this.#tops[1]] }),
    ];
    this.#lanes = new Lanes(lanes, STATE_NAMES);
  }

  // What changes with the settings, and not with time.
  #update() {
    const { ready, rules } = this.#values;
    const { heading, said, buttons } = this.#nodes;
    const { headline, sentence } = READY[ready];
    const isOwn = rules !== '';
    say(heading, isOwn ? 'Your rules, and what passes' : headline);
    say(said, isOwn ? '' : sentence);
    for (const button of buttons) button.setAttribute('aria-pressed', !isOwn && button.dataset.ready === ready);
    this.#isDirty = true;
  }

  #repaint() {
    this.#lanes.repaint();
    this.#isDirty = true;
  }

  #frame(time) {
    if (this.#lanes.fit()) this.#isDirty = true;
    if (this.#isDirty) this.#draw();
    this.#live.tell(time, () => this.#sentence());
  }

  #draw() {
    this.#isDirty = false;
    const { now, speed } = this.#clock;
    const { bins, passed, refused, waiting, inFlight, breakers } = this.#workload;
    const span = spanOf(speed);
    const to = Math.max(now / 1000, span / 3);
    const from = Math.max(0, to - span);
    // The last bin is not over.
    const shown = bins.filter(({ at }) => at >= from * 1000 - BIN_MS).slice(0, -1);
    const times = shown.map(({ at }) => (at + BIN_MS) / 1000);
    // Over the second that ends with a bin.
    const rate = (name) => shown.map((bin, i) => bin[name] + (shown[i - 1]?.[name] ?? 0));
    const columns = [['sent', 'passed', 'refused'].map(rate), ['waiting', 'inFlight'].map((name) => shown.map((bin) => bin[name]))];
    this.#range = [from, to];
    this.#tops = columns.map((lines) => topOf(lines.flat()));
    columns.forEach((lines, i) => this.#plots[i].set([times, ...lines]));
    this.#lanes.draw(breakers, from * 1000, now, to * 1000);
    const counts = { passed, waiting, refused, inFlight };
    for (const [name, count] of Object.entries(counts)) say(this.#nodes.counts[name], counted(count));
    this.#tallies();
  }

  #tallies() {
    const { byRule, clients } = this.#workload;
    const rules = [...byRule].sort(([, one], [, other]) => other - one).slice(0, 6);
    fill(this.#nodes.byRule, rules.length > 0 ? rules.map(([rule, count]) => [rule, count]) : [['none', 0]]);
    const busiest = clients.toSorted((one, other) => other.passed + other.refused - one.passed - one.refused).slice(0, 6);
    fill(this.#nodes.byClient, busiest.map(({ name, passed, refused }) => [name, passed, refused]));
  }

  // What a screen reader is told.
  #sentence() {
    const { sent, passed, refused, waiting, breakers } = this.#workload;
    const states = breakers.map(({ rule, changes }) => `; breaker ${rule} is ${STATE_NAMES[changes.at(-1).state]}`).join('');
    return `${Math.floor(this.#clock.now / 1000)} s, ${sent} requests: ${passed} passed, ${refused} refused, ${waiting} wait${states}.`;
  }

  #unmount() {
    clearTimeout(this.#typing);
    this.#unfollow();
    removeEventListener('theme', this.#onTheme);
    for (const plot of this.#plots) plot.destroy();
    this.#workload.free();
  }
}

// The end of an axis for these numbers.
function topOf(numbers) {
  const most = numbers.reduce((one, other) => Math.max(one, other), 4);
  const ten = 10 ** Math.floor(Math.log10(most));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((factor) => factor * ten).find((top) => top >= most);
}

// Writes rows into a table, whose first column has headers; what is the same is left alone.
function fill(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((row, i) => {
    const cells = body.rows[i]?.cells ?? element('tr', {}, ...row.map((_, at) => (at === 0 ? element('th', { scope: 'row' }) : element('td'))));
    if (cells instanceof Element) body.append(cells);
    row.forEach((value, at) => say(body.rows[i].cells[at], typeof value === 'number' ? counted(value) : value));
  });
}
