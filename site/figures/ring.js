// The ring: requests, by clicks or by a trace, decided by leapgate's windows and by their rivals.
import { Limiter, init } from 'leapgate/slim';
import module from 'leapgate/leapgate_bg.wasm';
import { CONTESTANTS, Contest } from '../contest.js';
import { element, isCalm, say } from '../dom.js';
import { changed, oneOf, readFields, sentenceOf, textUpTo, whole } from '../link.js';
import { ADVERSARIES, Feed, readMoves, startOf, traceOf } from '../traces.js';
import { RingCanvas } from './ring-canvas.js';
import { Strip } from './strip.js';

const BUCKETS = [2, 5, 10, 20, 60, 100, 200, 600];
const WINDOWS = [3000, 6000, 12_000, 60_000];
const PLAYS = ['show', 'clicks', ...Object.keys(ADVERSARIES), 'noise', 'own'];

const FIELDS = {
  limit: [whole(1, 200), 20],
  window: [oneOf(WINDOWS), 6000],
  buckets: [oneOf(BUCKETS), 20],
  play: [oneOf(PLAYS), 'show'],
  ring: [oneOf(CONTESTANTS.map(({ id }) => id)), 'strict'],
  seed: [whole(0, 999_999_999), 1],
  speed: [whole(1, 100), 1],
  trace: [textUpTo(4000), ''],
};

// Until the first interaction the adversaries play by themselves, in turn, each for so many windows.
const SHOW = Object.keys(ADVERSARIES);
const SHOW_WINDOWS = 1.7;
const SHOW_SPEED = 2;

// How often a screen reader may be told, in real milliseconds.
const TELL_MS = 1000;

const TRACES = {
  edge: ['Edge burst', 'The limit just before the edge of a fixed window, and again just after it.'],
  late: ['Late burst', 'The limit just before the edge. The estimate takes it for requests of the whole window before, and lets new ones in too early.'],
  full: ['Full bucket', 'All tokens at once, and then those that flow in.'],
  bucket: ['Bucket edge', 'Against our own: the limit at the very end of a bucket. Sentinel lets go of it with its bucket, too early; strict counts one bucket more.'],
};

export async function mount(place, clock, state) {
  await init(new URL(module, import.meta.url));
  const ring = new Ring(place, clock, state);
  return ring.handle();
}

class Ring {
  #place;
  #clock;
  #values;
  #moves = [];
  #contest;
  #feed;
  #shown = 0;
  #isDirty = true;
  #told = { at: -Infinity, text: '' };
  #nodes;
  #unfollow;
  #onTheme = () => this.#repaint();

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
    this.#build();
    if (wrong.length > 0) this.#notice(sentenceOf(wrong));
    addEventListener('theme', this.#onTheme);
    this.#run();
    this.#unfollow = clock.follow(() => this.#advance());
    clock.speed = values.play === 'show' ? SHOW_SPEED : values.speed;
    if (!isCalm()) clock.play();
    else if (values.play === 'show') clock.step(0.4 * values.window);
  }

  handle() {
    return {
      state: () => changed({ ...this.#values, speed: this.#clock.speed }, FIELDS),
      unmount: () => this.#unmount(),
      frame: (time) => this.#frame(time),
      // For tests.
      numbers: () => this.#contest.numbers(),
      values: () => ({ ...this.#values }),
      contest: () => this.#contest,
    };
  }

  // ---- the run

  // Begins a new one: with empty limiters, before the first move of its trace.
  #run() {
    const { limit, window: windowMs, buckets, seed } = this.#values;
    const settings = { limit, windowMs, buckets };
    this.#contest?.free();
    this.#contest = new Contest(Limiter, settings);
    const play = this.#playing();
    this.#feed = new Feed(traceOf(play, settings, { seed, moves: this.#moves }));
    this.#clock.stepMs = windowMs / buckets;
    this.#clock.reset(startOf(play, settings));
    this.#update();
  }

  // What plays: in the show, the adversary whose turn it is.
  #playing() {
    const { play } = this.#values;
    return play === 'show' ? SHOW[this.#shown] : play;
  }

  #advance() {
    const { now } = this.#clock;
    this.#isDirty = true;
    const { play, window: windowMs } = this.#values;
    this.#feed.until(now, (at) => this.#request(at));
    if (play === 'show' && now > startOf(SHOW[0], { windowMs }) + SHOW_WINDOWS * windowMs) {
      this.#shown = (this.#shown + 1) % SHOW.length;
      this.#run();
    }
  }

  #request(at) {
    const decisions = this.#contest.request(at);
    if (!isCalm()) this.#nodes.canvas.fly(decisions[this.#values.ring], performance.now());
  }

  // A request of the visitor.
  #click() {
    if (this.#values.play === 'show') this.#begin('clicks');
    this.#clock.play();
    this.#request(this.#clock.now);
    this.#isDirty = true;
  }

  // The visitor takes over, or chooses what plays.
  #begin(play) {
    if (this.#values.play === 'show') this.#clock.speed = 1;
    this.#values.play = play;
    this.#run();
    this.#clock.play();
    this.#changed();
  }

  #set(name, value) {
    if (this.#values.play === 'show') this.#clock.speed = 1;
    this.#values[name] = value;
    if (this.#values.play === 'show') this.#values.play = SHOW[this.#shown];
    this.#run();
    this.#changed();
  }

  #changed() {
    this.#update();
    this.#place.dispatchEvent(new Event('state', { bubbles: true }));
  }

  #notice(sentence) {
    this.#place.dispatchEvent(new CustomEvent('notice', { bubbles: true, detail: sentence }));
  }

