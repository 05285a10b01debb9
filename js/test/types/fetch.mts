import { leapgate } from 'leapgate/fetch';
import { Engine } from 'leapgate/engine';

const limited = leapgate({ limit: 100, windowMs: 60_000, ip: 'cloudflare' });
interface Bindings {
  NAME: string;
}
export default {
  fetch: limited(
    (request: Request, env: Bindings, ctx: { waitUntil(promise: Promise<unknown>): void }) =>
      new Response(env.NAME + request.url + typeof ctx),
  ),
};
export const GET: (request: Request, context: { params: Promise<{ id: string }> }) => Promise<Response> = limited(
  async (request: Request, { params }: { params: Promise<{ id: string }> }) =>
    Response.json({ url: request.url, id: (await params).id }),
);
export const plain: (request: Request) => Promise<Response> = limited((request) => new Response(request.url));
interface BunServer {
  upgrade(request: Request): boolean;
}
export const ofBun: (request: Request, server: BunServer) => Promise<Response | undefined> = limited(
  (request: Request, server: BunServer) => (server.upgrade(request) ? undefined : new Response('hello')),
);
export const early = limited((request: Request, server: BunServer) => {
  if (server.upgrade(request)) return;
  return new Response('hello');
});
export const perhaps: Promise<Response | undefined> = early(new Request('http://localhost'), { upgrade: () => true });
// @ts-expect-error it may be undefined
export const response: Promise<Response> = early(new Request('http://localhost'), { upgrade: () => true });
class OtherResponse extends Response {}
export const other: Promise<Response> = limited(async () => new OtherResponse())(new Request('http://localhost'));
leapgate({ limit: 1, windowMs: 1000, ip: { header: 'x-forwarded-for', hops: 2 } });
leapgate<[Request, Bindings]>({ limit: (request, env) => env.NAME.length, windowMs: 1000, cost: () => 2, ip: 'cloudflare' });
// @ts-expect-error a fetch handler has no property
leapgate({ limit: 1, windowMs: 1000, ip: 'cloudflare', requestPropertyName: 'a' });
leapgate({ limit: 1, windowMs: 1000, ip: (request, info) => info.remoteAddr.hostname ?? request.headers.get('a') });
leapgate<[Request, Bindings]>({ limit: 1, windowMs: 1000, key: (request, env) => request.url + env.NAME });
leapgate({
  limit: 1,
  windowMs: 1000,
  key: async () => 7,
  skip: (request) => request.method === 'OPTIONS',
  countIf: (request, response) => request.method === 'GET' && response.ok,
  reply: (request, result) => Response.json({ url: request.url, rule: result.rule }, { status: 429 }),
});

const engine = new Engine({ flowRules: [] });
leapgate({ engine, resource: (request) => request.url });
leapgate({ engine, resource: () => 'a', ip: 'cloudflare' });
leapgate({ engine, resource: () => 'a', key: () => 'b' });
leapgate({ engine, resource: () => 'a', key: async (request) => ({ path: request.url, 'query:a': ['b', 7n], host: null }) });
// @ts-expect-error no value of a key
leapgate({ engine, resource: () => 'a', key: () => ({ path: true }) });
// @ts-expect-error an object is a key of an engine
leapgate({ limit: 1, windowMs: 1000, key: () => ({ path: '/' }) });
// @ts-expect-error an engine is asked about a resource
leapgate({ engine, ip: 'cloudflare' });

// @ts-expect-error neither `ip` nor `key`
leapgate({ limit: 1, windowMs: 1000 });
// @ts-expect-error both do
leapgate({ limit: 1, windowMs: 1000, ip: 'cloudflare', key: () => 'a' });
// @ts-expect-error another source
leapgate({ limit: 1, windowMs: 1000, ip: 'fastly' });
// @ts-expect-error no header
leapgate({ limit: 1, windowMs: 1000, ip: { hops: 2 } });
// @ts-expect-error an option of a header that is not there
leapgate({ limit: 1, windowMs: 1000, ip: { header: 'a', hop: 2 } });
// @ts-expect-error an option that is not there
leapgate({ limit: 1, windowMs: 1000, ip: 'cloudflare', max: 1 });
leapgate({ limit: 1, windowMs: 1000, ip: { header: 'a', hops: undefined }, key: undefined, reply: undefined });
// @ts-expect-error no binding of that name
leapgate<[Request, Bindings]>({ limit: 1, windowMs: 1000, key: (request, env) => env.NAMES });
// @ts-expect-error no handler
limited();
// @ts-expect-error no response
limited(() => 'hello');
