import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, it } from "node:test";
import { utf8 } from "../../src/base/bytes.ts";
import { EMPTY_LISTING, readPage, type ServerListing } from "../../src/catalog/listing.ts";
import {
  formatBaseline,
  parseBaseline,
  reviewDefinitions,
  withAccepted,
} from "../../src/pins/baseline.ts";
import {
  type Definition,
  definitionOf,
  keyOf,
  partChangesOf,
  partsOf,
  sourcesOf,
} from "../../src/pins/definitions.ts";

const sha256 = (data: string | Uint8Array): Uint8Array =>
  createHash("sha256").update(data).digest();

function listingOf(tools: string, prompts = "", instructions?: string): ServerListing {
  const read = (kind: "tools" | "prompts", entries: string) => {
    const bytes = utf8(`{"${kind}":[${entries}]}`);
    return readPage(bytes, { start: 0, end: bytes.length }, kind)?.items ?? [];
  };
  return {
    ...EMPTY_LISTING,
    tools: read("tools", tools),
    prompts: read("prompts", prompts),
    instructions,
  };
}

function definitionsOf(listing: ServerListing): readonly Definition[] {
  return sourcesOf(listing).map((source) => definitionOf(source, sha256));
}

function digestOf(tool: string): string | undefined {
  return definitionsOf(listingOf(tool))[0]?.digest;
}

describe("the digest of a definition", () => {
  const base = '{"name":"t","description":"a","inputSchema":{"type":"object","x":[1,2]}}';
  for (const [what, tool] of [
    ["white space", base.replaceAll(":", " : ")],
    [
      "the order of members",
      '{"inputSchema":{"x":[1,2],"type":"object"},"description":"a","name":"t"}',
    ],
    ["how a text is spelled", base.replace('"a"', '"\\u0061"')],
    [
      "_meta, icons and execution",
      base.replace("{", '{"_meta":{"v":1},"icons":[],"execution":{},'),
    ],
  ] as const) {
    it(`does not depend on ${what}`, () => {
      assert.equal(digestOf(tool), digestOf(base));
    });
  }

  for (const [what, tool] of [
    ["the description", base.replace('"a"', '"b"')],
    ["an invisible character", base.replace('"a"', '"a\\u200b"')],
    ["the order of an array", base.replace("[1,2]", "[2,1]")],
    ["a title", base.replace("{", '{"title":"T",')],
    ["annotations", base.replace("{", '{"annotations":{"readOnlyHint":true},')],
    ["an output schema", base.replace("{", '{"outputSchema":{"type":"object"},')],
    ["a member that stands there twice", base.replace("{", '{"description":"evil",')],
    ["a member of a schema that stands there twice", base.replace('"x"', '"x":0,"x"')],
    ["a null description", base.replace('"a"', "null")],
  ] as const) {
    it(`depends on ${what}`, () => {
      assert.notEqual(digestOf(tool), digestOf(base));
    });
  }

  it("differs between a tool and a prompt of the same name", () => {
    const [tool, prompt] = definitionsOf(listingOf('{"name":"x"}', '{"name":"x"}'));
    assert.ok(tool && prompt);
    assert.notEqual(tool.digest, prompt.digest);
  });

  it("depends on the arguments of a prompt", () => {
    const one = listingOf("", '{"name":"p","arguments":[{"name":"a"}]}');
    const other = listingOf("", '{"name":"p","arguments":[{"name":"b"}]}');
    assert.notEqual(definitionsOf(one)[0]?.digest, definitionsOf(other)[0]?.digest);
  });

  it("is that of the first of several tools of a name", () => {
    const both = definitionsOf(listingOf(`${base},${base.replace('"a"', '"evil"')}`));
    assert.deepEqual(
      both.map(({ digest }) => digest),
      [digestOf(base)],
    );
  });
});

