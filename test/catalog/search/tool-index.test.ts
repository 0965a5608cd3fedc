import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { describe, it } from "node:test";
import { array, assert as check, constantFrom, property, record, tuple } from "fast-check";
import { recallOf, recallOfNames, indexOf } from "../../../bench/tool-search.ts";
import { catalogOfTools, readToolSets, type SetTool } from "../../../bench/tool-sets.ts";
import { utf8 } from "../../../src/base/bytes.ts";
import { readItem } from "../../../src/catalog/listing.ts";
import { type ListedRoute, Section, type SectionEntry } from "../../../src/catalog/section.ts";
import { ToolIndex, type SearchOptions } from "../../../src/catalog/search/tool-index.ts";

/** The machine may be busy with other work. */
const TEST = { timeout: 120_000 };

type Definition = Readonly<Record<string, unknown>> & { readonly name: string };

/** An entry for a tool of a server, under that exposed name. */
function entryOf(server: string, tool: Definition, name = `${server}__${tool.name}`): SectionEntry {
  const item = readItem(
    utf8(JSON.stringify({ inputSchema: { type: "object" }, ...tool })),
    "tools",
  );
  assert.ok(item);
  const { bytes } = item;
  const entry = { name, server, remoteName: tool.name, isReadOnly: false, item, bytes };
  return { ...entry, route: entry as unknown as ListedRoute, appendTo: () => {} };
}

function sectionOf(...entries: readonly SectionEntry[]): Section {
  return new Section("tools", new Map(entries.map((entry) => [entry.name, entry])));
}

function namesOf(index: ToolIndex, query: string, options?: SearchOptions): readonly string[] {
  return index.search(query, options).hits.map(({ entry }) => entry.name);
}

/** Returns the answer of a search, without the entries themselves. */
function answerOf(index: ToolIndex, query: string, options: SearchOptions = {}): object {
  const { hits, ...rest } = index.search(query, { limit: 50, explain: true, ...options });
  return { ...rest, hits: hits.map(({ entry, ...hit }) => ({ name: entry.name, ...hit })) };
}

const { questionSets, tools: TOOLS } = readToolSets(
  fileURLToPath(new URL("../../fixtures/tool-search", import.meta.url)),
);
const EVERYDAY = catalogOfTools(TOOLS).tools;
const QUERIES = questionSets.flatMap(({ questions }) => questions.map(({ text }) => text));

describe("the tools of 22 everyday servers", () => {
  it("are among the first five for nine of ten questions in users' words", () => {
    const [set] = questionSets;
    assert.ok(set !== undefined && set.tools.length > 140 && set.questions.length >= 100);
    const recall = recallOf(set);
    assert.ok(recall["recall@5"] >= 0.88, `recall@5 is ${recall["recall@5"]}`);
    assert.ok(recall["recall@10"] >= 0.95, `recall@10 is ${recall["recall@10"]}`);
  });

  it(
    "are first by all forms of their names, and among the first five with a typing error",
    TEST,
    () => {
      for (const [row, recall] of Object.entries(recallOfNames(EVERYDAY))) {
        const isMistyped = row.includes("typing error");
        const share = recall[isMistyped ? "recall@5" : "recall@1"];
        assert.ok(share >= (isMistyped ? 0.98 : 1), `${row}: ${share}`);
      }
    },
  );
});

