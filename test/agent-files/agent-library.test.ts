import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { link, mkdir, readFile, rename, stat, symlink, utimes, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe } from "node:test";
import {
  AGENT_FILE_DEFAULTS,
  AgentLibrary,
  type AgentFileSettings,
  type FoundAgent,
} from "../../src/agent-files/agent-library.ts";
import type { AgentFile } from "../../src/agent-files/agent-file.ts";
import { readInlineAgent } from "../../src/agent-files/client-described-agent.ts";
import { stateFolder } from "../../src/base/paths.ts";
import { makeAgentSpec, makeModelSpec } from "../../src/manifest/agents.ts";
import { trust, trustDigest } from "../../src/manifest/trust.ts";
import { makeFetch } from "../../src/transport/http-client/fetch.ts";
import type { ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { withOciRegistry } from "../fixtures/oci-registry.ts";
import { itIn } from "../harness/in-folder.ts";

const NEVER = new AbortController().signal;
const AGENTS = "home/.config/toolmux/agents";
const FOREIGN = "home/.cagent/agents";

const yaml = (more = ""): string =>
  `agents:\n  root:\n    model: openai/gpt-x\n    description: Talks.\n    instruction: Arr.\n${more}`;
const RUNS = yaml("    toolsets: [{type: mcp, command: danger}]\n");

function open(folder: ManifestFolder, more: Partial<AgentFileSettings> = {}): AgentLibrary {
  const own = makeAgentSpec({ name: "own", model: "openai/x", instruction: "I" });
  return new AgentLibrary({
    agents: new Map([["own", own]]),
    settings: { ...AGENT_FILE_DEFAULTS, ...more },
    baseDir: folder.cwd,
    env: { HOME: folder.home },
    cwd: folder.cwd,
    platform: "linux",
  });
}

function fileOf(found: FoundAgent): AgentFile {
  assert.ok(found.source !== "manifest");
  return found.file;
}

const registry = {
  fetch: makeFetch({ ca: undefined, env: {} }),
  credentialsFor: () => Promise.resolve(undefined),
};

describe("an agent", () => {
  itIn("is one of the manifest, else a file, else one of the store", (folder) =>
    withOciRegistry(async (server) => {
      const library = open(folder);
      await folder.write(`${AGENTS}/own.yaml`, yaml());
      await folder.write(`${AGENTS}/pirate.yaml`, yaml());
      server.putAgent("team/own", "latest");
      await library.pull(`${server.host}/team/own`, registry, NEVER);
      await library.pull(`${server.host}/team/pirate`, registry, NEVER);
      assert.equal((await library.find("own")).source, "manifest");
      assert.equal((await library.find("own.yaml")).source, "files");
      assert.equal((await library.find("~/.config/toolmux/agents/own.yaml")).source, "files");
      for (const text of ["pirate", "pirate:latest", `${server.host}/team/pirate`])
        assert.equal((await library.find(text)).source, "store", text);
    }),
  );

  for (const text of [
    "",
    "nobody",
    "nobody.yaml",
    "./nobody.yaml",
    "x".repeat(3000),
    "a\0b",
    "~/x",
  ]) {
    itIn(`is not found by ${JSON.stringify(text.slice(0, 20))}`, async (folder) => {
      const settings = { paths: [folder.cwd, folder.home] };
      await assert.rejects(open(folder, settings).find(text), { code: "agentNotFound" });
    });
  }

  itIn("that is nearly named right is suggested", async (folder) => {
    await folder.write(`${AGENTS}/reviewer.yaml`, yaml());
    await assert.rejects(open(folder).find("reviwer.yaml"), /"reviewer\.yaml"/);
  });
});

describe("a list of agents", () => {
  itIn("has no scripts of models, but all other files that cannot be read", async (folder) => {
    const script = '[[turns]]\ntext = "Yes."\n';
    await folder.write(`${AGENTS}/answers.toml`, script);
    await folder.write(`${FOREIGN}/answers.json`, '{"turns":[{"text":"Yes."}]}');
    await folder.write(`${AGENTS}/both.toml`, `agents = {}\n${script}`);
    await folder.write(`${AGENTS}/other.toml`, '[[turn]]\ntext = "Yes."\n');
    const listed = await open(folder).list(["files"]);
    assert.deepEqual(
      listed.map(({ name, problem }) => [name, problem === undefined]),
      [
        ["both.toml", false],
        ["other.toml", false],
      ],
    );
  });
});

describe("the path of an agent's file", () => {
  itIn("must be in a folder for agents, also after links are resolved", async (folder) => {
    const outside = await folder.write("home/secret.yaml", yaml());
    const inside = await folder.write(`${AGENTS}/real.yaml`, yaml());
    await mkdir(join(folder.root, FOREIGN), { recursive: true });
    await symlink(outside, join(folder.root, AGENTS, "link.yaml"));
    await symlink(dirname(outside), join(folder.root, AGENTS, "folder"));
    await symlink(inside, join(folder.root, FOREIGN, "into.yaml"));
    const library = open(folder);
    for (const text of [
      outside,
      "~/secret.yaml",
      `${AGENTS}/../../../secret.yaml`.replace("home", "~"),
      "../../../../secret.yaml",
      "./secret.yaml",
      "link.yaml",
      "~/.config/toolmux/agents/folder/secret.yaml",
      "folder/secret.yaml",
      "/etc/passwd",
      "/proc/self/environ.yaml",
      `${join(folder.root, AGENTS)}-2/x.yaml`,
    ]) {
      await assert.rejects(library.find(text), { code: "notTrusted" }, text);
    }
    // Whether there is such a file makes no difference.
    const messages = await Promise.all(
      [outside, outside.replace("secret", "nobody")].map((path) =>
        library.find(path).catch((error: unknown) => String(error).replace(path, "")),
      ),
    );
    assert.equal(messages[0], messages[1]);
    assert.equal(fileOf(await library.find("into.yaml")).source, inside);
  });

  itIn("may be relative without a dot in front, if it ends as agents' files do", async (folder) => {
    const toml = '[agents.w]\nmodel = "openai/x"\ninstruction = "I"\n';
    const library = open(folder, { paths: ["~/.cagent/agents", folder.cwd] });
    for (const [name, text] of [
      ["w.toml", toml],
      ["w.yaml", yaml()],
      ["w.yml", yaml()],
      ["w.json", JSON.stringify({ agents: { w: { model: "openai/x", instruction: "I" } } })],
    ] as const) {
      const path = await folder.write(`work/team/${name}`, text);
      assert.equal(fileOf(await library.find(`team/${name}`)).source, path);
    }
    for (const text of ["team/nobody.toml", "team/w"])
      await assert.rejects(library.find(text), { code: "agentNotFound" }, text);
    await folder.write("work/team/w.toml", toml);
    await assert.rejects(open(folder).find("team/w.toml"), { code: "notTrusted" });
  });

  itIn("must lead to a regular file of at most 1 MiB, with a known ending", async (folder) => {
    const library = open(folder);
    await folder.write(`${AGENTS}/a.txt`, yaml());
    await folder.write(`${AGENTS}/huge.yaml`, "#".repeat(1024 * 1024 + 1));
    await mkdir(join(folder.root, AGENTS, "folder.yaml"));
    execFileSync("mkfifo", [join(folder.root, AGENTS, "pipe.yaml")]);
    await symlink(join(folder.root, AGENTS, "a.txt"), join(folder.root, AGENTS, "b.yaml"));
    const { home } = folder;
    for (const name of ["a.txt", "huge.yaml", "folder.yaml", "pipe.yaml", "b.yaml"]) {
      const path = join(home, ".config/toolmux/agents", name);
      await assert.rejects(library.find(path), { code: "agentInvalid" }, name);
    }
    // A list names what is wrong with each of them, and ends.
    const listed = await library.list(["files"]);
    assert.deepEqual(
      listed.map(({ name, problem }) => [name, problem === undefined]),
      ["b.yaml", "folder.yaml", "huge.yaml", "pipe.yaml"].map((name) => [name, false]),
    );
  });

  itIn("of its instruction must be below the folder of the file", async (folder) => {
    const secret = await folder.write("home/.config/secret.md", "s3cret");
    await folder.write(`${AGENTS}/team/more.md`, "More.");
    await symlink(secret, join(folder.root, AGENTS, "team/link.md"));
    const library = open(folder, { paths: ["~/.config/toolmux/agents/team"] });
    for (const [path, isGood] of [
      ["more.md", true],
      ["./more.md", true],
      ["../../../secret.md", false],
      [secret, false],
      ["link.md", false],
      ["/dev/zero", false],
    ] as const) {
      await folder.write(`${AGENTS}/team/a.yaml`, yaml(`    instruction_file: ${path}\n`));
      const found = library.find("~/.config/toolmux/agents/team/a.yaml");
      if (isGood)
        assert.match(fileOf(await found).agents.get("root")?.spec.instruction ?? "", /More/);
      else await assert.rejects(found, { code: "agentInvalid" }, path);
    }
  });
});

describe("a file of agents", () => {
  itIn("is read again only after it, or its instruction, has changed", async (folder) => {
    const path = await folder.write(`${AGENTS}/a.yaml`, yaml("    instruction_file: a.md\n"));
    const near = await folder.write(`${AGENTS}/a.md`, "One.");
    const library = open(folder);
    const first = fileOf(await library.find("a.yaml"));
    assert.equal(fileOf(await library.find("a.yaml")), first);
    await writeFile(near, "Other.");
    const second = fileOf(await library.find("a.yaml"));
    assert.match(second.agents.get("root")?.spec.instruction ?? "", /Other/);
    // The same size and time, but another file.
    const { mtime, size } = await stat(path);
    const text = (await readFile(path, "utf8")).replace("Talks", "Sings");
    await writeFile(`${path}.new`, text);
    await utimes(`${path}.new`, mtime, mtime);
    await rename(`${path}.new`, path);
    assert.equal((await stat(path)).size, size);
    const third = fileOf(await library.find("a.yaml"));
    assert.equal(third.agents.get("root")?.spec.description, "Sings.");
  });

  itIn(
    "runs its commands only in the configuration folder, or when its content is trusted",
    async (folder) => {
      const library = open(folder);
      const serversOf = async (text: string): Promise<number> =>
        fileOf(await library.find(text)).servers.length;
      await folder.write(`${AGENTS}/own.yaml`, RUNS);
      const foreign = await folder.write(`${FOREIGN}/foreign.yaml`, RUNS);
      const state = stateFolder({ HOME: folder.home }, "linux");
      assert.equal(await serversOf("own.yaml"), 1);
      assert.equal(await serversOf("foreign.yaml"), 0);
      assert.equal(fileOf(await library.find("foreign.yaml")).forbiddenActions.length, 1);
      await folder.trust(foreign, state);
      assert.equal(await serversOf("foreign.yaml"), 1);
      await folder.write(`${FOREIGN}/foreign.yaml`, RUNS.replace("danger", "worse"));
      assert.equal(await serversOf("foreign.yaml"), 0);
      // A hard link or a link to it has its own path, or that of the file.
      await link(join(folder.root, AGENTS, "own.yaml"), join(folder.root, FOREIGN, "hard.yaml"));
      assert.equal(await serversOf("hard.yaml"), 0);
      const [first] = await library.list(["files"]);
      assert.equal(first?.trusted, true);
    },
  );

  itIn("from a registry runs its commands only when its digest is trusted", (folder) =>
    withOciRegistry(async (server) => {
      const library = open(folder);
      server.putAgent("team/tool", "latest", RUNS);
      const { digest } = await library.pull(`${server.host}/team/tool`, registry, NEVER);
      assert.equal(fileOf(await library.find("tool")).servers.length, 0);
      const state = stateFolder({ HOME: folder.home }, "linux");
      await trustDigest(digest, "tool", state);
      assert.equal(fileOf(await library.find("tool")).servers.length, 1);
      server.putAgent("team/tool", "latest", RUNS.replace("danger", "worse"));
      await library.pull(`${server.host}/team/tool`, registry, NEVER);
      assert.equal(fileOf(await library.find("tool")).servers.length, 0);
    }),
  );

  itIn(
    "that asks for what is not supported is refused if the manifest is strict",
    async (folder) => {
      await folder.write(`${AGENTS}/a.yaml`, yaml("    toolsets: [{type: shell}]\n"));
      assert.equal(fileOf(await open(folder).find("a.yaml")).unsupported.length, 1);
      const strict = open(folder, { strict: true }).find("a.yaml");
      await assert.rejects(strict, { code: "agentInvalid", message: /a\.yaml:6:23: / });
    },
  );

  itIn(
    "gets a shell, and allows its own calls, only after a person has seen what it may do, and until it changes",
    async (folder) => {
      const toolsets = new Map([
        [
          "filesystem",
          { entry: { command: "fs", args: ["${roots}"] }, roots: ["~/work"], baseDir: "/" },
        ],
        ["shell", { entry: { command: "sh-server" }, roots: ["x"], baseDir: "/base" }],
      ]);
      const text = yaml("    toolsets: [{type: shell}, {type: filesystem}]\n");
      const rules = `${text}permissions: {allow: [write_file]}\n`;
      const state = stateFolder({ HOME: folder.home }, "linux");
      for (const [place, isOwn] of [
        [AGENTS, true],
        [FOREIGN, false],
      ] as const) {
        const path = await folder.write(`${place}/a.yaml`, rules);
        const find = async (): Promise<AgentFile> =>
          fileOf(await open(folder, { toolsets }).find(path));
        const before = await find();
        assert.deepEqual(before.unsupported, []);
        assert.deepEqual(
          before.servers.map(({ name }) => name),
          isOwn ? ["filesystem"] : [],
        );
        assert.ok(before.forbiddenActions.some((what) => what.includes("shell")));
        assert.equal(before.allows, isOwn ? "readOnly" : undefined);
        await trust(path, new TextEncoder().encode(rules), state, { toolsets: {} });
        const after = await find();
        assert.deepEqual([after.forbiddenActions, after.allows], [[], "all"]);
        const [shell, files] = after.servers;
        assert.ok(shell?.kind === "stdio" && files?.kind === "stdio");
        assert.deepEqual([shell.cwd, files.args], ["/base/x", [join(folder.home, "work")]]);
        await folder.write(`${place}/a.yaml`, `${rules}# changed\n`);
        assert.ok((await find()).forbiddenActions.length > 0);
      }
    },
  );

  itIn("keeps the servers for its toolsets that a person has chosen", async (folder) => {
    const text = yaml("    toolsets: [{type: fetch}]\n");
    const path = await folder.write(`${FOREIGN}/a.yaml`, text);
    const find = async (): Promise<AgentFile> => fileOf(await open(folder).find(path));
    assert.equal((await find()).unsupported.length, 1);
    const state = stateFolder({ HOME: folder.home }, "linux");
    const bytes = new TextEncoder().encode(text);
    await trust(path, bytes, state, { toolsets: { fetch: { command: "web" } } });
    const [server] = (await find()).servers;
    assert.ok(server?.kind === "stdio" && server.command === "web");
    // Trusting another content keeps the choice.
    await folder.write(`${FOREIGN}/a.yaml`, `${text}# changed\n`);
    assert.equal((await find()).servers.length, 0);
    const changed = new TextEncoder().encode(`${text}# changed\n`);
    await trust(path, changed, state, { toolsets: undefined });
    assert.equal((await find()).servers.length, 1);
  });

  itIn("that is broken is listed with its problem, and its place", async (folder) => {
    const path = await folder.write(`${AGENTS}/bad.yaml`, "agents: [\n");
    const [own, bad] = await open(folder).list(["manifest", "files"]);
    assert.equal(own?.spec, "own");
    assert.ok((bad?.problem ?? "").startsWith(`${path}:2:1: `));
  });
});

describe("a pulled agent", () => {
  itIn(
    "comes only from registries that the manifest allows, and only if it can be read",
    (folder) =>
      withOciRegistry(async (server) => {
        const reference = `${server.host}/team/pirate`;
        const library = open(folder, { registries: ["ghcr.io"] });
        await assert.rejects(library.pull(reference, registry, NEVER), { code: "notTrusted" });
        assert.equal(server.requests.length, 0);
        await open(folder, { registries: [server.host] }).pull(reference, registry, NEVER);
        server.putAgent("team/bad", "latest", "agents: [");
        const bad = open(folder).pull(`${server.host}/team/bad`, registry, NEVER);
        await assert.rejects(bad, { code: "agentInvalid" });
        assert.equal((await open(folder).store.list()).length, 1);
      }),
  );
});

describe("an agent of a client", () => {
  const models = new Map([
    ["m", makeModelSpec({ name: "m", provider: "openai", model: "x", baseDir: "/" })],
  ]);
  const good = { model: "m", instruction: "Do ${env:HOME}.", tools: { servers: ["git"] } };

  itIn("may name models and tools of the manifest, and lower its limits", () => {
    const agent = readInlineAgent({ ...good, maxTurns: 3, timeout: "5s" }, { models });
    assert.deepEqual([agent.maxTurns, agent.timeout, agent.maxToolCalls], [3, 5000, 200]);
    assert.equal(agent.instruction, good.instruction);
    assert.equal(agent.expose, "auto");
    assert.equal(readInlineAgent({ ...good, expose: "search" }, { models }).expose, "search");
    return Promise.resolve();
  });

  for (const [what, config] of [
    ["a model that the manifest does not have", { ...good, model: "openai/x" }],
    ["no instruction", { model: "m" }],
    ["more turns", { ...good, maxTurns: 51 }],
    ["more time", { ...good, timeout: "11m" }],
    ["a pattern", { ...good, tools: { not: { pattern: "(a+)+" } } }],
    ["a file", { ...good, instructionFile: "/etc/passwd" }],
    ["a command", { ...good, toolsets: [{ type: "mcp", command: "sh" }] }],
    ["agents", { ...good, allowAgents: true }],
    ["an exposure that agents do not have", { ...good, expose: "select" }],
    ["no approval", { ...good, approval: "never" }],
    ["a list", [good]],
    ["nothing", null],
  ] as const) {
    itIn(`is refused with ${what}`, () => {
      assert.throws(() => readInlineAgent(config, { models }), { code: "agentInvalid" });
      return Promise.resolve();
    });
  }
});
