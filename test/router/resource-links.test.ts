import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { createHash } from "node:crypto";
import { utf8 } from "../../src/base/bytes.ts";
import { buildCatalog, type CatalogSource, type Catalog } from "../../src/catalog/catalog.ts";
import { EMPTY_LISTING, KINDS, readPage } from "../../src/catalog/listing.ts";
import {
  locateResource,
  ResourceLinks,
  type ResourceLocation,
} from "../../src/router/resource-lookup.ts";
import { parseMessage } from "../../src/jsonrpc/parse.ts";
import { LONG_LINE, parseLongResponse } from "../../src/jsonrpc/line-reader.ts";

/** A long result in two chunks, and whether its chunks have been joined. */
function longResult(link: string): { learn(links: ResourceLinks): boolean } {
  const text = `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"${"x".repeat(LONG_LINE)}"}${link}]}}`;
  const chunks = [text.slice(0, LONG_LINE / 2), text.slice(LONG_LINE / 2)];
  const parts = chunks.map((chunk) => ({
    bytes: Buffer.from(chunk),
    isPlain: false,
    isDetachable: false,
  }));
  const response = parseLongResponse(parts, text.length);
  assert.ok(response);
  return {
    learn(links) {
      let isJoined = false;
      links.record("s", {
        ...response,
        get bytes() {
          isJoined = true;
          return response.bytes;
        },
      });
      return isJoined;
    },
  };
}

describe("links in a long result", () => {
  it("that has none are looked for without joining it", () => {
    assert.equal(longResult("").learn(new ResourceLinks()), false);
  });

  it("that has some are learned", () => {
    const links = new ResourceLinks();
    longResult(',{"type":"resource_link","uri":"x://1","name":"n"}').learn(links);
    assert.deepEqual(links.serversLinkingTo("x://1"), ["s"]);
  });
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

  /** Looks for it, and notes which sections of the catalog are looked at for that. */
  function look(
    uri: string,
    linked?: string,
  ): { place: ResourceLocation | undefined; seen: Set<string> } {
    const catalog = buildCatalog([source], names, (text) =>
      createHash("sha256").update(text).digest(),
    );
    const seen = new Set<string>();
    const watched = new Proxy<Catalog>(catalog, {
      get(target, key: keyof Catalog) {
        if (KINDS.some((kind) => kind === key)) seen.add(key);
        return target[key];
      },
    });
    const links = new ResourceLinks();
    if (linked !== undefined) {
      const result = { content: [{ type: "resource_link", uri, name: "n" }] };
      const frame = parseMessage(Buffer.from(JSON.stringify({ jsonrpc: "2.0", id: 1, result })));
      assert.ok(frame.kind === "response");
      links.record(linked, frame);
    }
    const hints = { links, isOneClient: true, hasServer: () => true };
    const place = locateResource(uri, watched, hints);
    return { place, seen };
  }

  it("is looked for in no list if it names its server or its client was given a link", () => {
    const named = look("toolmux://s/x://1");
    assert.deepEqual([named.place?.server, [...named.seen]], ["s", []]);
    const linked = look("x://1", "other");
    assert.deepEqual([linked.place?.server, [...linked.seen]], ["other", []]);
  });

  it("is looked for in the resources only if no template has it", () => {
    assert.equal(look("x://1").seen.has("resources"), false);
    assert.equal(look("x://1/2").seen.has("resources"), true);
  });
});