describe("a search", () => {
  const index = indexOf(
    sectionOf(
      entryOf("github", {
        name: "list_issues",
        description: "List the issues of a repository. Closed ones are left out.",
        inputSchema: { type: "object", properties: { labels: { type: "array" } } },
      }),
      entryOf("github", { name: "create_issue", description: "Open a new issue." }),
      entryOf("files", { name: "read_file", title: "Look into a file", description: "Read it." }),
      entryOf("files", { name: "write_file", description: "Write a file." }),
      entryOf("weather", { name: "now", description: "Temperature and wind at a place." }),
    ),
  );

  it("finds words of names, descriptions, titles, servers and arguments", () => {
    assert.equal(namesOf(index, "issues of a repository")[0], "github__list_issues");
    assert.equal(namesOf(index, "wind")[0], "weather__now");
    assert.equal(namesOf(index, "look into")[0], "files__read_file");
    assert.deepEqual(namesOf(index, "weather"), ["weather__now"]);
    assert.deepEqual(namesOf(index, "labels"), ["github__list_issues"]);
    assert.deepEqual(namesOf(index, "closed"), ["github__list_issues"]);
  });

  it("finds words of the same meaning, and words with typing errors", () => {
    assert.equal(namesOf(index, "show all bugs")[0], "github__list_issues");
    assert.equal(namesOf(index, "temprature")[0], "weather__now");
  });

  it("finds words that the user says mean the same", () => {
    const synonyms = [["kaput", "issue"]];
    assert.deepEqual(namesOf(index, "kaput"), []);
    const own = new ToolIndex({ synonyms });
    own.update(sectionOf(entryOf("github", { name: "list_issues" })));
    own.work();
    assert.deepEqual(namesOf(own, "kaput"), ["github__list_issues"]);
  });

  it("counts the tools that match and those that there are, and is limited to a server", () => {
    const { matches, available, hits } = index.search("file", { limit: 1 });
    assert.deepEqual([matches, available, hits.length], [2, 5, 1]);
    const ofServer = index.search("issue file", { server: "github" });
    assert.deepEqual([ofServer.matches, ofServer.available], [2, 2]);
    const scores = (options: SearchOptions): readonly unknown[] =>
      index
        .search("issue file", options)
        .hits.filter(({ entry }) => entry.server === "github")
        .map(({ entry, score }) => [entry.name, score]);
    assert.deepEqual(scores({ server: "github" }), scores({}));
    assert.equal(index.search("file", { server: "nowhere" }).available, 0);
  });

  it("explains a hit by the words that counted, whose scores make up the order", () => {
    const [first] = index.search("list bugs", { explain: true }).hits;
    assert.deepEqual(
      first?.words?.map(({ asked, word, as }) => [asked, word, as]),
      [
        ["list", "list", "same"],
        ["bug", "issu", "class"],
      ],
    );
    assert.ok(first?.words?.every(({ score }) => score > 0));
    assert.equal(index.search("list").hits[0]?.words, undefined);
  });

  it("finds nothing for what has no words", () => {
    for (const query of ["", " ", "…", "the of", "🎵"]) {
      assert.deepEqual(answerOf(index, query), {
        hits: [],
        matches: 0,
        available: 5,
        isComplete: true,
      });
    }
  });

  it("orders equal scores by name", () => {
    const twins = ["c", "a", "b"].map((server) => entryOf(server, { name: "same_thing" }));
    assert.deepEqual(namesOf(indexOf(sectionOf(...twins)), "thing"), [
      "a__same_thing",
      "b__same_thing",
      "c__same_thing",
    ]);
  });

  it("finds the tool of exactly the exposed name before one whose own name it is", () => {
    const tools = sectionOf(
      entryOf("a", { name: "fetch" }),
      entryOf("b", { name: "fetch" }, "fetch"),
      entryOf("c", { name: "fetch_fetch_fetch" }),
    );
    assert.equal(namesOf(indexOf(tools), "fetch")[0], "fetch");
    assert.equal(namesOf(indexOf(tools), "select:a__fetch")[0], "a__fetch");
    assert.equal(
      namesOf(indexOf(tools), "please call c__fetch_fetch_fetch")[0],
      "c__fetch_fetch_fetch",
    );
  });

  it("finds tools with shortened names by these, and by the words of the whole ones", () => {
    const name = `archive ${"very_".repeat(20)}old_invoices`;
    const { tools } = catalogOfTools([{ id: "1", server: "shop", name, inputSchema: {} }]);
    const [exposed = ""] = tools.entries.map((entry) => entry.name);
    assert.ok(exposed.length <= 64 && !exposed.includes("invoices"));
    for (const query of [exposed, exposed.toUpperCase(), name, "old invoices"])
      assert.deepEqual(namesOf(indexOf(tools), query), [exposed]);
    assert.deepEqual(namesOf(indexOf(tools), exposed.slice(-6)), [], "the hash is no word");
  });

  it("finds tools by the words of names that the manifest gives them, and of their own ones", () => {
    const renamed = entryOf("shop", { name: "do_it" }, "shop__buy_search");
    for (const query of ["buy", "search", "buy_search", "do_it", "shop:do_it"])
      assert.deepEqual(namesOf(indexOf(sectionOf(renamed)), query), ["shop__buy_search"], query);
  });

  it("is not won by repeating words", TEST, () => {
    const spam = "weather forecast ".repeat(10_000);
    const hostile = [
      { name: "spam", description: spam },
      { name: "spam_2", description: `${spam}. ${spam}` },
      { name: "spam_3", inputSchema: { properties: { a: { description: spam } } } },
      { name: "spam_4", title: spam, inputSchema: { properties: { a: { enum: [spam, spam] } } } },
    ].map((tool) => entryOf("evil", tool));
    const honest = entryOf("good", {
      name: "weather_forecast",
      description: "The weather forecast of a city.",
    });
    const others = Array.from({ length: 50 }, (_, at) => {
      return entryOf("other", { name: `tool_${at}`, description: "Does something else." });
    });
    const found = indexOf(sectionOf(...hostile, honest, ...others));
    assert.equal(namesOf(found, "weather forecast")[0], "good__weather_forecast");
    assert.equal(namesOf(found, "forecast")[0], "good__weather_forecast");
  });

  it("finds tools whose names are those of members of every object", () => {
    const names = ["__proto__", "constructor", "toString", "hasOwnProperty", "valueOf"];
    const tools = sectionOf(...names.map((name) => entryOf("evil", { name }, name)));
    const found = indexOf(tools);
    for (const name of names) assert.equal(namesOf(found, name)[0], name);
    assert.equal(found.search("proto").matches, 1);
  });

  it("reads no more of a schema than it may, however deep or wide it is", () => {
    let deep: object = { type: "string", description: "bottom" };
    for (let i = 0; i < 100; i++) deep = { type: "object", properties: { [`level${i}`]: deep } };
    const wide = Object.fromEntries(
      Array.from({ length: 20_000 }, (_, at) => [
        `argument${at}`,
        { description: "words ".repeat(9) },
      ]),
    );
    const found = indexOf(
      sectionOf(
        entryOf("a", { name: "deep", inputSchema: deep }),
        entryOf("a", { name: "wide", inputSchema: { properties: wide } }),
        entryOf("a", { name: "odd", inputSchema: { properties: [1], enum: 5, items: null } }),
        entryOf("a", { name: "bare", description: 5, inputSchema: "none" }),
      ),
    );
    assert.deepEqual(namesOf(found, "level99"), ["a__deep"]);
    assert.deepEqual(namesOf(found, "bottom"), []);
    for (const name of ["deep", "wide", "odd", "bare"])
      assert.equal(namesOf(found, name).length, 1);
  });
});

