import assert from "node:assert/strict";
import { mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe } from "node:test";
import { parseReferenceOrThrow } from "../../src/agent-files/reference.ts";
import type { PulledAgent } from "../../src/agent-files/registry.ts";
import { AgentStore } from "../../src/agent-files/store.ts";
import type { ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { AGENT_YAML, digestOf } from "../fixtures/oci-registry.ts";
import { itIn } from "../harness/in-folder.ts";

const NEVER = new AbortController().signal;

const open = ({ home }: ManifestFolder): AgentStore =>
  new AgentStore({ env: { HOME: home }, platform: "linux" });

function agent(reference: string, content = AGENT_YAML): PulledAgent {
  const manifest = JSON.stringify({ content });
  return {
    reference: parseReferenceOrThrow(reference),
    digest: digestOf(manifest),
    manifest: new TextEncoder().encode(manifest),
    contentDigest: digestOf(content),
    content: new TextEncoder().encode(content),
  };
}

const blobs = (store: AgentStore): Promise<string[]> => readdir(join(store.folder, "sha256"));

describe("the store of agents", () => {
  itIn("keeps agents by digest, in files that only the user can read", async (folder) => {
    const store = open(folder);
    assert.deepEqual(await store.list(), []);
    const pulled = agent("docker/reviewer:1");
    await store.add(pulled, NEVER, 5);
    const [stored] = await store.list();
    assert.ok(stored !== undefined);
    const { reference, digest, contentDigest, pulledAt } = stored;
    assert.deepEqual([reference, pulledAt], ["docker.io/docker/reviewer:1", 5]);
    assert.deepEqual([digest, contentDigest], [pulled.digest, pulled.contentDigest]);
    assert.equal(new TextDecoder().decode(await store.read(stored)), AGENT_YAML);
    const names = [
      ".",
      "sha256",
      "refs.json",
      ...(await blobs(store)).map((name) => `sha256/${name}`),
    ];
    for (const name of names) {
      const stats = await stat(join(store.folder, name));
      assert.equal(stats.mode & 0o777, stats.isDirectory() ? 0o700 : 0o600, name);
    }
  });

  itIn(
    "finds an agent by its whole reference, or by its last part if that is unique",
    async (folder) => {
      const store = open(folder);
      for (const text of [
        "docker/reviewer",
        "docker/reviewer:1",
        "ghcr.io/me/tester",
        "ghcr.io/me/reviewer:1",
      ])
        await store.add(agent(text), NEVER);
      const find = async (text: string) => (await store.find(text))?.reference;
      assert.equal(await find("reviewer"), "docker.io/docker/reviewer:latest");
      assert.equal(await find("reviewer:latest"), "docker.io/docker/reviewer:latest");
      assert.equal(await find("docker/reviewer:1"), "docker.io/docker/reviewer:1");
      assert.equal(await find("tester"), "ghcr.io/me/tester:latest");
      assert.equal(
        await find(`ghcr.io/me/tester@${agent("x").digest}`),
        "ghcr.io/me/tester:latest",
      );
      for (const text of ["viewer", "tester:2", "me/tester", "../tester", ""])
        assert.equal(await find(text), undefined, text);
      await assert.rejects(store.find("reviewer:1"), { code: "agentNotFound" });
    },
  );

  itIn("keeps what several references share, until the last of them is removed", async (folder) => {
    const store = open(folder);
    const [a, b] = [await store.add(agent("x/a"), NEVER), await store.add(agent("x/b"), NEVER)];
    assert.equal((await blobs(store)).length, 2);
    assert.equal(await store.remove(a, NEVER), true);
    assert.equal((await store.read(b)).length, AGENT_YAML.length);
    assert.equal(await store.remove(a, NEVER), false);
    await store.add(agent("x/b", "other"), NEVER);
    assert.equal((await blobs(store)).length, 2);
    await assert.rejects(store.read(b), { code: "storeBroken" });
  });

  itIn("loses nothing when several agents are added at once", async (folder) => {
    const names = Array.from({ length: 8 }, (_, at) => `x/a${at}`);
    await Promise.all(names.map((name) => open(folder).add(agent(name, name), NEVER)));
    const stored = await open(folder).list();
    assert.equal(stored.length, 8);
    for (const one of stored) await open(folder).read(one);
  });

  itIn(
    "gives nothing that is damaged, and removes what killed processes have left",
    async (folder) => {
      const store = open(folder);
      const stored = await store.add(agent("x/a"), NEVER);
      const path = join(store.folder, "sha256", stored.contentDigest.slice(7));
      await writeFile(path, AGENT_YAML.replace("Arr", "Grr"));
      await assert.rejects(store.read(stored), { code: "storeBroken" });
      const orphan = join(store.folder, "sha256", "0".repeat(64));
      await writeFile(orphan, "half");
      const draft = join(store.folder, `refs.json.${crypto.randomUUID()}.draft`);
      await writeFile(draft, "half");
      await store.add(agent("x/a"), NEVER);
      assert.equal((await store.read(stored)).length, AGENT_YAML.length);
      assert.equal((await blobs(store)).length, 2);
      assert.deepEqual((await readdir(store.folder)).toSorted(), ["refs.json", "sha256"]);
    },
  );

  itIn("does without references that are not its own", async (folder) => {
    const store = open(folder);
    await mkdir(store.folder, { recursive: true });
    const good = { digest: digestOf("a"), contentDigest: digestOf("b"), pulledAt: 1 };
    for (const refs of [
      { "x/../../y": good },
      { "docker.io/x/y:z": { ...good, digest: "sha256:../../../etc/passwd" } },
      { "docker.io/x/y:z": 1 },
      [],
    ]) {
      await writeFile(join(store.folder, "refs.json"), JSON.stringify({ refs }));
      assert.deepEqual(await store.list(), []);
    }
    await writeFile(join(store.folder, "refs.json"), "{");
    await store.add(agent("x/a"), NEVER);
    assert.match(
      await readFile(join(store.folder, "refs.json"), "utf8"),
      /docker\.io\/x\/a:latest/,
    );
  });
});
