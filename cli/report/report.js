// Draws a report of `leapgate replay`: `drawReport(place, report, uPlot)` fills the element `place`, and returns `{ redraw(), unmount() }`.
// The HTML file of the command line and the playground have it. All texts of a log come in as text, never as markup.

const NUMBER = new Intl.NumberFormat('en');
const TIME = { timeZone: 'UTC', hourCycle: 'h23', hour: '2-digit', minute: '2-digit', second: '2-digit' };
const DAY = { timeZone: 'UTC', day: 'numeric', month: 'short', year: 'numeric' };
const HEIGHT = 240;

const grouped = (n) => NUMBER.format(n);
const count = (n, noun) => `${grouped(n)} ${noun}${n === 1 ? '' : 's'}`;
const clock = (ms) => new Intl.DateTimeFormat('en-GB', TIME).format(ms);
const day = (ms) => new Intl.DateTimeFormat('en-GB', DAY).format(ms);

// As the command line prints shares.
function percent(part, whole) {
  const share = whole === 0 ? 0 : (part * 100) / whole;
  if (share === 0) return '0\u00a0%';
  if (share < 0.01) return 'less than 0.01\u00a0%';
  return `${share.toFixed(share < 10 ? 2 : 1)}\u00a0%`;
}

function span(ms) {
  for (const [length, unit] of [[86_400_000, 'days'], [3_600_000, 'h'], [60_000, 'min'], [1000, 's']]) {
    if (ms >= length && ms % length === 0) return `${grouped(ms / length)} ${unit}`;
  }
  return `${grouped(ms)} ms`;
}

const about = ({ count, estimated }) => (estimated ? `about ${grouped(count)}` : grouped(count));

// An element; what is no element in `children` is text.
function make(tag, name, ...children) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...children.filter((child) => child !== undefined));
  return made;
}

// A table: `columns` are [title, class]; the first cell of a row is its heading.
function table(caption, columns, rows) {
  const head = make('tr', '', ...columns.map(([title, name]) => Object.assign(make('th', name, title), { scope: 'col' })));
  const body = rows.map((cells) =>
    make('tr', '', ...cells.map((cell, i) => {
      const made = make(i === 0 ? 'th' : 'td', columns[i][1], ...[cell].flat());
      if (i === 0) made.scope = 'row';
      return made;
    })),
  );
  return make('table', '', make('caption', '', caption), make('thead', '', head), make('tbody', '', ...body));
}

// A bar beside its number; screen readers have the number.
function bar(part, whole) {
  const fill = make('div', 'fill');
  fill.style.width = `${whole === 0 ? 0 : Math.min(100, (part * 100) / whole)}%`;
  if (part > 0) fill.style.minWidth = '2px';
  const track = make('div', 'track', fill);
  track.ariaHidden = 'true';
  return track;
}

export function drawReport(place, report, uPlot) {
  const parts = [lead(report), about429(report)];
  const plot = report.requests > 0 ? overTime(report, uPlot) : undefined;
  if (plot) parts.push(...plot.nodes);
  if (report.rules.length > 0) parts.push(make('h2', '', 'By rule'), rules(report));
  if (report.keys.length > 0) parts.push(make('h2', '', 'Refused most'), keys(report));
  if (report.refused > 0) parts.push(make('h2', '', 'Clients'), ...clients(report));
  if (report.skipped.count > 0) parts.push(make('h2', '', 'Lines that were skipped'), ...skipped(report));
  if (report.notes.length > 0) {
    parts.push(make('h2', '', 'To be known'), make('ul', 'notes', ...report.notes.map((note) => make('li', '', note))));
  }
  const whole = make('div', 'report', ...parts);
  place.replaceChildren(whole);
  plot?.draw();

  const redraw = () => plot?.draw();
  const dark = matchMedia('(prefers-color-scheme: dark)');
  dark.addEventListener('change', redraw);
  addEventListener('theme', redraw);
  let width = whole.clientWidth;
  const resized = new ResizeObserver(() => {
    if (whole.clientWidth === width) return;
    width = whole.clientWidth;
    redraw();
  });
  resized.observe(whole);
  return {
    redraw,
    unmount() {
      resized.disconnect();
      dark.removeEventListener('change', redraw);
      removeEventListener('theme', redraw);
      plot?.destroy();
      whole.remove();
    },
  };
}

function lead({ requests, refused, waited, longestWaitMs }) {
  if (requests === 0) return make('p', 'lead', 'The log has no request that could be decided on.');
  if (refused === 0) {
    const waits = waited > 0 ? `; ${grouped(waited)} would have waited, up to ${span(longestWaitMs)}` : '';
    return make('p', 'lead', `All ${count(requests, 'request')} would have passed${waits}.`);
  }
  const waits = waited > 0 ? `, and ${grouped(waited)} would have waited, up to ${span(longestWaitMs)}` : '';
  return make('p', 'lead', make('b', '', grouped(refused)), ` of ${count(requests, 'request')} (${percent(refused, requests)}) would have been refused${waits}.`);
}

