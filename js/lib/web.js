// Shared by the adapters of fetch's Request and Response.

// A handler may return something else: in Bun, a request that becomes a WebSocket has no response. A response may be of another realm
// or library, so its class is not checked.
export const isResponse = (value) => typeof value?.status === 'number' && typeof value.headers?.set === 'function';

// Adds headers to a response; anything else is returned unchanged. A response from elsewhere is immutable and is copied; one that
// switches protocols (101) cannot be copied.
export function withHeaders(response, headers) {
  const entries = Object.entries(headers);
  if (entries.length === 0 || !isResponse(response)) return response;
  try {
    for (const [name, value] of entries) response.headers.set(name, value);
    return response;
  } catch {
    if (response.status < 200) return response;
    return withHeaders(new Response(response.body, response), headers);
  }
}

export const responseOf = ({ status, headers, body }) => new Response(body, { status, headers });

// Calls `over` for handlers and body readers that were garbage-collected: nothing can continue with them.
const lost = typeof FinalizationRegistry === 'function' ? new FinalizationRegistry((over) => over()) : undefined;

// Watches the response to a request, and calls `end` once, with `{ response, error }`: when the response has been read to its end,
// or when the client has left, even before there is a response (`error` is then undefined, for unknown).
//
// When a client leaves, Workers stop all code of its request, and the end goes unnoticed, unless the flag `enable_request_signal`
// is set, or `context` keeps the reader of the body running: see `pump`.
export function watch(request, end, context) {
  let isOver = false;
  let response;
  const over = (error) => {
    if (isOver) return;
    isOver = true;
    lost?.unregister(over);
    end({ response, error });
  };
  if (request.signal?.aborted) over();
  request.signal?.addEventListener('abort', () => over(), { once: true });

  // Returns the response to send instead.
  function through(given) {
    if (!isResponse(given)) {
      over(false);
      return given;
    }
    response = given;
    const failed = response.status >= 500;
    // The body of a HEAD is never read. A response that switches protocols has none.
    if (response.body === null || request.method === 'HEAD' || response.status < 200) {
      over(failed);
      return response;
    }
    // The reader is collected with its consumer. (The body itself may be held for longer, as by its producer.)
    const held = { reader: response.body.getReader() };
    lost?.unregister(over);
    if (!isOver) lost?.register(held, over, over);
    if (typeof IdentityTransformStream !== 'function' || typeof context?.waitUntil !== 'function') {
      return new Response(pulled(held, failed), response);
    }
    const { readable, writable } = new IdentityTransformStream();
    context.waitUntil(pump(held, failed, writable.getWriter()));
    return new Response(readable, response);
  }

  // Reads only on demand, as if nothing stood between.
  function pulled(held, failed) {
    const source = {
      async pull(controller) {
        try {
          const { done, value } = await held.reader.read();
          if (!done) return controller.enqueue(value);
          over(failed);
          controller.close();
        } catch (error) {
          over(true);
          controller.error(error);
        }
      },
      cancel(reason) {
        over();
        return held.reader.cancel(reason);
      },
    };
    return new ReadableStream(source, { highWaterMark: 0 });
  }

  // In Workers, a stream is not cancelled when its client leaves; but writes to one of their own streams then fail.
  async function pump(held, failed, writer) {
    try {
      for (;;) {
        const { done, value } = await held.reader.read().catch((error) => {
          over(true);
          throw error;
        });
        if (done) break;
        await writer.write(value);
      }
      over(failed);
      await writer.close();
    } catch (error) {
      over();
      await Promise.allSettled([writer.abort(error), held.reader.cancel(error)]);
    }
  }

  if (!isOver) lost?.register(through, over, over);
  // A falsy value that was thrown is an error, too.
  return { through, failed: (error) => over(error || true) };
}
