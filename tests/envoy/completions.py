"""An upstream that completes chats and says what that cost, and clients of it that may leave in the middle.

What it answers is chosen by the query, so that a test says at its request what the request will cost.
"""

import json
import socket
import time
import urllib.parse
from typing import NamedTuple

from endings import Behaving

#: Publishes the usage that upstreams tell as typed metadata `envoy.ai.token_usage`.
TOKEN_USAGE = {
    "name": "envoy.filters.http.ai_protocol_manager",
    "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ai_protocol_manager.v3.AiProtocolManager",
        "response_handling": {"token_usage": {"include_unconfigured_routes": True}},
    },
}


class Completion(NamedTuple):
    """One request, as the upstream saw it; times in seconds of the monotonic clock."""

    path: str
    began: float
    ended: float
    #: All tokens that it generated and read, whether the client learned of them or not.
    tokens: int


class Completions(Behaving):
    """Answers each request as its query says.

    | Parameter | Meaning | Default |
    |---|---|---|
    | `input`, `output`, `cached` | tokens of the answer's `usage` | 0 |
    | `seconds` | how long the answer takes | 0 |
    | `chunks` | in how many parts it comes | 3 |
    | `as` | `sse`, or `json` in one piece; `anthropic` is SSE, too | `sse` |
    | `usage` | `no`: it is left out; `text`: numbers as text | |
    | `end` | `reset`: the connection is cut after the last chunk; `half`: after the first | |
    | `status` | the status | 200 |
    | `cost` | a header `x-cost`; `trailer`: a trailer `x-cost` | |
    """

    def __init__(self):
        self.log = []
        super().__init__()

    def _serve(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with connection, connection.makefile("rb") as lines:
                while request := lines.readline():
                    path, length = request.split()[1].decode(), 0
                    while (line := lines.readline()) not in (b"\r\n", b""):
                        name, _, value = line.partition(b":")
                        length = int(value) if name.lower() == b"content-length" else length
                    lines.read(length)
                    began = time.monotonic()
                    asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(path).query))
                    try:
                        if not self._answer(connection, asked):
                            return
                    finally:
                        tokens = int(asked.get("input", 0)) + int(asked.get("output", 0))
                        self.log.append(Completion(path, began, time.monotonic(), tokens))
        except OSError:
            pass  # the client has left

    def _answer(self, connection, asked):
        """Whether the connection stays open."""
        status, form, end = asked.get("status", "200"), asked.get("as", "sse"), asked.get("end")
        chunks = int(asked.get("chunks", 3))
        pause = float(asked.get("seconds", 0)) / chunks
        kind = "application/json" if form == "json" else "text/event-stream"
        cost = f"x-cost: {asked['cost']}\r\n" if "cost" in asked else ""
        head = f"HTTP/1.1 {status} Status\r\ncontent-type: {kind}\r\n{cost}"
        if form == "json":
            time.sleep(pause * chunks)
            body = json.dumps({"id": "c", "object": "chat.completion", "model": "m", "choices": [], **usage(asked)}).encode()
            connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            return True
        trailer = "trailer: x-cost\r\n" if "trailer" in asked else ""
        connection.sendall(f"{head}{trailer}transfer-encoding: chunked\r\n\r\n".encode())
        for event in events(form, asked, chunks):
            time.sleep(pause)
            data = event.encode()
            connection.sendall(b"%x\r\n%s\r\n" % (len(data), data))
            if end == "half":
                break
        if end:
            time.sleep(0.02)  # else what was sent is dropped with the connection
            connection.shutdown(socket.SHUT_RDWR)
            return False
        last = f"x-cost: {asked['trailer']}\r\n" if trailer else ""
        connection.sendall(f"0\r\n{last}\r\n".encode())
        return True


def usage(asked):
    """The `usage` of OpenAI's answers."""
    if asked.get("usage") == "no":
        return {}
    number = str if asked.get("usage") == "text" else int
    read, written = int(asked.get("input", 0)), int(asked.get("output", 0))
    return {"usage": {"prompt_tokens": number(read), "completion_tokens": number(written), "total_tokens": number(read + written),
                      "prompt_tokens_details": {"cached_tokens": int(asked.get("cached", 0))}}}


def events(form, asked, chunks):
    """The events of a stream; the usage comes with the last but one of OpenAI's."""
    def event(data, name=""):
        return f"{name}data: {json.dumps(data)}\n\n"

    if form == "anthropic":
        read, written = int(asked.get("input", 0)), int(asked.get("output", 0))
        yield event({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [],
                     "usage": {"input_tokens": read, "cache_read_input_tokens": int(asked.get("cached", 0)), "output_tokens": 1}}},
                    "event: message_start\n")
        for _ in range(chunks):
            yield event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word "}},
                        "event: content_block_delta\n")
        yield event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": written}},
                    "event: message_delta\n")
        yield event({"type": "message_stop"}, "event: message_stop\n")
        return
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m"}
    for _ in range(chunks):
        yield event({**chunk, "choices": [{"index": 0, "delta": {"content": "word "}}]})
    yield event({**chunk, "choices": [], **usage(asked)}) + "data: [DONE]\n\n"


def open_chat(port, path, headers, leaves=False):
    """A chat on a new connection: its status, once all of it has come, or after half of it for a client that `leaves`."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{lines}\r\n".encode())
        answer = b""
        while data := connection.recv(65536):
            answer += data
            if leaves and b"data:" in answer:
                break
    return int(answer[9:12]) if answer else 0
