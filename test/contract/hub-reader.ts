import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { textOf } from "../../src/base/bytes.ts";
import { HubError } from "../../src/base/errors.ts";
import { availabilityOf, errorOf, type HubReader } from "../../src/control/hub-reader.ts";
import type { Hub } from "../../src/hub/hub.ts";
import { type HubSetupOptions, modeOf, ScriptedServer } from "../fixtures/memory-hub.ts";

/** Opens a reader of the hub of one test. It is closed at the end of the test. */
export type OpenReader = (options?: {
  readonly mode?: string;
  readonly signal?: AbortSignal;
}) => HubReader;

/** Runs a test with a hub of these servers, in whose documents `hunter2` is redacted. */
export type WithReadHub = (
  servers: Record<string, ScriptedServer>,
  settings: HubSetupOptions,
  run: (open: OpenReader, hub: Hub) => Promise<void>,
) => Promise<void>;

/** A server with one item of each kind, and one that cannot be started. */
function makeServers(): Record<string, ScriptedServer> {
  const a = new ScriptedServer();
  a.tools = [
    { name: "y", description: "Y.", inputSchema: { type: "object" } },
    { name: "x", inputSchema: { type: "object", properties: { big: { const: 1 } } } },
  ].map((tool) => JSON.stringify(tool));
  a.listings = {
    prompts: [{ name: "p" }],
    resources: [{ uri: "r://a", name: "a" }],
    resourceTemplates: [{ uriTemplate: "t://{x}", name: "t" }],
  };
  const bad = new ScriptedServer("z");
  bad.onMake = () => Promise.reject(new HubError("commandNotFound", "no hunter2 here"));
  return { a, bad };
}

const NONE = { servers: ["none"] };

const SETTINGS: HubSetupOptions = {
  servers: {
    a: { title: "A", command: "run hunter2" },
    bad: { reconnect: { policy: "none", base: 1, max: 1, jitter: 0, maxAttempts: 0 } },
    off: { enabled: false },
  },
  modes: [modeOf("only-x", { tools: ["x"] }, { prompts: NONE, resources: NONE })],
};

const keysOf = async (reader: HubReader, kind: Parameters<HubReader["list"]>[0]) =>
  (await reader.list(kind)).map(({ key }) => key);

