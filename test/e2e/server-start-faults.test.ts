import assert from "node:assert/strict";
import { describe } from "node:test";
import type { RawClient } from "../harness/raw-client.ts";
import { assertServes, faulty, peakMemory, withFaulty } from "../harness/faulty-server.ts";
import { it, itWith } from "../harness/hub.ts";
import { failureText, type Tool } from "../harness/message.ts";

const CHANGED = "notifications/tools/list_changed";

/** All pages. */
async function list(client: RawClient, ms?: number): Promise<readonly Tool[]> {
  const tools: Tool[] = [];
  for (let cursor: unknown; ;) {
    const params = cursor === undefined ? undefined : { cursor };
    const { message } = await client.request("tools/list", params, ms);
    tools.push(...(message.result?.tools ?? []));
    cursor = message.result?.["nextCursor"];
    if (cursor === undefined) return tools;
  }
}

function ofBad(tools: readonly Tool[]): string[] {
  return tools.map(({ name }) => name).filter((name) => name.startsWith("bad__"));
}

describe("a server that begins oddly but well", () => {
  const ODD: [what: string, fault: string][] = [
    ["answers and asks before it is asked anything", "early"],
    ["begins with a byte order mark", "bom"],
  ];
  for (const [what, fault] of ODD) {
    it(`and ${what} is served as all others`, () =>
      withFaulty(faulty(["--fault", fault]), async ({ client }) => {
        assert.ok(ofBad(await client.initializeAndList()).includes("bad__fine"));
        await assertServes(client, "bad__fine");
      }));
  }
});

describe("a server that does not get up", () => {
  const BROKEN: [what: string, options: string[], says: RegExp][] = [
    ["answers initialize before it is asked", ["--fault", "forestall"], /protocol version none/],
    ["speaks an old version", version('"1999-01-01"'), /protocol version "1999-01-01"/],
    ["has a number for a version", version("5"), /protocol version 5/],
    ["has no version", version("null"), /protocol version null/],
    ["exits with 0 at once", ["--fault", "exit"], /exited with code 0/],
    ["closes its stdout at once", ["--fault", "mute"], /closed its stdout/],
    ["is slower than connectTimeout", slow(60_000), /"handshake" within 1 s \(connectTimeout\)/],
  ];
  for (const [what, options, says] of BROKEN) {
    it(`because it ${what} has no tools, and a call says why`, () =>
      withFaulty(faulty(options, { connectTimeout: "1s" }), async ({ client }) => {
        assert.deepEqual(ofBad(await client.initializeAndList()), []);
        const { message } = await client.call("bad__fine");
        assert.match(failureText(message), says);
        assert.match(failureText(message), /"server":"bad"/);
      }));
  }
});

function version(value: string): string[] {
  return ["--fault", "version", "--value", value];
}

function slow(ms: number): string[] {
  return ["--fault", "slow", "--value", String(ms)];
}

describe("a server that takes its time to get up", () => {
  /** Starts a server that needs so many ms, and waits until it is announced. */
  function start(ms: number, connectTimeout?: string): Promise<void> {
    return withFaulty(
      faulty(slow(ms), connectTimeout === undefined ? {} : { connectTimeout }),
      async ({ client }) => {
        const began = performance.now();
        assert.deepEqual(ofBad(await client.initializeAndList()), []);
        await assertServes(client, "good__echo");
        const took = performance.now() - began;
        assert.ok(took < ms, `the other server was there after ${took} ms`);
        // On a busy machine the other server may have missed the first list as well, and is announced first.
        for (let from = 0, names: string[] = []; !names.includes("bad__fine");) {
          await client.find(({ method }) => method === CHANGED, CHANGED, { ms: ms + 10_000, from });
          from = client.lines.length;
          names = ofBad(await list(client));
        }
        await assertServes(client, "bad__fine");
      },
      { hub: { listWait: "100ms" } },
    );
  }

  it("is announced when it is up, within connectTimeout", () => start(2000, "5s"));

  // The defaults as they are; what they mean is tested above in less time.
  const skip = process.env["TOOLMUX_SLOW_TESTS"] === undefined;
  const test = itWith({ timeout: 90_000, skip });
  test("may take 25 s with the default connectTimeout", () => start(25_000, "30s"));
  test("is announced when it is up, as the same process, long after connectTimeout if the manifest does not set that", () =>
    start(31_000));
});

describe("a listing without an end", () => {
  const ENDLESS: [what: string, fault: string, value: number, least: number, most: number][] = [
    ["whose cursor is always the same", "same-cursor", 0, 0, 0],
    ["whose cursor is always another", "new-cursor", 0, 1000, 1001],
    ["of heavy pages", "heavy-pages", 10_000_000, 6, 7],
  ];
  for (const [what, fault, value, least, most] of ENDLESS) {
    it(`${what} is cut, and what came before is served`, () =>
      withFaulty(faulty(["--fault", fault, "--value", String(value)]), async ({ client }) => {
        await client.initialize();
        const names = ofBad(await list(client, 30_000));
        const others = names.filter((name) => name.startsWith("bad__other_"));
        assert.ok(others.length >= least && others.length <= most, `${others.length} tools`);
        await client.until(5000, "a word on it", () =>
          /bad: The list of tools never ends/.test(client.stderr) ? true : undefined,
        );
        for (const name of others.slice(-1)) await assertServes(client, name);
        await assertServes(client, "bad__fine");
        assert.ok(peakMemory(client.pid) < 600, `${peakMemory(client.pid)} MB`);
      }));
  }
});

describe("a very long listing", () => {
  it("of 100,000 tools on one page is listed within 10 s, and each can be called", () =>
    withFaulty(
      faulty(["--fault", "many", "--value", "100000"]),
      async ({ client }) => {
        const began = performance.now();
        await client.initialize();
        const names = ofBad(await list(client, 30_000));
        const took = performance.now() - began;
        assert.equal(names.filter((name) => name.startsWith("bad__other_")).length, 100_000);
        for (const at of [0, 50_000, 99_999]) await assertServes(client, `bad__other_${at}`);
        assert.ok(took < 10_000, `${took} ms`);
        assert.ok(peakMemory(client.pid) < 600, `${peakMemory(client.pid)} MB`);
      },
      { hub: { listWait: "30s" } },
    ));
});

describe("a server whose listing is never the same", () => {
  it("is asked ever more rarely, however often it announces a change", () =>
    withFaulty(faulty(["--fault", "restless"]), async ({ client }) => {
      await client.initializeAndList();
      const began = performance.now();
      const changes = (): number => client.filter(({ method }) => method === CHANGED).length;
      await client.until(20_000, "five changes", () => changes() >= 5 || undefined);
      const took = performance.now() - began;
      // Pauses of 100, 200, 400 and 800 ms; without them five changes take a few ms each.
      assert.ok(took > 1400, `${took} ms`);
    }));
});
