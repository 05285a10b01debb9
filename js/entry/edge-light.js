// The edge runtime of Next.js and Vercel: as Workers, with another import specifier.
import module from './leapgate_bg.wasm?module';
import { link } from './core.js';

link(() => module, () => Date.now());
export * from './index.js';
