import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { connect, errorOf, type Json, test } from "./controlled-hub.ts";

describe("the control API, with what differs between runtimes,", () => {
  test("rejects bodies that are wrong, with the path of what is", async (setup) => {
    const bad = async (body: object): Promise<string> =>
      errorOf((await setup.ask("POST", "/servers", body)).document).message;
    assert.match(await bad({ entry: {} }), /name/);
    assert.match(await bad({ name: "x", entry: 1 }), /entry/);
    assert.match(await bad({ name: "x", entry: {}, persits: true }), /persits/);
    assert.match(await bad({ name: "x", entry: {} }), /no command/);
    assert.match(await bad({ name: "x".repeat(2 ** 21), entry: {} }), /1 MiB/);
  });

  test("streams events, those after a number first, and those of calls only if wanted", async (setup) => {
    await connect(setup);
    const { client } = setup;
    const abort = new AbortController();
    const kinds: string[] = [];
    const stream = setup.follow("kinds=state,call&after=0", abort.signal);
    let isCalled = false;
    for await (const event of stream) {
      if (!("kind" in event)) continue;
      kinds.push(event.kind);
      assert.doesNotMatch(JSON.stringify(event), /arguments|hunter2/);
      if (event.kind === "callFinished") break;
      if (kinds.length === 4 && !isCalled) {
        isCalled = true;
        const params = { name: "a__x", arguments: { secret: "hunter2" } };
        client.send({ jsonrpc: "2.0", id: 3, method: "tools/call", params });
      }
    }
    abort.abort();
    assert.deepEqual(kinds, ["state", "state", "state", "state", "callStarted", "callFinished"]);
    const { document } = await setup.ask("GET", "/events?kinds=stat");
    assert.match(errorOf(document).message, /"state"/);
  });

  test("shows a tool with its definition, and calls it without losing a digit", async (setup) => {
    const first = await setup.ask("POST", "/tools/a__x/call", {});
    assert.deepEqual(Object.keys(first.document), ["result"]);
    await connect(setup);
    setup.a.onCall = ({ params }) =>
      params?.["name"] === "x"
        ? `"result":{"content":[],"n":12345678901234567890}`
        : `"error":{"code":-1,"message":"no"}`;
    const { document } = await setup.ask("GET", "/tools/a__x");
    assert.deepEqual([document["server"], document["tool"]], ["a", "x"]);
    assert.equal((document["definition"] as Json)["name"], "a__x");
    assert.match(errorOf((await setup.ask("GET", "/tools/a__xx")).document).message, /"a__x"/);
    const called = await setup.ask("POST", "/tools/a__x/call", { arguments: { k: 1 } });
    assert.deepEqual((called.document["result"] as Json)["content"], []);
    assert.deepEqual(setup.a.messagesOf("tools/call").at(-1)?.params?.["arguments"], { k: 1 });
    let sent = "";
    setup.a.onCall = (_, text) => {
      sent = text;
      return '"result":{"content":[]}';
    };
    await setup.fetch("POST", "/tools/a__x/call", '{"arguments":{"n":12345678901234567890.0}}');
    assert.match(sent, /"n":12345678901234567890\.0/);
  });

  test("stores secrets without showing them, and removes them", async (setup) => {
    const value = "hunter2-value";
    assert.equal((await setup.ask("PUT", "/secrets/my/key", { value })).status, 204);
    const { document } = await setup.ask("GET", "/secrets");
    assert.deepEqual(
      (document["secrets"] as Json[]).map(({ name }) => name),
      ["my/key"],
    );
    assert.doesNotMatch(JSON.stringify(document), /hunter2/);
    const invalid = await setup.ask("PUT", "/secrets/a%20b", { value });
    assert.equal(errorOf(invalid.document).code, "invalidParams");
    assert.equal((await setup.ask("DELETE", "/secrets/my/key")).status, 204);
    assert.equal(errorOf((await setup.ask("DELETE", "/secrets/my/key")).document).code, "notFound");
  });

  test("checks the manifest, and says which servers cannot start", async (setup) => {
    const { document } = await setup.ask("POST", "/check");
    const [server] = document["servers"] as Json[];
    assert.deepEqual([document["ok"], server?.["name"], server?.["state"]], [true, "a", "fails"]);
  });

  test("installs toolmux in the file of a client, and undoes that", async (setup) => {
    const appOf = async (): Promise<Json | undefined> => {
      const { document } = await setup.ask("GET", "/client-apps");
      return (document["clients"] as Json[]).find(({ name }) => name === "cursor");
    };
    assert.deepEqual([(await appOf())?.["installed"], (await appOf())?.["exists"]], [false, false]);
    await setup.ask("POST", "/client-apps/cursor/install", { dryRun: true });
    assert.equal((await appOf())?.["exists"], false);
    const { document } = await setup.ask("POST", "/client-apps/cursor/install", {});
    assert.deepEqual([document["action"], document["written"]], ["install", true]);
    assert.equal((await appOf())?.["installed"], true);
    const text = readFileSync(String((await appOf())?.["file"]), "utf8");
    assert.match(text, new RegExp(join(setup.folder, "toolmux.json")));
    await setup.ask("POST", "/client-apps/cursor/undo");
    assert.equal((await appOf())?.["installed"], false);
    const unknown = await setup.ask("POST", "/client-apps/--undo/install", {});
    assert.equal(errorOf(unknown.document).code, "notFound");
  });
});
