import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { count } from "../../src/base/format.ts";
import { MAX_ITEMS, type ServerListing } from "../../src/catalog/listing.ts";
import { LIMIT_DEFAULTS } from "../../src/manifest/manifest.ts";
import type { Snapshots } from "../../src/snapshot/snapshots.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import { ScriptedServer, setUpHubWithClock, connectionStatusOf } from "../fixtures/memory-hub.ts";

const NEVER = { ...LIMIT_DEFAULTS.reconnect, policy: "none" } as const;
const LISTS = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"];
const FAILURE = '"error":{"code":-32603,"message":"out of order"}';
const UNKNOWN = '"error":{"code":-32601,"message":"no such method"}';

/** A hub over one server, and what that was last seen to offer. */
async function connect(script: ScriptedServer, kept?: ServerListing) {
  let offer: ServerListing | undefined;
  const servers = { a: { connectTimeout: 1000, reconnect: NEVER } };
  const snapshots: Snapshots = {
    load: () => Promise.resolve(kept && { listing: kept, savedAt: 0 }),
    save: async (_, found) => {
      offer = found;
    },
    flush: () => Promise.resolve(),
  };
  const setup = setUpHubWithClock({ a: script }, { servers, snapshots });
  setup.hub.startAll();
  await turn();
  const warnings = (): string[] =>
    setup.events.flatMap((event) =>
      event.kind === "log" && event.level === "warn" ? [event.text] : [],
    );
  const status = () => connectionStatusOf(setup.hub, "a");
  return { ...setup, warnings, status, offer: () => offer };
}

/** By keys. */
function shown(offer: ServerListing | undefined): unknown {
  if (offer === undefined) return undefined;
  const { tools, prompts, resources, resourceTemplates } = offer;
  return [tools, prompts, resources, resourceTemplates].map((items) => items.map(({ key }) => key));
}

/** How often each list was asked for. */
const asked = (script: ScriptedServer): number[] =>
  LISTS.map((method) => script.messagesOf(method).length);

function makeServer(handlers: ScriptedServer["handlers"] = {}): ScriptedServer {
  const listings = {
    prompts: [{ name: "p" }],
    resources: [{ uri: "a://r", name: "r" }],
    resourceTemplates: [{ uriTemplate: "a://{x}", name: "x" }],
  };
  return Object.assign(new ScriptedServer("t"), { listings, handlers });
}

