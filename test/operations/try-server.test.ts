import assert from "node:assert/strict";
import process from "node:process";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { openTrialHub } from "../../src/host/open-hub.ts";
import { trialDocument, tryServer } from "../../src/operations/try-server.ts";
import { withManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { stdioSpecOf } from "../fixtures/memory-hub.ts";
import { contextOf } from "../harness/context.ts";

describe("a server that is tried", () => {
  const SCRIPTED = fileURLToPath(new URL("../fixtures/servers/scripted.mjs", import.meta.url));
  const trial = (options: readonly string[], startLimit: number) =>
    withManifestFolder(async ({ root, home }) => {
      const env = { HOME: home, PATH: process.env["PATH"] };
      const world = contextOf(env, root, process.platform);
      const args = [SCRIPTED, ...options];
      const limits = { connectTimeout: 100, startLimit };
      const spec = stdioSpecOf("slow", { command: "node", args, baseDir: root, ...limits });
      return tryServer(spec, (manifest) => openTrialHub(manifest, world, () => {}), world);
    });

  it("and is late is waited for until it is there", async () => {
    const result = await trial(["--start-delay", "300"], 30_000);
    assert.equal(trialDocument(result).state, "connected");
  });

  it("and is late has failed when its start is ended", async () => {
    const tried = await trial(["--never-answer-initialize"], 600);
    assert.ok(tried.kind === "failed");
    assert.equal(tried.cause.code, "connectTimeout");
    assert.match(tried.cause.message, /within 600 ms/);
    const document = trialDocument(tried);
    assert.ok(document.state === "failed" && document.error.code === "connectTimeout");
    assert.match(tried.hints.join("\n"), /set connectTimeout .* after 600 ms/);
  });
});
