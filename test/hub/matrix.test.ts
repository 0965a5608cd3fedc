import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import { HttpServer } from "../../src/frontend/http/server.ts";
import type { Era } from "../../src/protocol/modern.ts";
import { setUpHub } from "../fixtures/memory-hub.ts";
import { withDeadline } from "../harness/wait.ts";
import type { ClientTransportName, HubAccess, MatrixClient } from "../matrix/client.ts";
import type { Cell, MatrixPeers } from "../matrix/peers.ts";
import { connectRawClient } from "../matrix/raw-client.ts";
import { connectClientV1, connectClientV2 } from "../matrix/sdk-clients.ts";
import { type ClientSdk, type ServerSdk, makeMatrixServer } from "../matrix/servers.ts";
import { MATRIX_CHECKS, type MatrixCheck } from "../matrix/checks.ts";

/** Clients and servers of each cell: every kind of either at least once. The first pairs are the more telling ones. */
const PAIRS: Readonly<Record<Cell, readonly (readonly [ClientSdk, ServerSdk])[]>> = {
  LL: [
    ["SDK v1", "SDK v1"],
    ["SDK v2", "SDK v2"],
    ["raw", "raw"],
    ["raw", "SDK v2 in both eras"],
  ],
  LM: [
    ["SDK v1", "SDK v2"],
    ["SDK v2", "raw"],
    ["raw", "SDK v2"],
  ],
  ML: [
    ["SDK v2", "SDK v1"],
    ["raw", "raw"],
    ["raw", "SDK v2"],
  ],
  MM: [
    ["SDK v2", "SDK v2"],
    ["SDK v2", "raw"],
    ["raw", "raw"],
    ["raw", "SDK v2"],
    ["raw", "SDK v2 in both eras"],
  ],
};

/** What a server is does not depend on how clients connect: over HTTP there is only the first pair of each client. */
function pairsOver(transport: ClientTransportName, cell: Cell): (typeof PAIRS)[Cell] {
  const pairs = PAIRS[cell];
  const isFirst = ([client]: (typeof pairs)[number], at: number): boolean =>
    pairs.findIndex((pair) => pair[0] === client) === at;
  return transport === "stdio" ? pairs : pairs.filter(isFirst);
}

const ERAS: Readonly<Record<string, Era>> = { L: "legacy", M: "modern" };

function eraAt(cell: Cell, at: 0 | 1): Era {
  return ERAS[cell.charAt(at)] ?? "legacy";
}

function connect(flavour: ClientSdk, era: Era, entrance: HubAccess): Promise<MatrixClient> {
  switch (flavour) {
    case "SDK v1":
      return connectClientV1(entrance);
    case "SDK v2":
      return connectClientV2(era, entrance);
    case "raw":
      return connectRawClient(era, entrance);
  }
}

/** What a check may take, in ms. While it is waited for, there is something to wait for: the hub's own waits hold no process. */
const LIMIT = 5000;

interface OpenedPeers extends MatrixPeers {
  close(): Promise<void>;
}

/** A client of a hub over a server, connected. */
async function open(
  cell: Cell,
  [clientSdk, serverSdk]: readonly [ClientSdk, ServerSdk],
  transport: ClientTransportName,
): Promise<OpenedPeers> {
  const server = makeMatrixServer(serverSdk, eraAt(cell, 1));
  const servers = { s: { prefix: "", era: server.eraSetting } };
  const { hub } = setUpHub({ s: server }, { servers });
  const settings = { hostname: "127.0.0.1", token: undefined, maxMessage: 1024 * 1024 };
  const face = new HttpServer(hub, settings);
  const mcpClient = await connect(clientSdk, eraAt(cell, 0), { transport, hub, server: face });
  const close = async (): Promise<void> => {
    await mcpClient.close();
    await face.close();
    await hub.close();
  };
  return { mcpClient, server, serverSdk, clientSdk, transport, cell, close };
}

/** Runs a check that sees nothing of those before it. */
async function play({ name, run }: MatrixCheck, peers: MatrixPeers): Promise<void> {
  peers.mcpClient.received.requests.length = 0;
  await withDeadline(
    LIMIT,
    () => name,
    (resolve, reject) => void run(peers).then(resolve, reject),
  );
  assert.deepEqual(peers.server.errors, []);
}

for (const side of ["stdio", "HTTP"] as const) {
  for (const cell of Object.keys(PAIRS) as Cell[]) {
    for (const pair of pairsOver(side, cell)) {
      const [client, flavour] = pair;
      const name = `a ${eraAt(cell, 0)} client (${client}) of a ${eraAt(cell, 1)} server (${flavour}) over ${side}`;
      describe(name, () => {
        let shared: Promise<OpenedPeers> | undefined;
        after(async () => (await shared)?.close());
        for (const row of MATRIX_CHECKS) {
          const { serverSdks: flavours, impossible } = row;
          const why = impossible?.[cell];
          if (why !== undefined) void it.skip(`${row.name}: impossible, as ${why}`);
          else if (flavours?.includes(flavour) !== false) {
            it(row.name, async () => {
              if (row.changesState !== true) {
                await play(row, await (shared ??= open(cell, pair, side)));
                return;
              }
              const own = await open(cell, pair, side);
              try {
                await play(row, own);
              } finally {
                await own.close();
              }
            });
          }
        }
      });
    }
  }
}