/** The contract of every `HubReader`. */
export function hubReaderContract(name: string, withReadHub: WithReadHub): void {
  const test = (what: string, run: (open: OpenReader, hub: Hub) => Promise<void>): void =>
    void it(what, () =>
      withReadHub({ ...makeServers(), off: new ScriptedServer() }, SETTINGS, async (open, hub) => {
        hub.startAll();
        await hub.settled("allStarted");
        await run(open, hub);
      }),
    );

  describe(`a reader of a hub: ${name}`, () => {
    test("has all servers in the order of the manifest, with how each can be used", async (open) => {
      const servers = await open().servers();
      assert.deepEqual(
        servers.map((server) => [server.name, availabilityOf(server), server.shown]),
        [
          ["a", "connected", 2],
          ["bad", "failed", 0],
          ["off", "disabled", 0],
        ],
      );
      const [a, bad, off] = servers;
      assert.deepEqual([a?.title, a?.tools, a?.statusText], ["A", 2, "connected"]);
      assert.deepEqual([bad?.state, bad?.remedies], ["failed", ["Mend commandNotFound."]]);
      assert.deepEqual([off?.goal, off?.state, off?.connections], ["down", "disabled", []]);
    });

    test("has no secret in a document", async (open) => {
      const [a, bad] = await open().servers();
      assert.equal(a?.endpoint, "start run [redacted]");
      assert.equal(bad && errorOf(bad).message, "no [redacted] here");
      assert.equal(bad?.statusText, "no [redacted] here");
      assert.equal(bad && errorOf(bad).code, "commandNotFound");
    });

    test("has what clients see: names, servers, and names at the servers", async (open) => {
      const { tools, prompts, resources, resourceTemplates } = await open().catalog();
      assert.deepEqual(tools, [
        { name: "a__x", server: "a", own: "x" },
        { name: "a__y", server: "a", own: "y" },
      ]);
      assert.deepEqual(prompts, [{ name: "a__p", server: "a", own: "p" }]);
      assert.deepEqual(
        [resources, resourceTemplates].map((all) => all.map((entry) => entry.name)),
        [["r://a"], ["t://{x}"]],
      );
    });

    test("lists items of each kind as clients get them, sorted", async (open) => {
      const reader = open();
      assert.deepEqual(await keysOf(reader, "tools"), ["a__x", "a__y"]);
      assert.deepEqual(await keysOf(reader, "prompts"), ["a__p"]);
      assert.deepEqual(await keysOf(reader, "resources"), ["r://a"]);
      assert.deepEqual(await keysOf(reader, "resourceTemplates"), ["t://{x}"]);
      const [x] = await reader.list("tools");
      assert.match(textOf(x?.bytes ?? Buffer.alloc(0)), /^\{"name":"a__x",.*"const":1/);
    });

    test("in a mode has only what that shows, and notes of what it hides", async (open) => {
      const reader = open({ mode: "only-x" });
      const { tools, prompts, notes } = await reader.catalog();
      assert.deepEqual([tools.map((tool) => tool.name), prompts], [["a__x"], []]);
      const hidden = notes.filter(({ kind }) => kind === "mode");
      assert.deepEqual(
        hidden.map(({ list, server, own }) => [list, server, own]),
        [
          ["tools", "a", "y"],
          ["prompts", "a", "p"],
          ["resources", "a", "r://a"],
          ["resourceTemplates", "a", "t://{x}"],
        ],
      );
      assert.deepEqual(await keysOf(reader, "tools"), ["a__x"]);
      assert.deepEqual(await keysOf(reader, "prompts"), []);
    });

    test("in the mode full has all, and in a mode that is missing nothing", async (open) => {
      const { tools, notes } = await open({ mode: "full" }).catalog();
      assert.deepEqual([tools.length, notes.filter(({ kind }) => kind === "mode")], [2, []]);
      await assert.rejects(open({ mode: "only-y" }).catalog(), {
        code: "notFound",
        message: /only-x/,
      });
    });

    test("has what the scan found in each server, and in one", async (open) => {
      const reader = open();
      const all = await reader.findings();
      assert.deepEqual(
        all.map(({ server, level, findings }) => [server, level, findings]).slice(0, 1),
        [["a", "warn", []]],
      );
      assert.equal(all[0]?.isScanned, true);
      assert.deepEqual(await reader.findings("a"), all.slice(0, 1));
      await assert.rejects(reader.findings("nobody"), { code: "notFound" });
    });

    test("has what is not accepted of each server, and of one", async (open) => {
      const reader = open();
      const all = await reader.pins();
      assert.deepEqual(all.map(({ server, pin, pending }) => [server, pin, pending]).slice(0, 1), [
        ["a", "warn", []],
      ]);
      assert.deepEqual(
        (await reader.pins("a")).map(({ server }) => server),
        ["a"],
      );
      await assert.rejects(reader.pins("nobody"), { code: "notFound" });
    });

    test("has the definition of a tool, and none of a tool that is not there", async (open) => {
      const reader = open();
      const tool = await reader.tool("a__y");
      assert.deepEqual([tool?.name, tool?.server, tool?.tool], ["a__y", "a", "y"]);
      assert.equal(tool?.definition["description"], "Y.");
      for (const unknown of ["y", "bad__z", ""])
        assert.equal(await reader.tool(unknown), undefined, unknown);
    });

    test("finds tools by what they do, in a mode only those that it shows", async (open) => {
      const found = await open().find("y", { explain: true });
      assert.deepEqual(
        found.tools.map((each) => [each.name, each.tool, each.server]),
        [["a__y", "y", "a"]],
      );
      assert.deepEqual([found.matches, found.available, found.indexing], [1, 2, undefined]);
      assert.equal(found.tools[0]?.words?.[0]?.as, "name");
      const [x] = (await open().find("big", { limit: 1 })).tools;
      assert.deepEqual([x?.name, x?.signature, x?.words], ["a__x", "{ big?: 1 }", undefined]);
      assert.deepEqual(await open({ mode: "only-x" }).find("y", {}), {
        tools: [],
        matches: 0,
        available: 1,
      });
      assert.equal((await open().find("x", { server: "bad" })).available, 0);
    });

    test("finds nothing in a mode or of a server that is missing, or without words", async (open) => {
      await assert.rejects(open({ mode: "only-y" }).find("x", {}), { code: "notFound" });
      await assert.rejects(open().find("x", { server: "aa" }), { code: "notFound" });
      for (const query of ["", " ", "x".repeat(501)])
        await assert.rejects(open().find(query, {}), { code: "usage" });
    });

    test("counts the tokens of servers, and of what clients get with each exposure", async (open) => {
      const { servers, exposures } = await open().exposureCosts();
      const [a, bad] = servers;
      assert.deepEqual(
        [a?.server, a?.tools, bad?.server, bad?.tools, bad?.tokens],
        ["a", 2, "bad", 0, 0],
      );
      assert.ok(a !== undefined && a.tokens > 20 && exposures.direct.tools === a.tokens);
      assert.ok(exposures.search.tools > exposures.select.tools && exposures.select.tools > 300);
      assert.ok(exposures.search.instructions > exposures.direct.instructions);
      const inMode = await open({ mode: "only-x" }).exposureCosts();
      assert.equal(inMode.servers[0]?.tools, 1);
      assert.ok(inMode.exposures.direct.tools < a.tokens);
      assert.deepEqual(inMode.exposures.search.tools, exposures.search.tools);
    });

    test("has one client, which makes calls", async (open, hub) => {
      const reader = open();
      const before = hub.snapshot().clients.length;
      const [client, same] = await Promise.all([reader.client(), reader.client()]);
      assert.equal(client, same);
      assert.equal(hub.snapshot().clients.length, before + 1);
      const { outcome, bytes, body } = await client.callTool("a__x", '{"big":1.0}');
      assert.equal(outcome, "result");
      assert.match(textOf(bytes, body.start, body.end), /"arguments":\{"big":1/);
    });

    test("is closed without its hub, and with nothing to do if it has no client", async (open, hub) => {
      const [one, other] = [open(), open()];
      await one.servers();
      await one.close();
      await other.client();
      await other.close();
      assert.equal(hub.status().find(({ server }) => server === "a")?.connections.length, 1);
      assert.equal((await open().servers()).length, 3);
    });

    test("throws the reason of its signal", async (open) => {
      const interrupted = new AbortController();
      const reader = open({ signal: interrupted.signal });
      interrupted.abort(new HubError("cancelled", "Interrupted."));
      await assert.rejects(reader.client(), { code: "cancelled" });
    });
  });
}
