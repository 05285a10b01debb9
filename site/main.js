// The frame of the page: tabs, the clock and its controls, the theme, and the link. A figure is a module of its own, loaded when it is
// shown: `mount(element, clock, state)` fills the element, and returns `{ state(), unmount(), frame?(time) }`.
//
// - `state` is what the link has for the figure, texts by name; `state()` returns what the link should have. An event 'state' on the
//   element says that it has changed.
// - `frame(time)` is called for each frame that the browser draws, after the clock has moved; `time` is real, for animations only.
// - An event 'notice' on the element shows its `detail`, one sentence, above the figure.
import { clockControls, themeButton } from './controls.js';
import { element } from './dom.js';
import { readLink, writeLink } from './link.js';
import { Clock } from './time.js';

const FIGURES = [
  { id: 'ring', title: 'The ring', load: () => import('./figures/ring.js') },
  { id: 'rules', title: 'Rules', load: () => import('./figures/rules.js') },
  { id: 'replay', title: 'Replay', load: () => import('./figures/replay.js') },
  { id: 'fleet', title: 'Fleet', load: () => import('./figures/fleet.js') },
];

const WITHOUT_WASM =
  "This page decides by leapgate's own WebAssembly module, which this browser does not run: allow WebAssembly here, or use another browser.";

// How long scripts took for each of the last frames, in milliseconds.
const FRAMES = 600;

const [panel, notice, tabs] = ['figure', 'notice', 'tabs'].map((id) => document.getElementById(id));
const clock = new Clock();
let shown = FIGURES[0].id;
let figure;
let turn = 0;

// For tests, and for the curious.
const playground = { clock, frames: [], ready: false };
Object.defineProperty(playground, 'figure', { get: () => figure });
window.playground = playground;

function tell(sentence) {
  notice.textContent = sentence;
  notice.hidden = sentence === '';
}

async function show({ figure: id, state }) {
  const found = FIGURES.find((one) => one.id === id);
  const { load, title } = found ?? FIGURES[0];
  shown = (found ?? FIGURES[0]).id;
  turn += 1;
  const mine = turn;
  playground.ready = false;
  figure?.unmount();
  figure = undefined;
  tell(found === undefined && id !== '' ? `There is no figure “${id.slice(0, 20)}” here: this is ${title}.` : '');
  for (const tab of tabs.children) {
    const isShown = tab.id === `tab-${shown}`;
    tab.setAttribute('aria-selected', isShown);
    tab.tabIndex = isShown ? 0 : -1;
  }
  document.title = `${title} · leapgate playground`;
  panel.setAttribute('aria-labelledby', `tab-${shown}`);
  clock.pause();
  clock.reset();
  if (typeof WebAssembly !== 'object') return fail(WITHOUT_WASM);
  try {
    const { mount } = await load();
    if (mine !== turn) return; // Another tab has been opened in the meantime.
    const place = element('div', { class: 'place' });
    panel.replaceChildren(place);
    const made = await mount(place, clock, state);
    if (mine !== turn) return made.unmount();
    figure = made;
    playground.ready = true;
  } catch (error) {
    if (mine !== turn) return;
    fail(error instanceof WebAssembly.CompileError ? WITHOUT_WASM : `${title} could not be opened: ${error.message}`);
    throw error;
  }
}

function fail(sentence) {
  panel.replaceChildren();
  tell(sentence);
}

function open(id) {
  history.pushState(null, '', writeLink(id, {}));
  show({ figure: id, state: {} });
}

// Writes the link a little later: browsers refuse to have it written many times a second.
let writing;
function write() {
  writing ??= setTimeout(() => {
    writing = undefined;
    if (figure !== undefined) history.replaceState(null, '', writeLink(shown, figure.state()));
  }, 300);
}
let speed = clock.speed;
clock.follow(() => {
  if (clock.speed !== speed && playground.ready) write();
  speed = clock.speed;
});
panel.addEventListener('state', write);
panel.addEventListener('notice', ({ detail }) => tell(detail));
addEventListener('popstate', () => show(readLink(location.hash)));

for (const { id, title } of FIGURES) {
  tabs.append(element('button', { type: 'button', role: 'tab', id: `tab-${id}`, 'aria-controls': 'figure', onclick: () => open(id) }, title));
}
tabs.addEventListener('keydown', (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step === undefined) return;
  const at = FIGURES.findIndex(({ id }) => id === shown);
  const { id } = FIGURES[(at + step + FIGURES.length) % FIGURES.length];
  open(id);
  document.getElementById(`tab-${id}`).focus();
});
document.getElementById('clock').append(...clockControls(clock), themeButton());

let last = performance.now();
function frame(time) {
  const before = performance.now();
  clock.frame(time - last);
  last = time;
  figure?.frame?.(time);
  playground.frames.push(performance.now() - before);
  if (playground.frames.length > FRAMES) playground.frames.shift();
  requestAnimationFrame(frame);
}
requestAnimationFrame(frame);
show(readLink(location.hash));
