// The table of limiters: the worst interval of each as a bar, with the limit in its middle.
import { element, say } from '../dom.js';

export class Bars {
  #rows;
  #worst = element('span');

  // Calls `choose(id)` when the visitor chooses a limiter.
  constructor(contestants, shown, choose) {
    this.#rows = contestants.map(({ id, title }) => {
      const fill = element('div', { class: 'fill' });
      const most = element('span', { class: 'most' });
      const verdict = element('span', { class: 'verdict' });
      const passed = element('td', { class: 'passed' });
      const radio = element('input', { type: 'radio', name: 'ring', value: id, id: `ring-${id}`, checked: id === shown, onchange: () => choose(id) });
      const row = element(
        'tr',
        {},
        element('th', { scope: 'row' }, radio, element('label', { for: `ring-${id}` }, title)),
        element('td', {}, element('div', { class: 'track', 'aria-hidden': 'true' }, fill, element('div', { class: 'mark' }))),
        element('td', { class: 'number' }, most, ' ', verdict),
        passed,
      );
      return { row, fill, most, verdict, passed, drawn: '' };
    });
    const head = [
      element('th', { scope: 'col' }, element('span', { class: 'unseen' }, 'Limiter')),
      element('th', { scope: 'col', colspan: 2, class: 'worst' }, this.#worst),
      element('th', { scope: 'col', class: 'passed' }, 'passed'),
    ];
    this.node = element(
      'table',
      { class: 'bars', 'aria-label': 'Limiters' },
      element('thead', {}, element('tr', {}, ...head)),
      element('tbody', {}, ...this.#rows.map(({ row }) => row)),
    );
  }

  // What the bars are.
  head(text) {
    say(this.#worst, text);
  }

  draw(contestants, limit) {
    contestants.forEach(({ passed, worst: { most } }, i) => {
      const nodes = this.#rows[i];
      const drawn = `${most} ${passed} ${limit}`;
      if (nodes.drawn === drawn) return;
      nodes.drawn = drawn;
      const isOver = most > limit;
      nodes.row.classList.toggle('over', isOver);
      nodes.fill.style.inlineSize = `${Math.min(100, (50 * most) / limit)}%`;
      say(nodes.most, String(most));
      say(nodes.verdict, isOver ? `▲ ${most - limit} over` : '');
      say(nodes.passed, String(passed));
    });
  }
}
