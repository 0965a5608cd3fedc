import assert from "node:assert/strict";
import { describe } from "node:test";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { InMemoryTaskStore } from "@modelcontextprotocol/sdk/experimental/tasks/stores/in-memory.js";
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  ElicitRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { SERVER_TRANSPORTS, type ServerTransportName, withServe } from "../harness/serve.ts";
import type { ConnectTarget } from "../harness/full-client.ts";
import { it } from "../harness/hub.ts";
import { publishedServer } from "../harness/manifest.ts";

const SERVERS = { all: publishedServer("everything", ["stdio"]) };
const RESEARCH = "all__simulate-research-query";

/** A client of the SDK that has tasks, and can be asked for some. */
async function connect(reach: ConnectTarget): Promise<Client> {
  const requests = { sampling: { createMessage: {} }, elicitation: { create: {} } };
  const client = new Client(
    { name: "tasks", version: "1.0.0" },
    {
      capabilities: {
        sampling: {},
        elicitation: { form: {} },
        tasks: { list: {}, cancel: {}, requests },
      },
      taskStore: new InMemoryTaskStore(),
    },
  );
  const content = { type: "text" as const, text: "sampled" };
  const sample = { model: "m", role: "assistant" as const, content };
  const form = { action: "accept", content: { name: "Ada", interpretation: "snake" } };
  client.setRequestHandler(CreateMessageRequestSchema, ({ params }: Asked, { taskStore }: Tools) =>
    make(params.task, taskStore, sample),
  );
  client.setRequestHandler(ElicitRequestSchema, ({ params }: Asked, { taskStore }: Tools) =>
    make(params.task, taskStore, form),
  );
  await client.connect(
    typeof reach === "string"
      ? new StreamableHTTPClientTransport(new URL(reach))
      : new StdioClientTransport({ ...reach, stderr: "ignore" }),
  );
  await client.listTools();
  return client;
}

type Result = Record<string, unknown>;

/** What the SDK's types say of requests and of what comes with them, as far as it is needed here. */
interface Asked {
  readonly params: { readonly task?: { readonly ttl?: number | undefined } | undefined };
}

interface Tools {
  readonly taskStore?: Store | undefined;
}

interface Store {
  createTask(params: { ttl?: number | null }): Promise<{ taskId: string }>;
  storeTaskResult(id: string, status: "completed", result: Result): Promise<void>;
}

/** Makes a task of a request that is to be one, and ends it a moment later. */
async function make(
  wanted: { ttl?: number | undefined } | undefined,
  store: Store | undefined,
  result: Result,
): Promise<Result> {
  if (wanted === undefined || store === undefined) return result;
  const task = await store.createTask({ ttl: wanted.ttl ?? null });
  setTimeout(() => void store.storeTaskResult(task.taskId, "completed", result), 100);
  return { task };
}

/** Calls a tool that has to be a task. @returns how the task stood, and the result */
async function research(
  client: Client,
  args: Record<string, unknown>,
): Promise<{ ids: Set<string>; statuses: Set<string>; text: string }> {
  const ids = new Set<string>();
  const statuses = new Set<string>();
  const params = { name: RESEARCH, arguments: args };
  const stream = client.experimental.tasks.callToolStream(params, CallToolResultSchema, {
    task: { ttl: 60_000 },
  });
  for await (const message of stream) {
    if (message.type === "error") throw message.error;
    if (message.type === "result") return { ids, statuses, text: JSON.stringify(message.result) };
    ids.add(message.task.taskId);
    statuses.add(message.task.status);
  }
  throw new Error("There was no result.");
}

function idsOf(tasks: readonly { readonly taskId: string }[]): Set<string> {
  return new Set(tasks.map(({ taskId }) => taskId));
}

function withClients(
  face: ServerTransportName,
  run: (connected: () => Promise<Client>) => Promise<void>,
): Promise<void> {
  return withServe(face, { servers: SERVERS }, async ({ target: reach }) => {
    const clients: Client[] = [];
    await run(async () => {
      const client = await connect(reach);
      clients.push(client);
      return client;
    });
    for (const client of clients) {
      const { transport } = client;
      if (transport instanceof StreamableHTTPClientTransport) await transport.terminateSession();
      await client.close();
    }
  });
}

for (const face of SERVER_TRANSPORTS) {
  describe(`tasks of the server of everything, over ${face}`, () => {
    it("run to their end, and ask their client on the way", () =>
      withClients(face, async (connected) => {
        const client = await connected();
        const plain = research(client, { topic: "bees" });
        const asking = research(client, { topic: "python", ambiguous: true });
        const { ids, text } = await plain;
        assert.equal(ids.size, 1);
        assert.match([...ids].join(), /^[0-9a-f]{8}-/);
        assert.match(text, /Research Report: bees/);
        const asked = await asking;
        assert.ok(asked.statuses.has("input_required"));
        assert.match(asked.text, /python \(snake\)/);
        const { tasks } = await client.experimental.tasks.listTasks();
        assert.deepEqual(idsOf(tasks), new Set([...ids, ...asked.ids]));
      }));

    it("are cancelled, and then have ended", () =>
      withClients(face, async (connected) => {
        const { tasks } = (await connected()).experimental;
        const stream = tasks.callToolStream(
          { name: RESEARCH, arguments: { topic: "ants" } },
          CallToolResultSchema,
          { task: { ttl: 60_000 } },
        );
        const first = await stream.next();
        assert.ok(first.value?.type === "taskCreated");
        const { taskId } = first.value.task;
        assert.equal((await tasks.cancelTask(taskId)).status, "cancelled");
        assert.equal((await tasks.getTask(taskId)).status, "cancelled");
        await assert.rejects(tasks.cancelTask(taskId));
      }));
  });
}

describe("clients that share the server of everything", () => {
  it("have their own tasks only, and answer what their own tasks ask", () =>
    withClients("HTTP", async (connected) => {
      const [one, two] = [await connected(), await connected()];
      const asking = { topic: "python", ambiguous: true };
      const [mine, plain] = await Promise.all([
        research(one, asking),
        research(two, { topic: "bees" }),
      ]);
      assert.match(mine.text, /python \(snake\)/);
      assert.match(plain.text, /bees/);
      const { tasks } = await one.experimental.tasks.listTasks();
      assert.deepEqual(idsOf(tasks), mine.ids);
      await assert.rejects(two.experimental.tasks.getTask([...mine.ids].join()));
    }));
});
