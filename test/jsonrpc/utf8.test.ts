import assert from "node:assert/strict";
import { Buffer, isUtf8 } from "node:buffer";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { parseMessage } from "../../src/jsonrpc/parse.ts";
import { bytesOf, joinMessage, type Message, withResponseId } from "../../src/jsonrpc/message.ts";
import { LONG_LINE } from "../../src/jsonrpc/line-reader.ts";
import { Utf8Validator } from "../../src/jsonrpc/utf8.ts";
import { readThroughPipe } from "./through-pipe.ts";

/** First, middle and last bytes of characters of every length, and bytes that are in none. */
const BYTES = Buffer.from("4180bfc0c3a9e0a0e282acedefbbf09f9890f4f8ff", "hex");
const PIECES = fc.array(
  fc
    .oneof(fc.constantFrom("\u0080", "é", "\u0800", "€", "😀", "a"), fc.constantFrom(...BYTES))
    .map((one) => (typeof one === "string" ? Buffer.from(one) : Buffer.of(one))),
  { maxLength: 20 },
);

/** What a pipe reads of bytes that come in chunks which end there, and how often it replaced something. */
function read(
  side: "server" | "client",
  bytes: Buffer,
  cuts: readonly number[] = [],
): { frames: Message[]; replaced: number } {
  const frames: Message[] = [];
  let replaced = 0;
  const repaired = side === "server" ? () => void replaced++ : undefined;
  readThroughPipe(bytes, cuts, (frame) => frames.push(frame), repaired);
  return { frames, replaced };
}

/** The bytes that are written on for a message. */
const written = (frame: Message): Buffer =>
  frame.kind === "response"
    ? joinMessage(withResponseId(frame, '"c"'))
    : frame.kind === "batch"
      ? Buffer.concat(frame.items.map(written))
      : bytesOf(frame);

const join = (...parts: readonly (string | Uint8Array | readonly number[])[]): Buffer =>
  Buffer.concat(parts.map((part) => Buffer.from(part as string)));
const decoded = (bytes: Buffer): string =>
  new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);

/** Lines with raw bytes in every place of a message that a peer can fill. */
function messagesWith(raw: readonly number[]): Readonly<Record<string, Buffer>> {
  return {
    "a result": join('{"jsonrpc":"2.0","id":7,"result":{"text":"', raw, '"}}'),
    "a result with its id last": join('{"result":{"text":"', raw, '"},"jsonrpc":"2.0","id":8}'),
    "a result that is scanned": join('{"id":9,"jsonrpc":"2.0","result":{"', raw, '":1}}'),
    "an error": join('{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"', raw, '"}}'),
    "a notification": join('{"jsonrpc":"2.0","method":"n","params":{"a":"', raw, '"}}'),
    "a request": join('{"jsonrpc":"2.0","id":3,"method":"m","params":{"a":["', raw, '"]}}'),
    "the method of a request": join('{"jsonrpc":"2.0","id":4,"method":"m', raw, '","params":{}}'),
    "an unknown member": join('{"jsonrpc":"2.0","id":5,"x":"', raw, '","method":"ping"}'),
    "a batch": join('[{"jsonrpc":"2.0","id":6,"result":{"a":"', raw, '"}}]'),
  };
}

/** A line between two others with characters of several bytes. */
const between = (line: Buffer): Buffer =>
  join('{"jsonrpc":"2.0","method":"é"}\n', line, '\n{"jsonrpc":"2.0","id":1,"result":"€"}\n');
const kindsOf = (frames: readonly Message[]): string => frames.map(({ kind }) => kind).join();

/** What is no valid UTF-8. */
const INVALID: readonly (readonly [name: string, raw: readonly number[]])[] = [
  ["a byte that is in no character", [0xff]],
  ["Latin-1", [0x63, 0x61, 0x66, 0xe9]],
  ["a character without its last byte", [0xe2, 0x82]],
  ["a surrogate", [0xed, 0xa0, 0x80]],
  ["an overlong slash", [0xc0, 0xaf]],
  ["a code point beyond U+10FFFF", [0xf4, 0x90, 0x80, 0x80]],
  ["a byte amid characters", [0xf0, 0x9f, 0x98, 0x80, 0x80, 0xc3, 0xa9]],
];

