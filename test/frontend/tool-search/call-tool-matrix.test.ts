import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import { HttpServer } from "../../../src/frontend/http/server.ts";
import type { Era } from "../../../src/protocol/modern.ts";
import { setUpHub } from "../../fixtures/memory-hub.ts";
import { withDeadline } from "../../harness/wait.ts";
import { MATRIX_CHECKS } from "../../matrix/checks.ts";
import type { ClientTransportName, MatrixClient } from "../../matrix/client.ts";
import type { Cell, MatrixPeers } from "../../matrix/peers.ts";
import { connectRawClient } from "../../matrix/raw-client.ts";
import { makeMatrixServer } from "../../matrix/servers.ts";

/** Time that a check may take, in ms. */
const LIMIT = 5000;

/** The checks of the matrix that are about lists of tools, which have other tools here, or not about calls. */
const OTHERS = [
  "is introduced to what there is",
  "lists everything, page by page",
  "reads resources, listed and by a template",
  "gets prompts",
  "completes arguments",
  "hears that the tools have changed",
  "pings",
  "is told by its own era's code that there is no such thing",
];

const CALLS = MATRIX_CHECKS.filter(({ name }) => !OTHERS.includes(name));

const ERAS: Readonly<Record<string, Era>> = { L: "legacy", M: "modern" };

/** A client that makes each of its calls by `call_tool`. */
function callingByCallTool(client: MatrixClient): MatrixClient {
  return {
    ...client,
    era: client.era,
    received: client.received,
    handshake: client.handshake,
    list: (what) => client.list(what),
    subscribe: (uri) => client.subscribe(uri),
    setLevel: (level) => client.setLevel(level),
    close: () => client.close(),
    request(method, params, options) {
      if (method !== "tools/call") return client.request(method, params, options);
      const { name, arguments: args, ...more } = params as Readonly<Record<string, unknown>>;
      const named = { name: "call_tool", arguments: { name, arguments: args }, ...more };
      return client.request(method, named, options);
    },
  };
}

interface OpenedPeers extends MatrixPeers {
  close(): Promise<void>;
}

async function open(cell: Cell, transport: ClientTransportName): Promise<OpenedPeers> {
  const server = makeMatrixServer("raw", ERAS[cell.charAt(1)] ?? "legacy");
  const servers = { s: { prefix: "", era: server.eraSetting } };
  const { hub } = setUpHub({ s: server }, { servers, hub: { expose: "search" } });
  const face = new HttpServer(hub, {
    hostname: "127.0.0.1",
    token: undefined,
    maxMessage: 1024 * 1024,
  });
  const era = ERAS[cell.charAt(0)] ?? "legacy";
  const client = await connectRawClient(era, { transport, hub, server: face });
  const close = async (): Promise<void> => {
    await client.close();
    await face.close();
    await hub.close();
  };
  const common = { server, serverSdk: "raw", clientSdk: "raw", transport, cell } as const;
  return { mcpClient: callingByCallTool(client), ...common, close };
}

for (const transport of ["stdio", "HTTP"] as const) {
  for (const cell of ["LL", "LM", "ML", "MM"] as const) {
    const [client, server] = [0, 1].map((at) => ERAS[cell.charAt(at)]);
    describe(`a ${client} client that calls by call_tool a ${server} server over ${transport}`, () => {
      let shared: Promise<OpenedPeers> | undefined;
      after(async () => (await shared)?.close());
      for (const row of CALLS) {
        if (row.impossible?.[cell] !== undefined || row.serverSdks?.includes("raw") === false)
          continue;
        it(row.name, async () => {
          const own = row.changesState === true ? await open(cell, transport) : undefined;
          const peers = own ?? (await (shared ??= open(cell, transport)));
          try {
            peers.mcpClient.received.requests.length = 0;
            await withDeadline(
              LIMIT,
              () => row.name,
              (resolve, reject) => void row.run(peers).then(resolve, reject),
            );
            assert.deepEqual(peers.server.errors, []);
          } finally {
            await own?.close();
          }
        });
      }
    });
  }
}
