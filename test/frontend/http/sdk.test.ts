import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type Clock, systemClock } from "../../../src/base/clock.ts";
import { type RunningHttpServer, startHttpServer } from "../../../src/frontend/http/server.ts";
import { JSON_WAIT } from "../../../src/frontend/http/post-response.ts";
import { VirtualClock } from "../../fixtures/virtual-clock.ts";
import { waitFor } from "../../harness/wait.ts";
import { SDKS } from "../../harness/http-sdk-client.ts";
import { type Json, ScriptedServer, setUpHub } from "../../fixtures/memory-hub.ts";

/** A server whose calls wait until they are answered. */
class Waiting extends ScriptedServer {
  override onCall = (message: Json): undefined => void this.calls.push(message);
  readonly calls: Json[] = [];

  async called(count: number): Promise<Json[]> {
    return waitFor("calls", () => (this.calls.length >= count ? this.calls : undefined));
  }

  progress(call: Json | undefined, progress: number): void {
    const { progressToken } = call?.params?.["_meta"] as { progressToken: number };
    const params = { progressToken, progress };
    this.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/progress", params });
  }

  answer(call: Json | undefined): void {
    this.newestPeer?.send({ jsonrpc: "2.0", id: call?.id, result: { content: [] } });
  }
}

/** Runs a test on a hub that listens, and ends all of it. */
async function withFace(
  script: ScriptedServer,
  run: (face: RunningHttpServer) => Promise<void>,
  { token, clock = systemClock }: { token?: string; clock?: Clock } = {},
): Promise<void> {
  const { hub } = setUpHub({ s: script });
  const settings = { hostname: "127.0.0.1", port: 0, token, maxMessage: 1024 * 1024, clock };
  const face = await startHttpServer(hub, settings);
  try {
    await run(face);
  } finally {
    await face.close();
    await hub.close();
  }
}

for (const sdk of SDKS)
  describe(`${sdk.name} over HTTP`, () => {
    it("lists and calls, and leaves by DELETE", () =>
      withFace(new ScriptedServer("t", "u"), async ({ url }) => {
        const client = await sdk.connect(url);
        assert.deepEqual(await client.list(), ["s__t", "s__u"]);
        const result = (await client.call("s__t", { a: 1.5 })) as { echo: { arguments: object } };
        assert.deepEqual(result.echo.arguments, { a: 1.5 });
        const session = client.sessionId();
        await client.endSession();
        const headers = { "Mcp-Session-Id": session ?? "", Accept: "text/event-stream" };
        if (session !== undefined) assert.equal((await fetch(url, { headers })).status, 404);
        await client.close();
      }));

    it("gets progress, and cancels", () => {
      const script = new Waiting("t");
      return withFace(script, async ({ url }) => {
        const client = await sdk.connect(url);
        const seen: number[] = [];
        const abort = new AbortController();
        const onprogress = ({ progress }: { progress: number }): void => {
          seen.push(progress);
          if (progress === 2) abort.abort();
        };
        const done = client.call("s__t", {}, { signal: abort.signal, onprogress });
        const [first] = await script.called(1);
        script.progress(first, 1);
        script.progress(first, 2);
        await assert.rejects(done);
        assert.deepEqual(seen, [1, 2]);
        const asked = (): readonly Json[] => script.messagesOf("notifications/cancelled");
        await waitFor("the server to be told", () => asked()[0]);
        assert.equal(asked()[0]?.params?.["requestId"], first?.id);
        await client.close();
      });
    });

    it("gets an answer that takes long enough to come on a stream", () => {
      const script = new Waiting("t");
      const clock = new VirtualClock();
      const run = async ({ url }: RunningHttpServer): Promise<void> => {
        const client = await sdk.connect(url);
        const done = client.call("s__t", {});
        const [first] = await script.called(1);
        await clock.advanceAsync(JSON_WAIT);
        script.answer(first);
        assert.deepEqual(((await done) as { content: object[] }).content, []);
        await client.close();
      };
      return withFace(script, run, { clock });
    });

    it("hears of changed lists, and two of them do not meet", () => {
      const script = new Waiting("t");
      return withFace(script, async ({ url }) => {
        const [one, two] = [await sdk.connect(url), await sdk.connect(url)];
        const sessions = [one, two].flatMap((client) => client.sessionId() ?? []);
        assert.equal(new Set(sessions).size, sessions.length);
        const changed = [one, two].map(
          (client) => new Promise<void>((resolve) => client.onListChanged(resolve)),
        );
        await one.list();
        await two.list();
        const first = one.call("s__t", { of: 1 });
        await script.called(1);
        const second = two.call("s__t", { of: 2 });
        const calls = await script.called(2);
        for (const call of calls.toReversed()) {
          const result = { content: [], of: (call.params?.["arguments"] as { of: number }).of };
          script.newestPeer?.send({ jsonrpc: "2.0", id: call.id, result });
        }
        assert.equal(((await first) as { of: number }).of, 1);
        assert.equal(((await second) as { of: number }).of, 2);
        script.tools = ['{"name":"new","inputSchema":{"type":"object"}}'];
        script.newestPeer?.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
        await Promise.all(changed);
        assert.deepEqual(await two.list(), ["s__new"]);
        await one.close();
        await two.close();
      });
    });

    it("bears a token", () => {
      const run = async ({ url }: RunningHttpServer): Promise<void> => {
        await assert.rejects(sdk.connect(url));
        await assert.rejects(sdk.connect(url, { Authorization: "Bearer wrong" }));
        const client = await sdk.connect(url, { Authorization: "Bearer right" });
        assert.deepEqual(await client.list(), ["s__t"]);
        await client.close();
      };
      return withFace(new ScriptedServer("t"), run, { token: "right" });
    });
  });