describe("an index", () => {
  const shuffled = (tools: readonly SetTool[], seed: number): readonly SetTool[] =>
    tools.toSorted((a, b) => hash(a.server, seed) - hash(b.server, seed));

  it("answers the same whatever the order of the servers was", TEST, () => {
    const [one, other] = [1, 2].map((seed) =>
      indexOf(catalogOfTools(shuffled(TOOLS, seed)).tools),
    ) as [ToolIndex, ToolIndex];
    for (const query of QUERIES) {
      assert.equal(JSON.stringify(answerOf(one, query)), JSON.stringify(answerOf(other, query)));
    }
  });

  it("that follows changes answers as one that is made anew does", TEST, () => {
    const names = ["read_file", "write_file", "list_issues", "serach", "get", "old file"];
    const tool = record({
      server: constantFrom("a", "b", "files"),
      name: constantFrom(...names),
      description: constantFrom("", "Reads a file.", "Searches issues. Fast, and thoroughly.", "x"),
    });
    check(
      property(array(array(tool, { maxLength: 12 }), { minLength: 1, maxLength: 8 }), (states) => {
        const index = new ToolIndex();
        for (const [at, state] of states.entries()) {
          const tools = sectionOf(...state.map(({ server, ...rest }) => entryOf(server, rest)));
          index.update(tools);
          // Some updates overtake the work on the one before.
          if (at % 3 === 1) index.work(0);
          else index.work();
          if (!index.isComplete) continue;
          for (const query of ["file", "serach isues", "read", "a:get", "fast"])
            assert.deepEqual(answerOf(index, query), answerOf(indexOf(tools), query));
        }
      }),
      { numRuns: 40 },
    );
  });

  it("forgets the words of tools that are gone, however often they change", TEST, () => {
    const index = new ToolIndex();
    const toolsAt = (round: number): Section =>
      sectionOf(
        ...Array.from({ length: 300 }, (_, at) =>
          entryOf("s", {
            name: `t${at}`,
            description: `unique${round}word${at} and round${round}`,
          }),
        ),
      );
    for (let round = 0; round < 12; round++) {
      index.update(toolsAt(round));
      assert.ok(index.work(Number.POSITIVE_INFINITY));
    }
    assert.equal(index.size, 300);
    assert.equal(index.search("round3").matches, 0);
    assert.deepEqual(answerOf(index, "round11 t7"), answerOf(indexOf(toolsAt(11)), "round11 t7"));
    assert.ok(index.wordCount < 3 * 900, `${index.wordCount} words`);
  });

  it("reads only the tools that have changed", () => {
    const [a, b] = [entryOf("a", { name: "one" }), entryOf("b", { name: "two" })];
    let reads = 0;
    const counting: SectionEntry = {
      ...a,
      get item() {
        reads++;
        return a.item;
      },
    };
    const index = indexOf(sectionOf(counting, b));
    const before = reads;
    index.update(sectionOf(counting, entryOf("b", { name: "two", description: "Changed." })));
    index.work();
    assert.equal(reads, before);
    assert.deepEqual(namesOf(index, "changed"), ["b__two"]);
  });

  it("is made in slices, and answers from what it has until then", async () => {
    let now = 0;
    const index = new ToolIndex({ now: () => (now += 1) });
    index.update(EVERYDAY);
    assert.ok(!index.isComplete);
    assert.ok(!index.work());
    const early = index.search("file");
    assert.ok(!early.isComplete && index.size > 0 && index.size < 10);
    assert.equal(early.available, EVERYDAY.size);
    let pauses = 0;
    const pause = async (): Promise<void> => void pauses++;
    await Promise.all([index.complete(pause), index.complete(pause)]);
    assert.ok(index.isComplete && index.search("file").isComplete);
    assert.ok(pauses > 20 && pauses < 200, `${pauses} pauses`);
  });

  it("answers a thousand searches at once", TEST, async () => {
    const index = new ToolIndex();
    index.update(EVERYDAY);
    const pause = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
    const answers = await Promise.all(
      Array.from({ length: 1000 }, async (_, at) => {
        await index.complete(pause);
        return JSON.stringify(answerOf(index, QUERIES[at % QUERIES.length] ?? ""));
      }),
    );
    assert.equal(new Set(answers).size, new Set(QUERIES).size);
  });

  it("takes 200,000 tools", TEST, () => {
    const sample = entryOf("s", { name: "t", description: "A tool." });
    const entries = Array.from({ length: 200_000 }, (_, at): SectionEntry => {
      const name = `s__t${at}`;
      return { ...sample, name, remoteName: `t${at}` };
    });
    const index = indexOf(sectionOf(...entries));
    assert.equal(index.size, 200_000);
    assert.equal(namesOf(index, "s:t123456")[0], "s__t123456");
    assert.equal(index.search("tool").matches, 200_000);
  });
});

