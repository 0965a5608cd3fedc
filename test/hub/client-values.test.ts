import assert from "node:assert/strict";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe } from "node:test";
import process from "node:process";
import type { HubError } from "../../src/base/errors.ts";
import { openTransportFactory } from "../../src/hub/transport-factory.ts";
import type { ClientOrigin } from "../../src/manifest/client-values.ts";
import type { StdioServer } from "../../src/manifest/manifest.ts";
import type { ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { Peer, stdioSpecOf } from "../fixtures/memory-hub.ts";
import { itIn } from "../harness/in-folder.ts";

const NO_SCHEMES = new Map<string, () => Promise<string>>();
const REPORT = `#!/bin/sh
printf '{"jsonrpc":"2.0","method":"report","params":{"folder":"%s","token":"%s","inherited":"%s","lang":"%s","hub":"%s","path":"%s"}}\\n' "$PWD" "$KEY" "$INHERITED" "$LANG" "$ONLY_HUB" "$PATH"
cat > /dev/null
`;

/** A factory of a hub, and a program `report` that says what it was started with. */
async function setUp({ root }: ManifestFolder) {
  const [bin, manifest] = [join(root, "bin"), join(root, "manifest")];
  await Promise.all([mkdir(bin), mkdir(manifest)]);
  await writeFile(join(bin, "report"), REPORT);
  await chmod(join(bin, "report"), 0o700);
  const env = {
    PATH: "/usr/bin:/bin",
    LANG: "hub",
    HOME: root,
    TOKEN: "of-the-hub",
    ONLY_HUB: "secret",
    INHERITED: "of-the-hub",
  };
  const factory = openTransportFactory(
    { env, cwd: root, platform: process.platform },
    () => Promise.reject(new Error("no HTTP")),
    () => Promise.resolve(undefined),
  );
  return {
    factory,
    bin,
    manifest,
    specOf: (settings: Partial<StdioServer> = {}) =>
      stdioSpecOf("a", { command: "report", baseDir: manifest, ...settings }),
    start: async (spec: StdioServer, origin?: ClientOrigin, path?: string) => {
      const transport = await factory.openTransport(spec, NO_SCHEMES, {}, { origin, path });
      const peer = new Peer(transport);
      const { params } = await peer.find(({ method }) => method === "report");
      await transport.close();
      return params;
    },
    identityOf: (spec: StdioServer, origin?: ClientOrigin) =>
      factory.resolveIdentity(spec, NO_SCHEMES, { origin, path: undefined }),
  };
}

describe("a server that a client of a shared hub fills in", () => {
  itIn(
    "gets the client's values, the hub's safe variables, the manifest's folder, and a command of the client's PATH",
    async (folder) => {
      const { start, specOf, bin, manifest } = await setUp(folder);
      const spec = specOf({
        env: { KEY: "${env:TOKEN}" },
        inheritEnv: ["INHERITED", "ONLY_HUB"],
      });
      const env = { TOKEN: "of-client", INHERITED: "by-client", LANG: "client" };
      const report = await start(spec, { cwd: "/", env }, `/nowhere:${bin}`);
      assert.deepEqual(report, {
        folder: manifest,
        token: "of-client",
        inherited: "by-client",
        lang: "hub",
        hub: "",
        path: `/usr/bin:/bin:/nowhere:${bin}`,
      });
    },
  );

  itIn("runs where its cwd says, in the client's folder too", async (folder) => {
    const { start, specOf, bin } = await setUp(folder);
    const origin = { cwd: bin, env: {} };
    const report = await start(specOf({ cwd: "${workspaceFolder}" }), origin, bin);
    assert.equal(report?.["folder"], bin);
  });

  itIn("gets none of the values of another client, whoever was first", async (folder) => {
    const { start, identityOf, specOf, bin } = await setUp(folder);
    const spec = specOf({ env: { KEY: "${env:TOKEN}" } });
    const [one, two] = ["one", "two"].map((TOKEN) => ({ cwd: "/", env: { TOKEN } }));
    const tokens: unknown[] = [];
    // An entry that identifies a server is kept for its start.
    for (const origin of [one, two, undefined]) {
      tokens.push((await identityOf(spec, origin))?.env["KEY"]);
    }
    for (const origin of [two, one, undefined, two])
      tokens.push((await start(spec, origin, bin))?.["token"]);
    assert.deepEqual(tokens, ["one", "two", "of-the-hub", "two", "one", "of-the-hub", "two"]);
  });

  itIn(
    "is the same for all clients to approvals and saved listings, if it takes nothing of them",
    async (folder) => {
      const { identityOf, specOf } = await setUp(folder);
      const spec = specOf({ args: ["~/x"] });
      const hub = await identityOf(spec);
      assert.deepEqual(await identityOf(spec, { cwd: "/elsewhere", env: { TOKEN: "x" } }), hub);
    },
  );

  itIn(
    "has its values masked, and a missing one is said to be missing at the client",
    async (folder) => {
      const { factory, specOf, identityOf } = await setUp(folder);
      const spec = specOf({ args: ["${env:TOKEN}"] });
      await identityOf(spec, { cwd: "/", env: { TOKEN: "value-of-a-client" } });
      assert.ok(!factory.redact("it is value-of-a-client").includes("value-of-a-client"));
      const started = factory.openTransport(
        spec,
        NO_SCHEMES,
        {},
        {
          origin: { cwd: "/", env: {} },
          path: undefined,
        },
      );
      await assert.rejects(started, (error: HubError) => {
        assert.equal(error.code, "valueMissing");
        return /TOKEN.*client/.test(error.message);
      });
    },
  );
});
