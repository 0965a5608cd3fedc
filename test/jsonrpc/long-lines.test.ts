import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { utf8 } from "../../src/base/bytes.ts";
import { parseMessage } from "../../src/jsonrpc/parse.ts";
import { joinMessage, type Response, withResponseId } from "../../src/jsonrpc/message.ts";
import {
  type LinePart,
  LineReader,
  LONG_LINE,
  parseLongResponse,
} from "../../src/jsonrpc/line-reader.ts";

const ID = utf8('"c-1"');
const SIZE = LONG_LINE + 50_000;

/** Both shapes around a body of a given text, which is as it is inside a JSON string. */
const SHAPES: Record<string, (text: string) => Buffer> = {
  head: (text) => Buffer.from(`{"jsonrpc":"2.0","id":41,"result":{"text":"${text}"}}`),
  "head, error": (text) =>
    Buffer.from(`{"jsonrpc":"2.0","id":41,"error":{"code":1,"message":"${text}"}}`),
  tail: (text) => Buffer.from(`{"result":{"text":"${text}"},"jsonrpc":"2.0","id":41}`),
};

const filler = "é-0123456789 ".repeat(SIZE / 14);

/** Text with something at a place, and the same length whatever that is. */
const withAt = (at: number, what: string): string =>
  filler.slice(0, at) + what + filler.slice(at + what.length);

function cutAt(bytes: Buffer, ...places: number[]): LinePart[] {
  const ends = [...places.filter((at) => at > 0 && at < bytes.length), bytes.length];
  const pieces = ends.map((end, i) => bytes.subarray(i === 0 ? 0 : (ends[i - 1] ?? 0), end));
  return pieces.map((piece) => ({ bytes: piece, isPlain: false, isDetachable: false }));
}

const sent = (response: Response): string => joinMessage(withResponseId(response, ID)).toString();

/** What a line reader does with long lines. */
type Events = Pick<ConstructorParameters<typeof LineReader>[1], "line" | "longLine">;

/** Gives a line reader bytes, in chunks of these sizes, again and again. */
function readLines(bytes: Buffer, sizes: readonly number[], events: Events, ends = true): void {
  const oversized = (): never => assert.fail("there is no limit");
  const splitter = new LineReader(1e9, { ...events, oversized });
  for (let at = 0, count = 0; at < bytes.length; count++) {
    const size = sizes[count % sizes.length] ?? 1;
    // Each has memory of its own.
    splitter.push(Buffer.from(new Uint8Array(bytes.subarray(at, at + size)).buffer));
    at += size;
  }
  if (ends) splitter.end();
}

describe("a long response", () => {
  for (const [name, make] of Object.entries(SHAPES)) {
    it(`of the shape ${name} is the same wherever its chunks end`, () => {
      const bytes = make(filler);
      const whole = parseMessage(bytes);
      assert.equal(whole.kind, "response");
      for (const places of [
        [1],
        [21, 22, 23],
        [4095, 4096, 4097],
        [bytes.length - 1],
        [bytes.length - 4097, bytes.length - 4096, bytes.length - 20, bytes.length - 3],
        Array.from({ length: 30 }, (_, i) => i * 7001),
      ]) {
        const long = parseLongResponse(cutAt(bytes, ...places), bytes.length);
        assert.ok(long, `cut at ${places.join()}`);
        assert.equal(sent(long), sent(whole));
        assert.deepEqual([long.id, long.outcome], [whole.id, whole.outcome]);
        assert.deepEqual(long.body, whole.body);
        assert.ok(long.bytes.equals(bytes));
      }
    });

    it(`of the shape ${name} is given another id without being joined`, () => {
      const bytes = make(filler);
      const long = parseLongResponse(cutAt(bytes, 50_000, 100_000), bytes.length);
      assert.ok(long);
      const joins = (): never => assert.fail("It was joined.");
      const unjoined = Object.defineProperty(long, "bytes", { get: joins });
      assert.equal(sent(unjoined), sent(parseMessage(bytes) as Response));
    });

    for (const hidden of ['"method"', "\\u006dethod", "\\u0078", '"jsonrpc"', "\r"]) {
      it(`of the shape ${name} with ${JSON.stringify(hidden)} anywhere is not spliced`, () => {
        const ends = [filler.length - 4100, filler.length - 50];
        for (const at of [0, 4050, 4090, 60_000, LONG_LINE, ...ends]) {
          const bytes = make(withAt(at, hidden));
          const place = bytes.indexOf(hidden);
          // Cut in front of it, behind it, and in every place inside it, alone and in crumbs.
          for (let cut = place; cut <= place + hidden.length; cut++) {
            for (const cuts of [[cut], [cut, cut + 1, cut + 2]]) {
              const parts = cutAt(bytes, ...cuts);
              assert.equal(parseLongResponse(parts, bytes.length), undefined, `at ${at}`);
            }
          }
        }
      });
    }
  }

  for (const text of [
    `{"jsonrpc":"2.0","id":41,"method":"x","params":{"text":"${filler}"}}`,
    `{"jsonrpc":"2.0","id":"41","result":{"text":"${filler}"}}`,
    `{"jsonrpc":"2.0","id":41,"result": {"text":"${filler}"}}`,
    `{"result":{"text":"${filler}"},"id":41,"jsonrpc":"2.0"}`,
    `{"result":{"text":"${filler}"},"jsonrpc":"2.0","id":041}`,
    `"${filler}"`,
  ]) {
    it(`that begins ${text.slice(0, 40)} and ends ${text.slice(-30)} is not spliced`, () => {
      const bytes = Buffer.from(text);
      assert.equal(parseLongResponse(cutAt(bytes, 70_000), bytes.length), undefined);
    });
  }
});