describe("the difference between two definitions", () => {
  const sourceOf = (tool: string) => {
    const [source] = sourcesOf(listingOf(tool));
    assert.ok(source);
    return partsOf(source);
  };

  it("shows invisible characters as escapes", () => {
    const [change] = partChangesOf(
      sourceOf('{"name":"t","description":"Reads."}'),
      sourceOf('{"name":"t","description":"Reads.\\u200b\\udb40\\udc41"}'),
    );
    const after = change?.changes[0]?.after ?? "";
    assert.ok(!/[\u200b\u{e0041}]/u.test(after), "an invisible character is shown as it is");
    assert.match(after, /200b/i);
    assert.match(after, /e0041/i);
  });

  it("names each changed value of a schema by its path", () => {
    const changes = partChangesOf(
      sourceOf('{"name":"t","inputSchema":{"properties":{"a":{"description":"x"},"b":{}}}}'),
      sourceOf('{"name":"t","inputSchema":{"properties":{"a":{"description":"y"},"c":{}}}}'),
    ).flatMap(({ changes: all }) => all.map(({ path }) => path));
    assert.deepEqual(changes, [
      "inputSchema.properties.a.description",
      "inputSchema.properties.b",
      "inputSchema.properties.c",
    ]);
  });

  it("shows a change far inside of a long text", () => {
    const text = "word ".repeat(20_000);
    const [change] = partChangesOf(
      sourceOf(JSON.stringify({ name: "t", description: `${text}safe ${text}` })),
      sourceOf(JSON.stringify({ name: "t", description: `${text}evil ${text}` })),
    );
    const { before = "", after = "" } = change?.changes[0] ?? {};
    assert.match(before, /safe/);
    assert.match(after, /evil/);
    assert.ok(after.length < 3000);
  });

  it("counts the changes that it leaves out", () => {
    const schema = (value: number): string =>
      JSON.stringify({
        name: "t",
        inputSchema: Object.fromEntries(Array.from({ length: 80 }, (_, i) => [`k${i}`, value])),
      });
    const [change] = partChangesOf(sourceOf(schema(1)), sourceOf(schema(2)));
    assert.equal(change?.changes.length, 50);
    assert.equal(change?.omitted, 30);
  });

  it("shows the whole definition if no accepted one is known", () => {
    const changes = partChangesOf(undefined, sourceOf('{"name":"t","description":"Reads."}'));
    assert.deepEqual(
      changes.map(({ part, changes: all }) => [part, all[0]?.before, all[0]?.after]),
      [["description", undefined, "Reads."]],
    );
  });
});

describe("the review of a listing", () => {
  const [read, write] = definitionsOf(listingOf('{"name":"read"},{"name":"write"}'));
  const [changed] = definitionsOf(listingOf('{"name":"read","description":"other"}'));
  assert.ok(read && write && changed);
  const acceptedDigests = (...all: readonly Definition[]) =>
    new Map(all.map((each) => [keyOf(each), new Map([[each.digest, true]])]));
  const base = acceptedDigests(read);
  const rules = { pinned: undefined, acceptsNew: false, hasHardFinding: () => false };
  const reasonsOf = (...args: Parameters<typeof reviewDefinitions>) =>
    reviewDefinitions(...args).pending.map(({ name, reason }) => [name, reason]);

  it("accepts all of the first listing", () => {
    const { added, pending } = reviewDefinitions([read, write], { ...rules, accepted: undefined });
    assert.deepEqual(added, [read, write]);
    assert.deepEqual(pending, []);
  });

  it("never makes a hard finding a part of the baseline", () => {
    const hasHardFinding = ({ name }: Definition): boolean => name === "write";
    for (const accepted of [undefined, base]) {
      const own = { ...rules, accepted, acceptsNew: true, hasHardFinding };
      assert.ok(!reviewDefinitions([read, write], own).added.includes(write));
      assert.deepEqual(reasonsOf([read, write], own), [["write", "finding"]]);
    }
  });

  it("shows an accepted definition even if it has a hard finding", () => {
    assert.deepEqual(
      reasonsOf([read], { ...rules, accepted: base, hasHardFinding: () => true }),
      [],
    );
  });

  it("holds a hard finding in a definition back that was accepted unscanned", () => {
    const accepted = new Map([[keyOf(read), new Map([[read.digest, false]])]]);
    assert.deepEqual(reasonsOf([read], { ...rules, accepted }), []);
    const own = { ...rules, accepted, hasHardFinding: () => true };
    assert.deepEqual(reasonsOf([read], own), [["read", "finding"]]);
  });

  it("tells what is changed from what is new", () => {
    assert.deepEqual(reasonsOf([changed, write], { ...rules, accepted: base }), [
      ["read", "changed"],
      ["write", "new"],
    ]);
  });

  it("accepts new names if new ones are accepted, and no changed ones", () => {
    const own = { ...rules, accepted: base, acceptsNew: true };
    const { added, pending } = reviewDefinitions([changed, write], own);
    assert.deepEqual(added, [write]);
    assert.deepEqual(
      pending.map(({ name }) => name),
      ["read"],
    );
  });

  it("refuses what the pin file lacks or has otherwise, also in the first listing", () => {
    const pinned = new Map([[keyOf(read), changed.digest]]);
    for (const accepted of [undefined, acceptedDigests(read, write)]) {
      assert.deepEqual(reasonsOf([read, write], { ...rules, pinned, accepted }), [
        ["read", "pinFile"],
        ["write", "pinFile"],
      ]);
    }
  });

  it("lets a pin file accept nothing", () => {
    const pinned = new Map([[keyOf(changed), changed.digest]]);
    assert.deepEqual(reasonsOf([changed], { ...rules, pinned, accepted: base }), [
      ["read", "changed"],
    ]);
  });
});

