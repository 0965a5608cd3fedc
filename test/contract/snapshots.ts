import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { textOf, utf8 } from "../../src/base/bytes.ts";
import type { ToolDiff } from "../../src/catalog/tool-diff.ts";
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
    { A: "1", TOKEN: "x" },
    { A: "1,TOKEN:in-a-variable" },
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

/** The contract of every `Snapshots`. `open` runs a test on a new, empty one. */
export function snapshotsContract(
  name: string,
  open: (test: (bench: SnapshotSetup) => Promise<void>) => Promise<void>,
): void {
  const test = (sentence: string, run: (bench: SnapshotSetup) => Promise<void>): void =>
    void it(sentence, () => open(run));
  const formatDiffs = (differences: readonly ToolDiff[]): string[] =>
    differences.map((found) => `${found.name} ${found.parts.join()}`);

  describe(`${name} are snapshots`, () => {
    test("there is nothing before something was saved", async ({ snapshots }) => {
      assert.equal(await snapshots.load(SNAPSHOT_KEY), undefined);
    });

    test("a listing comes back byte for byte, in its order, with the time at which it was saved", async (bench) => {
      const { snapshots } = bench;
      const lists = {
        tools: [...UNUSUAL_TOOLS, tool("last", "x".repeat(100_000))],
        prompts: UNUSUAL_TOOLS,
        resources: ['{"uri":"a:\\u002f","name":"n"}', '{ "uri":"","size":1.0 }'],
        resourceTemplates: ['{"uriTemplate":"a://{b}","_meta":{"c":1}}'],
      };
      const offer = listingOf(lists, "Say é\nand \ud83d\ude00.");
      assert.deepEqual(await snapshots.save(SNAPSHOT_KEY, offer), []);
      bench.time += 1000;
      const snapshot = await snapshots.load(SNAPSHOT_KEY);
      assert.deepEqual(plainListing(snapshot?.listing), plainListing(offer));
      assert.equal(snapshot?.savedAt, START);
    });

    test("clients that a server was never listed for get its newest listing, but not its era", async (bench) => {
      const { snapshots } = bench;
      const detectedEra = { era: "legacy", askedAt: START } as const;
      const save = (named: string, key: Partial<SnapshotKey>) =>
        snapshots.save({ ...SNAPSHOT_KEY, ...key }, toolListingOf(tool(named, "d")), detectedEra);
      await save("first", { capabilities: "" });
      bench.time += 1000;
      await save("second", { era: "modern" });
      bench.time += 1000;
      await save("of-another", { args: [] });
      const newest = await snapshots.load(SNAPSHOT_KEY);
      assert.deepEqual(
        newest?.listing.tools.map(({ key }) => key),
        ["second"],
      );
      assert.equal(newest?.savedAt, START + 1000);
      assert.equal(newest.detectedEra, undefined);
      const exact = await snapshots.load({ ...SNAPSHOT_KEY, capabilities: "" });
      assert.deepEqual(exact?.detectedEra, detectedEra);
      bench.time += 31 * DAY;
      assert.equal(await snapshots.load(SNAPSHOT_KEY), undefined);
    });

    test("a listing without tools is a listing", async ({ snapshots }) => {
      await snapshots.save(SNAPSHOT_KEY, EMPTY_LISTING);
      assert.deepEqual((await snapshots.load(SNAPSHOT_KEY))?.listing, EMPTY_LISTING);
    });

    test("what a server declares, and the _meta of its lists, is kept with them", async ({
      snapshots,
    }) => {
      const settings = { extensions: { "x.test/a": { b: [1.5] } }, experimental: {} };
      const declared = { canSubscribe: true, tasks: "modern", ...settings } as const;
      const offer = { ...EMPTY_LISTING, declared, metas: { tools: '{"a":1.0}' } };
      await snapshots.save(SNAPSHOT_KEY, EMPTY_LISTING);
      await snapshots.save(SNAPSHOT_KEY, offer);
      assert.deepEqual((await snapshots.load(SNAPSHOT_KEY))?.listing, offer);
    });

    test("what a server was found to speak is kept with it, for a week", async (bench) => {
      const { snapshots } = bench;
      const verdict = { era: "modern", askedAt: START } as const;
      await snapshots.save(SNAPSHOT_KEY, EMPTY_LISTING, verdict);
      assert.deepEqual((await snapshots.load(SNAPSHOT_KEY))?.detectedEra, verdict);
      bench.time += 7 * DAY;
      assert.deepEqual((await snapshots.load(SNAPSHOT_KEY))?.detectedEra, verdict);
      bench.time += 1;
      const late = await snapshots.load(SNAPSHOT_KEY);
      assert.equal(late?.detectedEra, undefined);
      assert.deepEqual(late?.listing, EMPTY_LISTING);
    });

    test("what is only guessed of a server is kept for a day, and anew once it is known", async (bench) => {
      const { snapshots } = bench;
      const guess = { era: "legacy", askedAt: START, isGuess: true } as const;
      await snapshots.save(SNAPSHOT_KEY, EMPTY_LISTING, guess);
      bench.time += DAY;
      assert.deepEqual((await snapshots.load(SNAPSHOT_KEY))?.detectedEra, guess);
      bench.time += 1;
      assert.equal((await snapshots.load(SNAPSHOT_KEY))?.detectedEra, undefined);
      bench.time = START;
      const { isGuess: _, ...verdict } = guess;
      await snapshots.save(SNAPSHOT_KEY, EMPTY_LISTING, verdict);
      assert.deepEqual((await snapshots.load(SNAPSHOT_KEY))?.detectedEra, verdict);
    });

    test("what a server was found to speak is kept anew if it is another, or not known any more", async ({
      snapshots,
    }) => {
      const speaks = async (): Promise<string | undefined> =>
        (await snapshots.load(SNAPSHOT_KEY))?.detectedEra?.era;
      await snapshots.save(SNAPSHOT_KEY, EMPTY_LISTING);
      assert.equal(await speaks(), undefined);
      await snapshots.save(SNAPSHOT_KEY, EMPTY_LISTING, { era: "legacy", askedAt: START });
      assert.equal(await speaks(), "legacy");
      await snapshots.save(SNAPSHOT_KEY, EMPTY_LISTING, { era: "modern", askedAt: START });
      assert.equal(await speaks(), "modern");
      await snapshots.save(SNAPSHOT_KEY, EMPTY_LISTING);
      assert.equal(await speaks(), undefined);
    });

    for (const [member, values] of Object.entries(OTHER_VALUES)) {
      test(`another ${member} is another snapshot`, async (bench) => {
        const { snapshots } = bench;
        const subjects = [
          SNAPSHOT_KEY,
          ...values.map((value) => ({ ...SNAPSHOT_KEY, [member]: value })),
        ];
        for (const [i, subject] of subjects.entries()) {
          const before = (await snapshots.load(subject))?.listing.tools[0]?.key;
          const isOfServer = member === "era" || member === "capabilities";
          const newest = i === 0 || !isOfServer ? undefined : `t${i - 1}`;
          assert.equal(before, newest, `${i} is not known before`);
          await snapshots.save(subject, toolListingOf(tool(`t${i}`, "")));
          bench.time += 1000;
        }
        const loads = subjects.map((subject) => snapshots.load(subject));
        const names = (await Promise.all(loads)).map((found) => found?.listing.tools[0]?.key);
        assert.deepEqual(
          names,
          subjects.map((_, i) => `t${i}`),
        );
      });
    }

    test("the order of the variables makes no other snapshot", async ({ snapshots }) => {
      await snapshots.save(
        { ...SNAPSHOT_KEY, env: { A: "1", B: "2" } },
        toolListingOf(tool("a", "")),
      );
      assert.ok(await snapshots.load({ ...SNAPSHOT_KEY, env: { B: "2", A: "1" } }));
    });

    test("the last of several saves wins, and each is compared with the one before it", async ({
      snapshots,
    }) => {
      const saves = ["one", "two", "two", "three"].map((text) =>
        snapshots.save(SNAPSHOT_KEY, toolListingOf(tool("a", text))),
      );
      await snapshots.flush();
      const last = toolListingOf(tool("a", "three"));
      assert.deepEqual(
        plainListing((await snapshots.load(SNAPSHOT_KEY))?.listing),
        plainListing(last),
      );
      const texts = (await Promise.all(saves)).map((found) => found.map(({ text }) => text).join());
      assert.deepEqual(texts, ["", "- one\n+ two", "", "- two\n+ three"]);
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

    test("a tool that is described otherwise is told once; new ones, gone ones and other spellings are not", async ({
      snapshots,
    }) => {
      const saves = [
        [tool("a", "one"), tool("b", "one")],
        [tool("a", "two"), tool("b", "one"), tool("new", "")],
        [tool("a", "two"), tool("b", "one")],
        ['{"description":"tw\\u006f", "name":"a", "_meta":{"v":2}}', tool("b", "one")],
        [tool("b", "two"), tool("a", "two")],
      ];
      const reported: string[][] = [];
      for (const tools of saves) {
        reported.push(formatDiffs(await snapshots.save(SNAPSHOT_KEY, toolListingOf(...tools))));
      }
      assert.deepEqual(reported, [[], ["a description"], [], [], ["b description"]]);
    });

    test("a tool that goes and comes back is compared with what it was", async (bench) => {
      const { snapshots } = bench;
      const save = (...tools: string[]) => snapshots.save(SNAPSHOT_KEY, toolListingOf(...tools));
      await save(tool("a", "one"), tool("b", "one"));
      await save();
      bench.time += 2 * DAY;
      await save(tool("c", ""));
      await save();
      const [difference, ...more] = await save(tool("a", "two"), tool("b", "one"));
      assert.deepEqual(more, []);
      assert.equal(difference?.name, "a");
      assert.deepEqual(difference.parts, ["description"]);
      assert.match(difference.text, /^Removed and added again .* description\.\n\+ two$/);
      assert.deepEqual(await save(tool("a", "two"), tool("b", "one")), []);
      assert.deepEqual(formatDiffs(await save(tool("a", "one"))), ["a description"]);
      await save();
      assert.deepEqual(await save(tool("a", "one")), []);
    });

    test("of tools of one name the first is compared", async ({ snapshots }) => {
      await snapshots.save(SNAPSHOT_KEY, toolListingOf(tool("a", "one"), tool("a", "two")));
      assert.deepEqual(
        await snapshots.save(SNAPSHOT_KEY, toolListingOf(tool("a", "one"), tool("a", "x"))),
        [],
      );
      const reported = await snapshots.save(
        SNAPSHOT_KEY,
        toolListingOf(tool("a", "x"), tool("a", "one")),
      );
      assert.deepEqual(formatDiffs(reported), ["a description"]);
    });

    test("5,000 names are remembered, those of the last listing first", async ({ snapshots }) => {
      const many = (count: number): string[] =>
        Array.from({ length: count }, (_, i) => tool(`t${i}`, "one"));
      const save = async (...tools: string[]): Promise<string[]> =>
        formatDiffs(await snapshots.save(SNAPSHOT_KEY, toolListingOf(...tools)));
      await save(tool("old", "one"));
      await save(...many(4999), tool("5,000th", "one"), tool("one more", "one"));
      await save(tool("new", "one"));
      const others = ["old", "5,000th", "one more", "t4998"].map((gone) => tool(gone, "two"));
      assert.deepEqual(await save(...others), ["t4998 description"]);
      await save(...many(4999), tool("5,000th", "one"), tool("one more", "one"));
      await save();
      const last = ["5,000th", "one more"].map((gone) => tool(gone, "two"));
      assert.deepEqual(await save(...last), ["5,000th description"]);
    });

    test("an unchanged listing is saved again only after a day", async (bench) => {
      const { snapshots } = bench;
      const savedAt = async (): Promise<number | undefined> => {
        await snapshots.save(SNAPSHOT_KEY, toolListingOf(tool("a", "")));
        return (await snapshots.load(SNAPSHOT_KEY))?.savedAt;
      };
      assert.equal(await savedAt(), START);
      bench.time = START + DAY;
      assert.equal(await savedAt(), START);
      bench.time = START + DAY + 1;
      assert.equal(await savedAt(), START + DAY + 1);
    });

    test("a snapshot is good for 30 days", async (bench) => {
      const { snapshots } = bench;
      await snapshots.save(SNAPSHOT_KEY, toolListingOf(tool("a", "one")));
      bench.time = START + 30 * DAY;
      assert.ok(await snapshots.load(SNAPSHOT_KEY));
      bench.time = START + 30 * DAY + 1;
      assert.equal(await snapshots.load(SNAPSHOT_KEY), undefined);
      bench.time = START;
      assert.equal(await snapshots.load(SNAPSHOT_KEY), undefined, "it is gone");
      assert.deepEqual(await snapshots.save(SNAPSHOT_KEY, toolListingOf(tool("a", "two"))), []);
    });

    test("a snapshot of the far future is not used", async (bench) => {
      const { snapshots } = bench;
      bench.time = START + 31 * DAY;
      await snapshots.save(SNAPSHOT_KEY, toolListingOf(tool("a", "one")));
      bench.time = START;
      assert.equal(await snapshots.load(SNAPSHOT_KEY), undefined);
    });

    test("a listing of more than 8 MiB is not kept, and the one before it stays", async ({
      snapshots,
    }) => {
      const items = toolListingOf(tool("a", "one"));
      await snapshots.save(SNAPSHOT_KEY, items);
      const long = toolListingOf(tool("a", "x".repeat(8 * 1024 * 1024)));
      assert.deepEqual(await snapshots.save(SNAPSHOT_KEY, long), []);
      assert.deepEqual(
        plainListing((await snapshots.load(SNAPSHOT_KEY))?.listing),
        plainListing(items),
      );
    });
  });
}
