// A Durable Object as the store of shared limiters: one object for each key.

import { MemoryStore } from 'leapgate/shared/memory';
import { checkOptions, outermost, wrong } from './errors.js';

// The name of what an object stores.
const STATE = 'leases';

// The longest name of an object that is not hashed; at most 1024 bytes are allowed.
const MAX_NAME = 256;

// Workers export this class. What it knows is written before its answer leaves: the runtime holds answers back until then.
export class LeaseStore {
  #storage;
  #store = new MemoryStore();
  #generation = 0;
  #hasAlarm = false;

  constructor(state) {
    this.#storage = state.storage;
  }

  async #load() {
    if (this.#generation === this.#store.generation) return;
    const [known, alarm] = [await this.#storage.get(STATE), await this.#storage.getAlarm()];
    if (known !== undefined) this.#store.restore('', known);
    this.#hasAlarm = alarm !== null;
    this.#generation = this.#store.generation;
  }

  async fetch(request) {
    const text = await request.text();
    await this.#load();
    let answer;
    try {
      answer = this.#store.lease('', text);
    } catch (error) {
      return new Response(error.message, { status: 400 });
    }
    const known = this.#store.snapshot('');
    this.#storage.put(STATE, known);
    if (!this.#hasAlarm) this.#storage.setAlarm(known.overAt);
    this.#hasAlarm = true;
    return new Response(answer);
  }

  // Deletes what is stored when nothing of it counts any more.
  async alarm() {
    await this.#load();
    const known = this.#store.snapshot('');
    this.#hasAlarm = known?.overAt > Date.now();
    if (this.#hasAlarm) await this.#storage.setAlarm(known.overAt);
    else await this.#storage.deleteAll();
  }
}

async function nameOf(key) {
  if (key.length <= MAX_NAME) return key;
  const hash = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(key));
  return Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export const durableObject = outermost('durableObject', (namespace, options = {}) => {
  const { keyPrefix = 'leapgate:' } = checkOptions('options', options, ['keyPrefix'], "`{ keyPrefix: 'limits:' }`, or leave it out");
  if (typeof keyPrefix !== 'string') throw wrong('options.keyPrefix', keyPrefix, 'is not a string; use one');
  if (typeof namespace?.idFromName !== 'function' || typeof namespace.get !== 'function') {
    throw wrong('namespace', namespace, 'is not a namespace of Durable Objects; use the binding of `LeaseStore`, as in `env.LEASES`');
  }
  return {
    async lease(key, request) {
      const name = await nameOf(keyPrefix + key);
      const response = await namespace.get(namespace.idFromName(name)).fetch('https://leapgate/', { method: 'POST', body: request });
      const text = await response.text();
      if (!response.ok) throw new Error(`${response.status} ${text}`);
      return text;
    },
  };
});
