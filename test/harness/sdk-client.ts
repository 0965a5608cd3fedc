import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { Client as ClientV2 } from "@modelcontextprotocol/client";
import { StdioClientTransport as StdioV2 } from "@modelcontextprotocol/client/stdio";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as StdioV1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { isJsonRpc } from "./message.ts";

/** A command to start as a stdio server. */
export interface StdioCommand {
  readonly command: string;
  readonly args: string[];
  readonly cwd: string;
  readonly env: Record<string, string>;
}

export interface CallOptions {
  readonly signal?: AbortSignal;
  readonly onprogress?: (progress: {
    readonly progress: number;
    readonly total?: number | undefined;
  }) => void;
}

export interface ToolResult {
  readonly isError?: boolean | undefined;
  readonly structuredContent?: unknown;
  readonly content: readonly { readonly type: string; readonly text?: string }[];
}

/** The part of an SDK client that tests use, the same for every SDK. */
export interface SdkClient {
  /** The tools of all pages. */
  list(): Promise<{ readonly name: string }[]>;
  call(name: string, args: Record<string, unknown>, options?: CallOptions): Promise<ToolResult>;
  /** Closes the SDK client, then throws if stdout held anything but JSON-RPC messages. */
  close(): Promise<void>;
}

const INFO = { name: "sdk-client", version: "1.0.0" };

/**
 * Starts a command and connects an SDK client to it over the SDK's own stdio transport.
 * @param sdk v1 speaks the legacy era, v2 negotiates
 */
export async function connectSdk(
  sdk: "SDK v1" | "SDK v2",
  command: StdioCommand,
): Promise<SdkClient> {
  if (sdk === "SDK v1") {
    const client = new ClientV1(INFO);
    const transport = new StdioV1({ ...command, stderr: "ignore" });
    const assertOutput = watchOutput(transport);
    await client.connect(transport);
    return makeSdkClient(
      client,
      assertOutput,
      async (name, args, options) =>
        (await client.callTool({ name, arguments: args }, undefined, options)) as ToolResult,
    );
  }
  const client = new ClientV2(INFO, { versionNegotiation: { mode: "auto" } });
  const transport = new StdioV2({ ...command, stderr: "ignore" });
  const assertOutput = watchOutput(transport);
  await client.connect(transport);
  return makeSdkClient(client, assertOutput, (name, args, options) =>
    client.callTool({ name, arguments: args }, options),
  );
}

function makeSdkClient(
  client: ClientV1 | ClientV2,
  assertOutput: () => void,
  call: SdkClient["call"],
): SdkClient {
  return {
    list: () => listAllTools((cursor) => client.listTools(cursor === undefined ? {} : { cursor })),
    call,
    close: async () => {
      await client.close();
      assertOutput();
    },
  };
}

async function listAllTools(
  requestPage: (
    cursor: string | undefined,
  ) => Promise<{ tools: { name: string }[]; nextCursor?: string | undefined }>,
): Promise<{ readonly name: string }[]> {
  const tools: { name: string }[] = [];
  let cursor: string | undefined;
  do {
    const result = await requestPage(cursor);
    tools.push(...result.tools);
    cursor = result.nextCursor;
  } while (cursor !== undefined);
  return tools;
}

/**
 * Collects the stdout that a transport reads; the returned function throws if a line is not a JSON-RPC message.
 * The SDKs silently drop such lines, so the output is read from their private process object.
 */
function watchOutput(transport: { start(): Promise<void> }): () => void {
  let text = "";
  const start = transport.start.bind(transport);
  transport.start = async () => {
    await start();
    const { _process: child } = transport as unknown as { _process?: ChildProcess };
    assert.ok(child?.stdout, "the transport has a process");
    child.stdout.on("data", (chunk: Buffer) => (text += chunk.toString("latin1")));
  };
  return () => {
    const lines = text.split("\n");
    assert.equal(lines.pop(), "", "stdout ends with a whole line");
    assert.ok(lines.length > 0, "the server answered");
    for (const line of lines) assert.ok(isJsonRpc(JSON.parse(line)), line);
  };
}
