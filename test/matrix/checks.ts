import assert from "node:assert/strict";
import { MetaKey } from "../../src/protocol/modern.ts";
import { LIST_METHODS } from "./client.ts";
import { ELICITING_URI, type Params, TASK_ID, WATCHED_URI } from "./server-behaviour.ts";
import {
  requestMethodsOf,
  assertEraMembers,
  type Cell,
  failParamsOf,
  errorOf,
  hasItem,
  type MatrixPeers,
  textOf,
  callParamsOf,
  until,
} from "./peers.ts";
import type { ServerSdk } from "./servers.ts";

/*
 * test/matrix: the same checks for every combination of client and server era, SDK and transport. `MATRIX_CHECKS` has
 * the checks, a `Cell` is a combination of eras (peers.ts). client.ts is the interface of the clients, servers.ts has
 * the servers.
 */

/** A property that holds in every cell, except where the protocol makes it impossible. */
export interface MatrixCheck {
  readonly name: string;
  run(this: void, peers: MatrixPeers): Promise<void>;
  /** The cells where the protocol makes it impossible, and why. */
  readonly impossible?: Partial<Readonly<Record<Cell, string>>>;
  /** The server implementations that can show it; by default all. */
  readonly serverSdks?: readonly ServerSdk[];
  /** Whether it leaves the client or the server in another state, or expects a new one: it is run with its own. */
  readonly changesState?: boolean;
}

const NO_PING = "the modern era has no ping (removed without replacement)";

