// Fields of figures, each with its label.
import { element } from './dom.js';
import { whole } from './link.js';

// A whole number. What is not one is told, and changes nothing.
export function numberInput(title, { value, from, to, set, tell, unit }) {
  const input = element('input', { type: 'number', min: from, max: to, value });
  input.addEventListener('change', () => {
    const read = whole(from, to)(input.value);
    if (read === undefined) tell(`${title}: “${input.value.slice(0, 20)}” is not possible; use a whole number from ${from} to ${to}.`);
    else set(read);
  });
  const node = element('label', {}, title, ' ', input, unit ? ` ${unit}` : '');
  return { node, show: (value) => (input.value = value) };
}

// One of `choices`, `[value, text]`.
export function choiceInput(title, { value, choices, set }) {
  const select = element('select');
  const offer = (choices, value) => {
    select.replaceChildren(...choices.map(([one, text]) => element('option', { value: one, selected: one === value }, text)));
  };
  offer(choices, value);
  select.addEventListener('change', () => set(choices.find(([one]) => String(one) === select.value)?.[0] ?? select.value));
  const node = element('label', {}, title, ' ', select);
  return { node, show: (value) => (select.value = value), offer };
}
