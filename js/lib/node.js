// What the adapters of node:http share.

// Calls `then` once, when a response has been sent or its connection is gone: at once, where that is so already.
export function whenOver(response, then) {
  if (response.writableFinished || response.destroyed) return then();
  let isOver = false;
  const over = () => {
    if (isOver) return;
    isOver = true;
    then();
  };
  response.once('finish', over);
  response.once('close', over);
}

// How a response has ended: `error` is undefined where nobody knows, since the client has left before.
// `told` is the response as the adapter's users know it.
export function outcomeOf(response, told) {
  // Over HTTP/2, one that was broken off is finished, too.
  const isAnswered = response.writableEnded && response.writableFinished;
  return { response: told, error: isAnswered ? response.statusCode >= 500 : undefined };
}

// Whether a proxy says who the client is.
export const isForwarded = ({ headers }) => headers['x-forwarded-for'] !== undefined || headers.forwarded !== undefined;