describe("what a server offers", () => {
  it("is counted without asking, also while it is known only from earlier", async () => {
    const script = makeServer();
    script.tools = [];
    const counts = ({ status }: Awaited<ReturnType<typeof connect>>): unknown => {
      const { listing, tools, prompts, resources } = status();
      return [listing, tools, prompts, resources];
    };
    const first = await connect(script);
    assert.deepEqual(counts(first), ["server", 0, 1, 1]);
    assert.deepEqual(asked(script), [1, 1, 1, 1]);
    const dead = new ScriptedServer();
    dead.onInitialize = () => FAILURE;
    assert.deepEqual(counts(await connect(dead, first.offer())), ["snapshot", 0, 1, 1]);
    assert.deepEqual(counts(await connect(dead)), [undefined, undefined, undefined, undefined]);
  });

  it("is all that it lists, and its instructions", async () => {
    const script = makeServer();
    script.instructions = "Be kind.";
    const { offer } = await connect(script);
    assert.deepEqual(shown(offer()), [["t"], ["p"], ["a://r"], ["a://{x}"]]);
    assert.equal(offer()?.instructions, "Be kind.");
  });

  it("is asked for only where it declares it", async () => {
    const script = new ScriptedServer("t");
    const { offer } = await connect(script);
    assert.deepEqual(shown(offer()), [["t"], [], [], []]);
    assert.deepEqual(asked(script), [1, 0, 0, 0]);
  });

  it("is there without a kind that it cannot list, which is a warning", async () => {
    const script = makeServer({
      "prompts/list": () => FAILURE,
      "resources/list": () => '"result":{}',
    });
    const { status, offer, warnings } = await connect(script);
    assert.equal(status().state, "connected");
    assert.deepEqual(shown(offer()), [["t"], [], [], ["a://{x}"]]);
    assert.deepEqual(warnings(), [
      'Server "a" answered with an error: "out of order".',
      'Server "a" sent a list of resources that is malformed.',
    ]);
  });

  for (const [what, answer, text] of [
    ["no error", '"error":null', "an error."],
    ["one without words", '"error":{"code":1,"message":{"toString":1}}', "an error."],
    [
      "one of many words",
      `"error":{"code":1,"message":"${"x".repeat(9000)}"}`,
      `an error: "${"x".repeat(499)}…".`,
    ],
    [
      "an odd version",
      `"result":{"protocolVersion":["${"x".repeat(9000)}"]}`,
      `the unknown protocol version ["${"x".repeat(98)}.`,
    ],
  ] as const) {
    it(`is nothing if it introduces itself by ${what}, which is told in few words`, async () => {
      const script = makeServer();
      script.onInitialize = () => answer;
      const { status } = await connect(script);
      assert.equal(status().cause?.message, `Server "a" answered with ${text}`);
    });
  }

  it("is as much as can be kept, and no more", async () => {
    const names = (length: number, from = 0): string[] =>
      Array.from({ length }, (_, i) => `{"name":"t${from + i}","inputSchema":{}}`);
    const script = new ScriptedServer();
    // Those without a name count too, and are read fast.
    const unnamed = Array.from({ length: MAX_ITEMS - 1 }, () => "{}");
    const remark = `${count(unnamed.length, "tool")} without a name were left out.`;
    script.tools = [...unnamed, ...names(1)];
    const whole = await connect(script);
    assert.deepEqual([whole.status().tools, whole.warnings()], [1, [remark]]);
    script.tools = [...unnamed, ...names(2)];
    const cut = await connect(script);
    const text = `Only the first ${MAX_ITEMS} tools are listed.`;
    assert.deepEqual([cut.status().tools, cut.warnings()], [1, [remark, text]]);
    script.onList = ({ params }) => {
      const page = Number(params?.["cursor"] ?? 0);
      const next = page < 3 ? `,"nextCursor":"${page + 1}"` : "";
      return `"result":{"tools":[${names(MAX_ITEMS / 2, (page * MAX_ITEMS) / 2).join()}]${next}}`;
    };
    const paged = await connect(script);
    assert.deepEqual([paged.status().tools, paged.warnings()], [MAX_ITEMS, [text]]);
  });

  it("is told of as far as it is odd, but not without end", async () => {
    const script = new ScriptedServer();
    const odd = (round: number): void => {
      const names = Array.from({ length: 90 }, (_, i) => `${round} ${i} ${"n".repeat(2000)}`);
      script.tools = [...new ScriptedServer(...names).tools, "{}"];
    };
    odd(0);
    const { hub, events, clock, warnings } = await connect(script);
    await clock.advanceAsync(100);
    assert.deepEqual(warnings(), ["A tool without a name was left out."]);
    const remarks = (): string[] =>
      events.flatMap((event) =>
        event.kind === "log" && event.source === "hub" ? [event.text] : [],
      );
    assert.equal(remarks().length, 90);
    assert.ok(remarks().every((text) => text.length === 1000));
    for (const round of [1, 2]) {
      odd(round);
      await Promise.all([hub.refresh("a"), clock.advanceAsync(10_000)]);
    }
    assert.equal(remarks().length, 101);
    assert.equal(remarks().at(-1), 'No more is logged of what server "a" lists.');
  });

  it("is there without a kind that takes too long", async () => {
    const script = makeServer({ "prompts/list": () => undefined });
    const { status, offer, clock, warnings } = await connect(script);
    await clock.advanceAsync(600);
    assert.equal(status().state, "connected");
    assert.deepEqual(shown(offer()), [["t"], [], ["a://r"], ["a://{x}"]]);
    assert.equal(warnings().length, 1);
    assert.equal(script.messagesOf("notifications/cancelled").length, 1);
  });

  it("has no templates if it does not know the method, which is usual", async () => {
    const script = makeServer({ "resources/templates/list": () => UNKNOWN });
    const { offer, warnings } = await connect(script);
    assert.deepEqual(shown(offer()), [["t"], ["p"], ["a://r"], []]);
    assert.deepEqual(warnings(), []);
  });

  it("fails if the tools cannot be listed", async () => {
    const { offer } = await connect(makeServer({ "tools/list": () => FAILURE }));
    assert.equal(offer(), undefined);
  });

  it("leaves a kind as it was that cannot be listed again", async () => {
    const kept = (await connect(makeServer())).offer();
    const script = makeServer({ "prompts/list": () => FAILURE });
    script.listings = { ...script.listings, resources: [] };
    const { offer } = await connect(script, kept);
    assert.deepEqual(shown(offer()), [["t"], ["p"], [], ["a://{x}"]]);
  });

  for (const [kind, counts, left] of [
    ["tools", [2, 1, 1, 1], [[], ["p"], ["a://r"], ["a://{x}"]]],
    ["prompts", [1, 2, 1, 1], [["t"], [], ["a://r"], ["a://{x}"]]],
    ["resources", [1, 1, 2, 2], [["t"], ["p"], [], []]],
  ] as const) {
    it(`is listed again where a change of ${kind} is announced, and nowhere else`, async () => {
      const script = makeServer();
      const { offer } = await connect(script);
      script.tools = [];
      script.listings = { prompts: [], resources: [], resourceTemplates: [] };
      script.newestPeer?.send({ jsonrpc: "2.0", method: `notifications/${kind}/list_changed` });
      await turn();
      assert.deepEqual(asked(script), counts);
      assert.deepEqual(shown(offer()), left);
    });
  }

  it("is asked for again where a change is announced while it is listed", async () => {
    const script = makeServer({
      "prompts/list": () => {
        script.handlers = {};
        script.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/prompts/list_changed" });
        return FAILURE;
      },
    });
    const { offer } = await connect(script);
    assert.deepEqual(shown(offer()), [["t"], ["p"], ["a://r"], ["a://{x}"]]);
  });
});
