// Plots over time, by uPlot. Imported by figures that are loaded when they are shown.
import uPlot from 'uplot';
import { colours } from './dom.js';

const FONT = '12px system-ui, -apple-system, sans-serif';

// The end of an axis: 1, 2 or 5 and zeros, or between them.
export function niceAbove(most) {
  const ten = 10 ** Math.floor(Math.log10(Math.max(most, 1)));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((factor) => factor * ten).find((end) => end >= most) ?? most;
}

export class Plot {
  #plot;
  #place;
  #paint;
  #height;

  // `series` have a `colour`, a name of style.css, and perhaps a `fill`, another one, or a `dash`.
  constructor(place, { series, height = 150 }) {
    this.#place = place;
    this.#height = height;
    this.repaint();
    const paint = (name) => () => this.#paint[name];
    const axis = { stroke: paint('soft'), font: FONT, ticks: { show: false } };
    this.#plot = new uPlot(
      {
        width: place.clientWidth || 300,
        height,
        legend: { show: false },
        cursor: { show: false },
        padding: [8, 16, 0, 0],
        scales: { x: { time: false, auto: false }, y: { range: (_, __, most) => [0, niceAbove(most ?? 1)] } },
        axes: [
          { ...axis, grid: { show: false }, space: 70, size: 24, values: (_, at) => at.map((s) => `${s} s`) },
          { ...axis, grid: { stroke: paint('line'), width: 1 }, size: 40, space: 30 },
        ],
        series: [
          {},
          ...series.map(({ colour, fill, dash }) => ({
            stroke: paint(colour),
            fill: fill && paint(fill),
            dash,
            width: 1.5,
            points: { show: false },
            paths: uPlot.paths.stepped({ align: 1 }),
          })),
        ],
      },
      [[], ...series.map(() => [])],
      place,
    );
  }

  // Draws columns, the first of them times in seconds, from one time to another.
  draw(columns, from, to) {
    this.#plot.batch(() => {
      this.#plot.setData(columns, false);
      this.#plot.setScale('x', { min: from, max: to });
    });
  }

  // Follows the width of its place. Returns whether it has changed.
  fit() {
    const { clientWidth } = this.#place;
    if (clientWidth === 0 || clientWidth === this.#plot.width) return false;
    this.#plot.setSize({ width: clientWidth, height: this.#height });
    return true;
  }

  repaint() {
    this.#paint = colours(['soft', 'line', 'pass', 'pass-soft', 'over', 'over-soft', 'ink']);
  }

  destroy() {
    this.#plot.destroy();
  }
}
