import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import {
  ListPromptsResultSchema,
  ListResourcesResultSchema,
  ListResourceTemplatesResultSchema,
  ListToolsResultSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { Ajv, type AnySchema } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import * as fc from "fast-check";
import repairPlugin from "../../plugins/schema-repair/index.ts";
import { isCompilable } from "../../src/catalog/compilable-schema.ts";
import { EMPTY_LISTING, type ListedItem, readItem } from "../../src/catalog/listing.ts";
import { utf8 } from "../../src/base/bytes.ts";
import type { HubEvent } from "../../src/base/hub-events.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  HIDDEN_DEPTHS,
  VISIBLE_DEPTHS,
  MALFORMED,
  nestedTool,
} from "../fixtures/malformed-entries.ts";
import {
  sendRequest,
  callTool,
  initialize,
  type Peer,
  ScriptedServer,
  setUpHubWithClock,
  setUpHub,
  connectionStatusOf,
} from "../fixtures/memory-hub.ts";
import { sendModernRequest } from "../fixtures/modern-requests.ts";
import { ModernScriptedServer } from "../fixtures/modern-server.ts";
import { setUpPluginHub } from "../fixtures/plugin-hub.ts";

/** What clients of both eras can list. */
const KINDS = ["tools", "prompts", "resources", "resourceTemplates"] as const;
type Kind = (typeof KINDS)[number];

type Era = "legacy" | "modern";
const ERAS = ["legacy", "modern"] as const;

const METHODS: Readonly<Record<Kind, string>> = {
  tools: "tools/list",
  prompts: "prompts/list",
  resources: "resources/list",
  resourceTemplates: "resources/templates/list",
};

/** Entries of a good server, which official clients can read although they look odd. */
const GOOD: Readonly<Record<Kind, string>> = {
  tools:
    '{ "z":1.0,"name":"good","inputSchema":{"type":"object","default":null , "x":[{}]},"_meta":{"d":null}}',
  prompts: '{"arguments":[ {"name":"a","x":null}],"name":"good","x":1e2}',
  resources:
    '{"name":"good","uri":"u://good","annotations":{"lastModified":"2025-01-12T15:00:58Z","x":5} }',
  resourceTemplates: '{"uriTemplate":"u://good/{x}", "name":"good","description":"\\ud83d\\ude00"}',
};

/** Lists these texts as they are. */
function listing(
  script: ScriptedServer,
  lists: Readonly<Partial<Record<Kind, readonly string[]>>>,
): ScriptedServer {
  script.listings = { prompts: [], resources: [], resourceTemplates: [] };
  const answers = KINDS.map((kind) => {
    const list = (lists[kind] ?? []).join(",");
    return [METHODS[kind], () => `"result":{"${kind}":[${list}]}`] as const;
  });
  script.handlers = { ...script.handlers, ...Object.fromEntries(answers) };
  return script;
}

const good = (): ScriptedServer =>
  listing(new ScriptedServer(), Object.fromEntries(KINDS.map((kind) => [kind, [GOOD[kind]]])));

/** Without prefixes, so that entries are the very bytes that servers list. */
const BARE = { good: { prefix: "" }, bad: { prefix: "" } } as const;

/** A list as a client of that era gets it, as text. */
async function listAs(era: Era, client: Peer, kind: Kind): Promise<string> {
  if (era === "legacy") await sendRequest(client, METHODS[kind]);
  else await sendModernRequest(client, METHODS[kind]);
  return client.received.findLast((text) => text.includes(`"${kind}":[`)) ?? "";
}

/** A hub over a good server and this one, and a client of that era. */
async function open(era: Era, bad: ScriptedServer, spoken: Era = "legacy") {
  const servers = { ...BARE, bad: { prefix: "", era: spoken } };
  const setup = setUpHub({ good: good(), bad }, { servers });
  if (era === "legacy") await initialize(setup.client);
  return setup;
}

