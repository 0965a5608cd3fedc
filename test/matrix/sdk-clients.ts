import {
  Client as ClientV2,
  StreamableHTTPClientTransport as HttpV2,
} from "@modelcontextprotocol/client";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as HttpV1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ResultSchema } from "@modelcontextprotocol/sdk/types.js";
import { makeSdkTransportPair } from "../../src/plugin/transport.ts";
import { type Era, LATEST_MODERN, MetaKey } from "../../src/protocol/modern.ts";
import {
  answerTo,
  type CallOptions,
  CAPABILITIES,
  type Entrance,
  fetchFrom,
  type Guest,
  hearNothing,
  hear,
  INFO,
  listAll,
} from "./client.ts";
import type { Params } from "./server-behaviour.ts";

const ADDRESS = new URL("http://127.0.0.1:8700/mcp");
const NEVER = new AbortController().signal;

/** A memory transport with the SDKs' transport interface. */
function pipe({ hub }: Entrance) {
  const [ours, theirs] = makeSdkTransportPair((error) => {
    throw error;
  });
  void hub.accept(ours, NEVER);
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
export async function connectV1(entrance: Entrance): Promise<Guest> {
  const heard = hearNothing();
  const client = new ClientV1(INFO, { capabilities: CAPABILITIES });
  client.fallbackRequestHandler = async ({ method, params = {} }) =>
    answerTo(heard, method, params);
  client.fallbackNotificationHandler = async ({ method, params = {} }) =>
    hear(heard, method, params);
  const isHttp = entrance.side === "HTTP";
  const link = isHttp ? new HttpV1(ADDRESS, { fetch: fetchFrom(entrance.face) }) : pipe(entrance);
  await client.connect(link);
  const request = (method: string, params: object, options: CallOptions = {}): Promise<Params> => {
    const { meta } = options;
    const all = meta === undefined ? { ...params } : { ...params, _meta: meta };
    return client.request({ method, params: all }, ResultSchema, optionsOf(options));
  };
  return {
    era: "legacy",
    heard,
    introduction: {
      capabilities: client.getServerCapabilities() ?? {},
      instructions: client.getInstructions(),
    },
    list: (what) => listAll(what, request),
    request,
    subscribe: async (uri) => void (await request("resources/subscribe", { uri })),
    setLevel: async (level) => void (await request("logging/setLevel", { level })),
    close: async () => {
      if (link instanceof HttpV1) await link.terminateSession();
      await client.close();
    },
  };
}

/** A client of SDK v2, in one era. */
export async function connectV2(era: Era, entrance: Entrance): Promise<Guest> {
  const heard = hearNothing();
  const mode = era === "legacy" ? ("legacy" as const) : { pin: LATEST_MODERN };
  const client = new ClientV2(INFO, {
    capabilities: CAPABILITIES,
    versionNegotiation: { mode },
  });
  for (const method of ["sampling/createMessage", "elicitation/create", "roots/list"] as const) {
    client.setRequestHandler(
      method,
      ({ params }: { readonly params?: object | undefined }) =>
        // The SDK validates the answer.
        answerTo(heard, method, (params ?? {}) as Params) as never,
    );
  }
  for (const method of TOLD) {
    client.setNotificationHandler(method, ({ params }: { readonly params?: object | undefined }) =>
      hear(heard, method, (params ?? {}) as Params),
    );
  }
  const isHttp = entrance.side === "HTTP";
  const link = isHttp ? new HttpV2(ADDRESS, { fetch: fetchFrom(entrance.face) }) : pipe(entrance);
  await client.connect(link);
  let level: string | undefined;
  const request = async (
    method: string,
    params: object,
    options: CallOptions = {},
  ): Promise<Params> => {
    const own = level === undefined ? {} : { [MetaKey.level]: level };
    const meta = { ...options.meta, ...own };
    const all = Object.keys(meta).length === 0 ? { ...params } : { ...params, _meta: meta };
    const ask = client.request.bind(client) as (call: object, options: object) => Promise<Params>;
    return ask({ method, params: all }, optionsOf(options));
  };
  return {
    era,
    heard,
    introduction: {
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
      if (era === "legacy" && link instanceof HttpV2) await link.terminateSession();
      await client.close();
    },
  };
}

const TOLD = [
  "notifications/message",
  "notifications/resources/updated",
  "notifications/tools/list_changed",
] as const;
