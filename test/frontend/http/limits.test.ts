import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ALL_SERVERS } from "../../../src/upstream/profile.ts";
import type { NamedClient } from "../../../src/manifest/named-clients.ts";
import { type HttpTestClient, setUpHttp } from "../../fixtures/http-client.ts";
import { waitFor } from "../../harness/wait.ts";
import { callRequest, type Json, manifestFor, ScriptedServer } from "../../fixtures/memory-hub.ts";

const MINUTE = 60_000;
const CALL = callRequest(7, "git__x");

/** A hub over HTTP in which client `ci` has two calls a minute, and clients without a name have one. */
function setUp() {
  const git = new ScriptedServer("x");
  const named: NamedClient = {
    kind: "client",
    name: "ci",
    token: { text: "t", file: "/x", baseDir: "/" },
    mode: undefined,
    servers: undefined,
    approval: undefined,
    sessions: undefined,
    limits: { rate: { count: 2, per: MINUTE } },
  };
  const manifest = {
    ...manifestFor({ git }, {}),
    limits: { client: { rate: { count: 1, per: MINUTE } } },
    clients: [named],
  };
  const holder = {
    name: "ci",
    subset: ALL_SERVERS,
    mode: undefined,
    maxSessions: undefined,
    token: "token-of-ci",
  };
  const setup = setUpHttp({ git }, { manifest, server: { token: "own", clients: [holder] } });
  const clientOf = (token: string): HttpTestClient => {
    const client = setup.newClient();
    const request = client.request.bind(client);
    client.request = (method, body, headers) =>
      request(method, body, { Authorization: `Bearer ${token}`, ...headers });
    return client;
  };
  return { ...setup, git, clientOf };
}

async function outcomeOf(response: Response): Promise<unknown> {
  assert.equal(response.status, 200);
  const { result, error } = (await response.json()) as Json;
  assert.equal(error, undefined);
  return (result?.["_meta"] as Record<string, unknown> | undefined)?.["toolmux/error"];
}

describe("limits over HTTP", () => {
  it("count for a token, in all sessions and both eras, and refuse with status 200", async () => {
    const { clientOf, git } = setUp();
    const [one, two] = [clientOf("token-of-ci"), clientOf("token-of-ci")];
    await one.initialize();
    await two.initialize();
    assert.equal(await outcomeOf(await one.post(CALL)), undefined);
    assert.equal(
      await outcomeOf(await clientOf("token-of-ci").postModern("tools/call", { name: "git__x" })),
      undefined,
    );
    assert.equal(await outcomeOf(await two.post(CALL)), "overLimit");
    assert.equal(
      await outcomeOf(await clientOf("token-of-ci").postModern("tools/call", { name: "git__x" })),
      "overLimit",
    );
    assert.equal(git.messagesOf("tools/call").length, 2);
    const list = await two.post({ jsonrpc: "2.0", id: 1, method: "tools/list" });
    assert.deepEqual([list.status, ((await list.json()) as Json).error?.code], [200, -31019]);
    const modern = await clientOf("token-of-ci").postModern("tools/list");
    assert.deepEqual([modern.status, ((await modern.json()) as Json).error?.code], [200, -31019]);
  });

  it("are shared by all clients that the manifest does not name", async () => {
    const { clientOf } = setUp();
    const [one, two] = [clientOf("own"), clientOf("own")];
    await one.initialize();
    await two.initialize();
    assert.equal(await outcomeOf(await one.post(CALL)), undefined);
    assert.equal(await outcomeOf(await two.post(CALL)), "overLimit");
    assert.equal(
      await outcomeOf(await clientOf("own").postModern("tools/call", { name: "git__x" })),
      "overLimit",
    );
  });

  it("let the client of a call that waits close its request, and the call reaches no server", async () => {
    const git = new ScriptedServer("x");
    git.onCall = () => undefined;
    const { newClient, hub } = setUpHttp(
      { git },
      { servers: { git: { limits: { maxConcurrent: 1 } } } },
    );
    const aborts = [new AbortController(), new AbortController()] as const;
    const counts = () => hub.limits.status.map(({ running, queued }) => [running, queued]);
    const client = newClient();
    const fetch = client.fetch.bind(client);
    const open: Promise<unknown>[] = [];
    for (const { signal } of aborts) {
      client.fetch = (path, init) => fetch(path, { ...init, signal });
      open.push(client.postModern("tools/call", { name: "git__x" }).catch(() => undefined));
    }
    await waitFor("both calls", () => counts()[0]?.join() === "1,1" || undefined);
    aborts[1].abort();
    await waitFor(
      "the end of the call that waits",
      () => counts()[0]?.join() === "1,0" || undefined,
    );
    aborts[0].abort();
    await waitFor("the end of the other one", () => counts()[0]?.join() === "0,0" || undefined);
    assert.equal(git.messagesOf("tools/call").length, 1);
    await hub.close();
    await Promise.all(open);
  });
});
