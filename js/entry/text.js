// UTF-8 encoding and decoding for test environments that have neither (Jest's jsdom): only the calls that the package makes.

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
