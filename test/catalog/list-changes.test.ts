import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { describe, it } from "node:test";
import { textOf, utf8 } from "../../src/base/bytes.ts";
import type { ExposureRules } from "../../src/catalog/exposure.ts";
import { buildCatalog, type CatalogSource, type Catalog } from "../../src/catalog/catalog.ts";
import {
  EMPTY_LISTING,
  KINDS,
  type Kind,
  type ListedItem,
  readPage,
  type ServerListing,
} from "../../src/catalog/listing.ts";
import { ListAnswers } from "../../src/frontend/list-answers.ts";
import { LIST_CHANGED, LIST_METHODS } from "../../src/protocol/legacy.ts";
import { parseMessage } from "../../src/jsonrpc/parse.ts";
import { buildNotification } from "../../src/jsonrpc/message.ts";
import { Choices } from "../generate.ts";

const digest = (data: string | Uint8Array): Uint8Array =>
  createHash("sha256").update(data).digest();
const SEEDS = 60;
const STEPS = 25;

/** Few words, so that names meet: with a prefix, after a cut, and by a rename. */
const WORDS = ["x", "y", "_a", "a__x", "b", "x".repeat(24), `${"x".repeat(23)}y`, "ö"];
const PREFIXES = ["", "", "a", "b", "a_b", "B", "ab", "s".repeat(20)];
const RENAMES: readonly ExposureRules["rename"][] = [{}, {}, { x: "y" }, { b: "x", y: "x" }];
const DENIED = [[], [], ["x*"], ["*"], ["_a", "b"]];
const NAMINGS = [
  { separator: "__", maxLength: 50 },
  { separator: "__", maxLength: 30 },
  { separator: "-", maxLength: 50 },
];

class Game {
  readonly #choices: Choices;
  #count = 0;
  sources: CatalogSource[] = [];
  names = NAMINGS[0] ?? { separator: "__", maxLength: 50 };

  constructor(choices: Choices) {
    this.#choices = choices;
  }

