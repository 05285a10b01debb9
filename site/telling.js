// What figures tell: the frame of the page, and screen readers.
import { element, say } from './dom.js';

// That the link should be written again.
export const tellState = (place) => place.dispatchEvent(new Event('state', { bubbles: true }));

// One sentence, to be shown above the figure; none, once it is no longer true.
export const tellNotice = (place, sentence) => place.dispatchEvent(new CustomEvent('notice', { bubbles: true, detail: sentence }));

// How often a screen reader may be told, in real milliseconds.
const TELL_MS = 3000;

// What happens, for screen readers.
export class Live {
  node = element('p', { class: 'unseen', 'aria-live': 'polite' });
  #at = -Infinity;

  // At a real time, what `sentence` returns, unless it was told a moment ago.
  tell(time, sentence) {
    if (time - this.#at < TELL_MS) return;
    const text = sentence();
    if (text === this.node.textContent) return;
    this.#at = time;
    say(this.node, text);
  }
}
