import {
  Client as ClientV2,
  StreamableHTTPClientTransport as HttpV2,
} from "@modelcontextprotocol/client";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as HttpV1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ResultSchema } from "@modelcontextprotocol/sdk/types.js";
import { makeSdkTransportPair } from "../../src/plugin/sdk-transport.ts";
import { type Era, LATEST_MODERN, MetaKey } from "../../src/protocol/modern.ts";
import {
  answerServerRequest,
  type CallOptions,
  CLIENT_CAPABILITIES,
  type HubAccess,
  inProcessFetch,
  type MatrixClient,
  noMessages,
  recordNotification,
  CLIENT_INFO,
  listAll,
} from "./client.ts";
import type { Params } from "./server-behaviour.ts";

const ENDPOINT = new URL("http://127.0.0.1:8700/mcp");
const NEVER_ABORTED = new AbortController().signal;

/** A memory transport with the SDKs' transport interface. */
function sdkMemoryTransport({ hub }: HubAccess) {
  const [ours, theirs] = makeSdkTransportPair((error) => {
    throw error;
  });
  void hub.accept(ours, NEVER_ABORTED);
  return theirs;
}

interface Progress {
  readonly progress: number;
}

function optionsOf({ onprogress, signal }: CallOptions) {
  return {
    ...(onprogress !== undefined && {
      onprogress: ({ progress }: Progress) => onprogress(progress),
    }),
    ...(signal !== undefined && { signal }),
  };
}

/** A client of SDK v1. */
export async function connectClientV1(access: HubAccess): Promise<MatrixClient> {
  const received = noMessages();
  const client = new ClientV1(CLIENT_INFO, { capabilities: CLIENT_CAPABILITIES });
  client.fallbackRequestHandler = async ({ method, params = {} }) =>
    answerServerRequest(received, method, params);
  client.fallbackNotificationHandler = async ({ method, params = {} }) =>
    recordNotification(received, method, params);
  const isHttp = access.transport === "HTTP";
  const transport = isHttp
    ? new HttpV1(ENDPOINT, { fetch: inProcessFetch(access.server) })
    : sdkMemoryTransport(access);
  await client.connect(transport);
  const request = (method: string, params: object, options: CallOptions = {}): Promise<Params> => {
    const { meta } = options;
    const all = meta === undefined ? { ...params } : { ...params, _meta: meta };
    return client.request({ method, params: all }, ResultSchema, optionsOf(options));
  };
  return {
    era: "legacy",
    received,
    handshake: {
      capabilities: client.getServerCapabilities() ?? {},
      instructions: client.getInstructions(),
    },
    list: (what) => listAll(what, request),
    request,
    subscribe: async (uri) => void (await request("resources/subscribe", { uri })),
    setLevel: async (level) => void (await request("logging/setLevel", { level })),
    close: async () => {
      if (transport instanceof HttpV1) await transport.terminateSession();
      await client.close();
    },
  };
}

/** A client of SDK v2, in one era. */
export async function connectClientV2(era: Era, access: HubAccess): Promise<MatrixClient> {
  const received = noMessages();
  const mode = era === "legacy" ? ("legacy" as const) : { pin: LATEST_MODERN };
  const client = new ClientV2(CLIENT_INFO, {
    capabilities: CLIENT_CAPABILITIES,
    versionNegotiation: { mode },
  });
  for (const method of ["sampling/createMessage", "elicitation/create", "roots/list"] as const) {
    client.setRequestHandler(
      method,
      ({ params }: { readonly params?: object | undefined }) =>
        // The SDK validates the answer.
        answerServerRequest(received, method, (params ?? {}) as Params) as never,
    );
  }
  for (const method of NOTIFICATIONS) {
    client.setNotificationHandler(method, ({ params }: { readonly params?: object | undefined }) =>
      recordNotification(received, method, (params ?? {}) as Params),
    );
  }
  const isHttp = access.transport === "HTTP";
  const transport = isHttp
    ? new HttpV2(ENDPOINT, { fetch: inProcessFetch(access.server) })
    : sdkMemoryTransport(access);
  await client.connect(transport);
  let level: string | undefined;
  const request = async (
    method: string,
    params: object,
    options: CallOptions = {},
  ): Promise<Params> => {
    const own = level === undefined ? {} : { [MetaKey.level]: level };
    const meta = { ...options.meta, ...own };
    const all = Object.keys(meta).length === 0 ? { ...params } : { ...params, _meta: meta };
    const send = client.request.bind(client) as (call: object, options: object) => Promise<Params>;
    return send({ method, params: all }, optionsOf(options));
  };
  return {
    era,
    received,
    handshake: {
      capabilities: client.getServerCapabilities() ?? {},
      instructions: client.getInstructions(),
    },
    list: (what) => listAll(what, request),
    request,
    subscribe: async (uri) => {
      const wanted = { toolsListChanged: true, resourceSubscriptions: [uri] };
      if (era === "modern") await client.listen(wanted);
      else await request("resources/subscribe", { uri });
    },
    setLevel: async (wanted) => {
      if (era === "modern") level = wanted;
      else await request("logging/setLevel", { level: wanted });
    },
    close: async () => {
      if (era === "legacy" && transport instanceof HttpV2) await transport.terminateSession();
      await client.close();
    },
  };
}

const NOTIFICATIONS = [
  "notifications/message",
  "notifications/resources/updated",
  "notifications/tools/list_changed",
] as const;
