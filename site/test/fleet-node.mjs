// The numbers of a fleet in Node, with the package's entries for Node, as JSON. usage: node fleet-node.mjs SETTINGS MILLISECONDS
// Its clocks, timers and randomness are those of the world, before the package is imported, in a process of their own.
import { Date, clearTimeout, crypto, setTimeout } from '../world.js';

Object.assign(globalThis, { Date, setTimeout, clearTimeout });
Object.defineProperty(globalThis, 'crypto', { value: crypto });
process.emitWarning = () => {};
const { SharedLimiter } = await import('../../dist/npm/dist/shared/node.js');
const { MemoryStore } = await import('../../dist/npm/dist/memory/node.js');
const { Fleet, readActs } = await import('../fleet.js');

const { acts, ...settings } = JSON.parse(process.argv[2]);
const fleet = new Fleet({ SharedLimiter, MemoryStore }, { ...settings, acts: readActs(acts) });
await fleet.until(Number(process.argv[3]));
console.log(JSON.stringify(fleet.numbers()));