  /** One change of what servers there are, or of what they list. */
  change(): void {
    const { sources } = this;
    const at = this.#choices.below(sources.length + 1);
    const { server, listing: offer, rules } = sources[at] ?? {};
    switch (this.#choices.below(8)) {
      case 0:
        sources.splice(at, 1);
        return;
      case 1:
        sources.reverse();
        return;
      case 2:
        this.names = this.#pick(NAMINGS);
        return;
      case 3:
        // The same listing under other rules, as after a change of the manifest.
        sources[at] = this.#source(server, offer);
        return;
      case 4:
        // The same entries as other bytes in memory, as after a restart of the server.
        if (offer !== undefined)
          sources[at] = { ...this.#source(server, copy(offer)), ...(rules && { rules }) };
        return;
      case 5:
        if (rules !== undefined) sources[at] = { ...this.#source(server), rules };
        return;
      default:
        sources.splice(at, 0, this.#source());
    }
  }

  #source(server = `s${this.#count++}`, offer = this.#offer()): CatalogSource {
    const prefix = this.#pick(PREFIXES);
    const allow = this.#pick([undefined, undefined, ["*x*", "_a"]]);
    const rules = { prefix, allow, deny: this.#pick(DENIED), rename: this.#pick(RENAMES) };
    return {
      server,
      listing: offer,
      rules: { tools: rules, prompts: { ...rules, rename: {} } },
      limits: () => ({ timeout: 1, maxTimeout: 2 }),
    };
  }

  #offer(): ServerListing {
    const named = (): string => {
      const name = JSON.stringify(this.#pick(WORDS));
      const more = this.#pick(["", "", `,"_meta":{"ui":{"resourceUri":"ui://x"}}`, `,"title":"t"`]);
      return `{"name":${name}${more}}`;
    };
    const uri = (): string => `{"uri":"ui://${this.#pick(["x", "y", "z"])}","name":"r"}`;
    const template = (): string =>
      `{"uriTemplate":"ui://${this.#pick(["x", "y"])}/{id}","name":"t"}`;
    return {
      ...EMPTY_LISTING,
      tools: this.#items("tools", named),
      prompts: this.#items("prompts", named),
      resources: this.#items("resources", uri),
      resourceTemplates: this.#items("resourceTemplates", template),
    };
  }

  #items(kind: Kind, make: () => string): readonly ListedItem[] {
    const entries = Array.from({ length: this.#choices.below(5) }, make);
    const bytes = utf8(`{"${kind}":[${entries.join(",")}]}`);
    return readPage(bytes, { start: 0, end: bytes.length }, kind)?.items ?? [];
  }

  #pick<One>(from: readonly One[]): One {
    return from[this.#choices.below(from.length)] as One;
  }
}

function copy(offer: ServerListing): ServerListing {
  const copyItem = (item: ListedItem) => ({ ...item, bytes: Uint8Array.from(item.bytes) });
  const items = KINDS.map((kind) => [kind, offer[kind].map(copyItem)]);
  return { ...offer, ...Object.fromEntries(items) } as ServerListing;
}

/** All that clients see, or can reach, and all that is said of it. */
function describeCatalog(catalog: Catalog): string {
  const lists = KINDS.map((kind) => {
    const { result, routes } = catalog[kind];
    return {
      list: textOf(result),
      pages: routes.map(({ name }) => textOf(catalog[kind].pageAfter(name))),
      routes: routes.map(({ name, server, remoteName }) => {
        const found = catalog[kind].find(name);
        return [name, server, remoteName, found?.server, found?.remoteName];
      }),
      remarks: catalog.notes.filter(({ list }) => list === kind),
    };
  });
  return JSON.stringify(lists);
}

describe("a catalog that is made of what others were made of", () => {
  it("is the one that would be made of nothing else, whatever has changed", () => {
    for (let seed = 0; seed < SEEDS; seed++) {
      const game = new Game(Choices.random(seed));
      for (let step = 0; step < STEPS; step++) {
        game.change();
        const { sources, names } = game;
        const kept = buildCatalog(sources, names, digest);
        const copies = sources.map((source) => ({ ...source }));
        const fresh = buildCatalog(copies, names, digest);
        const place = `seed ${seed}, step ${step}`;
        assert.equal(describeCatalog(kept), describeCatalog(fresh), place);
        for (const kind of KINDS) {
          assert.ok(kept[kind].equals(fresh[kind]) && fresh[kind].equals(kept[kind]), place);
        }
      }
    }
  });

  it("is told of to a client exactly if it has a list that is another now", () => {
    for (let seed = 0; seed < SEEDS; seed++) {
      const game = new Game(Choices.random(1000 + seed));
      const lists = new ListAnswers();
      let before = new Map<Kind, string>();
      for (let step = 0; step < STEPS; step++) {
        const catalog = buildCatalog(game.sources, game.names, digest);
        const now = new Map(KINDS.map((kind) => [kind, textOf(catalog[kind].result)]));
        const reported = lists.compare(catalog);
        const changed = KINDS.filter((kind) => before.get(kind) !== now.get(kind));
        const methods = [...new Set(step === 0 ? [] : changed.map((kind) => LIST_CHANGED[kind]))];
        const expected = methods.map((method) => buildNotification(method));
        assert.deepEqual(reported, expected, `seed ${seed}, step ${step}`);
        if (step === 0) for (const kind of KINDS) ask(lists, kind)(catalog);
        before = now;
        game.change();
      }
    }
  });
});

/** The client asks for a list. */
function ask(lists: ListAnswers, kind: Kind): (catalog: Catalog) => unknown {
  const text = `{"jsonrpc":"2.0","id":1,"method":"${LIST_METHODS[kind]}"}`;
  const request = parseMessage(Buffer.from(text));
  assert.ok(request.kind === "request");
  return lists.prepareAnswer(kind, request);
}
