import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HttpServer } from "../../src/frontend/http/server.ts";
import type { Era } from "../../src/protocol/modern.ts";
import { setUpHub } from "../fixtures/memory-hub.ts";
import { withDeadline } from "../harness/wait.ts";
import type { HubAccess, MatrixClient, ClientTransportName } from "../matrix/client.ts";
import type { Cell } from "../matrix/peers.ts";
import { connectRawClient } from "../matrix/raw-client.ts";
import { connectClientV1, connectClientV2 } from "../matrix/sdk-clients.ts";
import { type ClientSdk, type ServerSdk, makeMatrixServer } from "../matrix/servers.ts";
import { MATRIX_CHECKS, type MatrixCheck } from "../matrix/checks.ts";

/** Clients and servers of each cell: every kind of either at least once. */
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
    ["raw", "SDK v2"],
    ["raw", "raw"],
  ],
  MM: [
    ["SDK v2", "SDK v2"],
    ["SDK v2", "raw"],
    ["raw", "SDK v2"],
    ["raw", "raw"],
    ["raw", "SDK v2 in both eras"],
  ],
};

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

/** What a row may take, in ms. While it is waited for, there is something to wait for: the hub's own waits hold no process. */
const LIMIT = 5000;

/** Plays one row with one pair, over one face of a hub of its own. */
async function play(
  { name, run }: MatrixCheck,
  cell: Cell,
  [client, flavour]: readonly [ClientSdk, ServerSdk],
  side: ClientTransportName,
): Promise<void> {
  const server = makeMatrixServer(flavour, eraAt(cell, 1));
  const { hub } = setUpHub(
    { s: server },
    { servers: { s: { prefix: "", era: server.eraSetting } } },
  );
  const settings = { hostname: "127.0.0.1", token: undefined, maxMessage: 1024 * 1024 };
  const face = new HttpServer(hub, settings);
  try {
    const guest = await connect(client, eraAt(cell, 0), { transport: side, hub, server: face });
    const peers = {
      mcpClient: guest,
      server,
      serverSdk: flavour,
      clientSdk: client,
      transport: side,
      cell,
    };
    await withDeadline(
      LIMIT,
      () => name,
      (resolve, reject) => void run(peers).then(resolve, reject),
    );
    await guest.close();
  } finally {
    await face.close();
    await hub.close();
  }
  assert.deepEqual(server.errors, []);
}

for (const side of ["stdio", "HTTP"] as const) {
  for (const [cell, pairs] of Object.entries(PAIRS) as [Cell, (typeof PAIRS)[Cell]][]) {
    for (const pair of pairs) {
      const [client, flavour] = pair;
      const name = `a ${eraAt(cell, 0)} client (${client}) of a ${eraAt(cell, 1)} server (${flavour}) over ${side}`;
      describe(name, () => {
        for (const row of MATRIX_CHECKS) {
          const { serverSdks: flavours, impossible } = row;
          const why = impossible?.[cell];
          if (why !== undefined) void it.skip(`${row.name}: impossible, as ${why}`);
          else if (flavours?.includes(flavour) !== false)
            it(row.name, () => play(row, cell, pair, side));
        }
      });
    }
  }
}
