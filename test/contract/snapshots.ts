import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { textOf, utf8 } from "../../src/base/bytes.ts";
import {
  EMPTY_LISTING,
  KINDS,
  type Kind,
  readPage,
  type ServerListing,
} from "../../src/catalog/listing.ts";
import type { SnapshotKey, Snapshots } from "../../src/snapshot/snapshots.ts";

export const DAY = 24 * 60 * 60 * 1000;
/** Start time of the test clocks, in ms since the epoch; files must be able to have it as their time. */
export const START = Date.UTC(2026, 0, 1);

/** Snapshots with a settable clock. */
export interface SnapshotSetup {
  readonly snapshots: Snapshots;
  /** ms since the epoch; START at first. */
  time: number;
}

export const SNAPSHOT_KEY: SnapshotKey = {
  command: "server",
  args: ["--token", "in-an-argument"],
  cwd: "/work",
  env: { A: "1", TOKEN: "in-a-variable" },
  url: "https://example.com/?key=in-a-url",
  principal: "somebody",
  era: "legacy",
  capabilities: '{"roots":{}}',
};

/** Other values of each member, chosen so that an ambiguous encoding would confuse them. */
const OTHER_VALUES: { readonly [Key in keyof SnapshotKey]: readonly SnapshotKey[Key][] } = {
  command: ["server2", "/work"],
  args: [
    [],
    ["--token"],
    ["--token in-an-argument"],
    ["in-an-argument", "--token"],
    ["--token", ""],
  ],
  cwd: [undefined, "", "/work2", "null"],
  env: [
    {},
    { A: "1" },
    { A: "1", TOKEN: "" },
    { A: "1,TOKEN:in-a-variable" },
    { A: "1", TOKEN: "x" },
  ],
  url: [undefined, "", "https://example.com/"],
  principal: [undefined, "", "server", "nobody"],
  era: ["modern"],
  capabilities: ["", "{}"],
};

/** A server listing of these tools, as JSON text. */
export function toolListingOf(...tools: readonly string[]): ServerListing {
  return listingOf({ tools });
}

/** A server listing of these entries, as JSON text. */
export function listingOf(
  lists: Partial<Record<Kind, readonly string[]>>,
  instructions?: string,
): ServerListing {
  const found = Object.entries(lists).map(([key, texts]) => {
    const kind = KINDS.find((one) => one === key) ?? "tools";
    const bytes = utf8(`{"${kind}":[${texts.join(",")}]}`);
    const page = readPage(bytes, { start: 0, end: bytes.length }, kind);
    assert.ok(page && page.items.length === texts.length, "every entry can be read");
    return { [kind]: page.items };
  });
  return Object.assign({}, EMPTY_LISTING, { instructions }, ...found) as ServerListing;
}

export function tool(name: string, description: string): string {
  return JSON.stringify({ name, description });
}

/** Tools that parsing and printing would change. */
export const UNUSUAL_TOOLS: readonly string[] = [
  '{ "z":1.0 ,"name" : "n", "inputSchema":{"b":1234567890123456789,"a":"\\u00e9"}, "x":[ ] }',
  '{"name":"first","n\\u0061me":"last","_meta":{"k":1e400}}',
  '{"name":"line\\nbreak \\"\\ud800 é 😀",\n "description":\r\n"\\r\\n"}',
  '{"name":"","_meta":null}',
  '{"name":"n","description":"The same name again"}',
];

/** A server listing as plain values, for comparison. */
export function plainListing(offer: ServerListing | undefined): unknown {
  if (offer === undefined) return undefined;
  const lists = KINDS.map((kind) =>
    offer[kind].map(({ key, bytes, keys, meta }) => ({
      key,
      text: textOf(bytes),
      keys: keys.map(({ start, end }) => textOf(bytes, start, end)),
      meta: meta && textOf(bytes, meta.start, meta.end),
    })),
  );
  return { lists, instructions: offer.instructions };
}

/** A test's snapshots, with short ways to use them. */
interface Bench {
  readonly clock: SnapshotSetup;
  readonly snapshots: Snapshots;
  /** What there is for the subject. */
  load(): ReturnType<Snapshots["load"]>;
  /** Saves these tools. */
  save(...tools: string[]): Promise<void>;
}