describe("a check of text that comes in pieces", () => {
  it("finds what a check of the whole finds, wherever it is cut", () => {
    fc.assert(
      fc.property(PIECES, fc.array(fc.nat(40), { maxLength: 8 }), (pieces, places) => {
        const bytes = Buffer.concat(pieces);
        const check = new Utf8Validator();
        let from = 0;
        for (const place of [...places, bytes.length].sort((a, b) => a - b)) {
          check.push(bytes.subarray(from, Math.max(from, place)));
          from = Math.max(from, Math.min(place, bytes.length));
        }
        assert.equal(check.isValid, isUtf8(bytes));
      }),
      { numRuns: 2000 },
    );
  });
});

describe("a message of a server", () => {
  for (const [name, raw] of INVALID) {
    it(`with ${name} has U+FFFD there as TextDecoder writes it, wherever the message is cut`, () => {
      for (const [place, line] of Object.entries(messagesWith(raw))) {
        const expected = written(parseMessage(Buffer.from(decoded(line)))).toString();
        const stream = between(line);
        for (let cut = 0; cut < stream.length; cut++) {
          const { frames, replaced } = read("server", stream, [cut, cut + 1]);
          assert.equal(frames.length, 3, place);
          const [before, frame, behind] = frames.map((each) => written(each));
          assert.ok(frame && isUtf8(frame), `${place}, cut at ${cut}`);
          assert.equal(frame.toString(), expected, `${place}, cut at ${cut}`);
          assert.ok(before?.includes("é") && behind?.includes("€"));
          assert.equal(replaced, 1);
        }
      }
    });
  }

  it("that is valid is passed on byte for byte, also if a chunk ends in each byte of a character", () => {
    for (const character of ["\u0080", "\u0800", "€", "😀", "\u{10ffff}", "\ufffd"]) {
      for (const [place, line] of Object.entries(messagesWith([...Buffer.from(character)]))) {
        const expected = written(parseMessage(line));
        const stream = join(line, "\n", line, "\n");
        for (let cut = 0; cut < stream.length; cut++) {
          const { frames, replaced } = read("server", stream, [cut]);
          assert.equal(replaced, 0, `${place}, cut at ${cut}`);
          assert.deepEqual(frames.map(written), [expected, expected]);
        }
      }
    }
  });

  it("that is no message stays none, and is not counted as replaced", () => {
    const { frames, replaced } = read("server", join("caf", [0xe9], "\n"));
    assert.deepEqual([kindsOf(frames), replaced], ["invalid", 0]);
  });
});

describe("a long result of a server", () => {
  const around = (text: readonly (string | readonly number[])[]): Buffer =>
    join('{"jsonrpc":"2.0","id":7,"result":{"text":"', ...text, '"}}\n');
  const first = '{"jsonrpc":"2.0","id":1,"result":{}}\n';
  /** The two of a line make it long. */
  const filler = "x".repeat(LONG_LINE / 2);

  it("is passed on unjoined and byte for byte, also if each of its chunks ends within a character", () => {
    for (const character of ["é", "€", "😀"]) {
      for (const size of [20_000, 65_536]) {
        for (let shift = 0; shift < 4; shift++) {
          const body =
            "a".repeat(shift) + character.repeat(LONG_LINE / Buffer.byteLength(character));
          const stream = join(first, around([body]));
          const count = Math.ceil(stream.length / size);
          const cuts = Array.from({ length: count }, (_, i) => (i + 1) * size);
          const { frames, replaced } = read("server", stream, cuts);
          assert.equal(replaced, 0);
          const [, frame] = frames;
          assert.ok(frame?.kind === "response" && frame.shape.kind !== "scanned");
          assert.ok(frame.shape.slices !== undefined, "it was joined");
          assert.ok(written(frame).includes(`"${body}"`));
        }
      }
    }
  });

  it("has U+FFFD in each place that is invalid, wherever chunks end", () => {
    for (const [name, raw] of INVALID) {
      const line = around([filler, raw, filler, raw]);
      const expected = written(parseMessage(Buffer.from(decoded(line.subarray(0, -1))))).toString();
      const stream = join(first, line);
      const place = stream.indexOf(Buffer.from(raw));
      for (let inside = 0; inside <= raw.length; inside++) {
        const at = place + inside;
        for (const cuts of [[at], [at, at + 1, at + 2]]) {
          const { frames, replaced } = read("server", stream, cuts);
          const [, frame] = frames;
          assert.ok(frame?.kind === "response");
          assert.ok(written(frame).toString() === expected, `${name}, ${cuts.join()}`);
          assert.ok(isUtf8(written(frame)));
          assert.equal(replaced, 1);
        }
      }
    }
  });
});

