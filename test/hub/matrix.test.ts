import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HttpServer } from "../../src/frontend/http/server.ts";
import type { Era } from "../../src/protocol/modern.ts";
import { setUp } from "../fixtures/memory-hub.ts";
import { deadline } from "../harness/wait.ts";
import type { Entrance, Guest, Side } from "../matrix/client.ts";
import type { Cell } from "../matrix/peers.ts";
import { connectRaw } from "../matrix/raw-client.ts";
import { connectV1, connectV2 } from "../matrix/sdk-clients.ts";
import { type ClientFlavour, type ServerFlavour, serverOf } from "../matrix/servers.ts";
import { ROWS, type Row } from "../matrix/checks.ts";

/** Clients and servers of each cell: every kind of either at least once. */
const PAIRS: Readonly<Record<Cell, readonly (readonly [ClientFlavour, ServerFlavour])[]>> = {
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

function connect(flavour: ClientFlavour, era: Era, entrance: Entrance): Promise<Guest> {
  switch (flavour) {
    case "SDK v1":
      return connectV1(entrance);
    case "SDK v2":
      return connectV2(era, entrance);
    case "raw":
      return connectRaw(era, entrance);
  }
}

/** What a row may take, in ms. While it is waited for, there is something to wait for: the hub's own waits hold no process. */
const LIMIT = 5000;

/** Plays one row with one pair, over one face of a hub of its own. */
async function play(
  { name, run }: Row,
  cell: Cell,
  [client, flavour]: readonly [ClientFlavour, ServerFlavour],
  side: Side,
): Promise<void> {
  const server = serverOf(flavour, eraAt(cell, 1));
  const { hub } = setUp({ s: server }, { servers: { s: { prefix: "", era: server.said } } });
  const settings = { hostname: "127.0.0.1", token: undefined, maxMessage: 1024 * 1024 };
  const face = new HttpServer(hub, settings);
  try {
    const guest = await connect(client, eraAt(cell, 0), { side, hub, face });
    const peers = { guest, server, flavour, client, side, cell };
    await deadline(
      LIMIT,
      () => name,
      (resolve, reject) => void run(peers).then(resolve, reject),
    );
    await guest.close();
  } finally {
    await face.close();
    await hub.close();
  }
  assert.deepEqual(server.faults, []);
}

for (const side of ["stdio", "HTTP"] as const) {
  for (const [cell, pairs] of Object.entries(PAIRS) as [Cell, (typeof PAIRS)[Cell]][]) {
    for (const pair of pairs) {
      const [client, flavour] = pair;
      const name = `a ${eraAt(cell, 0)} client (${client}) of a ${eraAt(cell, 1)} server (${flavour}) over ${side}`;
      describe(name, () => {
        for (const row of ROWS) {
          const { flavours, impossible } = row;
          const why = impossible?.[cell];
          if (why !== undefined) void it.skip(`${row.name}: impossible, as ${why}`);
          else if (flavours?.includes(flavour) !== false)
            it(row.name, () => play(row, cell, pair, side));
        }
      });
    }
  }
}
