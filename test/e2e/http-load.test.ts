import assert from "node:assert/strict";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { mix } from "../soak/http-mixture.ts";
import { RawClient } from "../harness/raw-client.ts";
import { EXIT_LIMIT, executable, it, withTestFolder } from "../harness/hub.ts";

const SERVER = fileURLToPath(new URL("../soak/everything-server.ts", import.meta.url));
const NAMES = ["a", "b", "c", "d"];
const LOAD = { servers: NAMES, clients: 50, duration: 10_000 };

/** Servers whose every answer says who gave it, and to what. */
function serverEntry(name: string): { command: string; args: string[] } {
  return { command: process.execPath, args: [SERVER, name] };
}

describe("the HTTP face under load", () => {
  it("gives each of 50 clients its own answers, or says which server was killed, while one is every second", () =>
    withTestFolder(
      { servers: Object.fromEntries(NAMES.map((name) => [name, serverEntry(name)])) },
      async (setup) => {
        const args = ["serve", "--http", "127.0.0.1:0", "--config", setup.config];
        const hub = new RawClient(executable(), args, setup.dir, setup.env);
        const url = await hub.until(
          EXIT_LIMIT,
          "the address",
          () => /http:\S+/.exec(hub.stderr)?.[0],
        );
        const { kills, requests, errors, cancelled, faults, examples } = await mix(
          new URL(url),
          LOAD,
        );
        assert.deepEqual({ faults, examples }, { faults: 0, examples: [] });
        assert.ok(kills >= 5, `${kills} kills`);
        assert.ok(requests > 1000, `${requests} requests`);
        assert.ok(errors > 0 && cancelled > 0, `${errors} errors, ${cancelled} cancelled`);
        hub.signal("SIGTERM");
        assert.equal((await hub.waitForExit(EXIT_LIMIT)).code, 143);
      },
    ));
});
