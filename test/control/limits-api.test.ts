import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Ajv2020 } from "ajv/dist/2020.js";
import { makeControlSchema } from "../../src/control/json-schema.ts";
import type { EventDocument } from "../../src/control/schemas.ts";
import { callTool, initialize, sendRequest, stdioSpecOf } from "../fixtures/memory-hub.ts";
import { eventually, type Json, withApi } from "./controlled-hub.ts";

const HOUR = 3_600_000;
const { $defs } = makeControlSchema() as { readonly $defs: Record<string, object> };
const fits = (name: string) => new Ajv2020({ strict: false }).compile($defs[name] ?? {});

describe("the control API of limits", () => {
  it("has none without settings, then shows each with what counts, tells refusals, and resets a client", () =>
    withApi(async ({ ask, client, follow, hub }) => {
      assert.deepEqual((await ask("GET", "/limits")).document, { limits: [] });
      assert.equal((await ask("POST", "/limits/client-1/reset")).status, 400);
      const tools = { allow: undefined, deny: [], rename: {}, timeout: {} };
      const rate = { count: 1, per: HOUR };
      const limits = { quota: { count: 10, per: HOUR }, maxConcurrent: 2, maxQueued: 3 };
      hub.add(
        stdioSpecOf("a", { limits, tools: { ...tools, limits: { "x*": { rate } } } }),
        "manifest",
      );
      await initialize(client);
      await sendRequest(client, "tools/list");
      const abort = new AbortController();
      const seen: EventDocument[] = [];
      const reading = (async () => {
        for await (const event of follow("kinds=limit&after=0", abort.signal)) {
          if (!("kind" in event)) continue;
          seen.push(event);
          break;
        }
      })();
      await callTool(client, "a__x");
      const refused = await callTool(client, "a__x");
      assert.equal(refused.result?.["isError"], true);
      await reading;
      const [event] = seen;
      assert.ok(event);
      const fit = fits("Event");
      assert.ok(fit(event), JSON.stringify(fit.errors));
      const { seq: _, at: __, text, retryAfter, ...members } = event;
      assert.deepEqual(members, {
        level: "warn",
        kind: "limit",
        limit: "rate",
        of: "tool",
        server: "a",
        tool: "x*",
      });
      assert.match(text ?? "", /^Over the limit of 1 call an hour for tool "x\*" of server "a": /);
      assert.equal(retryAfter, HOUR);
      const { document } = await ask("GET", "/limits");
      const [server, tool, ...more] = document["limits"] as Json[];
      const fitLimit = fits("Limit");
      assert.ok(fitLimit(server) && fitLimit(tool), JSON.stringify(fitLimit.errors));
      const { endsAt, ...quota } = server?.["quota"] as Json;
      assert.ok(Number(endsAt) > Date.now() - HOUR);
      assert.deepEqual(
        [
          quota,
          server?.["maxConcurrent"],
          server?.["running"],
          server?.["maxQueued"],
          server?.["refused"],
        ],
        [{ count: 10, per: HOUR, used: 1 }, 2, 0, 3, 0],
      );
      assert.deepEqual(tool, {
        kind: "tool",
        server: "a",
        tool: "x*",
        rate: { ...rate, burst: 1, left: 0 },
        running: 0,
        queued: 0,
        refused: 1,
      });
      assert.deepEqual(more, []);
      assert.equal((await ask("POST", "/limits/client-1/reset")).status, 204);
      const { error } = (await ask("POST", "/limits/nobody/reset")).document as { error: Json };
      assert.equal(error["code"], "notFound");
      abort.abort();
      await eventually("the end of calls", () => hub.snapshot().calls.length === 0);
    }));
});
