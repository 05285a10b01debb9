// Shared by the adapters of node:http.

// Calls `then` once, when the response has been sent or the connection is gone: at once, if it already is.
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

// How a response has ended: `error` is undefined, for unknown, if the client has left before.
// `shown` is the framework's response, which users of the adapter get.
export function outcomeOf(response, shown) {
  // Over HTTP/2, an aborted response counts as finished, too.
  const isAnswered = response.writableEnded && response.writableFinished;
  return { response: shown, error: isAnswered ? response.statusCode >= 500 : undefined };
}

// Whether a proxy has sent the client's address.
export const isForwarded = ({ headers }) => headers['x-forwarded-for'] !== undefined || headers.forwarded !== undefined;
