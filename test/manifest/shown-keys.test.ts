import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { isMasked, mayShow } from "../../src/manifest/shown-keys.ts";

describe("the values of a manifest that messages may show", () => {
  for (const keys of [
    "servers.a.command",
    "servers.a.tools.rename.read",
    "servers.a.reconnect.base",
    "servers.a.calTimeout",
    "hub.separator",
    "modes.m.tools.servers",
    "clients.name",
    "agents.a.instruction",
  ]) {
    it(`include that of ${keys}`, () => assert.ok(mayShow(keys.split("."))));
  }

  for (const keys of [
    "servers.a.env.LOG_LEVEL",
    "servers.a.headers.Accept",
    "servers.a.oauth.clientId",
    "servers.a.evn.X",
    "servers.a.nonsense",
    "hub.httpToken",
    "clients.token",
    "models.m.apiKey",
    "agentFiles.credentials.host",
    "plugins.options.command",
    "",
  ]) {
    it(`leave out that of ${keys || "no key"}`, () => assert.ok(!mayShow(keys.split("."))));
  }

  it("are none in a table that holds secrets", () => {
    assert.ok(isMasked(["servers", "a", "env"]));
    assert.ok(!isMasked(["servers", "a", "args"]));
  });
});
