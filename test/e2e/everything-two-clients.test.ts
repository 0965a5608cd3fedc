import assert from "node:assert/strict";
import { describe } from "node:test";
import { withHttpServe } from "../harness/serve.ts";
import { type FullClient, connectFullClient, textOf } from "../harness/full-client.ts";
import { it } from "../harness/hub.ts";
import { publishedServer } from "../harness/manifest.ts";

const SHARED = publishedServer("everything", ["stdio"]);
const OWN = { ...SHARED, isolation: "perClient" };
const LONG = "all__trigger-long-running-operation";
const TEXT = "demo://resource/dynamic/text/";

/** Two clients of different SDKs, which can be asked for the same, at one hub over HTTP. */
function withTwo(
  server: typeof SHARED,
  run: (one: FullClient, two: FullClient) => Promise<void>,
): Promise<void> {
  return withHttpServe({ servers: { all: server } }, async ({ target: reach }) => {
    const one = await connectFullClient("SDK v1", reach, "one");
    const two = await connectFullClient("SDK v2", reach, "two");
    await run(one, two);
    await one.close();
    await two.close();
  });
}

function has(client: FullClient, method: string): true | undefined {
  return client.requests.some((asked) => asked.method === method) ? true : undefined;
}

describe("two clients at once at a server of everything for each of them", () => {
  it("are asked by their own server only, both at the same time", () =>
    withTwo(OWN, async (one, two) => {
      await Promise.all([one.sdk.listTools(), two.sdk.listTools()]);
      await Promise.all(
        [one, two].flatMap((client, at) =>
          Array.from({ length: 5 }, async (_, of) => {
            const name = at === 0 ? "one" : "two";
            const args = { prompt: `${name} ${of}`, maxTokens: 7 };
            const sample = await client.call("all__trigger-sampling-request", args);
            assert.match(textOf(sample), new RegExp(`sampled by ${name}`));
            const form = await client.call("all__trigger-elicitation-request");
            assert.match(textOf(form), new RegExp(`Name: ${name}`));
            const roots = await client.call("all__get-roots-list");
            assert.match(textOf(roots), new RegExp(`file:///${name}`));
          }),
        ),
      );
      const prompts = ({ requests: asked }: FullClient): string =>
        JSON.stringify(asked.filter(({ method }) => method === "sampling/createMessage"));
      assert.match(prompts(one), /one 4/);
      assert.doesNotMatch(prompts(one), /two \d/);
      assert.match(prompts(two), /two 4/);
      assert.doesNotMatch(prompts(two), /one \d/);
    }));

  it("hear of no line, no update and no progress of the other's", () =>
    withTwo(OWN, async (one, two) => {
      await Promise.all([one.sdk.listTools(), two.sdk.listTools()]);
      for (const client of [one, two]) await client.sdk.setLoggingLevel("debug");
      await one.sdk.subscribeResource({ uri: `${TEXT}1` });
      await two.sdk.subscribeResource({ uri: `${TEXT}2` });
      for (const client of [one, two]) await client.call("all__toggle-subscriber-updates");
      await one.until("its update", () => one.updatedUris[0]);
      await two.until("its update", () => two.updatedUris[0]);
      const steps: [number[], number[]] = [[], []];
      await Promise.all([
        one.call(
          LONG,
          { duration: 0.3, steps: 3 },
          { onprogress: ({ total = 0 }) => steps[0].push(total) },
        ),
        two.call(
          LONG,
          { duration: 0.3, steps: 5 },
          { onprogress: ({ total = 0 }) => steps[1].push(total) },
        ),
      ]);
      assert.deepEqual([new Set(steps[0]), new Set(steps[1])], [new Set([3]), new Set([5])]);
      assert.deepEqual(
        [new Set(one.updatedUris), new Set(two.updatedUris)],
        [new Set([`${TEXT}1`]), new Set([`${TEXT}2`])],
      );
      const lines = ({ logs }: FullClient): string => JSON.stringify(logs);
      assert.match(lines(one), /text\/1/);
      assert.doesNotMatch(lines(one), /text\/2/);
      assert.match(lines(two), /text\/2/);
      assert.doesNotMatch(lines(two), /text\/1/);
    }));
});

describe("two clients at once at one server of everything", () => {
  it("are each asked while they alone call", () =>
    withTwo(SHARED, async (one, two) => {
      await Promise.all([one.sdk.listTools(), two.sdk.listTools()]);
      for (const [client, name] of [
        [one, "one"],
        [two, "two"],
      ] as const) {
        const args = { prompt: name, maxTokens: 7 };
        const sample = await client.call("all__trigger-sampling-request", args);
        assert.match(textOf(sample), new RegExp(`sampled by ${name}`));
      }
    }));

  it("are not asked if it could be meant for either, and the caller reads the remedy", () =>
    withTwo(SHARED, async (one, two) => {
      await Promise.all([one.sdk.listTools(), two.sdk.listTools()]);
      let long: Promise<unknown> | undefined;
      // It is at work when it says so for the first time.
      await new Promise<void>((begun) => {
        long = two.call(LONG, { duration: 3, steps: 30 }, { onprogress: () => begun() });
      });
      const args = { prompt: "for whom?", maxTokens: 7 };
      const sample = await one.call("all__trigger-sampling-request", args);
      assert.equal(sample.isError, true);
      assert.match(textOf(sample), /isolation = "perClient"/);
      assert.equal(has(one, "sampling/createMessage"), undefined);
      assert.equal(has(two, "sampling/createMessage"), undefined);
      await long;
    }));

  it("hear of what they subscribed to, of their own progress, and of no line without a level", () =>
    withTwo(SHARED, async (one, two) => {
      await Promise.all([one.sdk.listTools(), two.sdk.listTools()]);
      await one.sdk.subscribeResource({ uri: `${TEXT}1` });
      for (const client of [one, two]) await client.sdk.subscribeResource({ uri: `${TEXT}2` });
      await one.sdk.unsubscribeResource({ uri: `${TEXT}2` });
      await one.call("all__toggle-subscriber-updates");
      await one.until("its update", () => one.updatedUris[0]);
      await two.until("its update", () => two.updatedUris[0]);
      const totals: [number[], number[]] = [[], []];
      await Promise.all(
        [one, two].map((client, at) =>
          client.call(
            LONG,
            { duration: 0.3, steps: 3 + at },
            { onprogress: ({ total = 0 }) => totals[at === 0 ? 0 : 1].push(total) },
          ),
        ),
      );
      assert.deepEqual([new Set(totals[0]), new Set(totals[1])], [new Set([3]), new Set([4])]);
      assert.deepEqual([one.updatedUris, two.updatedUris], [[`${TEXT}1`], [`${TEXT}2`]]);
      assert.deepEqual([one.logs, two.logs], [[], []]);
    }));
});