/** The contract of every `Snapshots`. `open` runs a test on a new, empty one. */
export function snapshotsContract(
  name: string,
  open: (test: (bench: SnapshotSetup) => Promise<void>) => Promise<void>,
): void {
  const test = (sentence: string, run: (bench: Bench) => Promise<void>): void =>
    void it(sentence, () => open((clock) => run(benchOf(clock))));
  const benchOf = (clock: SnapshotSetup): Bench => ({
    clock,
    snapshots: clock.snapshots,
    load: () => clock.snapshots.load(SNAPSHOT_KEY),
    save: (...tools) => clock.snapshots.save(SNAPSHOT_KEY, toolListingOf(...tools)),
  });

  describe(`${name} are snapshots`, () => {
    test("a listing comes back byte for byte, in its order, with the time at which it was saved", async (bench) => {
      const { snapshots, clock, load } = bench;
      assert.equal(await load(), undefined);
      const lists = {
        tools: [...UNUSUAL_TOOLS, tool("last", "x".repeat(100_000))],
        prompts: UNUSUAL_TOOLS,
        resources: ['{"uri":"a:\\u002f","name":"n"}', '{ "uri":"","size":1.0 }'],
        resourceTemplates: ['{"uriTemplate":"a://{b}","_meta":{"c":1}}'],
      };
      const offer = listingOf(lists, "Say é\nand \ud83d\ude00.");
      await snapshots.save(SNAPSHOT_KEY, offer);
      clock.time += 1000;
      const snapshot = await load();
      assert.deepEqual(plainListing(snapshot?.listing), plainListing(offer));
      assert.equal(snapshot?.savedAt, START);
    });

    test("clients that a server was never listed for get its newest listing, but not its era", async (bench) => {
      const { snapshots, clock, load } = bench;
      const detectedEra = { era: "legacy", detectedAt: START } as const;
      const save = (named: string, key: Partial<SnapshotKey>) =>
        snapshots.save({ ...SNAPSHOT_KEY, ...key }, toolListingOf(tool(named, "d")), detectedEra);
      await save("first", { capabilities: "" });
      clock.time += 1000;
      await save("second", { era: "modern" });
      clock.time += 1000;
      await save("of-another", { args: [] });
      const newest = await load();
      assert.equal(newest?.listing.tools.map(({ key }) => key).join(), "second");
      assert.equal(newest.savedAt, START + 1000);
      assert.equal(newest.detectedEra, undefined);
      const exact = await snapshots.load({ ...SNAPSHOT_KEY, capabilities: "" });
      assert.deepEqual(exact?.detectedEra, detectedEra);
      clock.time += 31 * DAY;
      assert.equal(await load(), undefined);
    });

    test("what a server declares, and the _meta of its lists, is kept with them, also where there are no tools", async (bench) => {
      const { snapshots, load } = bench;
      const settings = { extensions: { "x.test/a": { b: [1.5] } }, experimental: {} };
      const declared = { canSubscribe: true, tasks: "modern", ...settings } as const;
      const offer = { ...EMPTY_LISTING, declared, metas: { tools: '{"a":1.0}' } };
      for (const listing of [EMPTY_LISTING, offer]) {
        await snapshots.save(SNAPSHOT_KEY, listing);
        assert.deepEqual((await load())?.listing, listing);
      }
    });

    for (const [what, days, guess] of [
      ["what a server was found to speak is kept with it, for a week", 7, {}],
      ["what is only guessed of a server is kept for a day", 1, { isGuess: true }],
    ] as const) {
      test(what, async ({ snapshots, clock, load }) => {
        const verdict = { era: "modern", detectedAt: START, ...guess } as const;
        await snapshots.save(SNAPSHOT_KEY, EMPTY_LISTING, verdict);
        assert.deepEqual((await load())?.detectedEra, verdict);
        clock.time += days * DAY;
        assert.deepEqual((await load())?.detectedEra, verdict);
        clock.time += 1;
        const late = await load();
        assert.equal(late?.detectedEra, undefined);
        assert.deepEqual(late?.listing, EMPTY_LISTING);
      });
    }

    test("what a server was found to speak is kept anew if it is another, known now, or not known any more", async (bench) => {
      const { snapshots, load } = bench;
      const legacy = { era: "legacy", detectedAt: START } as const;
      const modern = { era: "modern", detectedAt: START } as const;
      const guess = { ...legacy, isGuess: true };
      for (const era of [undefined, guess, legacy, modern, undefined]) {
        await snapshots.save(SNAPSHOT_KEY, EMPTY_LISTING, era);
        assert.deepEqual((await load())?.detectedEra, era);
      }
    });

    for (const [member, values] of Object.entries(OTHER_VALUES)) {
      test(`another ${member} is another snapshot`, async ({ snapshots, clock }) => {
        const others = values.map((value) => ({ ...SNAPSHOT_KEY, [member]: value }));
        const subjects = [SNAPSHOT_KEY, ...others];
        const nameIn = async (subject: SnapshotKey): Promise<string | undefined> =>
          (await snapshots.load(subject))?.listing.tools[0]?.key;
        for (const [i, subject] of subjects.entries()) {
          const isOfServer = member === "era" || member === "capabilities";
          const newest = i === 0 || !isOfServer ? undefined : `t${i - 1}`;
          assert.equal(await nameIn(subject), newest, `${i} is not known before`);
          await snapshots.save(subject, toolListingOf(tool(`t${i}`, "")));
          clock.time += 1000;
        }
        for (const [i, subject] of subjects.entries()) {
          assert.equal(await nameIn(subject), `t${i}`);
        }
      });
    }

    test("the order of the variables makes no other snapshot", async ({ snapshots }) => {
      const items = toolListingOf(tool("a", ""));
      await snapshots.save({ ...SNAPSHOT_KEY, env: { A: "1", B: "2" } }, items);
      assert.ok(await snapshots.load({ ...SNAPSHOT_KEY, env: { B: "2", A: "1" } }));
    });

    test("the last of several saves wins", async (bench) => {
      const { snapshots, load } = bench;
      const items = ["one", "two", "two", "three"].map((text) => toolListingOf(tool("a", text)));
      for (const each of items) void snapshots.save(SNAPSHOT_KEY, each);
      await snapshots.flush();
      assert.deepEqual(plainListing((await load())?.listing), plainListing(items[3]));
    });

    test("all saves have ended when flush settles", async ({ snapshots }) => {
      let ended = 0;
      for (let i = 0; i < 10; i++) {
        const subject = { ...SNAPSHOT_KEY, command: `c${i}` };
        void snapshots.save(subject, toolListingOf(tool("a", ""))).then(() => ended++);
      }
      await snapshots.flush();
      assert.equal(ended, 10);
    });

    test("an unchanged listing is saved again only after a day", async ({ clock, save, load }) => {
      for (const [time, savedAt] of [
        [0, 0],
        [DAY, 0],
        [DAY + 1, DAY + 1],
      ] as const) {
        clock.time = START + time;
        await save(tool("a", ""));
        assert.equal((await load())?.savedAt, START + savedAt);
      }
    });

    test("a snapshot is good for 30 days, and one of the far future is not used", async (bench) => {
      const { clock, save, load } = bench;
      await save(tool("a", "one"));
      clock.time = START + 30 * DAY;
      assert.ok(await load());
      clock.time = START + 30 * DAY + 1;
      assert.equal(await load(), undefined);
      clock.time = START;
      assert.equal(await load(), undefined, "it is gone");
      clock.time = START + 31 * DAY;
      await save(tool("a", "two"));
      clock.time = START;
      assert.equal(await load(), undefined);
    });

    test("a listing of more than 8 MiB is not kept, and the one before it stays", async (bench) => {
      const { save, load } = bench;
      await save(tool("a", "one"));
      await save(tool("a", "x".repeat(8 * 1024 * 1024)));
      const kept = plainListing(toolListingOf(tool("a", "one")));
      assert.deepEqual(plainListing((await load())?.listing), kept);
    });
  });
}
