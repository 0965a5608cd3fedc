import assert from "node:assert/strict";
import { describe } from "node:test";
import { RawClient } from "../harness/raw-client.ts";
import { closeClient, executable, it, withHub, withTestFolder } from "../harness/hub.ts";
import { publishedServer } from "../harness/manifest.ts";

const MANIFEST = {
  servers: {
    a: publishedServer("everything", ["stdio"]),
    b: publishedServer("everything", ["stdio"]),
    memory: publishedServer("memory"),
  },
};
const TEXT = "demo://resource/dynamic/text/1";
const OF_B = `toolmux://b/${encodeURIComponent(TEXT)}`;

describe("what published servers offer beside tools", () => {
  it("is listed, got, read and completed through the hub", () =>
    withHub(MANIFEST, async ({ client }) => {
      await client.initializeAndList();
      const resultOf = async (method: string, params = {}): Promise<string> =>
        JSON.stringify((await client.request(method, params)).message.result);
      assert.match(await resultOf("prompts/list"), /"name":"b__simple-prompt"/);
      assert.match(await resultOf("prompts/get", { name: "b__simple-prompt" }), /"messages":\[/);
      const resources = await resultOf("resources/list");
      assert.match(resources, /"memory:\/\/knowledge-graph"/);
      assert.match(resources, /"toolmux:\/\/b\/demo%3A/);
      assert.match(await resultOf("resources/templates/list"), /"toolmux:\/\/b\/demo:\/\//);
      for (const uri of [OF_B.replace("//b/", "//a/"), OF_B]) {
        assert.match(await resultOf("resources/read", { uri }), /"text":"Resource 1: /);
      }
      // Both servers list a template for it.
      const { message } = await client.request("resources/read", { uri: TEXT });
      assert.equal(message.error?.code, -32602);
      const ref = { type: "ref/prompt", name: "a__completable-prompt" };
      const argument = { name: "department", value: "E" };
      const completion = await resultOf("completion/complete", { ref, argument });
      assert.match(completion, /"values":\["Engineering"\]/);
    }));

  it("is told of to those who have subscribed to it, as they know it", () =>
    withHub(MANIFEST, async ({ client }) => {
      await client.initializeAndList();
      assert.deepEqual(
        (await client.request("resources/subscribe", { uri: OF_B })).message.result,
        {},
      );
      await client.call("b__toggle-subscriber-updates");
      const { message } = await client.find(
        ({ method }) => method === "notifications/resources/updated",
        "news of the resource",
      );
      assert.deepEqual(message.params, { uri: OF_B });
    }));

  it("comes with their instructions from the second start on", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const start = (): RawClient =>
        new RawClient(executable(), ["--config", setup.config], setup.dir, setup.env);
      const first = start();
      const params = {
        protocolVersion: "2025-11-25",
        capabilities: {},
        clientInfo: { name: "raw", version: "1" },
      };
      const instructionsOf = async (client: RawClient): Promise<string | undefined> => {
        const { text } = await client.request("initialize", params);
        return (JSON.parse(text) as { result: { instructions?: string } }).result.instructions;
      };
      assert.doesNotMatch((await instructionsOf(first)) ?? "", /^# /m);
      await first.request("tools/list");
      await closeClient(first);
      const second = start();
      assert.match((await instructionsOf(second)) ?? "", /\n\n# a\n\n[^]+\n\n# b\n\n[^]+$/);
      await closeClient(second);
    }));
});
