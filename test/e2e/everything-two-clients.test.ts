import assert from "node:assert/strict";
import { describe } from "node:test";
import { withHttpServe } from "../harness/serve.ts";
import { type FullClient, connectFullClient, textOf } from "../harness/full-client.ts";
import { it } from "../harness/hub.ts";
import { publishedServer } from "../harness/manifest.ts";
import type { ToolResult } from "../harness/sdk-client.ts";

const SHARED = publishedServer("everything", ["stdio"]);
const OWN = { ...SHARED, isolation: "perClient" };
const LONG = "all__trigger-long-running-operation";
const TEXT = "demo://resource/dynamic/text/";

const NAMES = ["one", "two"] as const;

/** Two clients of different SDKs, which can be asked for the same, at one hub over HTTP. */
function withTwo(
  server: typeof SHARED,
  run: (clients: readonly [FullClient, FullClient]) => Promise<void>,
): Promise<void> {
  return withHttpServe({ servers: { all: server } }, async ({ target: reach }) => {
    const one = await connectFullClient("SDK v1", reach, "one");
    const two = await connectFullClient("SDK v2", reach, "two");
    await Promise.all([one.sdk.listTools(), two.sdk.listTools()]);
    await run([one, two]);
    await one.close();
    await two.close();
  });
}

/** Lets the server ask the client that calls it for a sample. */
function sample(client: FullClient, prompt: string): Promise<ToolResult> {
  return client.call("all__trigger-sampling-request", { prompt, maxTokens: 7 });
}

/** Lets both call for long at the same time, with 3 and 4 steps. @returns how many steps each heard that there are */
function hearTotals(clients: readonly FullClient[]): Promise<Set<number>[]> {
  return Promise.all(
    clients.map(async (client, at) => {
      const totals = new Set<number>();
      const onprogress = ({ total = 0 }): void => void totals.add(total);
      await client.call(LONG, { duration: 0.3, steps: 3 + at }, { onprogress });
      return totals;
    }),
  );
}

const TOTALS = [new Set([3]), new Set([4])];

describe("two clients at once at a server of everything for each of them", () => {
  it("are asked by their own server only, both at the same time, and hear of no line, no update and no progress of the other's", () =>
    withTwo(OWN, async (clients) => {
      const askAll = async (client: FullClient, name: string, round: number): Promise<void> => {
        assert.match(
          textOf(await sample(client, `${name} ${round}`)),
          RegExp(`sampled by ${name}`),
        );
        const form = await client.call("all__trigger-elicitation-request");
        assert.match(textOf(form), RegExp(`Name: ${name}`));
        const roots = await client.call("all__get-roots-list");
        assert.match(textOf(roots), RegExp(`file:///${name}`));
      };
      await Promise.all(
        clients.flatMap((client, at) =>
          [0, 1, 2].map((round) => askAll(client, NAMES[at] ?? "", round)),
        ),
      );
      for (const client of clients) {
        await client.sdk.setLoggingLevel("debug");
        await client.sdk.subscribeResource({ uri: `${TEXT}${clients.indexOf(client)}` });
      }
      for (const client of clients) await client.call("all__toggle-subscriber-updates");
      for (const client of clients) await client.until("its update", () => client.updatedUris[0]);
      assert.deepEqual(await hearTotals(clients), TOTALS);
      for (const [at, { logs, requests, updatedUris }] of clients.entries()) {
        const other = 1 - at;
        assert.deepEqual(new Set(updatedUris), new Set([`${TEXT}${at}`]));
        assert.match(JSON.stringify(logs), RegExp(`text/${at}`));
        assert.doesNotMatch(JSON.stringify(logs), RegExp(`text/${other}`));
        assert.match(JSON.stringify(requests), RegExp(`${NAMES[at]} 2`));
        assert.doesNotMatch(JSON.stringify(requests), RegExp(`${NAMES[other]} \\d`));
      }
    }));
});

describe("two clients at once at one server of everything", () => {
  it("are each asked while they alone call, else neither, and hear of what they subscribed to and of their own progress", () =>
    withTwo(SHARED, async (clients) => {
      const [one, two] = clients;
      assert.match(textOf(await sample(one, "first")), /sampled by one/);
      assert.match(textOf(await sample(two, "second")), /sampled by two/);

      // It could be meant for either: the caller reads the remedy.
      const asked = (): number[] =>
        clients.map(
          ({ requests }) =>
            requests.filter(({ method }) => method === "sampling/createMessage").length,
        );
      const before = asked();
      let long: Promise<unknown> | undefined;
      // It is at work when it says so for the first time.
      await new Promise<void>((begun) => {
        long = two.call(LONG, { duration: 3, steps: 30 }, { onprogress: () => begun() });
      });
      const refused = await sample(one, "for whom?");
      assert.equal(refused.isError, true);
      assert.match(textOf(refused), /isolation = "perClient"/);
      assert.deepEqual(asked(), before);
      await long;

      await one.sdk.subscribeResource({ uri: `${TEXT}1` });
      for (const client of clients) await client.sdk.subscribeResource({ uri: `${TEXT}2` });
      await one.sdk.unsubscribeResource({ uri: `${TEXT}2` });
      await one.call("all__toggle-subscriber-updates");
      for (const client of clients) await client.until("its update", () => client.updatedUris[0]);
      assert.deepEqual(await hearTotals(clients), TOTALS);
      assert.deepEqual([one.updatedUris, two.updatedUris], [[`${TEXT}1`], [`${TEXT}2`]]);
      assert.deepEqual([one.logs, two.logs], [[], []], "nobody has set a level");
    }));
});