/** The same with a server that lists these tools, which a legacy client has listed. */
async function openTools(...tools: readonly string[]) {
  const bad = listing(new ScriptedServer(), { tools });
  const setup = await open("legacy", bad);
  return { ...setup, bad, list: await listAs("legacy", setup.client, "tools") };
}

/** A hub with a plugin over a server that lists these tools, which a client has listed. */
async function openWithPlugin(plugin: object, ...tools: readonly string[]) {
  const bad = listing(new ScriptedServer(), { tools });
  const setup = await setUpPluginHub([{ plugin: plugin as never }], { bad });
  await initialize(setup.client);
  return { ...setup, list: await listAs("legacy", setup.client, "tools") };
}

/** The warnings that name this. */
const warnings = (events: readonly HubEvent[], what: string): HubEvent[] =>
  events.filter(
    (event) => event.kind === "log" && event.level === "warn" && event.text.includes(what),
  );

describe("a malformed entry of one server", () => {
  for (const { kind, description: what, entry, ...expected } of MALFORMED) {
    for (const era of ERAS) {
      it(`in ${kind} with ${what} is changed as little as ${era} clients need, and nothing else is`, async () => {
        const { client, hub } = await open(era, listing(new ScriptedServer(), { [kind]: [entry] }));
        const list = await listAs(era, client, kind);
        const both = [GOOD[kind], expected[era]];
        const shown = both.some((text) => text !== undefined && !list.includes(text));
        assert.ok(!shown, `${list}\nlacks one of\n${both.join("\n")}`);
        const { [kind]: entries } = JSON.parse(list).result as Record<Kind, unknown[]>;
        assert.equal(entries.length, 2);
        await hub.close();
      });
    }
  }

  it("has one remark and one warning, however often it is listed", async () => {
    const tools = MALFORMED.flatMap(({ kind, entry }) => (kind === "tools" ? [entry] : []));
    const { client, hub, events, bad } = await openTools(...tools);
    bad.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    await turn();
    await listAs("legacy", client, "tools");
    const names = tools.map((text) => (JSON.parse(text) as Named).name);
    const remarks = hub.catalog.notes.filter(({ kind }) => kind === "conformed");
    assert.deepEqual(remarks.map(({ remoteName }) => remoteName).toSorted(), names.toSorted());
    for (const name of names) assert.equal(warnings(events, `"${name}"`).length, 1, name);
  });

  it("is called by its own name, and its output is the server's", async () => {
    const { client, hub } = await openTools('{"name":"half\\ud800"}');
    const name = hub.catalog.tools.routes.find(({ server }) => server === "bad")?.name ?? "";
    assert.match(name, /^[A-Za-z0-9_-]+$/);
    assert.doesNotMatch(client.received.join("\n"), /\\ud800/i);
    const { result } = await callTool(client, name);
    assert.deepEqual(result?.["echo"], { name: "half\ud800", arguments: {} });
  });

  it("that is no absolute URI is exposed as one that names its server, and read by its own", async () => {
    const bad = listing(new ScriptedServer(), {
      resources: ['{"uri":"notes/a b","name":"n"}', '{"uri":"u://\\ud800","name":"half"}'],
    });
    bad.handlers = {
      ...bad.handlers,
      "resources/read": ({ params }) =>
        `"result":{"contents":[],"_meta":{"uri":${JSON.stringify(params?.["uri"])}}}`,
    };
    const { client } = await open("legacy", bad);
    const list = await listAs("legacy", client, "resources");
    const { resources } = JSON.parse(list).result as { resources: { uri: string }[] };
    const made = "toolmux://bad/notes%2Fa%20b";
    assert.deepEqual(
      resources.map(({ uri }) => uri),
      [made, "u://good", "u://\ufffd"],
    );
    for (const [uri, own] of Object.entries({ [made]: "notes/a b", "u://\ufffd": "u://\ud800" })) {
      const { result } = await sendRequest(client, "resources/read", { uri });
      assert.deepEqual(result?.["_meta"], { uri: own });
    }
  });

  it("is repaired by a plugin before anything is done to it", async () => {
    const tool = '{"name":"a","inputSchema":{"anyOf":[{"type":"object","properties":{}}]}}';
    const alone = await openTools(tool);
    assert.equal(alone.hub.catalog.notes[0]?.kind, "conformed");
    const { hub } = await openWithPlugin(repairPlugin, tool);
    assert.equal(hub.catalog.tools.size, 1);
    assert.deepEqual(hub.catalog.notes, []);
  });

  it("is one that a plugin made, too", async () => {
    const list = (items: readonly object[]): object[] =>
      items.map((item) => ({ ...item, title: null }));
    const plugin = { name: "spoiler", setup: () => ({ list }) };
    const { hub, list: shown } = await openWithPlugin(plugin, GOOD.tools);
    assert.doesNotMatch(shown, /"title"/);
    assert.equal(hub.catalog.notes[0]?.kind, "conformed");
  });

  it("is changed just so if it comes from a snapshot", async () => {
    const itemsOf = (kind: Kind): readonly ListedItem[] =>
      MALFORMED.flatMap((one) =>
        one.kind === kind ? (readItem(utf8(one.entry), kind) ?? []) : [],
      );
    const kept = Object.fromEntries(KINDS.map((kind) => [kind, itemsOf(kind)]));
    const dead = new ScriptedServer();
    dead.onInitialize = () => '"error":{"code":-32603,"message":"out of order"}';
    const snapshots = {
      load: () => Promise.resolve({ listing: { ...EMPTY_LISTING, ...kept }, savedAt: 0 }),
      save: () => Promise.resolve(),
      flush: async () => {},
    };
    const servers = { bad: BARE.bad };
    const { client } = setUpHubWithClock({ bad: dead }, { servers, snapshots });
    await initialize(client);
    for (const kind of KINDS) {
      const list = await listAs("legacy", client, kind);
      for (const { legacy } of MALFORMED.filter((one) => one.kind === kind)) {
        assert.ok(legacy !== undefined && list.includes(legacy), `${list} lacks ${legacy}`);
      }
    }
  });

  it("of a modern server keeps an output schema of any type, which legacy clients see wrapped", async () => {
    const entry = `{"name":"t","outputSchema":{"type":"array"},"title":null}`;
    const bad = listing(new ModernScriptedServer(), { tools: [entry] });
    const array = { type: "array" };
    const wrapped = { type: "object", properties: { result: array }, required: ["result"] };
    for (const era of ERAS) {
      const { client } = await open(era, bad, "modern");
      const { tools } = JSON.parse(await listAs(era, client, "tools")).result as {
        tools: object[];
      };
      const outputSchema = era === "modern" ? array : wrapped;
      assert.deepEqual(tools[1], { name: "t", outputSchema, inputSchema: { type: "object" } });
    }
  });
});

