import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { utf8 } from "../../src/base/bytes.ts";
import { openPluginServer } from "../../src/plugin/provided-servers.ts";
import { makeSdkTransportPair } from "../../src/plugin/sdk-transport.ts";
import type { Host, Link, Parts } from "../../src/plugin/plugin.ts";
import { bytesOf, type Message } from "../../src/jsonrpc/message.ts";
import { BareHost } from "./plugin-host.ts";

export interface LibraryHost extends Host {
  /** The exposed name of the tool that reads further pages. */
  readMore: string | undefined;
  readonly end: AbortController;
}

/** A plugin host with transport pairs, whose reading tool has this exposed name. */
export function libraryHost(readMore: string): LibraryHost {
  const host: LibraryHost = Object.assign(new BareHost(), {
    readMore,
    nameOf: (server: string, tool: string) =>
      server === "results" && tool === "read_more" ? host.readMore : undefined,
    pair: () => makeSdkTransportPair((error) => assert.fail(error)),
  });
  return host;
}

/** Adapts a `Transport` to an MCP SDK client. */
export class LinkTransport {
  onmessage?(message: object): void;
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
  readonly #link: Link;

  constructor(link: Link) {
    this.#link = link;
  }

  start(): Promise<void> {
    const events = {
      message: (frame: Message) => {
        assert.ok(frame.kind !== "batch");
        this.onmessage?.(JSON.parse(bytesOf(frame).toString()) as object);
      },
      log: () => {},
      oversized: () => {},
      pressure: () => {},
      closed: () => this.onclose?.(),
    };
    return this.#link.open(events, new AbortController().signal);
  }

  send(message: object): Promise<void> {
    this.#link.send(utf8(JSON.stringify(message)));
    return Promise.resolve();
  }

  close(): Promise<void> {
    return this.#link.close();
  }
}

/** Starts the plugin's server as the hub would. */
export async function openServer(parts: Parts): Promise<LinkTransport> {
  const server = parts.servers?.["results"] ?? assert.fail("there is no such server");
  return new LinkTransport(await openPluginServer(server, undefined));
}

export interface PageResult {
  readonly content: readonly { readonly type: string; readonly text?: string }[];
  readonly isError?: boolean;
}

/** A client of the server that holds the truncated results. */
export interface Reader {
  /** Resolves when the server has closed the connection. */
  readonly closed: Promise<void>;
  call(name: string, args: Record<string, unknown>): Promise<PageResult>;
  read(uri: string): Promise<readonly object[]>;
  close(): Promise<void>;
}

export async function readerOf(parts: Parts): Promise<Reader> {
  const client = new Client({ name: "reader", version: "1" });
  const closed = new Promise<void>((resolve) => {
    // oxlint-disable-next-line unicorn/prefer-add-event-listener
    client.onclose = resolve;
  });
  await client.connect(await openServer(parts));
  return {
    closed,
    call: async (name, args) => (await client.callTool({ name, arguments: args })) as PageResult,
    read: async (uri) => (await client.readResource({ uri })).contents,
    close: () => client.close(),
  };
}
