import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import { type FullClient, connectFullClient, textOf } from "../harness/full-client.ts";
import { withServe } from "../harness/serve.ts";
import { it, withHub } from "../harness/hub.ts";
import {
  type RemoteProcess,
  startRemote,
  type RemoteTransport,
  REMOTE_TRANSPORTS,
} from "../harness/remote-process.ts";

const LONG = "all__trigger-long-running-operation";
const TEXT = "demo://resource/dynamic/text/1";

interface Connected {
  readonly clients: readonly [FullClient, FullClient];
  /** Of the server. */
  readonly url: string;
}

/** Clients of one hub in front of a server of everything that is reached so. */
function lasting(way: RemoteTransport): () => Connected {
  let clients: readonly [FullClient, FullClient] | undefined;
  let remote: RemoteProcess | undefined;
  let leave = (): void => {};
  let over: Promise<void> = Promise.resolve();
  before(async () => {
    remote = await startRemote(way);
    const all = { url: remote.url, transport: way };
    await new Promise<void>((ready, fail) => {
      over = withServe("HTTP", { servers: { all } }, async ({ target: reach }) => {
        const one = await connectFullClient("SDK v2", reach, "one");
        const two = await connectFullClient("SDK v1", reach, "two");
        clients = [one, two];
        await one.sdk.listTools();
        await two.sdk.listTools();
        const left = new Promise<void>((resolve) => (leave = resolve));
        ready();
        await left;
        await one.close();
        await two.close();
      });
      over.catch(fail);
    });
  });
  after(async () => {
    leave();
    await over;
    await remote?.stop();
  });
  return () => {
    assert.ok(clients && remote, "the clients are connected");
    return { clients, url: remote.url };
  };
}

for (const way of REMOTE_TRANSPORTS) {
  describe(`the server of everything over ${way === "http" ? "Streamable HTTP" : "HTTP with SSE"}`, () => {
    const connected = lasting(way);

    it("has its tools, prompts, resources and completions", async () => {
      const [{ sdk, call }] = connected().clients;
      assert.equal(textOf(await call("all__echo", { message: "hi" })), "Echo: hi");
      const { prompts } = await sdk.listPrompts();
      assert.ok(prompts.length > 0);
      const { messages } = await sdk.getPrompt({ name: "all__simple-prompt" });
      assert.ok(messages.length > 0);
      const { contents } = await sdk.readResource({ uri: TEXT });
      assert.equal(contents[0]?.uri, TEXT);
      const { completion } = await sdk.complete({
        ref: { type: "ref/prompt", name: "all__completable-prompt" },
        argument: { name: "department", value: "E" },
      });
      assert.ok(completion.values.length > 0);
    });

    it("tells how far a long call is", async () => {
      const [{ call }] = connected().clients;
      const steps: number[] = [];
      const onprogress = ({ progress }: { progress: number }): void => void steps.push(progress);
      await call(LONG, { duration: 0.4, steps: 4 }, { onprogress });
      assert.deepEqual(steps, [1, 2, 3, 4]);
    });

    it("has a call cancelled", async () => {
      const [{ call }] = connected().clients;
      const abort = new AbortController();
      const onprogress = (): void => abort.abort();
      const options = { signal: abort.signal, onprogress };
      await assert.rejects(call(LONG, { duration: 20, steps: 200 }, options));
      assert.equal(textOf(await call("all__echo", { message: "on" })), "Echo: on");
    });

    it("tells of what its clients have subscribed to", async () => {
      const [{ sdk, call, until, updatedUris: updated }] = connected().clients;
      await sdk.subscribeResource({ uri: TEXT });
      await call("all__toggle-subscriber-updates");
      await until("an update", () => updated.find((uri) => uri === TEXT));
      await call("all__toggle-subscriber-updates");
      await sdk.unsubscribeResource({ uri: TEXT });
    });

    if (way === "http") {
      it("asks whichever of two clients it works for", async () => {
        const args = { prompt: "say it", maxTokens: 7 };
        for (const [i, client] of connected().clients.entries()) {
          const sample = await client.call("all__trigger-sampling-request", args);
          assert.match(textOf(sample), i === 0 ? /sampled by one/ : /sampled by two/);
        }
      });
    } else {
      // The call of the first that was cancelled is never answered: it may be what the server still works on.
      it("asks the one of two clients that alone has calls, and neither if both may have", async () => {
        const [one, two] = connected().clients;
        const args = { prompt: "say it", maxTokens: 7 };
        assert.match(
          textOf(await one.call("all__trigger-sampling-request", args)),
          /sampled by one/,
        );
        const said = await two.call("all__trigger-sampling-request", args).then(textOf, String);
        assert.match(said, /perClient/);
      });

      it("asks the one client that another hub has", () =>
        withHub(
          JSON.stringify({ servers: { all: { url: connected().url } } }),
          async ({ client }) => {
            await client.initialize("2025-11-25", { sampling: {} });
            await client.request("tools/list");
            const args = { prompt: "say it", maxTokens: 7 };
            const id = client.sendCall("all__trigger-sampling-request", args);
            const { message } = await client.find(
              ({ method }) => method === "sampling/createMessage",
              "the question",
            );
            const content = { type: "text", text: "sampled" };
            const result = { model: "none", role: "assistant", content };
            client.send({ jsonrpc: "2.0", id: message.id, result });
            const answer = await client.response(id);
            assert.match(JSON.stringify(answer.message.result), /sampled/);
          },
          "toolmux.json",
        ));
    }
  });
}