interface Named {
  readonly name: string;
}

/** How servers write the envelope of an answer: as most JSON libraries do, and as Python's does. */
const ENVELOPES = {
  compact: (id: unknown, result: string) =>
    `{"jsonrpc":"2.0","id":${String(id)},"result":${result}}`,
  spaced: (id: unknown, result: string) =>
    `{"jsonrpc": "2.0", "id": ${String(id)}, "result": ${result}}`,
};

describe("a tool whose schema is nested", () => {
  for (const [name, envelope] of Object.entries(ENVELOPES)) {
    const deep = (...depths: readonly number[]): ScriptedServer => {
      const tools = depths.map((depth) => nestedTool(`d${depth}`, depth));
      const script = new ScriptedServer();
      script.handlers = {
        "tools/list": ({ id }) => {
          const result = `{"tools":[${[...tools, '{"name":"flat"}'].join(",")}]}`;
          script.newestPeer?.send(envelope(JSON.stringify(id), result));
          return undefined;
        },
      };
      return script;
    };

    for (const depth of VISIBLE_DEPTHS) {
      it(`${depth} deep is listed byte for byte (${name})`, async () => {
        const { client } = await open("legacy", deep(depth));
        const list = await listAs("legacy", client, "tools");
        assert.ok(list.includes(nestedTool(`d${depth}`, depth)));
      });
    }

    for (const depth of HIDDEN_DEPTHS) {
      it(`${depth} deep is hidden at once, and costs its server nothing else (${name})`, async () => {
        // The clock stands still: nothing is waited for.
        const setup = setUpHubWithClock({ good: good(), bad: deep(depth) }, { servers: BARE });
        const { client, hub, events } = setup;
        await initialize(client);
        const list = await listAs("legacy", client, "tools");
        const { tools } = JSON.parse(list).result as { tools: Named[] };
        assert.equal(tools.map((tool) => tool.name).join(), "flat,good");
        assert.ok(list.includes(GOOD.tools));
        const { state, tools: count } = connectionStatusOf(hub, "bad");
        assert.deepEqual([state, count], ["connected", 1]);
        const hidden = hub.catalog.notes.filter(({ kind }) => kind === "unreadable");
        assert.equal(hidden.map(({ remoteName }) => remoteName).join(), `d${depth}`);
        assert.equal(warnings(events, `"d${depth}"`).length, 1);
      });
    }
  }

  it("too deep is hidden from plugins as well", async () => {
    const seen = new Set<string>();
    const list = (items: readonly Named[]): readonly Named[] => {
      for (const item of items) seen.add(item.name);
      return items;
    };
    const watcher = { name: "watcher", setup: () => ({ list }) };
    await openWithPlugin(watcher, '{"name":"t"}', nestedTool("deep", 3000));
    assert.deepEqual([...seen], ["t"]);
  });

  it("is a request's own affair: one nested 3,000 deep is refused", async () => {
    const { client } = await open("legacy", new ScriptedServer("t"));
    const args = `{"a":${"[".repeat(3000)}${"]".repeat(3000)}}`;
    client.send(
      `{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "t", "arguments": ${args}}}`,
    );
    const { error } = await client.find((message) => message.error !== undefined);
    assert.equal(error?.code, -32700);
  });
});

