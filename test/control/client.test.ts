import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type ApiRequest, controlClient } from "../../src/control/client.ts";
import { withApi } from "./controlled-hub.ts";

describe("the client of the control API", () => {
  it("puts parameters into the path, values into the query and the body as JSON", async () => {
    const sent: ApiRequest[] = [];
    const client = controlClient<never>((request) => {
      sent.push(request);
      return Promise.resolve({ kind: "ok", value: undefined });
    });
    await client("GET /hub");
    await client("GET /servers/:name", { params: { name: "a/b c" }, query: { wait: "30s" } });
    await client("GET /log", { query: { server: ["a", "b"], limit: 5, level: undefined } });
    await client("DELETE /servers/:name", { params: { name: "a" }, query: { persist: true } });
    await client("PUT /mode", { body: { mode: null } });
    await client("POST /tools/:name/call", {
      params: { name: "x" },
      json: '{"arguments":{"n":1e400}}',
    });
    // @ts-expect-error an endpoint with a parameter in its path needs its value
    await client("GET /mode/:name");
    // @ts-expect-error there is no such endpoint
    await client("GET /nothing");
    // @ts-expect-error a mode is a text or null
    await client("PUT /mode", { body: { mode: 1 } });
    assert.deepEqual(
      sent.slice(0, 6).map(({ method, path, body }) => [method, path, body]),
      [
        ["GET", "/hub", undefined],
        ["GET", "/servers/a%2Fb%20c?wait=30s", undefined],
        ["GET", "/log?server=a&server=b&limit=5", undefined],
        ["DELETE", "/servers/a?persist=true", undefined],
        ["PUT", "/mode", '{"mode":null}'],
        ["POST", "/tools/x/call", '{"arguments":{"n":1e400}}'],
      ],
    );
  });

  it("names secrets with slashes, and gets documents with the types of their endpoints", () =>
    withApi(async ({ fetch }) => {
      const client = controlClient<{ readonly kind: "failed"; readonly status: number }>(
        async ({ method, path, body }) => {
          const { status, document } = await fetch(method, path, body);
          return status < 400 ? { kind: "ok", value: document } : { kind: "failed", status };
        },
      );
      const params = { name: "team/key" };
      await client("PUT /secrets/:name", { params, body: { value: "v" } });
      const listed = await client("GET /secrets");
      assert.ok(listed.kind === "ok");
      assert.deepEqual(
        listed.value.secrets.map(({ name }) => name),
        ["team/key"],
      );
      assert.equal((await client("DELETE /secrets/:name", { params })).kind, "ok");
      assert.deepEqual(await client("DELETE /secrets/:name", { params }), {
        kind: "failed",
        status: 404,
      });
    }));
});