describe("a long response that was searched while it came in", () => {
  /** Chunks that are long enough to be searched at once, and in between crumbs that are not. */
  const STEPS = [20_000, 7, 33_000, 1, 65_536, 3];

  function arrive(bytes: Buffer, end: string, first: number): Response | undefined {
    let found: Response | undefined;
    const all = Buffer.concat([Buffer.from("before\n"), bytes, Buffer.from(end)]);
    readLines(all, ["before\n".length, first, ...STEPS, ...STEPS, ...STEPS, ...STEPS], {
      line: () => {},
      longLine: (parts, size) => void (found = parseLongResponse(parts, size)),
    });
    return found;
  }

  for (const name of ["head", "tail"]) {
    const make = SHAPES[name] ?? ((text) => Buffer.from(text));

    it(`of the shape ${name} is the same as if it had come at once`, () => {
      const bytes = make(filler);
      const whole = parseMessage(bytes);
      assert.ok(whole.kind === "response");
      for (const end of ["\n", "\r\n"]) {
        for (const first of [1, 20_000, 70_000]) {
          const found = arrive(bytes, end, first);
          assert.ok(found !== undefined && sent(found) === sent(whole));
        }
      }
    });

    it(`of the shape ${name} hides nothing in any place of its chunks`, () => {
      for (const hidden of ['"method"', "\\u006dethod", '"jsonrpc"', "\r"]) {
        const bytes = make(withAt(70_000, hidden));
        const place = bytes.indexOf(hidden);
        const inside = Array.from({ length: hidden.length + 1 }, (_, n) => place + n);
        // In the first chunk, and where it, or the one after it, ends.
        for (const first of [place + 5000, ...inside, ...inside.map((at) => at - 20_000)]) {
          assert.equal(arrive(bytes, "\n", first), undefined, `${hidden} at ${place}, ${first}`);
        }
      }
    });
  }
});

describe("a line of many chunks", () => {
  const split = (text: string, step: number): string[] => {
    const found: string[] = [];
    readLines(Buffer.from(text), [step], {
      line: (bytes) => void found.push(bytes.toString()),
      longLine: (parts, size) => {
        const joined = Buffer.concat(parts.map(({ bytes }) => bytes));
        assert.equal(joined.length, size);
        assert.ok(parts.every(({ bytes }) => bytes.length > 0));
        found.push(`long ${joined.toString()}`);
      },
    });
    return found;
  };

  it("is given out unjoined if it is long, without its line end, CRLF too", () => {
    const ascii = "x".repeat(SIZE);
    const short = "y".repeat(100);
    for (const end of ["\n", "\r\n"]) {
      const text = [short, ascii, short, ascii, ""].join(end);
      for (const step of [64, 65_536, SIZE + short.length + 3 * end.length - 1]) {
        const plain = split(text, step).map((line) => line.replace(/^long /, ""));
        assert.deepEqual(plain, [short, ascii, short, ascii]);
      }
      assert.ok(split(text, 65_536).some((line) => line.startsWith("long ")));
    }
  });
});

describe("the memory of a long line's chunks", () => {
  const long = (fill: string): string => fill.repeat(SIZE);

  /** Cuts a stream of lines into chunks with memory of their own, and wipes what belongs to a long line once that was seen. */
  function wipe(lines: readonly string[], step: number): { seen: string[]; shared: number } {
    const seen: (string | Buffer)[] = [];
    let shared = 0;
    const events: Events = {
      line: (bytes) => void seen.push(bytes),
      longLine: (parts) => {
        seen.push(Buffer.concat(parts.map(({ bytes }) => bytes)).toString());
        for (const { bytes, isDetachable: isOwn } of parts) {
          if (isOwn) new Uint8Array(bytes.buffer).fill(0);
          else shared += bytes.length;
        }
      },
    };
    readLines(Buffer.from(`first\n${lines.join("\n")}\n`), [step], events, false);
    return { seen: seen.map(String).slice(1), shared };
  }

  it("is shared with no other line where it is said to be its own", () => {
    const lines = [long("a"), "b", long("c"), long("d"), "e".repeat(20_000), "f", long("g"), "h"];
    for (const step of [7000, 20_000, 65_536, 100_003, SIZE - 1, SIZE, SIZE + 1, SIZE + 2]) {
      assert.ok(wipe(lines, step).seen.join() === lines.join(), `chunks of ${step} bytes`);
    }
  });

  it("is its own wherever it ends, if the next one is long too", () => {
    const lines = [long("a"), long("b"), long("c"), long("d"), long("e")];
    for (const step of [20_000, 65_536, 100_003, SIZE - 1]) {
      const { seen, shared } = wipe(lines, step);
      assert.ok(seen.join() === lines.join());
      // The first and the last chunk hold what is not long.
      assert.ok(shared < 2 * step, `${shared} bytes of chunks of ${step}`);
    }
  });
});