describe("an entry without a name", () => {
  it("is hidden, which is remarked on once for all of them", async () => {
    const tools = ['{"title":"a"}', "null", '{"name":5}', GOOD.tools];
    const { hub, events } = await openTools(...tools);
    const remarks = hub.catalog.notes.filter(({ kind }) => kind === "unreadable");
    const places = remarks.map(({ server, list, remoteName }) => [server, list, remoteName]);
    assert.deepEqual(places, [["bad", "tools", ""]]);
    assert.equal(warnings(events, "without a name").length, 1);
    assert.equal(connectionStatusOf(hub, "bad").tools, 1);
  });
});

/** More of them: TOOLMUX_TEST_RUNS. */
const RUNS = Math.min(Number(process.env["TOOLMUX_TEST_RUNS"] ?? 50), 20_000);

const DEFINITIONS: Readonly<Record<Kind, string>> = {
  tools: "Tool",
  prompts: "Prompt",
  resources: "Resource",
  resourceTemplates: "ResourceTemplate",
};

/** What entries are validated by: the official JSON schema of the era. */
function validatorsOf(version: string): (kind: Kind, entry: unknown) => string {
  const url = new URL(`../fixtures/schema-${version}.json`, import.meta.url);
  const schema = JSON.parse(readFileSync(url, "utf8")) as { $defs: object };
  const formats = { uri: true, "uri-template": true, byte: true } as const;
  const ajv = new Ajv2020({ strict: false, formats });
  ajv.addSchema(schema, "mcp");
  return (kind, entry) => {
    const validate = ajv.getSchema(`mcp#/$defs/${DEFINITIONS[kind]}`) ?? assert.fail();
    return validate(entry) === true ? "" : JSON.stringify(validate.errors);
  };
}

const VALIDATORS = {
  legacy: validatorsOf("2025-11-25"),
  modern: validatorsOf("2026-07-28"),
} as const;

