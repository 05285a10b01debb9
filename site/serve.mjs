// Serves a folder on 127.0.0.1. usage: node site/serve.mjs FOLDER [PORT]
import { spawn } from 'node:child_process';
import { createReadStream, existsSync, realpathSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, resolve, sep } from 'node:path';

const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.wasm': 'application/wasm',
};

// Resolves to the server, once it listens; it answers below any `base`, as a host of files may have one.
export function serve(folder, port = 0, base = '/') {
  const root = resolve(folder);
  const server = createServer((request, response) => {
    const refuse = (status) => response.writeHead(status, { 'content-type': 'text/plain' }).end(`${status}\n`);
    if (!['GET', 'HEAD'].includes(request.method)) return refuse(405);
    let path;
    try {
      path = decodeURIComponent(new URL(request.url, 'http://127.0.0.1').pathname);
    } catch {
      return refuse(400);
    }
    if (path.includes('\0')) return refuse(400);
    const file = path.startsWith(base) && join(root, path.slice(base.length) || 'index.html');
    if (!file || !file.startsWith(root + sep) || !existsSync(file) || !statSync(file).isFile()) return refuse(404);
    response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream', 'cache-control': 'no-cache' });
    if (request.method === 'HEAD') return response.end();
    createReadStream(file).on('error', () => response.destroy()).pipe(response);
  });
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', () => resolve(server));
  });
}

// Opens an address in the visitor's browser, where there is a screen; if not, the address has been printed.
function open(url) {
  const [command, ...args] = { darwin: ['open'], win32: ['cmd', '/c', 'start'] }[process.platform] ?? ['xdg-open'];
  const hasScreen = process.platform !== 'linux' || process.env.DISPLAY || process.env.WAYLAND_DISPLAY;
  if (hasScreen) spawn(command, [...args, url], { stdio: 'ignore', detached: true }).on('error', () => {}).unref();
}

if (process.argv[1] && realpathSync(process.argv[1]) === new URL(import.meta.url).pathname) {
  const [folder, port = '8000'] = process.argv.slice(2);
  // Another one if it is taken.
  const server = await serve(folder, Number(port)).catch(() => serve(folder));
  const url = `http://127.0.0.1:${server.address().port}/`;
  console.log(`The playground is at ${url} until Ctrl-C.`);
  open(url);
}
