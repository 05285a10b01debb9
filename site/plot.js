// Lines over time, in the colours of the page: uPlot, which comes with the first figure that needs it.
import uPlot from 'uplot';
import { colours } from './dom.js';

const NAMES = ['soft', 'line', 'pass', 'pass-soft', 'over', 'ink'];
const FONT = '12px system-ui, sans-serif';

// A plot in `place`, as wide as that. `series` has a `label` and a `colour` for each, by its name in style.css, and may have a `width`,
// a `dash`, a `fill`, another name, and `isStepped`; `x` and `y` may be functions that return the range of an axis. `set(data)` draws columns: the times in
// seconds, and then each series, with null where it has nothing.
export function plot(place, { series, height = 180, x, y, unit = ' s' }) {
  let paint = colours(NAMES);
  const axis = (more) => ({
    stroke: () => paint.soft,
    font: FONT,
    grid: { stroke: () => paint.line, width: 1 },
    ticks: { show: false },
    ...more,
  });
  const made = new uPlot(
    {
      width: Math.max(place.clientWidth, 120),
      height,
      padding: [8, 8, 0, 0],
      cursor: { show: false },
      legend: { show: false },
      scales: { x: { time: false, range: x && (() => x()) }, y: { range: y && (() => y()) } },
      axes: [axis({ size: 28, values: (_, ticks) => ticks.map((tick) => `${tick}${unit}`) }), axis({ size: 40 })],
      series: [
        {},
        ...series.map(({ label, colour, fill, width = 2, dash, isStepped }) => ({
          label,
          stroke: () => paint[colour],
          fill: fill && (() => paint[fill]),
          width,
          dash,
          points: { show: false },
          paths: isStepped ? uPlot.paths.stepped({ align: -1 }) : undefined,
        })),
      ],
    },
    [[], ...series.map(() => [])],
    place,
  );
  const repaint = () => {
    paint = colours(NAMES);
    made.redraw(false);
  };
  const sizes = new ResizeObserver(() => {
    if (place.clientWidth > 0 && place.clientWidth !== made.width) made.setSize({ width: place.clientWidth, height });
  });
  sizes.observe(place);
  addEventListener('theme', repaint);
  return {
    set: (data) => made.setData(data),
    destroy() {
      sizes.disconnect();
      removeEventListener('theme', repaint);
      made.destroy();
    },
  };
}
