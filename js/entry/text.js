// What encodes and decodes UTF-8, where a test environment that plays a browser has neither (Jest's jsdom): no more of it
// than what is called here.

class Encoder {
  encode(text) {
    const bytes = unescape(encodeURIComponent(text.toWellFormed()));
    return Uint8Array.from(bytes, (byte) => byte.charCodeAt(0));
  }

  encodeInto(text, target) {
    const bytes = this.encode(text);
    target.set(bytes);
    return { written: bytes.length };
  }
}

class Decoder {
  decode(bytes) {
    return decodeURIComponent(escape(String.fromCharCode(...bytes)));
  }
}

export const TextEncoder = globalThis.TextEncoder ?? Encoder;
export const TextDecoder = globalThis.TextDecoder ?? Decoder;
