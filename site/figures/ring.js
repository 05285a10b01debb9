// The ring: requests, by clicks or by a trace, decided by leapgate's windows and by their rivals.
import { Limiter, init } from 'leapgate/slim';
import module from 'leapgate/leapgate_bg.wasm';
import { CONTESTANTS, Contest } from '../contest.js';
import { element, isCalm, say } from '../dom.js';
import { choiceInput, numberInput } from '../inputs.js';
import { changed, oneOf, readFields, sentenceOf, textUpTo, whole } from '../link.js';
import { bytesOf } from '../module.js';
import { ADVERSARIES, Feed, planOf, readMoves, startOf, traceOf, writeMoves } from '../traces.js';
import { Bars } from './bars.js';
import { OverTime } from './over-time.js';
import { RingCanvas } from './ring-canvas.js';
import { Strip } from './strip.js';

// All of the windows have all of these numbers of buckets, in whole milliseconds.
const BUCKETS = [2, 5, 10, 20, 60, 100, 200, 600];
const WINDOWS = [3000, 6000, 12_000, 60_000];
const MOST_LIMIT = 200;
const PLAYS = ['show', 'clicks', ...Object.keys(ADVERSARIES), 'noise', 'own'];

const FIELDS = {
  limit: [whole(1, MOST_LIMIT), 20],
  window: [oneOf(WINDOWS), 6000],
  buckets: [oneOf(BUCKETS), 20],
  play: [oneOf(PLAYS), 'show'],
  ring: [oneOf(CONTESTANTS.map(({ id }) => id)), 'strict'],
  seed: [whole(0, 999_999_999), 1],
  speed: [whole(1, 100), 1],
  trace: [textUpTo(8000), ''], // As long as the longest that can be written.
};

// Until the first interaction the adversaries play by themselves, in turn, each for so many windows.
const SHOW = Object.keys(ADVERSARIES);
const SHOW_WINDOWS = 1.7;
const SHOW_SPEED = 2;

// How often a screen reader may be told, and the table of buckets be written, in real milliseconds.
const TELL_MS = 1000;

const TRACES = {
  edge: ['Edge burst', 'A full limit of requests just before the edge of a fixed window, and again just after it.'],
  late: ['Late burst', 'A full limit just before the edge. The estimate spreads it over the whole window before, and lets new requests in too early.'],
  full: ['Full bucket', 'All the tokens at once, and then each new one as it comes.'],
  bucket: ['Bucket edge', "Against leapgate's own: a full limit at the end of a bucket. Sentinel forgets it with the bucket, too early; strict counts one bucket more."],
  noise: ['Twice the limit, at random', 'Ordinary traffic, twice as much as may pass.'],
  own: ['Play again', 'Your own.'],
};

export async function mount(place, clock, state) {
  await init(bytesOf(new URL(module, import.meta.url)));
  const ring = new Ring(place, clock, state);
  return ring.handle();
}

class Ring {
  #place;
  #clock;
  #values;
  #moves = [];
  #contest;
  #plan;
  #feed;
  #turn = 0;
  #isDirty = true;
  #told = -Infinity;
  #clicked = false;
  #nodes;
  #ends = [];

