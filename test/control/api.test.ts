import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { type HubEvent, EVENT_KINDS } from "../../src/base/hub-events.ts";
import {
  callTool,
  initialize,
  Latch,
  listToolNames,
  serverStatusOf,
} from "../fixtures/memory-hub.ts";
import { MINUTES, USAGE_POINTS } from "../../src/dashboard/page/state.ts";
import type { EventDocument } from "../../src/control/schemas.ts";
import { connect, errorOf, eventually, type Json, test } from "./controlled-hub.ts";

const SILENCE = (): undefined => undefined;

describe("the control API", () => {
  test("says what the hub is, with counts", async (setup) => {
    await connect(setup);
    const { status, document } = await setup.ask("GET", "/hub");
    assert.equal(status, 200);
    assert.deepEqual([document["manifest"], document["verdict"]], [["/m.toml"], "healthy"]);
    assert.deepEqual(document["counts"], {
      servers: {
        connected: 2,
        failed: 0,
        connecting: 0,
        authenticating: 0,
        reconnecting: 0,
        stopping: 0,
        notStarted: 0,
        resting: 0,
        stopped: 0,
        disabled: 0,
        total: 2,
      },
      tools: 2,
      clients: 1,
      calls: 0,
      alerts: 0,
      approvals: 0,
    });
  });

  test("describes servers with all their connections, without secrets", async (setup) => {
    await connect(setup);
    const { document } = await setup.ask("GET", "/servers");
    const [first, ...others] = document["servers"] as Json[];
    assert.equal(others.length, 1);
    const { name, state, origin, endpoint, tools, shown, goal, connections } = first ?? {};
    assert.deepEqual(
      { name, state, origin, endpoint, tools, shown, goal },
      {
        name: "a",
        state: "connected",
        origin: "manifest",
        endpoint: "start a [redacted]",
        tools: 1,
        shown: 1,
        goal: "up",
      },
    );
    assert.equal((connections as Json[]).length, 1);
    assert.equal((await setup.ask("GET", "/servers/a")).document["name"], "a");
  });

  test("names the nearest server if there is none of that name", async (setup) => {
    const { document } = await setup.ask("GET", "/servers/aa");
    assert.equal(errorOf(document).code, "notFound");
    assert.match(errorOf(document).message, /"aa".*"a"/);
  });

  test("stops and starts a server, and waits if it is asked to", async (setup) => {
    await connect(setup);
    const stopped = await setup.ask("POST", "/servers/a/stop?wait=10s");
    assert.deepEqual([stopped.status, stopped.document["state"]], [200, "stopped"]);
    assert.equal(setup.a.openCount, 0);
    const started = await setup.ask("POST", "/servers/a/start?wait=10s");
    assert.deepEqual([started.status, started.document["state"]], [200, "connected"]);
    assert.equal((await setup.ask("POST", "/servers/a/reconnect")).status, 202);
    const refused = await setup.ask("POST", "/servers/a/start?wait=soon");
    assert.equal(errorOf(refused.document).code, "invalidParams");
  });

  test("makes one attempt of twenty concurrent reconnects", async (setup) => {
    await connect(setup);
    const before = setup.a.transportCount;
    const latch = new Latch();
    setup.a.onOpen = latch.wait;
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => setup.ask("POST", "/servers/a/reconnect")),
    );
    assert.ok(answers.every(({ status }) => status === 202));
    latch.open();
    await eventually("the connection", async () => {
      const { document } = await setup.ask("GET", "/servers/a");
      return document["state"] === "connected";
    });
    assert.equal(setup.a.transportCount, before + 1);
  });

  test("lists a server's tools again", async (setup) => {
    await connect(setup);
    setup.a.tools = ['{"name":"new","inputSchema":{"type":"object"}}'];
    await setup.ask("POST", "/servers/a/refresh?wait=10s");
    const { document } = await setup.ask("GET", "/tools");
    const tools = (document["tools"] as Json[]).map(({ name, server, tool }) => [
      name,
      server,
      tool,
    ]);
    assert.deepEqual(tools, [
      ["a__new", "a", "new"],
      ["b__y", "b", "y"],
    ]);
    const own = await setup.ask("GET", "/tools?client=client-1");
    assert.deepEqual(own.document, document);
    assert.equal(errorOf((await setup.ask("GET", "/tools?client=x")).document).code, "notFound");
  });

  test("adds a server that the manifest does not have, and removes it", async (setup) => {
    await connect(setup);
    const body = { name: "added", entry: { command: "x" } };
    const added = await setup.ask("POST", "/servers", body);
    assert.deepEqual([added.status, added.document["origin"]], [201, "runtime"]);
    assert.equal((await setup.ask("POST", "/servers", body)).status, 200);
    await eventually("the tool", async () =>
      ((await setup.ask("GET", "/tools")).document["tools"] as Json[]).some(
        ({ name }) => name === "added__z",
      ),
    );
    assert.equal((await setup.ask("DELETE", "/servers/added")).status, 204);
    assert.equal(setup.hub.status().length, 2);
    assert.equal(errorOf((await setup.ask("DELETE", "/servers/a")).document).code, "usage");
    assert.equal((await setup.ask("DELETE", "/servers/a?persist=true")).status, 204);
    assert.deepEqual(setup.edits, [{ kind: "remove", name: "a" }]);
  });

  test("switches a server off and on, in the manifest if it is asked to", async (setup) => {
    await connect(setup);
    await setup.ask("PATCH", "/servers/a", { enabled: false });
    assert.equal(serverStatusOf(setup.hub, "a").goal, "down");
    await setup.ask("PATCH", "/servers/a", { enabled: true, persist: true });
    assert.deepEqual(setup.edits, [{ kind: "enable", name: "a", enabled: true }]);
  });

  test("shows running calls, and cancels one: the server and the client are told", async (setup) => {
    await connect(setup);
    const { a, client } = setup;
    a.onCall = SILENCE;
    client.send({ jsonrpc: "2.0", id: 9, method: "tools/call", params: { name: "a__x" } });
    const calls = await eventually("the call", async () => {
      const { document } = await setup.ask("GET", "/calls");
      const [call] = document["calls"] as Json[];
      return call;
    });
    const { name, clientName, server, waitingFor, arguments: args } = calls;
    assert.deepEqual(
      [name, clientName, server, waitingFor, args],
      ["a__x", "t", "a", "server", undefined],
    );
    const cancelled: string[] = [];
    setup.hub.subscribe((event) => event.kind === "callCancelled" && cancelled.push(event.by));
    const path = `/calls/${String(calls["call"])}/cancel`;
    assert.equal((await setup.ask("POST", path)).status, 204);
    const answer = await client.find(({ id }) => id === 9);
    assert.equal(answer.error?.code, -31005);
    await eventually(
      "the cancellation",
      () => a.messagesOf("notifications/cancelled").length === 1,
    );
    assert.deepEqual(cancelled, ["operator"]);
    assert.equal(errorOf((await setup.ask("POST", path)).document).code, "notFound");
  });

  test("lists clients", async (setup) => {
    await connect(setup);
    const { document } = await setup.ask("GET", "/clients");
    const [client] = document["clients"] as Json[];
    assert.deepEqual(
      [client?.["id"], client?.["name"], client?.["era"]],
      ["client-1", "t", "legacy"],
    );
  });

  test("shows modes, chooses them for all or for one client, and undoes that", async (setup) => {
    const client = setup.connect("stdio");
    await initialize(client);
    const events: HubEvent[] = [];
    setup.hub.subscribe((event) => events.push(event), ["mode"]);
    const modes = async (method: "GET" | "PUT" = "GET", mode?: string | null) => {
      const body = mode === undefined ? undefined : { mode };
      const { document } = await setup.ask(method, "/mode", body);
      const rows = (document["modes"] as Json[]).map(
        ({ name, tools, clients }) => `${String(name)} ${String(tools)} ${String(clients)}`,
      );
      return [document["mode"], ...rows];
    };
    assert.deepEqual(await modes(), ["full", "full 2 client-1,client-2", "only-a 1 "]);
    assert.deepEqual((await modes("PUT", "only-a")).slice(0, 3), [
      "only-a",
      "full 2 client-1",
      "only-a 1 client-2",
    ]);
    assert.deepEqual(await listToolNames(client), ["a__x"]);
    const own = await setup.ask("PUT", "/clients/client-2/mode", { mode: "full" });
    assert.deepEqual([own.document["mode"], own.document["modes"]], ["full", []]);
    assert.deepEqual(await listToolNames(client), ["a__x", "b__y"]);
    await setup.ask("PUT", "/clients/client-2/mode", { mode: null });
    assert.equal((await modes("PUT", null))[0], "full");
    assert.deepEqual(
      events.map((event) => event.kind === "mode" && [event.client, event.from, event.to]),
      [
        [undefined, "full", "only-a"],
        ["client-2", "only-a", "full"],
        ["client-2", "full", "only-a"],
        [undefined, "only-a", "full"],
      ],
    );
  });

  test("shows what a mode hides and why, and the parts of its filter that match nothing", async (setup) => {
    // Nothing is known yet of the tools that its filter may match.
    assert.deepEqual((await setup.ask("GET", "/mode/only-a")).document["idle"], []);
    await connect(setup);
    const { document } = await setup.ask("GET", "/mode/only-a");
    const { title, icon, tools, idle } = document;
    assert.deepEqual(
      [title, icon, (tools as Json[]).length, idle],
      ["A", "1", 1, ["tools.or[1].tools[0]"]],
    );
    const client = setup.connect("stdio");
    await initialize(client);
    setup.hub.setClientMode("client-2", "only-a");
    for (const query of ["mode=only-a", "client=client-2", "client=client-1&mode=only-a"]) {
      const { document: seen } = await setup.ask("GET", `/tools?${query}`);
      assert.deepEqual(
        (seen["tools"] as Json[]).map(({ name }) => name),
        ["a__x"],
        query,
      );
      const [note] = seen["notes"] as Json[];
      assert.deepEqual(note, {
        server: "b",
        tool: "y",
        name: "b__y",
        kind: "mode",
        text: 'Mode "only-a" hides it.',
      });
    }
  });

  test("refuses modes and clients that there are not, with the nearest name", async (setup) => {
    await connect(setup);
    for (const [method, path, mode, message] of [
      ["GET", "/mode/onlya", undefined, /"only-a"/],
      ["GET", "/tools?mode=onlya", undefined, /"only-a"/],
      ["PUT", "/mode", "onlya", /"only-a"/],
      ["PUT", "/clients/client-1/mode", "onlya", /"only-a"/],
      ["PUT", "/clients/none/mode", "full", /"none"/],
      ["PUT", "/mode", 5 as never, /mode/],
    ] as const) {
      const body = mode === undefined ? undefined : { mode };
      const { status, document } = await setup.ask(method, path, body);
      assert.ok(status >= 400, path);
      assert.match(errorOf(document).message, message);
    }
    assert.equal(setup.hub.mode.current, "full");
  });

  test("shows alerts, and dismisses them", async (setup) => {
    setup.a.onOpen = () => Promise.reject(new Error("hunter2 is wrong"));
    await connect(setup);
    const alertsOf = async (): Promise<Json[]> =>
      (await setup.ask("GET", "/alerts")).document["alerts"] as Json[];
    const [alert] = await eventually("the alert", async () => {
      const found = await alertsOf();
      return found.length > 0 ? found : undefined;
    });
    assert.doesNotMatch(JSON.stringify(alert), /hunter2/);
    const { document: server } = await setup.ask("GET", "/servers/a");
    const { code, at } = server["lastError"] as { readonly code: string; readonly at: number };
    assert.deepEqual(server["remedies"], [`Mend ${code}.`]);
    assert.ok(Math.abs(Date.now() - at) < 60_000);
    const path = `/alerts/${String(alert?.["id"])}/dismiss`;
    assert.equal((await setup.ask("POST", path)).status, 204);
    assert.deepEqual(
      (await alertsOf()).map(({ dismissed }) => dismissed),
      [true],
    );
    assert.equal((await setup.ask("POST", "/alerts/dismiss")).status, 204);
    assert.equal(
      errorOf((await setup.ask("POST", "/alerts/none/dismiss")).document).code,
      "notFound",
    );
  });

  test("has the log of one server and of all, after a number and of a level, redacted", async (setup) => {
    await connect(setup);
    for (const [level, data] of [
      ["info", "one"],
      ["error", "two hunter2"],
    ]) {
      setup.a.newestPeer?.send({
        jsonrpc: "2.0",
        method: "notifications/message",
        params: { level, data },
      });
    }
    const logOf = async (path: string): Promise<{ entries: Json[]; next: number }> =>
      (await setup.ask("GET", path)).document as never;
    await eventually("the lines", async () =>
      (await logOf("/servers/a/log")).entries.some(({ text }) => text === "one"),
    );
    const { entries, next } = await logOf("/servers/a/log");
    assert.deepEqual(
      entries.slice(-2).map(({ level, source, text }) => [level, source, text]),
      [
        ["debug", "server", "one"],
        ["debug", "server", "two [redacted]"],
      ],
    );
    assert.ok(entries.some(({ source, text }) => source === "hub" && text === "connected"));
    assert.deepEqual((await logOf(`/servers/a/log?after=${next}`)).entries, []);
    assert.equal((await logOf("/servers/a/log?level=error")).entries.length, 0);
    assert.equal((await logOf("/log?limit=1")).entries.length, 1);
    const servers = new Set((await logOf("/log")).entries.map(({ server }) => server));
    assert.deepEqual(servers, new Set(["a", "b"]));
    assert.equal(errorOf((await setup.ask("GET", "/log?after=x")).document).code, "invalidParams");
  });

  test("describes its documents as JSON Schema, and every answer fits", async (setup) => {
    await connect(setup);
    const { document } = await setup.ask("GET", "/schema");
    const { Ajv2020 } = await import("ajv/dist/2020.js");
    const ajv = new Ajv2020({ strict: false });
    const definitions = document["$defs"] as Record<string, object>;
    const fits = (name: string, value: unknown): void => {
      const validate = ajv.compile(definitions[name] ?? {});
      assert.ok(validate(value), `${name}: ${JSON.stringify(validate.errors)}`);
    };
    const get = async (path: string): Promise<Json> => (await setup.ask("GET", path)).document;
    fits("Hub", await get("/hub"));
    fits("Server", await get("/servers/a"));
    fits("Client", ((await get("/clients"))["clients"] as unknown[])[0]);
    fits("Log", await get("/log"));
    fits("Modes", await get("/mode"));
    fits("Mode", await get("/mode/only-a"));
    fits("Tools", await get("/tools?mode=only-a"));
    fits("Tools", await get("/tools"));
    fits("Catalog", await get("/catalog"));
    fits("Activity", await get("/activity"));
    fits("KeptCall", await get("/activity/1"));
    // The windows that the page asks for.
    for (const [window, points] of [...Object.entries(USAGE_POINTS), ["1h", MINUTES]])
      fits("Usage", await get(`/usage?window=${window}&points=${points}`));
    fits("Usage", await get("/usage"));
    fits("Tool", await get("/tools/a__x"));
    fits("ClientApp", ((await get("/client-apps"))["clients"] as unknown[])[0]);
    fits("Error", await get("/servers/none"));
    fits("Secrets", await get("/secrets"));
    fits("Fleet", await get("/fleet"));
    fits("Fleet", (await setup.ask("POST", "/fleet/ping")).document);
    fits("Check", (await setup.ask("POST", "/check")).document);
    const endpoints = Object.keys(document["endpoints"] as object);
    assert.deepEqual(new Set(endpoints), new Set(setup.routes));
  });

  test("describes each kind of event as JSON Schema, and every event fits", async (setup) => {
    const { a, hub, client } = setup;
    const { document } = await setup.ask("GET", "/schema");
    const { Ajv2020 } = await import("ajv/dist/2020.js");
    const { $defs } = document as { $defs: Record<string, object> };
    const validate = new Ajv2020({ strict: false }).compile($defs["Event"] ?? {});
    const abort = new AbortController();
    const seen = new Map<string, EventDocument>();
    const done = (async () => {
      for await (const event of setup.follow("after=0", abort.signal)) {
        if (!("kind" in event)) continue;
        assert.ok(validate(event), JSON.stringify([event, validate.errors]));
        seen.set(event.kind, event);
        if (event.kind === "callFinished") break;
      }
    })();
    await connect(setup);
    // Events of calls are only emitted while somebody reads them.
    await eventually("the reader", () => seen.size > 0);
    await setup.ask("POST", "/servers", { name: "added", entry: { command: "x" } });
    hub.reportRejectedManifest("wrong");
    hub.setMode("only-a");
    hub.setMode(undefined);
    hub.logServer("a", "one");
    a.onOpen = () => Promise.reject(new Error("no"));
    await setup.ask("POST", "/servers/a/reconnect?wait=10s");
    a.onOpen = () => Promise.resolve();
    a.tools = ['{"name":"x","description":"another one","inputSchema":{"type":"object"}}'];
    await setup.ask("POST", "/servers/a/reconnect?wait=10s");
    await eventually("the catalog", () => seen.has("catalog"));
    a.onCall = SILENCE;
    client.send({ jsonrpc: "2.0", id: 8, method: "tools/call", params: { name: "a__x" } });
    await eventually("the call", () => a.messagesOf("tools/call").length === 1);
    hub.cancelCall(hub.snapshot().calls[0]?.call ?? 0);
    await client.find(({ id }) => id === 8);
    hub.reportCalls({ ended: 0, failed: 0, denied: 0, cancelled: 0 }, 500);
    await callTool(client, "b__y", { secret: "hunter2" });
    await done;
    abort.abort();
    // approvals-api.test.ts tests the events of approvals, limits-api.test.ts those of limits, test/e2e/fleet.test.ts those
    // of machines.
    const elsewhere: readonly string[] = ["approval", "limit", "fleet"];
    const others = EVENT_KINDS.filter((kind) => !elsewhere.includes(kind));
    assert.deepEqual(new Set(seen.keys()), new Set(others));
    assert.equal(seen.get("state")?.["tools"], 1);
  });

  test("shows no secret in any document, and keeps names as they are", async (setup) => {
    const { a, client } = setup;
    a.tools = ['{"name":"hunter2","description":"has hunter2","inputSchema":{"type":"object"}}'];
    await connect(setup);
    a.onCall = ({ params }) => {
      const { progressToken } = params?.["_meta"] as Json;
      const progress = { progressToken, progress: 1, message: "with hunter2" };
      a.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/progress", params: progress });
      return undefined;
    };
    const params = { name: "a__hunter2", _meta: { progressToken: "p" } };
    client.send({ jsonrpc: "2.0", id: 9, method: "tools/call", params });
    const call = await eventually("the progress", async () => {
      const { document } = await setup.ask("GET", "/calls");
      const [running] = document["calls"] as Json[];
      return running?.["progress"] === undefined ? undefined : running;
    });
    assert.equal((call["progress"] as Json)["message"], "with [redacted]");
    const { document } = await setup.ask("GET", "/tools");
    const [tool] = document["tools"] as Json[];
    assert.deepEqual([tool?.["name"], tool?.["description"]], ["a__hunter2", "has [redacted]"]);
    for (const path of ["/hub", "/servers", "/catalog", "/clients", "/log", "/activity"]) {
      const text = JSON.stringify((await setup.ask("GET", path)).document);
      assert.doesNotMatch(text.replaceAll(/"(?:name|tool|own)":"(?:a__)?hunter2"/g, ""), /hunter2/);
    }
  });

  test("answers wrong requests with a status and an error, whatever they are", async (setup) => {
    const cases: readonly [number, string, string, string?][] = [
      [404, "GET", "/"],
      [404, "GET", "/hub/"],
      [404, "PUT", "/hub"],
      [404, "GET", "/servers/%zz"],
      [404, "GET", "/servers/..%2fhub"],
      [404, "GET", "/servers/__proto__"],
      [404, "POST", "/calls/NaN/cancel"],
      [404, "POST", "/calls/-1/cancel"],
      [404, "POST", "/alerts/0/dismiss"],
      [404, "GET", "/tools?client=x"],
      [404, "POST", "/client-apps/none/install", "{}"],
      [404, "POST", "/secrets/none"],
      [400, "GET", "/log?limit=-1"],
      [400, "GET", "/events?after=x"],
      [400, "GET", "/events?kinds="],
      [400, "GET", "/usage?points=61"],
      [400, "POST", "/servers/a/start?wait=99h"],
      [400, "POST", "/servers"],
      [400, "POST", "/servers", "\u0000"],
      [400, "POST", "/servers", "[]"],
      [400, "POST", "/servers", '{"name":"x","entry":[]}'],
      [400, "POST", "/tools/a__x/call", '{"arguments":[1]}'],
      [400, "PATCH", "/servers/a", '{"enabled":"yes"}'],
      [413, "POST", "/servers", "x".repeat(2 ** 21)],
    ];
    await connect(setup);
    for (const [expected, method, path, body] of cases) {
      const { status, document } = await setup.fetch(method, path, body);
      assert.equal(status, expected, `${method} ${path}`);
      assert.ok(errorOf(document).message.length > 0);
    }
    assert.equal((await setup.ask("GET", "/hub")).status, 200);
  });

  test("calls a tool in the process that clients use, and asks none of them for it", async (setup) => {
    const { client, a, hub } = setup;
    await initialize(client, { elicitation: {} });
    await listToolNames(client);
    const before = a.transportCount;
    a.onCall = ({ id }) => {
      a.newestPeer?.send({
        jsonrpc: "2.0",
        id: "q",
        method: "elicitation/create",
        params: { message: "?", requestedSchema: { type: "object", properties: {} } },
      });
      void a.newestPeer
        ?.find((message) => message.id === "q" && message.method === undefined)
        .then(({ error }) =>
          a.newestPeer?.send({
            jsonrpc: "2.0",
            id,
            result: { content: [], refused: error !== undefined },
          }),
        );
      return undefined;
    };
    const { document } = await setup.ask("POST", "/tools/a__x/call", {});
    assert.equal((document["result"] as Json)["refused"], true);
    assert.equal(a.transportCount, before);
    assert.ok(!client.messages.some(({ method }) => method === "elicitation/create"));
    assert.equal(hub.status().find(({ server }) => server === "a")?.connections.length, 1);
  });

  test("tells which calls have ended, and how often tools are used", async (setup) => {
    await connect(setup);
    const { client, a } = setup;
    a.onCall = ({ params }) =>
      (params?.["arguments"] as Json)["fail"] === true
        ? '"error":{"code":-1,"message":"no"}'
        : '"result":{"content":[]}';
    await callTool(client, "a__x", { secret: "hunter2" });
    await callTool(client, "a__x", { fail: true });
    await callTool(client, "b__y");
    const { document } = await setup.ask("GET", "/activity");
    assert.doesNotMatch(JSON.stringify(document), /hunter2/);
    const calls = document["calls"] as Json[];
    assert.deepEqual(
      calls.map(({ name, outcome, clientName }) => [name, outcome, clientName]),
      [
        ["b__y", "answered", "t"],
        ["a__x", "failed", "t"],
        ["a__x", "answered", "t"],
      ],
    );
    const failed = await setup.ask("GET", "/activity?server=a&outcome=failed&limit=5");
    assert.equal((failed.document["calls"] as Json[]).length, 1);
    const usage = await setup.ask("GET", "/usage?window=10m&points=2");
    const tools = usage.document["tools"] as Json[];
    const counted = tools.map(({ server, tool, calls: number, failed: bad, points }) => [
      server,
      tool,
      number,
      bad,
      (points as Json[]).length,
    ]);
    assert.deepEqual(counted, [
      ["a", "x", 2, 1, 2],
      ["b", "y", 1, 0, 2],
    ]);
    assert.equal(
      errorOf((await setup.ask("GET", "/usage?window=x")).document).code,
      "invalidParams",
    );
  });

  test("replaces the entry of a server, in the manifest if it is asked to", async (setup) => {
    const entry = { command: "other" };
    await setup.ask("PATCH", "/servers/a", { entry, persist: true });
    assert.deepEqual(setup.edits, [{ kind: "add", name: "a", entry }]);
    for (const body of [{}, { entry, enabled: true }]) {
      const { document } = await setup.ask("PATCH", "/servers/a", body);
      assert.equal(errorOf(document).code, "invalidParams");
    }
  });

  test("shows the entry of a server without secrets, and keeps them when it is changed", async (setup) => {
    const before = {
      command: "no-such-program",
      args: ["--token", "sk-1234567890abcdef", "x"],
      env: { KEY: "hunter3", REF: "${secret:a}" },
    };
    writeFileSync(join(setup.folder, "toolmux.json"), JSON.stringify({ servers: { a: before } }));
    const { document } = await setup.ask("GET", "/servers/a/entry");
    assert.doesNotMatch(JSON.stringify(document), /hunter3|sk-1234/);
    const { env, args, ...rest } = document["entry"] as { env: Json; args: string[] };
    assert.deepEqual([env["KEY"], env["REF"]], ["•••", "${secret:a}"]);
    const entry = { ...rest, args: ["y", ...args], env: { ...env, MORE: "1" } };
    await setup.ask("PATCH", "/servers/a", { entry, persist: true });
    const after = { ...before, args: ["y", ...before.args], env: { ...before.env, MORE: "1" } };
    assert.deepEqual(setup.edits, [{ kind: "add", name: "a", entry: after }]);
    for (const wrong of [{ command: "•••" }, { ...before, env: { OTHER: "•••" } }]) {
      const answer = await setup.ask("PATCH", "/servers/a", { entry: wrong, persist: true });
      assert.equal(errorOf(answer.document).code, "invalidParams");
    }
    assert.equal((await setup.ask("GET", "/servers/b/entry")).status >= 400, true);
  });

  test("has the entry of toolmux for a client, to copy it, and writes nothing", async (setup) => {
    const { document } = await setup.ask("GET", "/client-apps/cursor/snippet");
    const entry = JSON.parse(String(document["text"])) as Json;
    assert.deepEqual(Object.keys(entry["mcpServers"] as Json), ["toolmux"]);
    const other = await setup.ask("GET", "/client-apps/codex/snippet?http=http://x:1/mcp");
    assert.match(
      String(other.document["text"]),
      /^\[mcp_servers\.toolmux\]\nurl = "http:\/\/x:1\/mcp"$/,
    );
    const apps = (await setup.ask("GET", "/client-apps")).document["clients"] as Json[];
    assert.ok(!apps.some(({ exists }) => exists));
  });

  test("estimates what each tool costs a model's context", async (setup) => {
    await connect(setup);
    const { document } = await setup.ask("GET", "/tools");
    const [tool] = document["tools"] as Json[];
    const { document: full } = await setup.ask("GET", `/tools/${String(tool?.["name"])}`);
    const size = JSON.stringify(full["definition"]).length;
    assert.ok(Math.abs(Number(tool?.["tokens"]) - size / 4) <= 1);
  });

  test("refuses a login to a server that has none", async (setup) => {
    await connect(setup);
    const { document } = await setup.ask("POST", "/servers/a/login?wait=true");
    assert.equal(errorOf(document).code, "usage");
  });

  test("searches for at least one result and at most 200", async (setup) => {
    for (const limit of [0, 201, "x"]) {
      const query = `query=files&limit=${limit}`;
      const { status, document } = await setup.fetch("GET", `/registry?${query}`);
      assert.deepEqual([status, errorOf(document).code], [400, "invalidParams"]);
    }
  });

  test("ends the hub", async (setup) => {
    await setup.ask("POST", "/stop");
    assert.equal(setup.stops(), 1);
  });
});