/** The TypeScript SDK's own schemas for what legacy clients get. */
const SDK_SCHEMAS = {
  tools: ListToolsResultSchema,
  prompts: ListPromptsResultSchema,
  resources: ListResourcesResultSchema,
  resourceTemplates: ListResourceTemplatesResultSchema,
} as const;

const LEAVES = `null true false 0 1 5 0.5 -1 1.0 1e400 "x" "" [] {} "object" "array" "user" "dark"
  "optional" "\\ud800" "\\ud83d\\ude00" "\\\\udc00" "2025-01-12T15:00:58Z" "a:b"`.split(/\s+/);
const KEYS =
  `name title description icons _meta annotations execution arguments inputSchema outputSchema
  type properties required $schema src sizes theme mimeType audience priority lastModified size
  taskSupport readOnlyHint idempotentHint x n\\u0061me \\udfff __proto__`.split(/\s+/);

/** Any value as JSON text, with half characters in it, duplicates, and white space where it may be. */
const json: fc.Memo<string> = fc.memo((depth) => {
  const leaves = fc.constantFrom(...LEAVES);
  if (depth <= 1) return leaves;
  return fc.oneof(leaves, arrayOf(json(depth - 1)), objectOf(WORDS, json(depth - 1)));
});

const SPACE = fc.constantFrom("", "", "", " ", " \t");
const WORDS = fc.constantFrom(...KEYS);

function arrayOf(element: fc.Arbitrary<string>): fc.Arbitrary<string> {
  return fc
    .tuple(fc.array(element, { maxLength: 3 }), SPACE)
    .map(([elements, space]) => `[${space}${elements.join(`${space},`)}${space}]`);
}

function objectOf(
  keys: fc.Arbitrary<string>,
  value: fc.Arbitrary<string>,
  ...first: readonly fc.Arbitrary<string>[]
): fc.Arbitrary<string> {
  const member = fc
    .tuple(keys, SPACE, value)
    .map(([key, space, text]) => `"${key}"${space}:${text}`);
  return fc
    .tuple(fc.tuple(...first), fc.array(member, { maxLength: 6 }), SPACE)
    .map(
      ([fixed, members, space]) => `{${space}${[...fixed, ...members].join(`${space}, `)}${space}}`,
    );
}

/** Entries with a key of their own in front, which a second one may take away again. */
const entries = (kind: Kind): fc.Arbitrary<readonly string[]> =>
  fc
    .array(fc.tuple(fc.nat(9), objectOf(WORDS, json(4))), { minLength: 1, maxLength: 3 })
    .map((all) =>
      all.map(([number, text], at) => {
        const key = {
          tools: `"name":"t${at}"`,
          prompts: `"name":"p${at}"`,
          resources: `"uri":"${number === 0 ? "" : "u://"}${at}"`,
          resourceTemplates: `"uriTemplate":"u://${at}/{x}"`,
        }[kind];
        const rest = text.slice(1).trimStart();
        return rest === "}" ? `{${key}}` : `{${key},${rest}`;
      }),
    );

describe("whatever a server lists", () => {
  for (const era of ERAS) {
    for (const kind of KINDS) {
      it(`in ${kind}, the list of ${era} clients is valid, and the good server's entries keep their bytes`, async () => {
        let shown = 0;
        await fc.assert(
          fc.asyncProperty(entries(kind), async (texts) => {
            const bad = listing(new ScriptedServer(), { [kind]: texts });
            const { client, hub } = await open(era, bad);
            const list = await listAs(era, client, kind);
            assert.ok(list.includes(GOOD[kind]), list);
            assert.doesNotMatch(list.replaceAll(/\\\\|\\ud83d\\ude00/g, ""), /\\ud[89a-f]/i);
            const { result } = JSON.parse(list) as { result: Record<Kind, { uri: string }[]> };
            shown += result[kind].length - 1;
            for (const entry of result[kind]) assert.equal(VALIDATORS[era](kind, entry), "", list);
            if (kind === "resources") {
              for (const { uri } of result.resources) assert.ok(URL.canParse(uri), uri);
            }
            if (era === "legacy") SDK_SCHEMAS[kind].parse(result);
            await hub.close();
          }),
          { numRuns: RUNS },
        );
        assert.ok(shown > RUNS / 2, `only ${shown} entries were shown in ${RUNS} runs`);
      });
    }
  }
});