  // ---- the page

  #build() {
    const values = this.#values;
    const canvas = element('canvas', { 'aria-hidden': 'true' });
    const stage = element('button', { type: 'button', class: 'stage', 'aria-label': 'Send a request', 'aria-describedby': 'ring-keys' }, canvas);
    stage.addEventListener('click', () => this.#click());
    stage.addEventListener('keydown', (event) => this.#key(event));
    const live = element('p', { class: 'unseen', 'aria-live': 'polite' });

    const rows = CONTESTANTS.map(({ id, title }) => {
      const radio = element('input', { type: 'radio', name: 'ring', value: id, id: `ring-${id}`, checked: id === values.ring });
      radio.addEventListener('change', () => {
        this.#values.ring = id;
        this.#changed();
      });
      const fill = element('div', { class: 'fill' });
      const most = element('span', { class: 'most' });
      const verdict = element('span', { class: 'verdict' });
      const passed = element('td', { class: 'passed' });
      const row = element(
        'tr',
        {},
        element('th', { scope: 'row' }, radio, element('label', { for: `ring-${id}` }, title)),
        element('td', { class: 'worst' }, element('div', { class: 'track', 'aria-hidden': 'true' }, fill, element('div', { class: 'mark' }))),
        element('td', { class: 'number' }, most, ' ', verdict),
        passed,
      );
      return { id, row, fill, most, verdict, passed };
    });
    const caption = element('caption');
    const table = element(
      'table',
      { class: 'bars' },
      caption,
      element(
        'thead',
        {},
        element('tr', {}, ...['Limiter', 'Worst interval', 'Requests', 'Passed'].map((name) => element('th', { scope: 'col' }, name))),
      ),
      element('tbody', {}, ...rows.map(({ row }) => row)),
    );

    const plays = Object.entries(TRACES).map(([id, [title]]) => this.#playButton(id, title));
    const said = element('p', { class: 'said' });

    const limit = this.#number('Limit', values.limit, 1, 200, (value) => this.#set('limit', value));
    const window = this.#select('Window', WINDOWS, values.window, (ms) => `${ms / 1000} s`, (value) => this.#set('window', value));
    const buckets = this.#select('Buckets', BUCKETS, values.buckets, String, (value) => this.#set('buckets', value));
    const noise = this.#playButton('noise', 'Twice the limit, at random');
    const strip = new Strip({
      moves: this.#moves,
      change: (moves, text) => {
        this.#moves = moves;
        this.#values.trace = text;
        if (this.#values.play === 'own') this.#run();
        this.#changed();
      },
    });
    const own = this.#playButton('own', 'Play it');

    const heading = element('h1');
    this.#place.append(
      heading,
      element('div', { class: 'ring' }, stage, element('div', { class: 'beside' }, table, element('div', { class: 'plays', role: 'group', 'aria-label': 'Adversaries' }, ...plays), said)),
      live,
      element(
        'div',
        { class: 'text' },
        element('p', { id: 'ring-keys' }, element('b', {}, 'Click the ring.'), ' A click is a request, and so is the space bar. It is counted in the bucket of the present instant.'),
        element('p', {}, 'A bucket that is a window old fades. Then its place in the ring is used again, and what it counted may come back.'),
        element('p', {}, 'Seven limiters decide about the same requests. A bar is the most that passed in any interval as long as the window: beyond its mark, the limit was broken.'),
        element('p', {}, 'Whoever knows how a limiter counts can get more from it. The buttons above are such requests; choose a limiter by its name, and the outer arc shows what it counts.'),
        element('h2', {}, 'Draw your own'),
        element('p', {}, 'Draw requests over three windows, or write them: seconds, and how many at once.'),
        strip.node,
        element('p', { class: 'controls' }, own),
        element('h2', {}, 'What it costs'),
        element('p', {}, 'Strict counts one bucket more than the window has. Under twice the limit it lets less through than the exact log, by one part of the number of buckets and one: with 20 of them, 95 %.'),
        element('p', { class: 'controls' }, noise, buckets, limit, window),
      ),
    );
    this.#nodes = { canvas: new RingCanvas(canvas), stage, live, rows, caption, heading, said, strip, plays: [...plays, noise, own] };
  }

  #playButton(id, title) {
    return element('button', { type: 'button', 'data-play': id, 'aria-pressed': 'false', onclick: () => this.#begin(id) }, title);
  }

  #number(title, value, min, max, set) {
    const input = element('input', { type: 'number', min, max, value });
    input.addEventListener('change', () => {
      const read = whole(min, max)(input.value);
      if (read === undefined) this.#notice(`${title}: “${input.value.slice(0, 20)}” is not possible; use a whole number from ${min} to ${max}.`);
      else set(read);
    });
    return element('label', {}, title, ' ', input);
  }

  #select(title, values, value, name, set) {
    const select = element('select', {}, ...values.map((one) => element('option', { value: one, selected: one === value }, name(one))));
    select.addEventListener('change', () => set(Number(select.value)));
    return element('label', {}, title, ' ', select);
  }

  // On the ring: a step, and the speed. (Space and Enter click it, as any button.)
  #key(event) {
    const clock = this.#clock;
    const act = {
      ArrowRight: () => clock.step(),
      ArrowUp: () => (clock.speed *= 2),
      ArrowDown: () => (clock.speed /= 2),
    }[event.key];
    if (act === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
  }

  // What changes with the settings, and not with time.
  #update() {
    const { limit, window: windowMs } = this.#values;
    const play = this.#playing();
    const { heading, caption, said, plays } = this.#nodes;
    say(heading, `${limit} requests in ${windowMs / 1000} s: which limiters hold?`);
    say(caption, `Worst interval of ${windowMs / 1000} s so far; the limit is ${limit}`);
    say(said, TRACES[play]?.[1] ?? '');
    for (const button of plays) button.setAttribute('aria-pressed', button.dataset.play === play);
    this.#nodes.strip.scale(windowMs, limit);
    this.#isDirty = true;
  }