  constructor(place, clock, state) {
    this.#place = place;
    this.#clock = clock;
    const { values, wrong } = readFields(state, FIELDS);
    this.#values = values;
    try {
      this.#moves = readMoves(values.trace);
    } catch {
      wrong.push('trace');
      values.trace = '';
    }
    if (values.play === 'own' && this.#moves.length === 0) {
      values.play = 'clicks';
      if (!wrong.includes('trace')) wrong.push('trace');
    }
    this.#nodes = this.#build();
    if (wrong.length > 0) this.#dispatch('notice', sentenceOf(wrong));
    this.#run();
    clock.speed = this.#isShow ? SHOW_SPEED : values.speed;
    this.#ends.push(clock.follow(() => this.#advance()));
    this.#listen(globalThis, 'theme', () => this.#repaint());
    this.#listen(document, 'keydown', (event) => this.#key(event));
    if (!isCalm()) clock.play();
    else if (this.#isShow) clock.step(0.4 * values.window); // What the first adversary has done.
  }

  handle() {
    return {
      state: () => changed({ ...this.#values, speed: this.#isShow ? 1 : this.#clock.speed }, FIELDS),
      unmount: () => this.#unmount(),
      frame: (time) => this.#frame(time),
      // For tests.
      numbers: () => this.#contest.numbers(),
    };
  }

  get #isShow() {
    return this.#values.play === 'show';
  }

  get #settings() {
    const { limit, window: windowMs, buckets } = this.#values;
    return { limit, windowMs, buckets };
  }

  // What plays: in the show, the adversary whose turn it is.
  get #playing() {
    return this.#isShow ? SHOW[this.#turn] : this.#values.play;
  }

  // ---- the run