/** As the TypeScript SDK's first version makes it. */
const compiler = { strict: false, validateFormats: false, validateSchema: false, allErrors: true };

function compiles(schema: unknown): boolean {
  try {
    new Ajv({ ...compiler, logger: false }).compile(schema as AnySchema);
    return true;
  } catch {
    return false;
  }
}

const REFERENCES = ["#", "#/$defs/a", "#/properties/a/items", "#/none", "other.json", "#a"];
const KEYWORD_VALUES = {
  type: fc.constantFrom("string", "object", ["null", "array"], "strng", 5),
  properties: fc.constantFrom({}, [], null),
  minimum: fc.constantFrom(1, "1"),
  pattern: fc.constantFrom("^a$", "(", "(?P<a>b)"),
  enum: fc.constantFrom(["a"], [], "a"),
  required: fc.constantFrom(["a"], true),
  nullable: fc.constantFrom(true, false, "x"),
  uniqueItems: fc.constantFrom(true, 1),
  format: fc.constantFrom("date", null),
  default: fc.constantFrom({ $ref: "#/none" }, { pattern: "(" }),
  x: fc.constantFrom({ $ref: "#/none" }),
  $ref: fc.constantFrom(...REFERENCES),
};

const { schema: SCHEMAS } = fc.letrec<{ schema: object }>((tie) => {
  const named = fc.dictionary(fc.constantFrom("a", "b", "^c"), tie("schema"), { maxKeys: 2 });
  const record = (members: Readonly<Record<string, fc.Arbitrary<unknown>>>): fc.Arbitrary<object> =>
    fc.record(members, { requiredKeys: [] });
  const parts = {
    properties: named,
    patternProperties: named,
    $defs: named,
    items: fc.oneof(tie("schema"), fc.array(tie("schema"), { maxLength: 2 })),
    additionalProperties: fc.oneof(fc.boolean(), tie("schema")),
    anyOf: fc.array(tie("schema"), { minLength: 1, maxLength: 2 }),
    not: tie("schema"),
  };
  const one = (from: Readonly<Record<string, fc.Arbitrary<unknown>>>): fc.Arbitrary<object> =>
    fc.oneof(...Object.entries(from).map(([key, value]) => record({ [key]: value })));
  const merged = fc.tuple(one(parts), one(parts)).map(([a, b]) => ({ ...a, ...b }));
  return {
    schema: fc.oneof({ maxDepth: 4, depthSize: "small" }, one(KEYWORD_VALUES), merged),
  };
});

describe("an output schema", () => {
  it("is taken for one that compiles only if it does, and mostly whenever it does", () => {
    let [yes, no, missed] = [0, 0, 0];
    // Some 2 % of those that compile are missed; fewer runs would often be above the bound by chance.
    const runs = RUNS * 30;
    fc.assert(
      fc.property(SCHEMAS, (schema) => {
        const isFine = compiles(schema);
        const isTaken = isCompilable(schema);
        if (isTaken) assert.ok(isFine, JSON.stringify(schema));
        if (isFine) yes++;
        else no++;
        if (isFine && !isTaken) missed++;
      }),
      {
        numRuns: runs,
        examples: [
          [{ properties: { a: { items: { $ref: "#/properties/a/items" } } } }],
          [{ $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } } }],
        ],
      },
    );
    assert.ok(yes > runs / 6 && no > runs / 6, `${yes} compile, ${no} do not`);
    assert.ok(missed < yes / 20, `${missed} of ${yes} were not taken for such`);
  });
});
