// How the page takes the modules of the npm package: their code in one file, their WebAssembly in another.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

// Modules with timers of their own: the page runs them in virtual time.
const IN_VIRTUAL_TIME = /[\\/]playground[\\/]workerd\.js$/;
const NAMES = ['Date', 'setTimeout', 'clearTimeout', 'crypto', 'console'];

// The entries by the names under which users import them.
export const aliasOf = (npm) => ({
  'leapgate/slim': `${npm}/slim.js`,
  'leapgate/leapgate_bg.wasm': `${npm}/leapgate_bg.wasm`,
  // One module has them all, and replays beside them.
  ...Object.fromEntries(['engine', 'shared', 'shared/memory'].map((name) => [`leapgate/${name}`, `${npm}/../../playground/workerd.js`])),
});

// A plugin for esbuild. An entry for Workers imports its WebAssembly as a compiled module: here that is a file, which is compiled
// before the entry runs.
export const inVirtualTime = (here) => ({
  name: 'in-virtual-time',
  setup(build) {
    build.onLoad({ filter: IN_VIRTUAL_TIME }, ({ path }) => ({
      contents: `import { ${NAMES.join(', ')} } from ${JSON.stringify(join(here, 'world.js'))};\n${readFileSync(path, 'utf8')}`,
      resolveDir: dirname(path),
    }));
    build.onResolve({ filter: /^\.\/leapgate_bg\.wasm$/ }, ({ resolveDir, importer }) =>
      IN_VIRTUAL_TIME.test(importer) ? { path: join(resolveDir, 'leapgate_bg.wasm'), namespace: 'compiled' } : undefined,
    );
    build.onLoad({ filter: /.*/, namespace: 'compiled' }, ({ path }) => ({
      contents: `
        import url from ${JSON.stringify(path)};
        import { bytesOf } from ${JSON.stringify(join(here, 'module.js'))};
        export default await WebAssembly.compile(await bytesOf(new URL(url, import.meta.url)));
      `,
      resolveDir: dirname(path),
    }));
  },
});
