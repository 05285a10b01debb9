// The picture of a fleet: nodes around their store, which says what has passed and what is held, and permits on their way. The table beside it says the same to screen readers, and
// has the same buttons.
import { counted, say } from '../dom.js';

const SVG = 'http://www.w3.org/2000/svg';
const [MIDDLE, RADIUS, NODE, STORE] = [200, 152, 27, 57];

// Permits fly for so long, in real milliseconds, and leave a store so often at most.
const FLIGHT_MS = 550;
const GAP_MS = 180;

function shape(tag, properties = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export class FleetMap {
  #nodes;
  #store;
  #dots;
  // `{ from, to, at, dot }`, of dots that fly.
  #flights = [];

  // Calls `toggle` with a node's index or 'store' when it is clicked.
  constructor(count, toggle) {
    this.#nodes = Array.from({ length: count }, (_, i) => {
      const angle = (2 * Math.PI * i) / count - Math.PI / 2;
      const [x, y] = [MIDDLE + RADIUS * Math.cos(angle), MIDDLE + RADIUS * Math.sin(angle)];
      const way = shape('line', { x1: MIDDLE, y1: MIDDLE, x2: x, y2: y, class: 'way' });
      const held = shape('text', { x, y, class: 'held' });
      const [outX, outY] = [MIDDLE + (RADIUS + 39) * Math.cos(angle), MIDDLE + (RADIUS + 39) * Math.sin(angle)];
      const name = shape('text', { x: outX, y: outY, class: 'name' }, String(i + 1));
      const group = shape('g', { class: 'node' }, shape('circle', { cx: x, cy: y, r: NODE }), held, name);
      group.addEventListener('click', () => toggle(i));
      return { x, y, way, held, group, granted: 0, isOn: true, flownAt: -Infinity, waiting: 0 };
    });
    const [recent, out] = [shape('text', { x: MIDDLE, y: MIDDLE - 4, class: 'held' }), shape('text', { x: MIDDLE, y: MIDDLE + 18, class: 'name' })];
    const group = shape('g', { class: 'node store' }, shape('circle', { cx: MIDDLE, cy: MIDDLE, r: STORE }), shape('text', { x: MIDDLE, y: MIDDLE - 24, class: 'name' }, 'store'), recent, out);
    group.addEventListener('click', () => toggle('store'));
    this.#store = { group, recent, out };
    this.#dots = shape('g', { class: 'dots' });
    this.node = shape(
      'svg',
      { viewBox: '0 0 400 400', class: 'fleet-map', 'aria-hidden': 'true' },
      ...this.#nodes.map(({ way }) => way),
      this.#dots,
      ...this.#nodes.map(({ group }) => group),
      group,
    );
  }

  get isFlying() {
    return this.#flights.length > 0;
  }

  // A new run.
  begin() {
    for (const node of this.#nodes) Object.assign(node, { granted: 0, waiting: 0 });
    this.#flights = [];
    this.#dots.replaceChildren();
  }

  draw({ nodes, isStoreOn, out, recent, limit, time, isCalm }) {
    nodes.forEach(({ isOn, permits = 0, granted = 0 }, i) => {
      const node = this.#nodes[i];
      say(node.held, isOn ? String(permits) : '✕');
      node.group.classList.toggle('off', !isOn);
      node.way.classList.toggle('off', !isOn || !isStoreOn);
      // A node that was plugged in again counts from zero.
      node.waiting += Math.max(0, granted - (granted < node.granted ? 0 : node.granted));
      node.granted = granted;
      if (node.waiting === 0 || isCalm || time - node.flownAt < GAP_MS) return;
      this.#fly(node, time);
    });
    const { group } = this.#store;
    group.classList.toggle('off', !isStoreOn);
    say(this.#store.recent, isStoreOn ? `${counted(recent)} + ${out}` : '✕');
    say(this.#store.out, isStoreOn ? `of ${counted(limit)}` : 'unplugged');
    this.#flights = this.#flights.filter(({ node, at, dot }) => {
      const part = (time - at) / FLIGHT_MS;
      if (part >= 1) dot.remove();
      else {
        const far = STORE + (RADIUS - STORE - NODE) * part * (2 - part);
        dot.setAttribute('cx', MIDDLE + ((node.x - MIDDLE) * far) / RADIUS);
        dot.setAttribute('cy', MIDDLE + ((node.y - MIDDLE) * far) / RADIUS);
      }
      return part < 1;
    });
  }

  // A dot, whose area is the number of permits.
  #fly(node, time) {
    const dot = shape('circle', { r: Math.min(12, 2 + 1.4 * Math.sqrt(node.waiting)) });
    this.#dots.append(dot);
    this.#flights.push({ node, at: time, dot });
    Object.assign(node, { waiting: 0, flownAt: time });
  }
}