describe("a message of a client", () => {
  for (const [name, raw] of INVALID) {
    it(`with ${name} is invalid, with the id and the kind that it has, wherever it is cut`, () => {
      for (const [place, line] of Object.entries(messagesWith(raw))) {
        const plain = parseMessage(Buffer.from(decoded(line)));
        const stream = between(line);
        for (let cut = 0; cut < stream.length; cut++) {
          const { frames } = read("client", stream, [cut, cut + 1]);
          assert.equal(frames.length, 3);
          const [before, whole, behind] = frames;
          assert.deepEqual([before?.kind, behind?.kind], ["notification", "response"]);
          const frame = whole?.kind === "batch" ? whole.items[0] : whole;
          const wanted = plain.kind === "batch" ? plain.items[0] : plain;
          assert.ok(frame?.kind === "invalid", `${place}, cut at ${cut}`);
          assert.equal(frame.code, "parseError");
          assert.equal(frame.parsed?.kind, wanted?.kind);
          const id = wanted?.kind === "request" ? wanted.id.key : undefined;
          assert.equal(frame.id?.key, id);
        }
      }
    });
  }

  it("that is long is invalid as well, and valid if it is", () => {
    const head = '{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"text":"';
    const text = "€".repeat(LONG_LINE);
    for (const [raw, kind] of [
      [[0xff], "invalid"],
      [[0xc3, 0xa9], "request"],
    ] as const) {
      const stream = join('{"jsonrpc":"2.0","method":"m"}\n', head, text, raw, '"}}\n');
      for (const cuts of [[], [70_000, 140_001, 210_002], [stream.length - 5, stream.length - 4]]) {
        const { frames } = read("client", stream, cuts);
        const frame = frames[1];
        assert.equal(frame?.kind, kind, cuts.join());
        assert.ok(frame !== undefined && "id" in frame && typeof frame.id === "object");
        assert.equal(frame.id.key, '"a');
      }
    }
  });

  it("whose id is not valid UTF-8 has no id that could be repeated", () => {
    const line = join('{"jsonrpc":"2.0","id":"', [0xff], '","method":"ping"}\n');
    const [frame] = read("client", line).frames;
    assert.ok(frame?.kind === "invalid");
    assert.equal(frame.id, undefined);
  });

  it("in a batch makes no other message of the batch invalid", () => {
    const first = '[{"jsonrpc":"2.0","id":1,"method":"é"},';
    const line = join(first, '{"jsonrpc":"2.0","id":2,"method":"', [0xff], '"}]\n');
    const [frame] = read("client", line).frames;
    assert.ok(frame?.kind === "batch");
    assert.equal(kindsOf(frame.items), "request,invalid");
  });
});

describe("a byte order mark", () => {
  const MARK = "\ufeff";

  it("before a message is no part of it, in either direction and wherever it is cut", () => {
    for (const line of Object.values(messagesWith([0x61]))) {
      const stream = join(MARK, line, "\n", MARK, line, "\n");
      for (const side of ["server", "client"] as const) {
        for (let cut = 0; cut < stream.length; cut++) {
          const { frames } = read(side, stream, [cut]);
          const plain = parseMessage(line);
          assert.equal(kindsOf(frames), `${plain.kind},${plain.kind}`);
          assert.deepEqual(frames.map(written), [written(plain), written(plain)]);
        }
      }
    }
  });

  it("before a long result is no part of it", () => {
    const text = "x".repeat(2 * LONG_LINE);
    const line = join(MARK, '{"jsonrpc":"2.0","id":7,"result":{"text":"', text, '"}}\n');
    const stream = join('{"jsonrpc":"2.0","id":1,"result":{}}\n', line);
    const [, frame] = read("server", stream, [65_536, 131_072, 196_608]).frames;
    assert.ok(frame?.kind === "response" && frame.id === 7);
    assert.ok(!written(frame).includes(MARK));
  });

  it("within a string belongs to it, and a second one before a message makes that invalid", () => {
    const line = join('{"jsonrpc":"2.0","id":7,"result":{"text":"', MARK, '"}}\n');
    const [frame] = read("server", line).frames;
    assert.ok(frame !== undefined && written(frame).includes(MARK));
    const twice = join(line, MARK, MARK, '{"jsonrpc":"2.0","id":7,"result":{}}\n');
    assert.equal(kindsOf(read("server", twice).frames), "response,invalid");
  });
});
