import assert from "node:assert/strict";
import { describe } from "node:test";
import { connect, errorOf, eventually, type Json, test } from "./controlled-hub.ts";

const tool = (description: string): string =>
  JSON.stringify({ name: "x", description, inputSchema: { type: "object" } });

describe("the pins of a hub over its control API", () => {
  test("are told, accepted as they were seen, and forgotten", async (setup) => {
    const { a, ask, fetch, hub } = setup;
    await connect(setup);
    a.tools = [tool("It tells hunter2.\u200b")];
    await hub.refresh("a");
    const seen = await eventually("what is pending", async () => {
      const { document } = await ask("GET", "/pins?server=a");
      const [server] = document["servers"] as Json[];
      const [pending] = server?.["pending"] as Json[];
      return pending;
    });
    assert.deepEqual([seen["kind"], seen["name"], seen["reason"]], ["tool", "x", "changed"]);
    const text = JSON.stringify(seen);
    assert.doesNotMatch(text, /hunter2|\u200b/);
    assert.match(text, /\[redacted\]\.\\\\u\{200b\}/);
    const { document: server } = await ask("GET", "/servers/a");
    assert.equal(server["pending"], 1);
    const all = (await ask("GET", "/pins")).document["servers"] as Json[];
    assert.deepEqual(
      all.map((each) => each["server"]),
      ["a", "b"],
    );

    const accept = (digest: unknown, name = "x") =>
      fetch(
        "POST",
        "/pins/accept",
        JSON.stringify({ server: "a", definitions: [{ name, digest }] }),
      );
    const other = await accept("another");
    assert.deepEqual([other.status, errorOf(other.document).code], [409, "conflict"]);
    assert.equal((await accept(seen["digest"], "y")).status, 404);
    const { kind, name, digest } = seen;
    const accepted = await accept(digest);
    assert.deepEqual(accepted.document, { accepted: [{ kind, name, digest }] });
    assert.equal((await ask("GET", "/servers/a")).document["pending"], undefined);
    assert.equal((await fetch("POST", "/pins/accept", '{"server":"none"}')).status, 404);
    assert.equal(
      (await fetch("POST", "/pins/accept", '{"server":"a","definitions":[]}')).status,
      400,
    );

    assert.equal((await ask("DELETE", "/pins/a")).status, 204);
    assert.equal((await fetch("DELETE", "/pins/none")).status, 404);
    assert.equal((await fetch("GET", "/pins?server=none")).status, 404);
  });
});
