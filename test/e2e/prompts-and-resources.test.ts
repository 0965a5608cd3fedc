import assert from "node:assert/strict";
import { describe } from "node:test";
import { startOn } from "../harness/command.ts";
import { closeClient, it, withTestFolder } from "../harness/hub.ts";
import { publishedServer } from "../harness/manifest.ts";
import type { Result } from "../harness/message.ts";

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
  it("is listed, got, read, completed and subscribed to through the hub, and comes with their instructions from the second start on", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const client = startOn(setup);
      assert.doesNotMatch(instructionsIn(await client.initialize()), /^# /m);
      await client.request("tools/list");
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

      assert.equal(await resultOf("resources/subscribe", { uri: OF_B }), "{}");
      await client.call("b__toggle-subscriber-updates");
      const { message: news } = await client.find(
        ({ method }) => method === "notifications/resources/updated",
        "news of the resource",
      );
      assert.deepEqual(news.params, { uri: OF_B });
      await closeClient(client);

      const second = startOn(setup);
      const instructions = instructionsIn(await second.initialize());
      assert.match(instructions, /\n\n# a\n\n[^]+\n\n# b\n\n[^]+$/);
      await closeClient(second);
    }));
});

function instructionsIn({ instructions = "" }: Result): string {
  return String(instructions);
}
