// Elements: element('p', { class: 'note', onclick }, 'text', child). A property that begins with `on` is a listener.
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (typeof value === 'boolean') made.toggleAttribute(name, value);
    else if (value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// Writes a text where it differs: a page that says the same again costs a layout, and a screen reader says it again.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// A count, with its thousands apart.
export const counted = (number) => number.toLocaleString('en');

// The colours of the page's theme, for canvases, by the names of style.css. An element tells them: the value of a property names both
// themes'.
export function colours(names) {
  const probe = document.body.appendChild(element('span', { hidden: true }));
  const found = names.map((name) => {
    probe.style.color = `var(--${name})`;
    return [name, getComputedStyle(probe).color];
  });
  probe.remove();
  return Object.fromEntries(found);
}

// Whether the visitor has asked for less motion.
const calm = matchMedia('(prefers-reduced-motion: reduce)');
export const isCalm = () => calm.matches;
