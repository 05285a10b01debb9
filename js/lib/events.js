// The listeners of an engine. No decision depends on them: what they throw becomes a warning.

import { listed, wrong } from './errors.js';
import { warn } from './warn.js';

// So many events at most are told in one go: a listener may cause further ones.
const MOST_AT_ONCE = 1000;

export class Events {
  // By event.
  #listeners = new Map([['refused', new Set()]]);
  // By event: a function that tells what has happened, while there are listeners.
  #watched = new Map();
  // What listeners are to be told yet, in order.
  #untold = [];
  #isTelling = false;

  // Adds an event that is looked for only while there are listeners: `watch` tells what has happened since it was last called; it
  // is told whether there are listeners still.
  add(event, watch) {
    this.#listeners.set(event, new Set());
    this.#watched.set(event, watch);
  }

  on(event, listener) {
    const listeners = this.#listeners.get(event);
    if (listeners === undefined) throw wrong('event', event, `is not a valid event; use ${listed([...this.#listeners.keys()])}`);
    if (typeof listener !== 'function') throw wrong('listener', listener, 'is not a function; use one');
    const watch = this.#watched.get(event);
    if (listeners.size === 0) watch?.(true);
    const own = { listener, isWarned: false };
    listeners.add(own);
    return () => {
      if (listeners.delete(own) && listeners.size === 0) watch?.(false);
    };
  }

  // To be called after each call of the module that may have changed something.
  look() {
    for (const [event, watch] of this.#watched) if (this.#listeners.get(event).size > 0) watch(true);
  }

  tell(event, what) {
    if (this.#listeners.get(event).size === 0) return;
    this.#untold.push([event, what]);
    if (this.#isTelling) return;
    this.#isTelling = true;
    for (let i = 0; i < Math.min(this.#untold.length, MOST_AT_ONCE); i++) {
      const [event, what] = this.#untold[i];
      for (const own of [...this.#listeners.get(event)]) call(own, event, what);
    }
    this.#untold = [];
    this.#isTelling = false;
  }
}

function call(own, event, what) {
  const failed = (error) => {
    if (own.isWarned) return;
    own.isWarned = true;
    warn('LEAPGATE_LISTENER', `leapgate: a listener of \`${event}\` has thrown: ${error?.message ?? error}`);
  };
  try {
    const returned = own.listener(what);
    if (typeof returned?.then === 'function') returned.then(undefined, failed);
  } catch (error) {
    failed(error);
  }
}
