import {
  Client as ClientV2,
  StreamableHTTPClientTransport as HttpV2,
} from "@modelcontextprotocol/client";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as HttpV1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const INFO = { name: "sdk-client", version: "1.0.0" };

/** An SDK client over the SDK's own Streamable HTTP transport. */
export interface HttpSdk {
  readonly name: string;
  connect(url: string, headers?: Record<string, string>): Promise<ConnectedHttpClient>;
}

/** A connected client. */
export interface ConnectedHttpClient {
  /** The session id; undefined in the modern era, which has no sessions. */
  readonly sessionId: () => string | undefined;
  list(): Promise<readonly string[]>;
  call(
    name: string,
    args: Record<string, unknown>,
    options?: { signal?: AbortSignal; onprogress?: (progress: { progress: number }) => void },
  ): Promise<unknown>;
  onListChanged(callback: () => void): void;
  /** Ends the session with DELETE. */
  endSession(): Promise<void>;
  close(): Promise<void>;
}

const V1: HttpSdk = {
  name: "SDK v1",
  async connect(url, headers = {}) {
    const client = new ClientV1(INFO);
    const transport = new HttpV1(new URL(url), { requestInit: { headers } });
    await client.connect(transport);
    return {
      sessionId: () => transport.sessionId,
      list: async () => (await client.listTools()).tools.map(({ name }) => name),
      call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
      onListChanged: (callback) =>
        client.setNotificationHandler(ToolListChangedNotificationSchema, callback),
      endSession: () => transport.terminateSession(),
      close: () => client.close(),
    };
  },
};

function v2(mode: "legacy" | "auto"): HttpSdk {
  return {
    name: mode === "auto" ? "SDK v2 with negotiation" : "SDK v2",
    async connect(url, headers = {}) {
      const client = new ClientV2(INFO, { versionNegotiation: { mode } });
      const transport = new HttpV2(new URL(url), { requestInit: { headers } });
      await client.connect(transport);
      return {
        sessionId: () => transport.sessionId,
        list: async () => (await client.listTools()).tools.map(({ name }) => name),
        call: (name, args, options) => client.callTool({ name, arguments: args }, options),
        onListChanged(callback) {
          client.setNotificationHandler("notifications/tools/list_changed", callback);
          if (client.getProtocolEra() === "modern") void client.listen({ toolsListChanged: true });
        },
        endSession: () => transport.terminateSession(),
        close: () => client.close(),
      };
    },
  };
}

export const SDKS: readonly HttpSdk[] = [V1, v2("legacy"), v2("auto")];
