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
import { type ServerTransportName, withServe } from "../harness/serve.ts";
import type { ConnectTarget } from "../harness/full-client.ts";
import { it } from "../harness/hub.ts";
import { publishedServer } from "../harness/manifest.ts";

const SERVERS = { all: publishedServer("everything", ["stdio"]) };
const RESEARCH = "all__simulate-research-query";
/** Arguments for which it asks its client. */
const ASKING = { topic: "python", ambiguous: true };

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

/** Cancels a task that has begun; a second time that is refused. */
async function assertCancels({ experimental: { tasks } }: Client): Promise<void> {
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
}

describe("tasks of the server of everything", () => {
  it("run to their end over stdio, ask their client on the way, and end when they are cancelled", () =>
    withClients("stdio", async (connected) => {
      const client = await connected();
      const plain = research(client, { topic: "bees" });
      const asking = research(client, ASKING);
      const { ids, text } = await plain;
      assert.equal(ids.size, 1);
      assert.match([...ids].join(), /^[0-9a-f]{8}-/);
      assert.match(text, /Research Report: bees/);
      const asked = await asking;
      assert.ok(asked.statuses.has("input_required"));
      assert.match(asked.text, /python \(snake\)/);
      const { tasks } = await client.experimental.tasks.listTasks();
      assert.deepEqual(idsOf(tasks), new Set([...ids, ...asked.ids]));
      await assertCancels(client);
    }));

  it("do the same over HTTP, where clients that share it have and answer for their own tasks only", () =>
    withClients("HTTP", async (connected) => {
      const [one, two] = [await connected(), await connected()];
      const [mine, plain] = await Promise.all([
        research(one, ASKING),
        research(two, { topic: "bees" }),
      ]);
      assert.ok(mine.statuses.has("input_required"));
      assert.match(mine.text, /python \(snake\)/);
      assert.match(plain.text, /Research Report: bees/);
      const { tasks } = await one.experimental.tasks.listTasks();
      assert.deepEqual(idsOf(tasks), mine.ids);
      await assert.rejects(two.experimental.tasks.getTask([...mine.ids].join()));
      await assertCancels(one);
    }));
});