function about429({ lines, format, skipped, fromMs, toMs, answered429, requests, late }) {
  const sentences = [`${count(lines, 'line')}, read as ${format}; ${grouped(skipped.count)} skipped.`];
  if (requests > 0) {
    const end = day(fromMs) === day(toMs) ? clock(toMs) : `${day(toMs)}, ${clock(toMs)}`;
    sentences.push(`From ${day(fromMs)}, ${clock(fromMs)} to ${end} UTC.`);
  }
  if (answered429 > 0) sentences.push(`${grouped(answered429)} were answered 429 then.`);
  if (late > 0) sentences.push(`${grouped(late)} came late.`);
  return make('p', 'about', sentences.join(' '));
}

// ---- over time ----

function overTime({ series, waited }, uPlot) {
  const { startMs, widthMs, requests, refused } = series;
  const passed = requests.map((all, i) => all - refused[i]);
  // A last point, so that the last bin has a width.
  const closed = (list) => [...list, list.at(-1)];
  const times = Array.from({ length: requests.length + 1 }, (_, i) => (startMs + i * widthMs) / 1000);
  const each = `each ${span(widthMs)}`;
  const peak = refused.indexOf(Math.max(...refused));
  const summary =
    refused[peak] > 0
      ? `Requests over time, ${each}. Most were refused at ${clock(startMs + peak * widthMs)} UTC: ${grouped(refused[peak])} of ${grouped(requests[peak])}.`
      : `Requests over time, ${each}. None were refused.`;

  const place = make('div', 'chart');
  place.role = 'img';
  place.ariaLabel = summary;
  const legend = [make('li', '', 'passed'), make('li', 'refused', 'refused')];
  if (waited > 0) legend.push(make('li', 'waited', 'waited, and passed'));
  const at = make('p', 'at', `Requests ${each}, UTC.`);
  const said = (i) => {
    const waits = waited > 0 ? `, ${grouped(series.waited[i])} waited` : '';
    return `${clock(startMs + i * widthMs)}: ${count(requests[i], 'request')}, ${grouped(refused[i])} refused${waits}`;
  };

  let plot;
  const draw = () => {
    plot?.destroy();
    // An element tells what a colour is in the page's theme: the value of a property may name that of each.
    const probe = place.appendChild(document.createElement('span'));
    const colour = (name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    };
    const stepped = uPlot.paths.stepped({ align: 1 });
    const area = (label, name) => ({ label, fill: colour(name), stroke: colour(name), width: 0, paths: stepped, points: { show: false } });
    const axis = {
      stroke: colour('soft'),
      font: '12px system-ui, sans-serif',
      grid: { stroke: colour('line'), width: 1 },
      ticks: { stroke: colour('line'), width: 1, size: 5 },
    };
    const lines = [{}, area('requests', 'over'), area('passed', 'pass')];
    const data = [times, closed(requests), closed(passed)];
    if (waited > 0) {
      lines.push({ label: 'waited', stroke: colour('ink'), width: 1.5, paths: stepped, points: { show: false } });
      data.push(closed(series.waited));
    }
    probe.remove();
    plot = new uPlot(
      {
        width: Math.max(200, place.clientWidth),
        height: HEIGHT,
        padding: [10, 18, 0, 0],
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), 'UTC'),
        scales: { x: { time: true }, y: { range: (_, __, most) => [0, Math.max(1, most * 1.05)] } },
        axes: [
          { ...axis, size: 28, values: (_, ticks, __, ___, step) => ticks.map((tick) => label(tick, step)) },
          { ...axis, size: 52, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? grouped(tick) : '')) },
        ],
        series: lines,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
        hooks: {
          setCursor: [
            ({ cursor: { left }, posToVal }) => {
              const i = left >= 0 ? Math.floor((posToVal(left, 'x') * 1000 - startMs) / widthMs) : -1;
              at.textContent = i >= 0 && i < requests.length ? said(i) : `Requests ${each}, UTC.`;
            },
          ],
        },
      },
      data,
      place,
    );
  };

  const rows = requests.map((all, i) => {
    const cells = [`${day(startMs + i * widthMs)}, ${clock(startMs + i * widthMs)}`, grouped(all), grouped(refused[i])];
    return waited > 0 ? [...cells, grouped(series.waited[i])] : cells;
  });
  const columns = [['From (UTC)'], ['Requests', 'number'], ['Refused', 'number'], ['Waited', 'number']].slice(0, waited > 0 ? 4 : 3);
  const numbers = make('details', '', make('summary', '', 'The same as a table'));
  // 240 rows are made when they are wanted.
  numbers.addEventListener('toggle', () => {
    if (numbers.children.length > 1) return;
    const scroll = make('div', 'tall', table(summary, columns, rows));
    scroll.tabIndex = 0;
    scroll.role = 'region';
    scroll.ariaLabel = 'Requests over time';
    numbers.append(scroll);
  });
  return {
    nodes: [make('h2', '', 'Over time'), make('ul', 'legend', ...legend), place, at, numbers],
    draw,
    destroy: () => plot?.destroy(),
  };
}