describe("a baseline", () => {
  const [one] = definitionsOf(listingOf('{"name":"t","description":"1"}'));
  const [two] = definitionsOf(listingOf('{"name":"t","description":"2"}'));
  assert.ok(one && two);
  const first = { server: "s", accepted: [{ ...one, at: 1 }] };

  it("replaces a definition that the server does not list any more", async () => {
    const { accepted } = await withAccepted(first, [{ ...two, at: 2 }], () => false);
    assert.deepEqual(
      accepted.map(({ digest }) => digest),
      [two.digest],
    );
  });

  it("keeps a definition that other clients still get", async () => {
    const { accepted } = await withAccepted(first, [{ ...two, at: 2 }], () => true);
    assert.deepEqual(
      accepted.map(({ digest }) => digest),
      [one.digest, two.digest],
    );
  });

  it("keeps only digests of what is too much to be kept", async () => {
    const many = Array.from({ length: 40 }, (_, i) => ({
      ...one,
      name: `t${i}`,
      at: 1,
      parts: { description: "x".repeat(300_000) },
    }));
    const { accepted } = await withAccepted({ server: "s", accepted: [] }, many, () => false);
    assert.equal(accepted.length, 40);
    assert.equal(accepted.filter(({ parts }) => parts !== undefined).length, 27);
  });

  it("is read as it was written, and in no part", async () => {
    const baseline = await withAccepted(
      first,
      [{ kind: "tool", name: "__proto__", digest: "x", at: 3, peer: "s 1", parts: { a: "1" } }],
      () => false,
    );
    const file = await formatBaseline(baseline);
    assert.deepEqual(await parseBaseline(file), baseline);
    for (let end = 0; end < file.length; end++)
      assert.equal(await parseBaseline(file.subarray(0, end)), undefined, `${end} bytes`);
  });

  for (const [what, text] of [
    ["is empty", ""],
    ["is no JSON", "{"],
    ["has another version", '{"version":2,"server":"s","accepted":[\n\n]}\n'],
    ["has no server", '{"version":1,"accepted":[\n\n]}\n'],
    [
      "has an entry of a wrong form",
      '{"version":1,"server":"s","accepted":[\n{"kind":"tool"}\n]}\n',
    ],
    [
      "has an unknown kind",
      '{"version":1,"server":"s","accepted":[\n{"kind":"x","name":"a","digest":"d","at":1}\n]}\n',
    ],
    [
      "has a damaged entry after a sound one",
      '{"version":1,"server":"s","accepted":[\n{"kind":"tool","name":"a","digest":"d","at":1},\n{"kind":"tool","name":\n]}\n',
    ],
  ] as const) {
    it(`that ${what} is damaged as a whole`, async () => {
      assert.equal(await parseBaseline(utf8(text)), undefined);
    });
  }
});
