import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { describe, it } from "node:test";
import { utf8 } from "../../src/base/bytes.ts";
import { buildCatalog, type CatalogSource, type Catalog } from "../../src/catalog/catalog.ts";
import { EMPTY_LISTING, KINDS, readPage } from "../../src/catalog/listing.ts";
import { LONG_LINE, parseLongResponse } from "../../src/jsonrpc/line-reader.ts";
import type { Response } from "../../src/jsonrpc/message.ts";
import { parseMessage } from "../../src/jsonrpc/parse.ts";
import { locateResource, ResourceLinks } from "../../src/router/resource-lookup.ts";

function resultLinkingTo(uri: string): Response {
  const result = { content: [{ type: "resource_link", uri, name: "n" }] };
  const frame = parseMessage(Buffer.from(JSON.stringify({ jsonrpc: "2.0", id: 1, result })));
  assert.ok(frame.kind === "response");
  return frame;
}

describe("links that results have", () => {
  it("are bounded: the oldest are forgotten, and long ones not remembered", () => {
    const links = new ResourceLinks();
    for (let i = 0; i < 1001; i++) links.record("a", resultLinkingTo(`x://${i}`));
    const long = `x://${"y".repeat(3000)}`;
    links.record("a", resultLinkingTo(long));
    const servers = ["x://0", "x://1", "x://1000", long].map((uri) => links.serversLinkingTo(uri));
    assert.deepEqual(servers, [[], ["a"], ["a"], []]);
  });

  for (const [what, link, servers] of [
    ["has some are learned", ',{"type":"resource_link","uri":"x://1","name":"n"}', ["a"]],
    ["has none are looked for without joining it", "", []],
  ] as const) {
    it(`in a long result that came in pieces and ${what}`, () => {
      const content = `{"type":"text","text":"${"x".repeat(LONG_LINE)}"}${link}`;
      const text = `{"jsonrpc":"2.0","id":1,"result":{"content":[${content}]}}`;
      const parts = [text.slice(0, LONG_LINE / 2), text.slice(LONG_LINE / 2)].map((part) => ({
        bytes: Buffer.from(part),
        isPlain: false,
        isDetachable: false,
      }));
      const response = parseLongResponse(parts, text.length);
      assert.ok(response?.shape.kind !== "scanned" && response?.shape.slices !== undefined);
      let wasJoined = false;
      const links = new ResourceLinks();
      links.record("a", {
        ...response,
        get bytes() {
          wasJoined = true;
          return response.bytes;
        },
      });
      assert.deepEqual(links.serversLinkingTo("x://1"), servers);
      if (link === "") assert.equal(wasJoined, false);
    });
  }
});

describe("a URI that no server lists", () => {
  const RULES = { prefix: "s", allow: undefined, deny: [], rename: {} };
  const list = { resourceTemplates: [{ uriTemplate: "x://{id}", name: "n" }] };
  const bytes = utf8(JSON.stringify(list));
  const page = readPage(bytes, { start: 0, end: bytes.length }, "resourceTemplates");
  const source: CatalogSource = {
    server: "s",
    listing: { ...EMPTY_LISTING, resourceTemplates: page?.items ?? [] },
    rules: { tools: RULES, prompts: RULES },
    limits: () => ({ timeout: 1, maxTimeout: 2 }),
  };
  const names = { separator: "__", maxLength: 50 };

  /** Looks for it. @returns its server, and which sections of the catalog are looked at for that */
  function look(uri: string, linked?: string) {
    const digest = (data: string | Uint8Array): Uint8Array =>
      createHash("sha256").update(data).digest();
    const seen = new Set<string>();
    const watched = new Proxy<Catalog>(buildCatalog([source], names, digest), {
      get(target, key: keyof Catalog) {
        if (KINDS.some((kind) => kind === key)) seen.add(key);
        return target[key];
      },
    });
    const links = new ResourceLinks();
    if (linked !== undefined) links.record(linked, resultLinkingTo(uri));
    const hints = { links, isOneClient: true, hasServer: () => true };
    return { server: locateResource(uri, watched, hints)?.server, seen: [...seen] };
  }

  it("is looked for in no list if it names its server or its client was given a link", () => {
    assert.deepEqual(look("toolmux://s/x://1"), { server: "s", seen: [] });
    assert.deepEqual(look("x://1", "other"), { server: "other", seen: [] });
  });

  it("is looked for in the resources only if no template has it", () => {
    assert.equal(look("x://1").seen.includes("resources"), false);
    assert.equal(look("x://1/2").seen.includes("resources"), true);
  });
});
