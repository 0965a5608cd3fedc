import assert from "node:assert/strict";
import { MetaKey } from "../../src/protocol/modern.ts";
import { LISTED } from "./client.ts";
import { ASKING, type Params, TASK_ID, WATCHED } from "./server-behaviour.ts";
import {
  asked,
  assertStamped,
  type Cell,
  failing,
  failure,
  has,
  type Peers,
  textOf,
  tool,
  until,
} from "./peers.ts";
import type { ServerFlavour } from "./servers.ts";

/*
 * test/matrix: the same checks for every combination of client and server era, SDK and transport. `MATRIX_CHECKS` has
 * the checks, a `Cell` is a combination of eras (peers.ts). client.ts is the interface of the clients, servers.ts has
 * the servers.
 */

/** A property that holds in every cell, except where the protocol makes it impossible. */
export interface Row {
  readonly name: string;
  run(this: void, peers: Peers): Promise<void>;
  /** The cells where the protocol makes it impossible, and why. */
  readonly impossible?: Partial<Readonly<Record<Cell, string>>>;
  /** The server implementations that can show it; by default all. */
  readonly flavours?: readonly ServerFlavour[];
}

const NO_PING = "the modern era has no ping (removed without replacement)";

export const ROWS: readonly Row[] = [
  {
    name: "is introduced to what there is",
    async run({ guest }) {
      const { capabilities } = guest.introduction;
      for (const kind of ["tools", "prompts", "resources", "completions", "logging"]) {
        assert.ok(kind in capabilities, `${kind} is declared`);
      }
      assert.equal("tasks" in capabilities, guest.era === "legacy");
    },
  },
  {
    name: "lists everything, page by page",
    async run(peers) {
      const { guest } = peers;
      const tools = await guest.list("tools");
      const names = tools.map(({ name }) => name);
      assert.equal(new Set(names).size, names.length);
      for (const name of ["test_simple_text", "test_trigger_tool_change", "test_wait"]) {
        assert.ok(names.includes(name), `${name} is listed`);
      }
      assert.ok(has(await guest.list("prompts"), "name", "test_prompt_with_arguments"));
      assert.ok(has(await guest.list("resources"), "uri", WATCHED));
      assert.ok(
        has(await guest.list("resourceTemplates"), "uriTemplate", "test://template/{id}/data"),
      );
      for (const method of Object.values(LISTED)) {
        const result = await guest.request(method, {});
        assertStamped(peers, result, { isCached: true, isList: true });
      }
    },
  },
  {
    name: "calls a tool",
    async run(peers) {
      const { guest } = peers;
      const result = await guest.request("tools/call", { name: "test_simple_text", arguments: {} });
      assert.match(textOf(result), /^This is a simple text/);
      assertStamped(peers, result, { isCached: false });
    },
  },
  {
    name: "hears of progress",
    async run({ guest }) {
      const seen: number[] = [];
      await guest.request("tools/call", tool("test_tool_with_progress"), {
        onprogress: (progress) => seen.push(progress),
      });
      // The SDKs drop progress that arrives in the same chunk as the response.
      assert.equal(seen[0], 0);
      assert.deepEqual(seen, [0, 50, 100].slice(0, seen.length));
    },
  },
  {
    name: "cancels a call, which its server is told",
    async run({ guest, server }) {
      const abort = new AbortController();
      const call = guest.request("tools/call", tool("test_wait"), { signal: abort.signal });
      const failed = assert.rejects(call);
      // The response to a later call proves that the first one has arrived.
      await guest.request("tools/call", tool("test_simple_text"));
      abort.abort();
      await failed;
      await until("the cancel", () => server.cancelled.length === 1);
    },
  },
  {
    name: "is logged to from the level on that it wants",
    async run({ guest }) {
      await guest.setLevel("error");
      await guest.request("tools/call", tool("test_tool_with_logging"));
      assert.equal(guest.heard.logs.length, 0);
      await guest.setLevel("info");
      await guest.request("tools/call", tool("test_tool_with_logging"));
      await until("three lines", () => guest.heard.logs.length === 3);
      for (const { logger, level } of guest.heard.logs) {
        assert.equal(level, "info");
        assert.match(String(logger), /^s\b/);
      }
    },
  },
  {
    name: "is not logged to without having asked for it",
    impossible: {
      LL: "servers of the legacy era decide that themselves until a level is set",
      LM: "clients of the legacy era get what servers decide on until they set a level",
    },
    async run({ guest }) {
      await guest.request("tools/call", tool("test_tool_with_logging"));
      await guest.request("tools/call", tool("test_simple_text"));
      assert.equal(guest.heard.logs.length, 0);
    },
  },
  {
    name: "reads resources, listed and by a template",
    async run(peers) {
      const { guest } = peers;
      for (const uri of ["test://static-text", "test://template/7/data"]) {
        const result = await guest.request("resources/read", { uri });
        const [content] = result["contents"] as Params[];
        assert.equal(content?.["uri"], uri);
        assertStamped(peers, result, { isCached: true });
      }
    },
  },
  {
    name: "hears of a resource that it subscribed to",
    async run({ guest }) {
      await guest.subscribe(WATCHED);
      await guest.request("tools/call", tool("test_trigger_resource_update"));
      await until("the update", () => guest.heard.updated.includes(WATCHED));
    },
  },
  {
    name: "gets prompts",
    async run(peers) {
      const { guest } = peers;
      const params = { name: "test_prompt_with_arguments", arguments: { arg1: "a", arg2: "b" } };
      const result = await guest.request("prompts/get", params);
      assert.match(JSON.stringify(result["messages"]), /arg1='a'/);
      assertStamped(peers, result, { isCached: false });
    },
  },
  {
    name: "completes arguments",
    async run({ guest }) {
      const ref = { type: "ref/prompt", name: "test_prompt_with_arguments" };
      const argument = { name: "arg1", value: "par" };
      const result = await guest.request("completion/complete", { ref, argument });
      const { values } = result["completion"] as { readonly values: readonly string[] };
      assert.ok(values.includes("paris"));
    },
  },
  {
    name: "is asked for what its model says",
    async run({ guest }) {
      const params = { name: "test_sampling", arguments: { prompt: "Hi" } };
      const result = await guest.request("tools/call", params);
      assert.match(textOf(result), /sampled by the guest/);
      assert.deepEqual(asked(guest), ["sampling/createMessage"]);
    },
  },
  {
    name: "is asked to fill in a form, and told who asks",
    async run({ guest }) {
      const params = { name: "test_elicitation", arguments: { message: "Who are you?" } };
      const result = await guest.request("tools/call", params);
      assert.match(textOf(result), /accept.*guest/);
      assert.deepEqual(asked(guest), ["elicitation/create"]);
      assert.match(String(guest.heard.asked[0]?.params["message"]), /^\[s\] Who are you\?/);
    },
  },
  {
    name: "is asked while it gets a prompt and while it reads a resource",
    async run({ guest }) {
      const prompt = await guest.request("prompts/get", { name: "test_asking" });
      assert.match(JSON.stringify(prompt["messages"]), /accept.*guest/);
      const resource = await guest.request("resources/read", { uri: ASKING });
      assert.match(JSON.stringify(resource["contents"]), /accept.*guest/);
      assert.deepEqual(asked(guest), ["elicitation/create", "elicitation/create"]);
    },
  },
  {
    name: "is told which page has to be visited first",
    impossible: {
      LM: "servers of the modern era ask in their results instead (-32042 was removed)",
      MM: "servers of the modern era ask in their results instead (-32042 was removed)",
    },
    flavours: ["SDK v1", "raw"],
    async run({ guest, cell }) {
      if (cell === "LL") {
        const { code, data } = await failure(guest, "tools/call", tool("test_visit"));
        const { elicitations } = data as { readonly elicitations: readonly Params[] };
        assert.deepEqual([code, elicitations[0]?.["elicitationId"]], [-32042, "visit-1"]);
        return;
      }
      const result = await guest.request("tools/call", tool("test_visit"));
      assert.match(textOf(result), /visited/);
      assert.equal(guest.heard.asked[0]?.params["mode"], "url");
    },
  },
  {
    name: "is asked to visit a URL",
    async run({ guest }) {
      const result = await guest.request("tools/call", tool("test_url"));
      assert.match(textOf(result), /accept/);
      const [question] = guest.heard.asked;
      assert.equal(question?.params["url"], "http://127.0.0.1/there");
      const isNamed = typeof question?.params["elicitationId"] === "string";
      assert.equal(isNamed, guest.era === "legacy");
    },
  },
  {
    name: "is asked for its roots",
    async run({ guest }) {
      const result = await guest.request("tools/call", tool("test_roots"));
      assert.match(textOf(result), /file:\/\/\/guest/);
      assert.deepEqual(asked(guest), ["roots/list"]);
    },
  },
  {
    name: "hears that the tools have changed",
    async run({ guest }) {
      await guest.subscribe(WATCHED);
      const before = (await guest.list("tools")).length;
      await guest.request("tools/call", tool("test_trigger_tool_change"));
      await until("the news", () => guest.heard.changed.length > 0);
      assert.notEqual((await guest.list("tools")).length, before);
    },
  },
  {
    name: "pings",
    impossible: { ML: NO_PING, MM: NO_PING },
    async run({ guest }) {
      assert.deepEqual(await guest.request("ping", {}), {});
    },
  },
  {
    name: "gets errors as they are, with their data",
    async run({ guest }) {
      const { code, data } = await failure(guest, "prompts/get", failing(1234));
      assert.deepEqual([code, data], [1234, { detail: 1.5 }]);
    },
  },
  {
    name: "gets errors that its era has no word for as internal ones, with the original",
    impossible: {
      LL: "codes between peers of one era mean the same to both",
      MM: "codes between peers of one era mean the same to both",
    },
    flavours: ["raw"],
    async run({ guest, cell }) {
      const foreign = cell === "LM" ? -32021 : -32050;
      const { code, data } = await failure(guest, "prompts/get", failing(foreign));
      assert.deepEqual([code, data], [-32603, { code: foreign, data: { detail: 1.5 } }]);
    },
  },
  {
    name: "is told by its own era's code that there is no such thing",
    flavours: ["raw"],
    async run({ guest, cell }) {
      const { code } = await failure(guest, "prompts/get", failing(-32002));
      assert.equal(code, cell === "ML" ? -32602 : -32002);
      for (const [method, params] of [
        ["tools/call", tool("there_is_none")],
        ["prompts/get", { name: "there_is_none" }],
      ] as const) {
        assert.equal((await failure(guest, method, params)).code, -32602);
      }
    },
  },
  {
    name: "sends along what it says beside, a trace among it, and gets what is said beside",
    async run({ guest, server }) {
      const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
      const meta = { traceparent, "example.org/said": { deep: 1 } };
      const result = await guest.request("tools/call", tool("test_meta"), { meta });
      assert.equal((result["_meta"] as Params)["example.org/own"], 1.5);
      const [seen] = server.metas;
      assert.equal(seen?.["traceparent"], traceparent);
      assert.deepEqual(seen?.["example.org/said"], { deep: 1 });
    },
  },
  {
    name: "is given tasks for answers, or what came of them",
    impossible: { ML: "the tasks of the two eras are not made of each other" },
    flavours: ["raw"],
    async run({ guest, cell, client }) {
      const call = tool("test_task");
      if (cell === "LM") {
        assert.equal(textOf(await guest.request("tools/call", call)), "It was a task.");
        return;
      }
      if (cell === "LL") {
        const { task } = await guest.request("tools/call", { ...call, task: {} });
        const { taskId } = task as Params;
        assert.notEqual(taskId, TASK_ID);
        assert.equal((await guest.request("tasks/get", { taskId }))["status"], "completed");
        assert.equal(textOf(await guest.request("tasks/result", { taskId })), "It was a task.");
        return;
      }
      const { code, data } = await failure(guest, "tools/call", call);
      assert.equal(code, -32021);
      // The SDK client does not accept tasks as results.
      if (client !== "raw") return;
      const { requiredCapabilities } = data as Params;
      const meta = { [MetaKey.capabilities]: requiredCapabilities };
      const { taskId, resultType } = await guest.request("tools/call", call, { meta });
      assert.equal(resultType, "task");
      assert.notEqual(taskId, TASK_ID);
      const { status, result } = await guest.request("tasks/get", { taskId }, { meta });
      assert.deepEqual([status, textOf(result as Params)], ["completed", "It was a task."]);
    },
  },
];