// What an axis of times says at `tick`: the day where it begins, and as much of the time of day as the step needs.
function label(tick, step) {
  const ms = tick * 1000;
  const time = clock(ms);
  if (step >= 86_400 || time === '00:00:00') return new Intl.DateTimeFormat('en-GB', { timeZone: 'UTC', day: 'numeric', month: 'short' }).format(ms);
  return step < 60 ? time : time.slice(0, 5);
}

// ---- tables ----

function rules({ rules }) {
  const rows = rules.map((rule) => {
    const name = [rule.id];
    if (rule.shadow) name.push(make('span', 'tag', 'shadow'));
    name.push(make('span', 'small', `${rule.kind}, ${rule.resource}: ${rule.words}`));
    if (rule.notReplayed !== null) return [name, '', '', make('span', 'soft', `not replayed: ${rule.notReplayed}`), ''];
    const verb = rule.waited > 0 ? make('span', 'small', `${grouped(rule.waited)} waited`) : undefined;
    const refused = [grouped(rule.refused), make('span', 'small', percent(rule.refused, rule.requests)), verb].filter(Boolean);
    return [name, grouped(rule.requests), refused, bar(rule.refused, rule.requests), suggested(rule)];
  });
  const columns = [['Rule'], ['Requests', 'number'], ['Refused', 'number'], ['Share refused', 'share roomy'], ['Smallest limit that refuses little']];
  const caption = rules.some(({ shadow }) => shadow)
    ? 'In the order in which they are asked; the first that refuses counts. A rule in shadow mode refuses nothing: its number is what it would refuse.'
    : 'In the order in which they are asked; the first that refuses counts.';
  const scroll = make('div', 'scroll', table(caption, columns, rows));
  scroll.tabIndex = 0;
  scroll.role = 'region';
  scroll.ariaLabel = 'By rule';
  return scroll;
}

function suggested({ suggestion, noSuggestion }) {
  if (suggestion === null) return make('span', 'soft', noSuggestion ?? '–');
  const { refuseLessThan, count: limit, refused, refusedWithOneLess, requests, ofFirst } = suggestion;
  const less = refusedWithOneLess === null ? '' : `; ${grouped(limit - 1)} refuses ${percent(refusedWithOneLess, requests)}`;
  const first = ofFirst ? `, of the first ${grouped(requests)}` : '';
  return [grouped(limit), make('span', 'small', `refuses ${percent(refused, requests)}${first}, less than ${refuseLessThan} %${less}`)];
}

function keys({ keys }) {
  const most = Math.max(...keys.map(({ refused }) => refused));
  const rows = keys.map(({ key, rule, refused, atMostOver }) => {
    const over = atMostOver > 0 ? make('span', 'small', `${grouped(atMostOver)} of these may be too many`) : undefined;
    return [key === '' ? '(empty)' : key, rule, over ? [grouped(refused), over] : grouped(refused), bar(refused, most)];
  });
  return table('Keys by how often they were refused.', [['Key'], ['Rule'], ['Refused', 'number'], ['Compared', 'share roomy']], rows);
}

function clients({ clients: { known, seen, refused, browsers, tools, others } }) {
  if (!known) return [make('p', '', 'The log does not have the addresses of clients.')];
  const all = seen.count === 1 ? 'The only client' : `${about(refused)} of ${about(seen)} clients`;
  const groups = [
    ['People, by their browsers', browsers],
    ['Libraries, tools and crawlers', tools],
    ['Others, or without a user agent', others],
  ];
  const most = Math.max(1, ...groups.map(([, { requests }]) => requests));
  const rows = groups.map(([name, { clients, requests }]) => [name, about(clients), grouped(requests), bar(requests, most)]);
  const caption = `${all} would have been refused at least once (${percent(refused.count, seen.count)}). What they look like, by the user agents of refused requests:`;
  return [table(caption, [['Looks like'], ['Clients', 'number'], ['Refused requests', 'number'], ['Compared', 'share roomy']], rows)];
}

function skipped({ skipped: { count: all, first } }) {
  const rest = all - first.length;
  const more = rest > 0 ? [make('li', '', `and ${count(rest, 'further line')}`)] : [];
  return [make('ul', 'notes', ...first.map(({ line, why }) => make('li', '', `line ${grouped(line)}: ${why}`)), ...more)];
}