  #repaint() {
    this.#nodes.canvas.repaint();
    this.#nodes.strip.repaint();
    this.#isDirty = true;
  }

  #frame(time) {
    const { canvas, strip } = this.#nodes;
    if (canvas.fit()) this.#isDirty = true;
    strip.fit();
    if (!this.#isDirty && !canvas.isFlying) return;
    this.#isDirty = false;
    const { limit, window: windowMs, ring } = this.#values;
    const { now } = this.#clock;
    const contestant = this.#contest.contestants.find(({ id }) => id === ring);
    const held = contestant.worst.count(Math.floor(now));
    canvas.draw({ contestant, limit, windowMs, now, time, held, isCalm: isCalm() });
    this.#bars(limit);
    this.#tell(time);
  }

  #bars(limit) {
    this.#contest.contestants.forEach(({ passed, worst: { most } }, i) => {
      const nodes = this.#nodes.rows[i];
      if (nodes.drawn === `${most} ${passed} ${limit}`) return;
      nodes.drawn = `${most} ${passed} ${limit}`;
      const isOver = most > limit;
      nodes.row.classList.toggle('over', isOver);
      // The mark of the limit is in the middle of the bar.
      nodes.fill.style.inlineSize = `${Math.min(100, (50 * most) / limit)}%`;
      say(nodes.most, String(most));
      say(nodes.verdict, isOver ? `▲ ${most - limit} over` : '');
      say(nodes.passed, String(passed));
    });
  }

  // For screen readers, at most once a second, and not of the show.
  #tell(time) {
    if (this.#values.play === 'show' || time - this.#told.at < TELL_MS) return;
    const { limit } = this.#values;
    const { contestants, sent } = this.#contest;
    const over = contestants.filter(({ worst }) => worst.most > limit).map(({ title, worst }) => `${title} ${worst.most}`);
    const { title, passed } = contestants.find(({ id }) => id === this.#values.ring);
    const text = `${sent} requests; ${title}: ${passed} passed. Over the limit of ${limit}: ${over.join(', ') || 'none'}.`;
    if (text === this.#told.text) return;
    this.#told = { at: time, text };
    say(this.#nodes.live, text);
  }

  #unmount() {
    this.#unfollow();
    removeEventListener('theme', this.#onTheme);
    this.#contest.free();
  }
}