export const MATRIX_CHECKS: readonly MatrixCheck[] = [
  {
    name: "is introduced to what there is",
    async run({ mcpClient }) {
      const { capabilities } = mcpClient.handshake;
      for (const kind of ["tools", "prompts", "resources", "completions", "logging"]) {
        assert.ok(kind in capabilities, `${kind} is declared`);
      }
      assert.equal("tasks" in capabilities, mcpClient.era === "legacy");
    },
  },
  {
    name: "lists everything, page by page",
    async run(peers) {
      const { mcpClient } = peers;
      const tools = await mcpClient.list("tools");
      const names = tools.map(({ name }) => name);
      assert.equal(new Set(names).size, names.length);
      for (const name of ["test_simple_text", "test_trigger_tool_change", "test_wait"]) {
        assert.ok(names.includes(name), `${name} is listed`);
      }
      assert.ok(hasItem(await mcpClient.list("prompts"), "name", "test_prompt_with_arguments"));
      assert.ok(hasItem(await mcpClient.list("resources"), "uri", WATCHED_URI));
      assert.ok(
        hasItem(
          await mcpClient.list("resourceTemplates"),
          "uriTemplate",
          "test://template/{id}/data",
        ),
      );
      for (const method of Object.values(LIST_METHODS)) {
        const result = await mcpClient.request(method, {});
        assertEraMembers(peers, result, { isCached: true, isList: true });
      }
    },
  },
  {
    name: "calls a tool",
    async run(peers) {
      const { mcpClient } = peers;
      const result = await mcpClient.request("tools/call", {
        name: "test_simple_text",
        arguments: {},
      });
      assert.match(textOf(result), /^This is a simple text/);
      assertEraMembers(peers, result, { isCached: false });
    },
  },
  {
    name: "hears of progress",
    async run({ mcpClient }) {
      const seen: number[] = [];
      await mcpClient.request("tools/call", callParamsOf("test_tool_with_progress"), {
        onprogress: (progress) => seen.push(progress),
      });
      // The SDKs drop progress that arrives in the same chunk as the response.
      assert.equal(seen[0], 0);
      assert.deepEqual(seen, [0, 50, 100].slice(0, seen.length));
    },
  },
  {
    name: "cancels a call, which its server is told",
    changesState: true,
    async run({ mcpClient, server }) {
      const abort = new AbortController();
      const call = mcpClient.request("tools/call", callParamsOf("test_wait"), {
        signal: abort.signal,
      });
      const failed = assert.rejects(call);
      // The response to a later call proves that the first one has arrived.
      await mcpClient.request("tools/call", callParamsOf("test_simple_text"));
      abort.abort();
      await failed;
      await until("the cancel", () => server.cancelled.length === 1);
    },
  },
  {
    name: "is logged to from the level on that it wants",
    changesState: true,
    async run({ mcpClient }) {
      await mcpClient.setLevel("error");
      await mcpClient.request("tools/call", callParamsOf("test_tool_with_logging"));
      assert.equal(mcpClient.received.logs.length, 0);
      await mcpClient.setLevel("info");
      await mcpClient.request("tools/call", callParamsOf("test_tool_with_logging"));
      await until("three lines", () => mcpClient.received.logs.length === 3);
      for (const { logger, level } of mcpClient.received.logs) {
        assert.equal(level, "info");
        assert.match(String(logger), /^s\b/);
      }
    },
  },
  {
    name: "is not logged to without having asked for it",
    changesState: true,
    impossible: {
      LL: "servers of the legacy era decide that themselves until a level is set",
      LM: "clients of the legacy era get what servers decide on until they set a level",
    },
    async run({ mcpClient }) {
      await mcpClient.request("tools/call", callParamsOf("test_tool_with_logging"));
      await mcpClient.request("tools/call", callParamsOf("test_simple_text"));
      assert.equal(mcpClient.received.logs.length, 0);
    },
  },
  {
    name: "reads resources, listed and by a template",
    async run(peers) {
      const { mcpClient } = peers;
      for (const uri of ["test://static-text", "test://template/7/data"]) {
        const result = await mcpClient.request("resources/read", { uri });
        const [content] = result["contents"] as Params[];
        assert.equal(content?.["uri"], uri);
        assertEraMembers(peers, result, { isCached: true });
      }
    },
  },
  {
    name: "hears of a resource that it subscribed to",
    changesState: true,
    async run({ mcpClient }) {
      await mcpClient.subscribe(WATCHED_URI);
      await mcpClient.request("tools/call", callParamsOf("test_trigger_resource_update"));
      await until("the update", () => mcpClient.received.updatedUris.includes(WATCHED_URI));
    },
  },
  {
    name: "gets prompts",
    async run(peers) {
      const { mcpClient } = peers;
      const params = { name: "test_prompt_with_arguments", arguments: { arg1: "a", arg2: "b" } };
      const result = await mcpClient.request("prompts/get", params);
      assert.match(JSON.stringify(result["messages"]), /arg1='a'/);
      assertEraMembers(peers, result, { isCached: false });
    },
  },
  {
    name: "completes arguments",
    async run({ mcpClient }) {
      const ref = { type: "ref/prompt", name: "test_prompt_with_arguments" };
      const argument = { name: "arg1", value: "par" };
      const result = await mcpClient.request("completion/complete", { ref, argument });
      const { values } = result["completion"] as { readonly values: readonly string[] };
      assert.ok(values.includes("paris"));
    },
  },
  {
    name: "is asked for what its model says",
    async run({ mcpClient }) {
      const params = { name: "test_sampling", arguments: { prompt: "Hi" } };
      const result = await mcpClient.request("tools/call", params);
      assert.match(textOf(result), /sampled by the guest/);
      assert.deepEqual(requestMethodsOf(mcpClient), ["sampling/createMessage"]);
    },
  },
  {
    name: "is asked to fill in a form, and told who asks",
    async run({ mcpClient }) {
      const params = { name: "test_elicitation", arguments: { message: "Who are you?" } };
      const result = await mcpClient.request("tools/call", params);
      assert.match(textOf(result), /accept.*guest/);
      assert.deepEqual(requestMethodsOf(mcpClient), ["elicitation/create"]);
      assert.match(
        String(mcpClient.received.requests[0]?.params["message"]),
        /^\[s\] Who are you\?/,
      );
    },
  },
  {
    name: "is asked while it gets a prompt and while it reads a resource",
    async run({ mcpClient }) {
      const prompt = await mcpClient.request("prompts/get", { name: "test_asking" });
      assert.match(JSON.stringify(prompt["messages"]), /accept.*guest/);
      const resource = await mcpClient.request("resources/read", { uri: ELICITING_URI });
      assert.match(JSON.stringify(resource["contents"]), /accept.*guest/);
      assert.deepEqual(requestMethodsOf(mcpClient), ["elicitation/create", "elicitation/create"]);
    },
  },
  {
    name: "is told which page has to be visited first",
    impossible: {
      LM: "servers of the modern era ask in their results instead (-32042 was removed)",
      MM: "servers of the modern era ask in their results instead (-32042 was removed)",
    },
    serverSdks: ["SDK v1", "raw"],
    async run({ mcpClient, cell }) {
      if (cell === "LL") {
        const { code, data } = await errorOf(mcpClient, "tools/call", callParamsOf("test_visit"));
        const { elicitations } = data as { readonly elicitations: readonly Params[] };
        assert.deepEqual([code, elicitations[0]?.["elicitationId"]], [-32042, "visit-1"]);
        return;
      }
      const result = await mcpClient.request("tools/call", callParamsOf("test_visit"));
      assert.match(textOf(result), /visited/);
      assert.equal(mcpClient.received.requests[0]?.params["mode"], "url");
    },
  },
  {
    name: "is asked to visit a URL",
    async run({ mcpClient }) {
      const result = await mcpClient.request("tools/call", callParamsOf("test_url"));
      assert.match(textOf(result), /accept/);
      const [question] = mcpClient.received.requests;
      assert.equal(question?.params["url"], "http://127.0.0.1/there");
      const isNamed = typeof question?.params["elicitationId"] === "string";
      assert.equal(isNamed, mcpClient.era === "legacy");
    },
  },
  {
    name: "is asked for its roots",
    async run({ mcpClient }) {
      const result = await mcpClient.request("tools/call", callParamsOf("test_roots"));
      assert.match(textOf(result), /file:\/\/\/guest/);
      assert.deepEqual(requestMethodsOf(mcpClient), ["roots/list"]);
    },
  },
  {
    name: "hears that the tools have changed",
    changesState: true,
    async run({ mcpClient }) {
      await mcpClient.subscribe(WATCHED_URI);
      const before = (await mcpClient.list("tools")).length;
      await mcpClient.request("tools/call", callParamsOf("test_trigger_tool_change"));
      await until("the news", () => mcpClient.received.listChanges.length > 0);
      assert.notEqual((await mcpClient.list("tools")).length, before);
    },
  },
  {
    name: "pings",
    impossible: { ML: NO_PING, MM: NO_PING },
    async run({ mcpClient }) {
      assert.deepEqual(await mcpClient.request("ping", {}), {});
    },
  },
  {
    name: "gets errors as they are, with their data",
    async run({ mcpClient }) {
      const { code, data } = await errorOf(mcpClient, "prompts/get", failParamsOf(1234));
      assert.deepEqual([code, data], [1234, { detail: 1.5 }]);
    },
  },
  {
    name: "gets errors that its era has no word for as internal ones, with the original",
    impossible: {
      LL: "codes between peers of one era mean the same to both",
      MM: "codes between peers of one era mean the same to both",
    },
    serverSdks: ["raw"],
    async run({ mcpClient, cell }) {
      const foreign = cell === "LM" ? -32021 : -32050;
      const { code, data } = await errorOf(mcpClient, "prompts/get", failParamsOf(foreign));
      assert.deepEqual([code, data], [-32603, { code: foreign, data: { detail: 1.5 } }]);
    },
  },
  {
    name: "is told by its own era's code that there is no such thing",
    serverSdks: ["raw"],
    async run({ mcpClient, cell }) {
      const { code } = await errorOf(mcpClient, "prompts/get", failParamsOf(-32002));
      assert.equal(code, cell === "ML" ? -32602 : -32002);
      for (const [method, params] of [
        ["tools/call", callParamsOf("there_is_none")],
        ["prompts/get", { name: "there_is_none" }],
      ] as const) {
        assert.equal((await errorOf(mcpClient, method, params)).code, -32602);
      }
    },
  },
  {
    name: "sends along what it says beside, a trace among it, and gets what is said beside",
    async run({ mcpClient, server }) {
      const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
      const meta = { traceparent, "example.org/said": { deep: 1 } };
      const result = await mcpClient.request("tools/call", callParamsOf("test_meta"), { meta });
      assert.equal((result["_meta"] as Params)["example.org/own"], 1.5);
      const [seen] = server.metas;
      assert.equal(seen?.["traceparent"], traceparent);
      assert.deepEqual(seen?.["example.org/said"], { deep: 1 });
    },
  },
  {
    name: "is given tasks for answers, or what came of them",
    impossible: { ML: "the tasks of the two eras are not made of each other" },
    serverSdks: ["raw"],
    async run({ mcpClient, cell, clientSdk: client }) {
      const call = callParamsOf("test_task");
      if (cell === "LM") {
        assert.equal(textOf(await mcpClient.request("tools/call", call)), "It was a task.");
        return;
      }
      if (cell === "LL") {
        const { task } = await mcpClient.request("tools/call", { ...call, task: {} });
        const { taskId } = task as Params;
        assert.notEqual(taskId, TASK_ID);
        assert.equal((await mcpClient.request("tasks/get", { taskId }))["status"], "completed");
        assert.equal(textOf(await mcpClient.request("tasks/result", { taskId })), "It was a task.");
        return;
      }
      const { code, data } = await errorOf(mcpClient, "tools/call", call);
      assert.equal(code, -32021);
      // The SDK client does not accept tasks as results.
      if (client !== "raw") return;
      const { requiredCapabilities } = data as Params;
      const meta = { [MetaKey.capabilities]: requiredCapabilities };
      const { taskId, resultType } = await mcpClient.request("tools/call", call, { meta });
      assert.equal(resultType, "task");
      assert.notEqual(taskId, TASK_ID);
      const { status, result } = await mcpClient.request("tasks/get", { taskId }, { meta });
      assert.deepEqual([status, textOf(result as Params)], ["completed", "It was a task."]);
    },
  },
];
