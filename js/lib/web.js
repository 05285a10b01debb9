// What the adapters of fetch's Request and Response share.

// A handler may return something else: in Bun, a request that becomes a WebSocket has no response. A response may be of another realm
// or library, so its class does not tell.
export const isResponse = (value) => typeof value?.status === 'number' && typeof value.headers?.set === 'function';

// A response with these headers too; anything else is returned unchanged. A response from elsewhere is immutable and is copied; one
// that switches protocols (101) cannot be copied.
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

// What nobody can go on with any more: a handler, or a body that is read.
const lost = typeof FinalizationRegistry === 'function' ? new FinalizationRegistry((over) => over()) : undefined;

// Watches what a request is answered with, and calls `end` once, with `{ response, error }`: when the response has been read
// to its end, or the client has gone, be it before there is a response (`error` is undefined then, as nobody knows).
//
// Workers drop all that a request has going when its client goes, and nothing runs that could tell, unless there is the flag
// `enable_request_signal`, or `context`, in which what a body is read with goes on: see `pump`.
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

  // Gives the response to be sent instead.
  function through(given) {
    if (!isResponse(given)) {
      over(false);
      return given;
    }
    response = given;
    const failed = response.status >= 500;
    // A HEAD's body is never read. What switches protocols has none, and another life.
    if (response.body === null || request.method === 'HEAD' || response.status < 200) {
      over(failed);
      return response;
    }
    // It is lost with who reads it. (The body itself may be held for longer, as by what writes it.)
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

  // Read only when it is asked for, as if nothing stood between.
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

  // In Workers, nobody cancels a stream whose client has gone; but what is written to one of theirs is not taken then.
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
  // Whatever was thrown, it is an error.
  return { through, failed: (error) => over(error || true) };
}