function hash(text: string, seed: number): number {
  let value = seed;
  for (const letter of text) value = Math.imul(value ^ letter.charCodeAt(0), 0x01000193 + seed);
  return value;
}

describe("what a mode hides", () => {
  const SECRETS = ["secrets", "payments"];

  it(
    "changes nothing of an answer: neither hits nor scores, numbers nor similar words",
    TEST,
    () => {
      check(
        property(tuple(constantFrom(...QUERIES), constantFrom(...HIDING)), ([query, hides]) => {
          const visible = EVERYDAY.filter((entry) => !hides(entry));
          const [mode, alone] = [indexOf(EVERYDAY), indexOf(sectionOf(...visible.entries))];
          for (const asked of [query, `${query}x`, query.replace("a", "e")]) {
            assert.deepEqual(answerOf(mode, asked, { visible }), answerOf(alone, asked));
          }
        }),
        { numRuns: 40 },
      );
    },
  );

  it("cannot be found by a name, a word or a typing error of it", () => {
    const index = indexOf(
      sectionOf(
        entryOf("secrets", { name: "reveal_passphrase", description: "Reveals a passphrase." }),
        entryOf("files", { name: "read", description: "Reads a file." }),
      ),
    );
    const shown = sectionOf(entryOf("files", { name: "read", description: "Reads a file." }));
    for (const query of [
      "reveal_passphrase",
      "secrets:reveal_passphrase",
      "pasphrase",
      "secrets",
    ]) {
      assert.deepEqual(answerOf(index, query, { visible: shown }), {
        hits: [],
        matches: 0,
        available: 1,
        isComplete: true,
      });
    }
  });

  const HIDING: readonly ((entry: SectionEntry) => boolean)[] = [
    ({ server }) => SECRETS.includes(server),
    ({ name }) => name.length % 2 === 0,
    ({ server }) => server !== "mail",
    () => true,
  ];
});
