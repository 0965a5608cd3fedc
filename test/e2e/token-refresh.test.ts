import assert from "node:assert/strict";
import process from "node:process";
import { describe } from "node:test";
import { openUserAuthorizer } from "../../src/hub/transport-factory.ts";
import { TestAuthorizationServer } from "../fixtures/authorization-server.ts";
import {
  ProtectedServer,
  protectedServerSpec,
  resolvedProtectedServer,
} from "../fixtures/protected-server.ts";
import { browse } from "../fixtures/browser.ts";
import { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";
import { EXIT_LIMIT, executable, it, withTestFolder } from "../harness/hub.ts";

const SIGNAL = new AbortController().signal;

describe("a refresh token that is good once", () => {
  it("is not lost with a hub whose client leaves while it is exchanged", async () => {
    const authority = await TestAuthorizationServer.open({ rotatesRefreshTokens: true });
    const server = await ProtectedServer.open(authority);
    try {
      const manifest = `[hub]\nlistWait = "500ms"\n[servers.guarded]\nurl = "${server.url.href}"\n`;
      await withTestFolder(manifest, async (setup) => {
        const env = { ...setup.env, TOOLMUX_KEYCHAIN: "off" };
        const open = () =>
          openUserAuthorizer({ env, platform: process.platform }, async (url) => {
            await browse(url);
          });
        const challenge = { status: 401, header: undefined } as const;
        const quiet = { signal: SIGNAL, onProgress: () => {} };
        await (
          await open()
        ).authorize(protectedServerSpec(server), resolvedProtectedServer(server), challenge, quiet);
        authority.expireAccessTokens();
        let release = (): void => {};
        authority.settings.tokenDelay = new Promise((resolve) => (release = resolve));
        const client = new RawClient(executable(), ["--config", setup.config], setup.dir, env);
        await client.initializeAndList();
        await poll(
          10_000,
          () => "the exchange",
          () => (authority.requestsTo("/token").length === 2 ? true : undefined),
        );
        client.end();
        setTimeout(release, 300);
        await client.waitForExit(EXIT_LIMIT);
        const next = (await open()).credentialsFor(
          protectedServerSpec(server),
          resolvedProtectedServer(server),
        );
        const { Authorization = "" } = await next.getHeaders(SIGNAL);
        assert.equal(await server.statusFor(Authorization.replace("Bearer ", "")), 200);
      });
    } finally {
      await Promise.all([authority.close(), server.close()]);
    }
  });
});
