import assert from "node:assert/strict";
import process from "node:process";
import { describe, it } from "node:test";
import { openUserAuthorizer } from "../../src/cli/transport-factory.ts";
import { Authority } from "../fixtures/authorization-server.ts";
import { Guarded, remote, resolved } from "../fixtures/protected-server.ts";
import { browse } from "../fixtures/browser.ts";
import { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";
import { END, executable, LIMIT, withStage } from "../harness/hub.ts";

const SIGNAL = new AbortController().signal;

describe("a refresh token that is good once", () => {
  it("is not lost with a hub whose client leaves while it is exchanged", LIMIT, async () => {
    const authority = await Authority.open({ rotates: true });
    const server = await Guarded.open(authority);
    try {
      const manifest = `[hub]\nlistWait = "500ms"\n[servers.guarded]\nurl = "${server.url.href}"\n`;
      await withStage(manifest, async (stage) => {
        const env = { ...stage.env, TOOLMUX_KEYCHAIN: "off" };
        const open = () =>
          openUserAuthorizer({ env, platform: process.platform }, async (url) => {
            await browse(url);
          });
        const challenge = { status: 401, header: undefined } as const;
        const quiet = { signal: SIGNAL, onProgress: () => {} };
        await (await open()).authorize(remote(server), resolved(server), challenge, quiet);
        authority.expire();
        let release = (): void => {};
        authority.switches.gate = new Promise((resolve) => (release = resolve));
        const client = new RawClient(executable(), ["--config", stage.config], stage.dir, env);
        await client.open();
        await poll(
          10_000,
          () => "the exchange",
          () => (authority.at("/token").length === 2 ? true : undefined),
        );
        client.end();
        setTimeout(release, 300);
        await client.ended(END);
        const next = (await open()).credentialsFor(remote(server), resolved(server));
        const { Authorization = "" } = await next.bear(SIGNAL);
        assert.equal(await server.try(Authorization.replace("Bearer ", "")), 200);
      });
    } finally {
      await Promise.all([authority.close(), server.close()]);
    }
  });
});
