import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { after, describe, it } from "node:test";
import type { HostContext } from "../../src/host/context.ts";
import { checkFleet, findingsOfFleet, type FleetState } from "../../src/host/doctor/fleet.ts";
import type { FleetSettings } from "../../src/manifest/manifest.ts";
import { manifestOf } from "../fixtures/memory-hub.ts";
import { SKIP_WITHOUT_NATS, startNats } from "../harness/nats.ts";

const FINE: FleetState = {
  isConfigured: true,
  connected: "nats:4222",
  denied: [],
  maxPayload: 1_048_576,
  name: "h",
};

describe("a fleet that doctor looks at", () => {
  const folder = mkdtempSync(join(tmpdir(), "toolmux-doctor-"));
  const cleanUp: (() => unknown)[] = [];
  after(async () => {
    for (const end of cleanUp) await end();
    rmSync(folder, { recursive: true, force: true });
  });

  it("is told with each of its faults, and nothing else", () => {
    const table: readonly (readonly [Partial<FleetState>, readonly string[]])[] = [
      [{}, []],
      [{ isConfigured: false, connected: undefined, error: "It is off." }, []],
      [{ connected: undefined }, []],
      [{ connected: undefined, error: "It is off." }, ["TM611"]],
      [{ denied: ["mcp.v1.who", "mcp.v1.hub.h.up"] }, ["TM612", "TM612"]],
      [{ maxPayload: 999_999 }, ["TM613"]],
      [{ maxPayload: 1_000_000 }, []],
      [{ name: "h-2", wanted: "h" }, ["TM614"]],
    ];
    for (const [state, codes] of table) {
      const found = findingsOfFleet("toolmux 1", { ...FINE, ...state });
      assert.deepEqual(
        found.map(({ code }) => code),
        codes,
      );
      for (const { text } of found) assert.match(text, /[.]$/);
    }
  });

  it(
    "is connected to: a NATS that is not there, that refuses, and that is narrow",
    { skip: SKIP_WITHOUT_NATS, timeout: 60_000 },
    async () => {
      const config =
        'max_payload: 100000\nauthorization { users: [{ user: "u1", password: "p", permissions: { publish: ["mcp.v1.who"], subscribe: ["_INBOX_default_u1.>"] } }] }';
      const nats = await startNats(join(folder, "nats"), config);
      cleanUp.push(() => nats.stop());
      const context: HostContext = {
        env: { HOME: folder },
        cwd: folder,
        platform: process.platform,
        signal: new AbortController().signal,
        uncaughtErrorHandlers: new Set(),
        hangupHandlers: new Set(),
      };
      const codesWith = async (settings: Partial<FleetSettings>): Promise<readonly string[]> => {
        const file = { file: join(folder, "a.toml"), baseDir: folder };
        const fleet = { url: nats.url, ...file, ...settings };
        const found = await checkFleet({ ...manifestOf({}), fleet }, context);
        return found.map(({ code }) => code);
      };
      assert.deepEqual(await checkFleet(manifestOf({}), context), []);
      assert.deepEqual(await codesWith({}), ["TM611"]);
      assert.deepEqual(await codesWith({ token: "${env:NONE}" }), ["TM611"]);
      const codes = await codesWith({ user: "u1", password: "p" });
      assert.deepEqual([...new Set(codes)], ["TM612", "TM613"]);
    },
  );
});