  // Begins a new one: with empty limiters, shortly before the first move of its trace.
  #run() {
    const settings = this.#settings;
    const play = this.#playing;
    this.#contest?.free();
    this.#contest = new Contest(Limiter, settings);
    this.#plan = planOf(play, settings, this.#moves);
    this.#feed = new Feed(traceOf(play, settings, { seed: this.#values.seed, moves: this.#moves }));
    this.#clock.stepMs = settings.windowMs / settings.buckets;
    this.#clock.reset(startOf(play, settings));
    this.#write();
  }

  #advance() {
    const { now } = this.#clock;
    this.#isDirty = true;
    this.#feed.until(now, (at) => this.#request(at));
    this.#contest.advance(now);
    this.#nodes.over.changed();
    const { windowMs } = this.#settings;
    if (this.#isShow && now > startOf(SHOW[0], { windowMs }) + SHOW_WINDOWS * windowMs) {
      this.#turn = (this.#turn + 1) % SHOW.length;
      this.#run();
    }
  }

  #request(at) {
    const decisions = this.#contest.request(at);
    if (!isCalm()) this.#nodes.canvas.fly(decisions[this.#values.ring], performance.now());
  }

  // A request of the visitor's.
  #click() {
    if (this.#isShow) this.#begin('clicks');
    this.#clicked = true;
    this.#clock.play();
    this.#request(this.#clock.now);
    this.#isDirty = true;
  }

  // The visitor chooses what plays.
  #begin(play) {
    this.#takeOver(play);
    this.#run();
    this.#clock.play();
    this.#dispatch('state');
  }

  // The visitor changes a setting: the same plays again.
  #set(name, value) {
    this.#takeOver(this.#playing);
    this.#values[name] = value;
    this.#dispatch('notice', ''); // What was wrong before.
    this.#run();
    this.#dispatch('state');
  }

  #takeOver(play) {
    if (this.#isShow) this.#clock.speed = 1;
    this.#values.play = play;
  }

  // A trace of the visitor's own, as text. Returns what is wrong with it.
  #own(text, isDone) {
    try {
      this.#moves = readMoves(text);
    } catch (error) {
      return error.message;
    }
    this.#values.trace = writeMoves(this.#moves);
    if (isDone) this.#begin(this.#moves.length > 0 ? 'own' : 'clicks');
    return '';
  }

  // ---- the page

  #build() {
    const values = this.#values;
    const canvas = element('canvas', { 'aria-hidden': 'true' });
    const stage = element('button', { type: 'button', class: 'stage', 'aria-label': 'Send a request', onclick: () => this.#click() }, canvas);
    const bars = new Bars(CONTESTANTS, values.ring, (id) => {
      values.ring = id;
      this.#isDirty = true;
      this.#nodes.over.changed();
      this.#dispatch('state');
    });
    const plays = Object.entries(TRACES).map(([id, [title]]) =>
      element('button', { type: 'button', 'data-play': id, 'aria-pressed': 'false', onclick: () => this.#begin(id) }, title),
    );
    const [noise, own] = plays.slice(-2);
    const said = element('p', { class: 'said' });
    const wrong = element('p', { class: 'wrong', id: 'ring-wrong', role: 'status' });
    const trace = element('input', { type: 'text', spellcheck: 'false', autocomplete: 'off', placeholder: '5.9x20 6.1x20', 'aria-describedby': 'ring-wrong' });
    const check = (sentence) => {
      trace.setAttribute('aria-invalid', sentence !== '');
      say(wrong, sentence);
    };
    trace.addEventListener('change', () => check(this.#own(trace.value, true)));
    const strip = new Strip((moves, isDone) => {
      trace.value = writeMoves(moves);
      check(this.#own(trace.value, isDone));
    });
    const table = element('tbody');
    const numbers = element(
      'details',
      {},
      element('summary', {}, 'The ring in numbers'),
      element(
        'table',
        { class: 'numbers' },
        element('thead', {}, element('tr', {}, ...['Bucket from', 'Passed', 'Refused'].map((name) => element('th', { scope: 'col' }, name)))),
        table,
      ),
    );
    numbers.addEventListener('toggle', () => (this.#told = -Infinity));
    const over = new OverTime('What has passed in the last window, over time');
    const heading = element('h1');
    const live = element('p', { class: 'unseen', 'aria-live': 'polite' });

    const choice = (title, name, choices) => choiceInput(title, { value: values[name], choices, set: (value) => this.#set(name, value) });
    const limit = numberInput('Limit', {
      value: values.limit,
      from: 1,
      to: MOST_LIMIT,
      set: (value) => this.#set('limit', value),
      tell: (sentence) => this.#dispatch('notice', sentence),
    });
    const idea = (lead, text) => element('p', {}, element('b', {}, lead), text);
    this.#place.append(
      heading,
      element(
        'div',
        { class: 'ring' },
        stage,
        element('div', {}, bars.node, element('div', { class: 'plays', role: 'group', 'aria-label': 'Adversaries' }, ...plays.slice(0, -2)), said, strip.node),
      ),
      live,
      element(
        'div',
        { class: 'text' },
        idea('Click the ring.', ' Each click is a request, and so is the space bar. The bucket at the hand counts it if it passes.'),
        idea('A bucket that is a window old fades.', ' Then its place in the ring is used again, and its requests no longer count.'),
        idea('Seven limiters decide about the same requests.', ' A bar is the most that one let through in any interval as long as the window. The mark is the limit.'),
        idea('Over time.', ' The line is what the chosen limiter let through in the window before each instant. Above the dashes, it is over the limit.'),
        over.node,
        idea('Requests can be timed to beat a limiter.', ' The buttons do so, each in its own way. Choose a limiter by its name to see its ring: the outer arc is what it counts.'),
        idea('Draw your own.', ' The strip is the requests of three windows: draw over it, or write them here, in seconds, each with how many come at once.'),
        element('div', { class: 'controls' }, element('label', { class: 'wide' }, 'Requests ', trace), own),
        wrong,
        idea('Being strict costs a little.', ' It counts one bucket more than the window has. Of twice the limit, 20 buckets let through 95 % of what the exact log does, and 600 nearly all.'),
        element(
          'div',
          { class: 'controls' },
          noise,
          choice('Buckets', 'buckets', BUCKETS.map((count) => [count, count])).node,
          limit.node,
          choice('Window', 'window', WINDOWS.map((ms) => [ms, `${ms / 1000} s`])).node,
        ),
        element('p', { class: 'keys' }, 'Keys: space sends a request, → steps; on the ring, ↑ and ↓ change the speed.'),
        numbers,
      ),
    );
    return { canvas: new RingCanvas(canvas), stage, bars, over, strip, plays, said, trace, numbers, table, heading, live };
  }

  // On the ring; while no control has the focus and the ring is in view, only space and the step: other arrows scroll. (A focused
  // ring is clicked by space and Enter, as any button.)
  #key(event) {
    const { stage } = this.#nodes;
    const isStage = event.target === stage;
    const isFree = event.target === document.body && stage.getBoundingClientRect().bottom > 0;
    if ((!isStage && !isFree) || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const act = {
      ArrowRight: () => this.#clock.step(),
      ArrowUp: isStage && (() => this.#clock.accelerate(1)),
      ArrowDown: isStage && (() => this.#clock.accelerate(-1)),
      ' ': isFree && (() => stage.click()),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  // What does not change with time.
  #write() {
    const { limit, windowMs } = this.#settings;
    const { heading, bars, said, plays, strip, trace } = this.#nodes;
    const play = this.#playing;
    say(heading, `${limit} requests in ${windowMs / 1000} s: which limiters hold?`);
    bars.head(`most in any ${windowMs / 1000} s`);
    say(said, TRACES[play]?.[1] ?? 'Your clicks.');
    for (const button of plays) button.setAttribute('aria-pressed', button.dataset.play === play);
    plays.at(-1).disabled = this.#moves.length === 0;
    const moves = this.#plan?.moves ?? this.#moves;
    strip.show({ moves, windowMs, limit });
    if (document.activeElement !== trace) trace.value = writeMoves(moves);
    this.#isDirty = true;
  }

  #repaint() {
    this.#nodes.canvas.repaint();
    this.#nodes.strip.repaint();
    this.#isDirty = true;
  }

  #frame(time) {
    const { canvas, strip, bars, over } = this.#nodes;
    const { now } = this.#clock;
    over.draw(time, this.#contest, this.#shown, now);
    strip.draw(this.#plan && now % this.#plan.periodMs);
    if (canvas.fit()) this.#isDirty = true;
    if (this.#isDirty || canvas.isFlying) {
      this.#isDirty = false;
      const { limit, windowMs } = this.#settings;
      const contestant = this.#shown;
      canvas.draw({ contestant, limit, windowMs, now, time, held: contestant.worst.count(Math.floor(now)), isCalm: isCalm() });
      bars.draw(this.#contest.contestants, limit);
    }
    if (time - this.#told >= TELL_MS) {
      this.#told = time;
      this.#tell();
    }
  }

  get #shown() {
    return this.#contest.contestants.find(({ id }) => id === this.#values.ring);
  }

  // In words and numbers, at most once a second. Of the show, screen readers are not told.
  #tell() {
    const { limit, windowMs, buckets: count } = this.#settings;
    const { title, worst, buckets } = this.#shown;
    const { live, numbers, table } = this.#nodes;
    if (numbers.open) {
      const current = buckets.numberAt(this.#clock.now);
      const rows = [];
      for (let number = current; number >= Math.max(0, current - count); number--) {
        const cells = [`${(number * windowMs) / count / 1000} s`, buckets.passed(number), buckets.refused(number)];
        if (cells[1] + cells[2] > 0) rows.push(element('tr', {}, ...cells.map((cell) => element('td', {}, String(cell)))));
      }
      table.replaceChildren(...rows);
    }
    if (this.#isShow) return;
    const over = this.#contest.contestants.filter((one) => one.worst.most > limit).map((one) => `${one.title} ${one.worst.most}`);
    const held = this.#clicked ? `${title}: ${worst.count(Math.floor(this.#clock.now))} in the last ${windowMs / 1000} s. ` : '';
    this.#clicked = false;
    say(live, `${held}Over the limit of ${limit}: ${over.join(', ') || 'none'}.`);
  }

  #listen(target, name, listener) {
    target.addEventListener(name, listener);
    this.#ends.push(() => target.removeEventListener(name, listener));
  }

  #dispatch(name, detail) {
    this.#place.dispatchEvent(new CustomEvent(name, { bubbles: true, detail }));
  }

  #unmount() {
    for (const end of this.#ends) end();
    this.#nodes.over.destroy();
    this.#contest.free();
  }
}
