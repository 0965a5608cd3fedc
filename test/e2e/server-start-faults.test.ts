import assert from "node:assert/strict";
import { describe } from "node:test";
import type { RawClient } from "../harness/raw-client.ts";
import { assertServes, faulty, peakMemory, withFaulty } from "../harness/faulty-server.ts";
import { it, withHub } from "../harness/hub.ts";
import type { ServerEntry } from "../harness/manifest.ts";
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

describe("servers that begin oddly", () => {
  /** With answers and questions before it is asked anything; with a byte order mark. */
  const ODD = ["early", "bom"];
  const BROKEN: readonly (readonly [what: string, server: ServerEntry, says: RegExp])[] = [
    [
      "answers initialize twice, first with an empty result",
      faulty(["--fault", "twice"]),
      /protocol version none/,
    ],
    ["speaks an old version", faulty(version('"1999-01-01"')), /protocol version "1999-01-01"/],
    ["has a number for a version", faulty(version("5")), /protocol version 5/],
    ["has no version", faulty(version("null")), /protocol version null/],
    ["exits with 0 at once", faulty(["--fault", "exit"]), /exited with code 0/],
    ["closes its stdout at once", faulty(["--fault", "mute"]), /closed its stdout/],
    [
      "is slower than connectTimeout",
      faulty(slow(60_000), { connectTimeout: "1s" }),
      /"handshake" within 1 s \(connectTimeout\)/,
    ],
  ];

  it("but well are served as all others; of those that do not get up no tools are listed, and a call says why", () => {
    const servers = Object.fromEntries([
      ...ODD.map((fault) => [fault, faulty(["--fault", fault])] as const),
      ...BROKEN.map(([, server], at) => [`bad${at}`, server] as const),
    ]);
    return withHub({ servers }, async ({ client }) => {
      const names = (await client.initializeAndList()).map(({ name }) => name);
      for (const fault of ODD) assert.ok(names.includes(`${fault}__fine`), fault);
      assert.deepEqual(
        names.filter((name) => name.startsWith("bad")),
        [],
      );
      const calls = BROKEN.map((_, at) => client.sendCall(`bad${at}__fine`));
      for (const [at, [what, , says]] of BROKEN.entries()) {
        const text = failureText((await client.response(calls[at], 20_000)).message);
        assert.match(text, says, what);
        assert.match(text, new RegExp(`"server":"bad${at}"`));
      }
      for (const fault of ODD) await assertServes(client, `${fault}__fine`);
    });
  });
});

function version(value: string): string[] {
  return ["--fault", "version", "--value", value];
}

function slow(ms: number): string[] {
  return ["--fault", "slow", "--value", String(ms)];
}

describe("a server that takes its time to get up", () => {
  it("is announced when it is up, within connectTimeout, and others are served meanwhile", () =>
    withFaulty(
      faulty(slow(3000), { connectTimeout: "10s" }),
      async ({ client }) => {
        await client.initialize();
        await assertServes(client, "good__echo");
        assert.deepEqual(ofBad(await list(client)), []);
        // On a busy machine the other server may have missed the first list as well, and is announced first.
        for (let from = 0, names: string[] = []; !names.includes("bad__fine");) {
          await client.find(({ method }) => method === CHANGED, CHANGED, { ms: 15_000, from });
          from = client.lines.length;
          names = ofBad(await list(client));
        }
        await assertServes(client, "bad__fine");
      },
      { hub: { listWait: "100ms" } },
    ));
});

/** The first list waits even on a busy machine until all servers are listed. */
const PATIENT = { hub: { listWait: "25s" } };

describe("a listing without an end", () => {
  const ENDLESS: [what: string, fault: string, value: number, least: number, most: number][] = [
    ["whose cursor is always the same", "same-cursor", 0, 0, 0],
    ["whose cursor is always another", "new-cursor", 0, 1000, 1001],
    ["of heavy pages", "heavy-pages", 10_000_000, 6, 7],
  ];
  for (const [what, fault, value, least, most] of ENDLESS) {
    it(`${what} is cut, and what came before is served`, () =>
      withFaulty(
        faulty(["--fault", fault, "--value", String(value)]),
        async ({ client }) => {
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
        },
        PATIENT,
      ));
  }
});

describe("a very long listing", () => {
  it("of 30,000 tools on one page is listed, and each can be called", () =>
    withFaulty(
      faulty(["--fault", "many", "--value", "30000"]),
      async ({ client }) => {
        const began = performance.now();
        await client.initialize();
        const names = ofBad(await list(client, 30_000));
        const took = performance.now() - began;
        assert.equal(names.filter((name) => name.startsWith("bad__other_")).length, 30_000);
        for (const at of [0, 15_000, 29_999]) await assertServes(client, `bad__other_${at}`);
        assert.ok(took < 20_000, `${took} ms`);
        assert.ok(peakMemory(client.pid) < 400, `${peakMemory(client.pid)} MB`);
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
