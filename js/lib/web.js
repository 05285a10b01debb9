// What the adapters of fetch's Request and Response share.

// A response with these headers too. What comes from elsewhere cannot be changed, and is made anew; what switches protocols
// (101) cannot be made anew.
export function withHeaders(response, headers) {
  const entries = Object.entries(headers);
  if (entries.length === 0) return response;
  try {
    for (const [name, value] of entries) response.headers.set(name, value);
    return response;
  } catch {
    if (response.status < 200) return response;
    return withHeaders(new Response(response.body, response), headers);
  }
}

export const responseOf = ({ status, headers, body }) => new Response(body, { status, headers });

// Responses that are held no more, though nobody has read them to their end.
const lost = typeof FinalizationRegistry === 'function' ? new FinalizationRegistry((over) => over()) : undefined;

// Watches what a request is answered with, and calls `end` once, with `{ response, error }`: when the response has been read to
// its end, or the client has gone, be it before there is a response (`error` is undefined then, as nobody knows).
export function watch(request, end) {
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
    response = given;
    const failed = response.status >= 500;
    // A HEAD's body is never read. What switches protocols has none, and another life.
    if (response.body === null || request.method === 'HEAD' || response.status < 200) {
      over(failed);
      return response;
    }
    const reader = response.body.getReader();
    const source = {
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
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
        return reader.cancel(reason);
      },
    };
    // Read only when it is asked for, as if nothing stood between.
    const body = new ReadableStream(source, { highWaterMark: 0 });
    lost?.register(body, over, over);
    return new Response(body, response);
  }

  return { through, failed: over };
}
