import { Engine } from 'leapgate/engine';
import { LeapArray } from 'leapgate/stats';

const array = new LeapArray({ intervalMs: 1000 });
const passes: number[] = array.values().map(({ pass }) => pass);
const { root } = new Engine({}).nodes;
root.entrances().map(({ name }) => name.length + passes.length);
// @ts-expect-error a mistyped option
new LeapArray({ intervalMs: 1000, samples: 2 });
