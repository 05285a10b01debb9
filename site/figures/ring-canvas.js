// Draws the ring of one limiter: what passed in each bucket, what was refused, what the limiter counts, and the present instant.
import { colours } from '../dom.js';

const TURN = 2 * Math.PI;
const NAMES = ['ink', 'soft', 'line', 'track', 'pass', 'over', 'accent'];

// Older buckets are paler, in so many steps: those of one step are drawn at once.
const SHADES = 16;

// For how long a request is seen to fly, in real milliseconds, and how many are drawn at once.
const FLIGHT_MS = 420;
const MAX_FLIGHTS = 60;

// A canvas that is smaller has not been laid out.
const MIN_SIZE = 100;

// From how many buckets on there is no room for gaps between them, or for their counts.
const GAPS = 130;
const COUNTS = 30;

export class RingCanvas {
  #context;
  #size = 0;
  #colours = colours(NAMES);
  #flights = [];

  constructor(canvas) {
    this.canvas = canvas;
    this.#context = canvas.getContext('2d');
  }

  // Fits the canvas into its place; returns whether anything changed.
  fit() {
    const size = this.canvas.clientWidth;
    const scale = Math.min(devicePixelRatio || 1, 2);
    if (size === this.#size && this.canvas.width === Math.round(size * scale)) return false;
    this.#size = size;
    this.canvas.width = this.canvas.height = Math.round(size * scale);
    this.#context.setTransform(scale, 0, 0, scale, 0, 0);
    return true;
  }

  repaint() {
    this.#colours = colours(NAMES);
  }

  get isFlying() {
    return this.#flights.length > 0;
  }

  // A request flies to its bucket, or bounces off.
  fly(passes, time) {
    if (this.#flights.length < MAX_FLIGHTS) this.#flights.push({ passes, time, spread: (Math.random() - 0.5) * 0.24 });
  }

  // `now` is the time of the clock, `time` the real one, `held` how many requests have passed in the last window.
  draw({ contestant: { buckets, limiter }, limit, windowMs, now, time, held, isCalm }) {
    const context = this.#context;
    const paint = this.#colours;
    const size = this.#size;
    if (size < MIN_SIZE) return;
    const middle = size / 2;
    const outer = middle - 30;
    const inner = outer * 0.6;
    const slots = buckets.slots;
    const length = windowMs / (slots - 1);
    const current = buckets.numberAt(now);
    const into = isCalm ? 0 : now / length - current;
    const angleOf = (place) => -TURN / 4 + (TURN * place) / slots;
    const gap = slots <= GAPS ? 0.012 : 0;

    context.clearRect(0, 0, size, size);
    context.save();
    context.translate(middle, middle);

    // The places of the buckets.
    context.fillStyle = paint.track;
    context.beginPath();
    context.arc(0, 0, outer, 0, TURN);
    context.arc(0, 0, inner, 0, TURN, true);
    context.fill();

    // What has passed, by age.
    const full = Math.min(limit, Math.max(2, (6 * limit) / (slots - 1)));
    const height = (count) => (outer - inner) * Math.min(1, Math.sqrt(count / full));
    const shades = Array.from({ length: SHADES + 1 }, () => []);
    for (let age = 0; age < slots && age <= current; age++) {
      const count = buckets.passed(current - age);
      if (count === 0) continue;
      // The oldest one fades out while its time ends.
      const shade = age === slots - 1 ? 0.4 * (1 - into) : 1 - (0.6 * age) / (slots - 1);
      shades[Math.round(shade * SHADES)].push(current - age);
    }
    context.fillStyle = held > limit ? paint.over : paint.pass;
    shades.forEach((numbers, shade) => {
      if (numbers.length === 0) return;
      context.globalAlpha = shade / SHADES;
      context.beginPath();
      for (const number of numbers) {
        const slot = number % slots;
        this.#sector(inner, inner + height(buckets.passed(number)), angleOf(slot) + gap, angleOf(slot + 1) - gap);
      }
      context.fill();
    });
    context.globalAlpha = 1;

    // What was refused, outside.
    context.strokeStyle = paint.soft;
    context.lineWidth = 2;
    context.beginPath();
    for (let age = 0; age < slots && age <= current; age++) {
      const count = buckets.refused(current - age);
      if (count === 0) continue;
      const at = angleOf(((current - age) % slots) + 0.5);
      const [from, to] = [outer + 3, outer + 5 + 8 * Math.min(1, Math.sqrt(count / full))];
      context.moveTo(from * Math.cos(at), from * Math.sin(at));
      context.lineTo(to * Math.cos(at), to * Math.sin(at));
    }
    context.stroke();

    // The edges between buckets, and the counts in them.
    if (slots <= GAPS) {
      context.strokeStyle = paint.line;
      context.lineWidth = 1;
      context.beginPath();
      for (let slot = 0; slot < slots; slot++) {
        const at = angleOf(slot);
        context.moveTo(inner * Math.cos(at), inner * Math.sin(at));
        context.lineTo(outer * Math.cos(at), outer * Math.sin(at));
      }
      context.stroke();
    }
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    if (slots <= COUNTS) {
      context.font = `600 ${Math.max(10, size / 34)}px system-ui, sans-serif`;
      for (let age = 0; age < slots && age <= current; age++) {
        const count = buckets.passed(current - age);
        if (count === 0) continue;
        const at = angleOf(((current - age) % slots) + 0.5);
        const away = inner - size / 32;
        context.fillStyle = paint.soft;
        context.fillText(String(count), away * Math.cos(at), away * Math.sin(at));
      }
    }

    // What the limiter counts, as far back as the ring goes.
    const begin = (current - (slots - 1)) * length;
    const placeOf = (at) => (Math.max(at, begin) / length) % slots;
    context.strokeStyle = paint.accent;
    context.lineWidth = 4;
    for (const { from, to, weight } of limiter.spans(now)) {
      if (to <= begin || weight <= 0) continue;
      const start = angleOf(placeOf(from));
      const turn = (TURN * (Math.min(to, now) - Math.max(from, begin))) / (length * slots);
      context.globalAlpha = 0.15 + 0.85 * weight;
      context.beginPath();
      context.arc(0, 0, outer + 18, start, start + Math.max(turn, 0.001));
      context.stroke();
    }
    context.globalAlpha = 1;

    // The present instant.
    const at = angleOf((current % slots) + into);
    context.strokeStyle = paint.ink;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo((inner - 6) * Math.cos(at), (inner - 6) * Math.sin(at));
    context.lineTo((outer + 22) * Math.cos(at), (outer + 22) * Math.sin(at));
    context.stroke();
    context.fillStyle = paint.ink;
    context.beginPath();
    context.arc((outer + 22) * Math.cos(at), (outer + 22) * Math.sin(at), 4, 0, TURN);
    context.fill();

    this.#flying(at, inner, outer, time);

    // How many have passed in the last window.
    context.fillStyle = held > limit ? paint.over : paint.ink;
    context.font = `650 ${size / 6.2}px system-ui, sans-serif`;
    context.fillText(String(held), 0, -size / 40);
    context.fillStyle = paint.soft;
    context.font = `${Math.max(12, size / 30)}px system-ui, sans-serif`;
    context.fillText(held > limit ? `${held - limit} over ${limit}, in ${windowMs / 1000} s` : `of ${limit} in ${windowMs / 1000} s`, 0, size / 12);
    context.restore();
  }

  #sector(from, to, start, end) {
    const context = this.#context;
    context.moveTo(from * Math.cos(start), from * Math.sin(start));
    context.arc(0, 0, from, start, end);
    context.arc(0, 0, to, end, start, true);
    context.closePath();
  }

  #flying(at, inner, outer, time) {
    const context = this.#context;
    this.#flights = this.#flights.filter((flight) => time - flight.time < FLIGHT_MS);
    for (const { passes, time: began, spread } of this.#flights) {
      const part = Math.max(0, (time - began) / FLIGHT_MS);
      const angle = at + spread * (passes ? 1 - part : part * 2);
      const away = passes ? outer + 24 - (outer + 24 - inner) * part : outer + 8 + 18 * part;
      const [x, y] = [away * Math.cos(angle), away * Math.sin(angle)];
      context.globalAlpha = 1 - part * part;
      if (passes) {
        context.fillStyle = this.#colours.pass;
        context.beginPath();
        context.arc(x, y, 4.5, 0, TURN);
        context.fill();
      } else {
        context.strokeStyle = this.#colours.over;
        context.lineWidth = 2.5;
        context.beginPath();
        context.moveTo(x - 4, y - 4);
        context.lineTo(x + 4, y + 4);
        context.moveTo(x + 4, y - 4);
        context.lineTo(x - 4, y + 4);
        context.stroke();
      }
    }
    context.globalAlpha = 1;
  }
}
